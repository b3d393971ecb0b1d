package embedded

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Time limits of making an image.
const (
	listTime  = 10 * time.Second // for busybox to list its programs
	buildTime = 5 * time.Minute  // for the engine to build
)

// runnerInImage is the path of this program in an image that is made here.
const runnerInImage = "/usr/local/bin/dayfly"

// certificates are the files in which systems keep their CA certificates. The first that exists goes into an image,
// under the first name. They are this machine's on purpose: the image stays here, and a job in it trusts the same
// certificates as a job that is a process here. make image, whose images travel, takes none from its machine.
var certificates = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// composeImage describes the image of container jobs that this machine can make: this program as the runner, and an
// engine and busybox from the path. All must be statically linked, because the image has no libraries. The error
// names the missing part.
func composeImage(ctx context.Context, tag, program, searched string) (image docker.Image, said string, err error) {
	refuse := func(format string, args ...any) (docker.Image, string, error) {
		return docker.Image{}, "", workflow.Refuse(workflow.ErrNotFound, "runner_image",
			"there is no image %s, and it cannot be made here: "+format, append([]any{tag}, args...)...)
	}
	if runtime.GOOS != "linux" {
		return refuse("this system is not Linux; make image builds it")
	}
	if !isStatic(program) {
		return refuse("this program is not statically linked; build it with CGO_ENABLED=0, or use make image")
	}
	engine := findStatic(searched, "terraform", "tofu")
	if engine == "" {
		return refuse("PATH has no statically linked terraform or tofu; make image builds an image with one")
	}
	shell := findStatic(searched, "busybox")
	if shell == "" {
		return refuse("PATH has no statically linked busybox (Debian and Ubuntu: apt-get install busybox-static); make image builds an image with one")
	}
	listing, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	applets, err := exec.CommandContext(listing, shell, "--list").Output()
	if err != nil {
		return refuse("%s --list fails: %v", shell, err)
	}
	image = docker.Image{
		Tag: tag, Path: "/usr/local/bin:/usr/bin:/bin", Entrypoint: []string{runnerInImage, "runner"}, Links: map[string]string{},
		Files: []docker.File{
			{From: program, To: runnerInImage},
			{From: engine, To: "/usr/local/bin/" + filepath.Base(engine)},
			{From: shell, To: "/bin/busybox"},
		},
		Labels: map[string]string{"dev.dayfly.made-by": "deploy_target auto"},
	}
	for _, name := range strings.Fields(string(applets)) {
		if name != "busybox" && name == path.Base(name) {
			image.Links["/bin/"+name] = "busybox"
		}
	}
	said = fmt.Sprintf("made of this program, %s and %s", engine, shell)
	for _, file := range certificates {
		if _, err := os.Stat(file); err == nil {
			image.Files = append(image.Files, docker.File{From: file, To: certificates[0]})
			return image, said, nil
		}
	}
	return image, said + "; without CA certificates, because this machine has none", nil
}

// makeImage makes the image of container jobs.
func makeImage(ctx context.Context, socket, tag, searched string) (said string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	image, said, err := composeImage(ctx, tag, program, searched)
	if err != nil {
		return "", err
	}
	building, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	return said, docker.Build(building, socket, image)
}

// findStatic returns the first statically linked program of these names in a list of directories, or "".
func findStatic(searched string, names ...string) string {
	for _, name := range names {
		for _, dir := range filepath.SplitList(searched) {
			file := filepath.Join(dir, name)
			if filepath.IsAbs(file) && isStatic(file) {
				return file
			}
		}
	}
	return ""
}

// isStatic reports whether a file is a program for this machine that needs no other file to run: it names no loader.
// (The scripts of version managers, which pick a version, are not.)
func isStatic(file string) bool {
	f, err := os.Open(file) //nolint:gosec // a program on the PATH of this process's user
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return false
	}
	program, err := elf.NewFile(f)
	if err != nil || program.Machine != machines[runtime.GOARCH] {
		return false
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
