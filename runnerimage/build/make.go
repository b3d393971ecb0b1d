package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// The aim for the compressed size, in bytes, of an image on nothing with OpenTofu alone.
const sizeAim = 60_000_000

const workDir = "dayfly/work"

// have are the parts of the image from the base and EXTRA.
type have struct {
	extra     []layers.Entry
	extraTree *layers.Tree
	base      v1.Image
	baseTree  *layers.Tree
	baseName  string
}

// owner says whether EXTRA or the base has a path, or returns "".
func (h have) owner(path string) string {
	if _, ok := h.extraTree.Resolve(path); ok {
		return "EXTRA"
	}
	if _, ok := h.baseTree.Resolve(path); ok {
		return h.baseName
	}
	return ""
}

// program returns the path of a program that EXTRA or the base has, and its owner.
func (h have) program(name string) (owner, path string) {
	if p := h.extraTree.Find(name); p != "" {
		return "EXTRA", p
	}
	if p := h.baseTree.Find(name); p != "" {
		return h.baseName, p
	}
	return "", ""
}

// files returns the content of files that EXTRA or the base has.
func (h have) files(paths ...string) (map[string][]byte, error) {
	got, err := h.baseTree.Files(h.base, paths...)
	if err != nil {
		return nil, err
	}
	for _, e := range h.extra {
		if p := "/" + e.Path; e.From != "" && slices.Contains(paths, p) {
			if got[p], err = os.ReadFile(e.From); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

func (c config) look(ctx context.Context) (have, error) {
	h := have{baseName: "the base", extraTree: layers.NewTree()}
	var err error
	if h.base, err = layers.Open(ctx, c.base, c.arch); err != nil {
		return h, err
	}
	if h.baseTree, err = layers.Read(h.base); err != nil || c.extra == "" {
		return h, err
	}
	if h.extra, err = tree(c.extra, ""); err != nil {
		return h, fmt.Errorf("read EXTRA: %w", err)
	}
	_, err = h.extraTree.Place(h.extra)
	return h, err
}

// composed is an image and its description.
type composed struct {
	img  v1.Image
	said []string
}

func makeImage(ctx context.Context, c config, out io.Writer) error {
	if err := os.MkdirAll(".cache", 0o755); err != nil { //nolint:gosec // G301: it also has programs that other users run
		return err
	}
	temp, err := os.MkdirTemp(".cache", "image.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if temp, err = filepath.Abs(temp); err != nil {
		return err
	}
	made, err := c.compose(ctx, temp)
	if err != nil {
		return err
	}
	lacks, err := layers.Missing(made.img, c.arch, append([]string{"/bin/sh", "/" + runnerPath, "/" + policyPath, "terraform|tofu"}, c.require...)...)
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		return fmt.Errorf("the image is not made: %s; put it into EXTRA, or name a BASE that has it", strings.Join(lacks, "; "))
	}
	digest, err := made.img.Digest()
	if err != nil {
		return err
	}
	id, err := made.img.ConfigName()
	if err != nil {
		return err
	}
	size, err := layers.Size(made.img)
	if err != nil {
		return err
	}
	aim := "met"
	if size > sizeAim {
		aim = "aim missed"
	}
	fmt.Fprintf(out, "image %s for %s: %s\n", c.image, c.arch, strings.Join(made.said, ", "))
	fmt.Fprintf(out, "digest %s, id %s\n", digest, id)
	fmt.Fprintf(out, "compressed %.1f MB; the aim with OpenTofu alone is at most %d MB: %s\n", float64(size)/1e6, sizeAim/1_000_000, aim)
	return c.deliver(ctx, made.img, temp, out)
}

// compose finds the parts of the image and writes its layers.
func (c config) compose(ctx context.Context, temp string) (composed, error) {
	var made composed
	has, err := c.look(ctx)
	if err != nil {
		return made, err
	}
	engine, engineSaid, err := c.findEngine(ctx, has)
	if err != nil {
		return made, err
	}
	shell, shellSaid, err := c.findShell(ctx, has, temp)
	if err != nil {
		return made, err
	}
	system, caSaid, err := c.system(has)
	if err != nil {
		return made, err
	}
	providers := "none"
	if c.providers != "" {
		dir := filepath.Join(temp, "plugins")
		if _, err := c.run(ctx, nil, "scripts/mirror-providers", c.providers, dir, c.arch); err != nil {
			return made, fmt.Errorf("PROVIDERS: %w", err)
		}
		plugins, err := tree(dir, pluginsPath)
		if err != nil {
			return made, err
		}
		engine, providers = append(engine, plugins...), "those of "+c.providers
	}
	runner, err := c.own(ctx, temp, "runnerimage", runnerPath)
	if err != nil {
		return made, err
	}
	policies, err := c.own(ctx, temp, "cmd/dayfly-policy", policyPath)
	if err != nil {
		return made, err
	}
	img, err := layers.Append(has.base, []layers.Layer{
		{Name: "system", Entries: append(system, shell...)},
		{Name: "engine", Entries: engine},
		{Name: "runner", Entries: []layers.Entry{runner, policies, license("LICENSE"), license("THIRD_PARTY_LICENSES.txt")}},
		{Name: "extra", Entries: slices.DeleteFunc(has.extra, func(e layers.Entry) bool {
			return slices.ContainsFunc(system, func(s layers.Entry) bool { return s.Path == e.Path && !s.Dir }) // it is in there
		})},
	}, c.created)
	if err != nil {
		return made, err
	}
	git := "none, so engines cannot fetch modules from git:: addresses (sources of workspaces need none)"
	if owner, _ := has.program("git"); owner != "" {
		git = "that of " + owner
	}
	base := "nothing"
	if c.base != "" {
		base = c.base
	}
	made.said = []string{"base " + base, "engine " + engineSaid, "shell " + shellSaid, "CA certificates " + caSaid, "providers " + providers, "git " + git}
	made.img, err = c.configured(img)
	return made, err
}

// system are the files that every image needs: a user, CA certificates, and directories to write to.
func (c config) system(has have) (entries []layers.Entry, said string, err error) {
	bundle := has.baseTree.Bundle()
	if _, ok := has.extraTree.Resolve(has.extraTree.Bundle()); ok {
		bundle = has.extraTree.Bundle()
	}
	const users, groups = "/etc/passwd", "/etc/group"
	files, err := has.files(bundle, users, groups)
	if err != nil {
		return nil, "", err
	}
	trusted, said := files[bundle], "of "+has.owner(bundle)
	if len(layers.Certificates(trusted)) == 0 {
		var version string
		trusted, version = layers.Mozilla()
		said = "of Mozilla (x509roots " + version + ")"
	}
	if len(c.authority) > 0 {
		trusted, said = slices.Concat(bytes.TrimRight(trusted, "\n"), []byte("\n"), c.authority), said+" and EXTRA_CA"
	}
	said = fmt.Sprintf("%s: %d", said, len(layers.Certificates(trusted)))
	named := func(file, root, line string) layers.Entry {
		had := files[file]
		if len(had) == 0 {
			had = []byte(root)
		}
		id := fmt.Sprintf(":x:%d:", docker.DefaultUID)
		if !bytes.Contains(had, []byte(id)) {
			had = slices.Concat(bytes.TrimRight(had, "\n"), []byte("\nrunner"+id+line+"\n"))
		}
		return layers.Entry{Path: strings.TrimPrefix(file, "/"), Mode: layers.Plain, Data: had}
	}
	return []layers.Entry{
		{Path: strings.TrimPrefix(bundle, "/"), Mode: layers.Plain, Data: trusted},
		named(users, "root:x:0:0:root:/:/bin/sh\n", fmt.Sprintf("%d:runner:/%s:/bin/sh", docker.DefaultUID, workDir)),
		named(groups, "root:x:0:\n", ""),
		{Path: "tmp", Dir: true, Mode: layers.Shared},
		// Fargate gives a volume the owner that its directory has here, but only if the image names it as a volume.
		{Path: workDir, Dir: true, Mode: 0o700, User: docker.DefaultUID},
	}, said, nil
}

// configured gives an image its user, its environment and its labels.
func (c config) configured(img v1.Image) (v1.Image, error) {
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.Author = v1.Time{Time: c.created}, ""
	file.Architecture, file.OS = c.arch, "linux"
	is := &file.Config
	is.User = fmt.Sprintf("%d:%[1]d", docker.DefaultUID)
	is.Entrypoint, is.Cmd = []string{"/" + runnerPath}, nil
	// With a read-only root, a task can write only to these two.
	is.Volumes = map[string]struct{}{"/" + workDir: {}, "/tmp": {}}
	is.Env = append(slices.DeleteFunc(is.Env, func(e string) bool {
		return strings.HasPrefix(e, "PATH=") || strings.HasPrefix(e, task.Name("WorkDir")+"=")
	}), "PATH="+layers.Path, task.Name("WorkDir")+"=/"+workDir)
	is.Labels = map[string]string{
		"dev.dayfly.version":                 c.version,
		"org.opencontainers.image.title":     "dayfly-runner",
		"org.opencontainers.image.version":   c.version,
		"org.opencontainers.image.source":    "https://github.com/dayfly-dev/dayfly",
		"org.opencontainers.image.created":   c.created.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.base.name": "scratch",
	}
	if c.revision != "" {
		is.Labels["org.opencontainers.image.revision"] = c.revision
	}
	if c.base != "" {
		ref, digest, _ := strings.Cut(c.base, "@")
		is.Labels["org.opencontainers.image.base.name"], is.Labels["org.opencontainers.image.base.digest"] = filepath.Base(ref), digest
		if !strings.HasPrefix(ref, ".") && !strings.HasPrefix(ref, "/") {
			is.Labels["org.opencontainers.image.base.name"] = ref
		}
	}
	return mutate.ConfigFile(img, file)
}

var errNoEngine = errors.New("no Docker engine answers: set OUTPUT=FILE.tar, or PUSH=1 to push without one")
