package main

import (
	"os"
	"path/filepath"
	"strconv"
)

// tools tries to replace a downloaded engine, which must be readable for it.
func tools(_ int, args []string) {
	path := args[0]
	version := filepath.Dir(path)
	all := filepath.Dir(version)
	own := "own-engine"
	must("write its own engine", os.WriteFile(filepath.Join(all, own), []byte("evil"), 0o755))
	if err := os.WriteFile(own, []byte("evil"), 0o755); err != nil {
		tried("prepare an engine of its own", true, err)
	}
	if _, err := os.ReadFile(path); err != nil {
		tried("read the engine, as every job may", true, err)
	}
	must("write to the engine", second(os.OpenFile(path, os.O_WRONLY, 0)))
	must("cut the engine", os.Truncate(path, 0))
	must("make the engine writable", os.Chmod(path, 0o777))
	must("own the engine", os.Chown(path, os.Getuid(), os.Getgid()))
	must("remove the engine", os.Remove(path))
	must("put another engine into its place", os.Rename(own, path))
	must("link another engine into its place", os.Symlink("/bin/sh", filepath.Join(version, "terraform.new")))
	must("move the version away", os.Rename(version, version+".old"))
	must("make the version writable", os.Chmod(version, 0o777))
	for n := range 2 {
		must("add a higher version", os.Mkdir(filepath.Join(all, "99."+strconv.Itoa(n)+".0"), 0o755))
	}
	must("take the lock of a download", os.WriteFile(filepath.Join(all, ".lock-9.9.9"), nil, 0o600))
	must("move the cache away", os.Rename(filepath.Dir(all), filepath.Dir(all)+".old"))
}
