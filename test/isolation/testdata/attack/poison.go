package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// poison tries to change the cache of providers, which must be readable for it, and leaves for it, where it can, what
// must not get into it. The arguments are the directory of a package there and a file of root.
func poison(_ int, args []string) {
	path, precious := args[0], args[1]
	program := filepath.Join(path, providerName)
	packages := filepath.Dir(path)
	cache := filepath.Dir(packages)
	if _, err := os.ReadFile(program); err != nil {
		tried("read a provider, as every job may", true, err)
	}
	own := "own-provider"
	if err := os.WriteFile(own, []byte("evil"), 0o755); err != nil {
		tried("prepare a provider of its own", true, err)
	}
	must("write to the provider", second(os.OpenFile(program, os.O_WRONLY, 0)))
	must("cut the provider", os.Truncate(program, 0))
	must("make the provider writable", os.Chmod(program, 0o777))
	must("own the provider", os.Chown(program, os.Getuid(), os.Getgid()))
	must("remove the provider", os.Remove(program))
	must("put another provider into its place", os.Rename(own, program))
	must("add a file to the package", os.WriteFile(filepath.Join(path, "terraform-provider-one_v9"), nil, 0o755))
	must("move the package away", os.Rename(path, path+".old"))
	must("link to the package's file", os.Link(program, "linked"))
	must("add a package", os.Mkdir(filepath.Join(packages, strings.Repeat("ef", 32)), 0o755))
	index, err := os.ReadDir(filepath.Join(cache, "index"))
	if err != nil || len(index) != 1 {
		tried("read the index, as every job may", true, err)
	}
	names := filepath.Join(cache, "index", index[0].Name())
	must("add a name to the index", os.WriteFile(filepath.Join(names, strings.Repeat("ef", 32)), []byte("1\n"), 0o644))
	must("remove a name from the index", os.Remove(filepath.Join(names, filepath.Base(path))))
	must("move the cache away", os.Rename(cache, cache+".old"))
	// Where the runner has another user, only it can leave something. A job whose runner has its own user may try.
	left := filepath.Join(filepath.Dir(os.Getenv("DAYFLY_ARTIFACTS")), "providers")
	if err := os.Mkdir(left, 0o700); err != nil {
		tried("leave something for the cache itself", false, err)
		return
	}
	tried("leave something for the cache itself", false, os.Symlink("/dev/zero", filepath.Join(left, "used")))
	evil(filepath.Join(left, "packages"), precious)
}

// providerName is a provider's program, in evil packages too.
const providerName = "terraform-provider-one_v1.0.0"

// poisonInstalled does as if it were an engine that has installed providers. What it installed is the worst that it can
// be; kind says how. The victim's lock file names what is there by its right hash.
func poisonInstalled(kind string) {
	kind, precious, _ := strings.Cut(kind, " ")
	installed := filepath.Join(os.Getenv("TF_DATA_DIR"), "providers")
	os.Args[1] = "poison"
	// The cache does not have what the lock file names now, so the runner leaves it.
	const lock = ".terraform.lock.hcl"
	b, _ := os.ReadFile(lock)
	tried("change the lock file", false, errors.Join(os.Remove(lock), os.WriteFile(lock, regexp.MustCompile(`h1:[^"]*`).ReplaceAll(b, []byte("h1:"+strings.Repeat("A", 43)+"=")), 0o600)))
	switch kind {
	case "tree":
		evil(installed, precious)
	case "many":
		many := filepath.Join(installed, "registry.example.com/tests/one/1.0.0", platform())
		err := os.MkdirAll(many, 0o700)
		for i := 0; i < 20_000 && err == nil; i++ {
			err = os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o600)
		}
		tried("leave 20000 files", false, err)
	case "link":
		tried("put a link in place of what it installed", false, os.Symlink(filepath.Dir(precious), installed))
	}
}

// evil makes packages that must not get into the cache as they are.
func evil(packages, precious string) {
	make := func(version string) string {
		dir := filepath.Join(packages, "registry.example.com/tests/one", version, platform())
		_ = os.MkdirAll(dir, 0o700)
		return dir
	}
	self, _ := os.ReadFile("/proc/self/exe")
	// The name and version of the victim's provider, with another content, and one that is no program.
	tried("leave another content under a right name", false, os.WriteFile(filepath.Join(make("1.0.0"), providerName), append(self, "evil"...), 0o777))
	tried("leave a script", false, os.WriteFile(filepath.Join(make("1.0.1"), providerName), []byte("#!/bin/sh\n"), 0o777))
	links := make("1.0.2")
	_ = os.WriteFile(filepath.Join(links, providerName), self, 0o700)
	tried("leave a link out of it", false, os.Symlink(precious, filepath.Join(links, "link")))
	named := make("1.0.3")
	_ = os.WriteFile(filepath.Join(named, providerName), self, 0o700)
	tried("leave a second name of a file of root", false, os.Link(precious, filepath.Join(named, "name")))
	pipe := make("1.0.4")
	_ = os.WriteFile(filepath.Join(pipe, providerName), self, 0o700)
	tried("leave a pipe", false, syscall.Mkfifo(filepath.Join(pipe, "pipe"), 0o600))
	endless := make("1.0.5")
	_ = os.WriteFile(filepath.Join(endless, providerName), self, 0o700)
	tried("leave a file without end", false, os.Truncate(filepath.Join(endless, providerName), 1<<40))
	tried("leave a link in place of a version", false, os.Symlink(filepath.Dir(precious), filepath.Join(filepath.Dir(filepath.Dir(pipe)), "1.0.6")))
}

// platform is what the source says that it is.
func platform() string {
	b, _ := os.ReadFile("platform")
	return string(b)
}
