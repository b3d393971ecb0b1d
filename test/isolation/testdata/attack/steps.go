package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The values of secrets that a step has and others have not. In the log they are masked.
const (
	ofApply   = "value-for-the-step-apply"
	ofInit    = "value-for-modules-in-init"
	ofEvery   = "value-for-every-step"
	moduleVar = "TF_TOKEN_modules_example_com"
)

// allowed is what a hook runs that the pool allows, and another is what none may.
func allowed(int, []string) { fmt.Println("the allowed hook ran") }
func another(int, []string) { tried("run another hook than the allowed ones", true, "it ran") }

// inTemp is a file in the job's directory for temporary files, through which its processes talk.
func inTemp(name string) string { return filepath.Join(os.Getenv("TMPDIR"), name) }

// detach leaves a process in a session of its own, with files open, and waits until it says that it is there.
func detach(name string, files []*os.File, args ...string) {
	self, _ := os.Executable()
	cmd := exec.Command(self, args...)
	cmd.Env = []string{"TMPDIR=" + os.Getenv("TMPDIR"), "DAYFLY_SECRETS_DIR=" + os.Getenv("DAYFLY_SECRETS_DIR")}
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "nothing is left:", err)
		return
	}
	for range 5000 {
		if _, err := os.Stat(inTemp(name)); err == nil {
			fmt.Fprintln(os.Stderr, "left:", name)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// here says that a process is there, and which.
func here(name string) { _ = os.WriteFile(inTemp(name), []byte(strconv.Itoa(os.Getpid())), 0o600) }

// failing fails, and leaves a process that puts another script in the place of each hook's.
func failing(int, []string) {
	detach("replacer", nil, "replace")
	fmt.Println("the command fails")
	os.Exit(7)
}

func replace(int, []string) {
	here("replacer")
	script := []byte("./attack another\n")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		hooks, _ := filepath.Glob(inTemp("hook-*.sh"))
		for _, path := range hooks {
			_ = os.WriteFile(path, script, 0o600)
			_ = os.WriteFile(inTemp("new"), script, 0o600)
			_ = os.Rename(inTemp("new"), path)
		}
	}
}

// stepwise is a step of the engine, in a workspace where some steps have secrets that others have not.
func stepwise(step string) {
	os.Args[1] = "steps"
	secretsDir := os.Getenv("DAYFLY_SECRETS_DIR")
	switch step {
	case "init":
		fmt.Println("init has its own:", os.Getenv(moduleVar) == ofInit && holds(filesBelow(jobDirs()...), ofInit))
		var open []*os.File
		for i, path := range filesBelow(secretsDir, filepath.Join(filepath.Dir(secretsDir), "modules")) {
			fmt.Println("linked:", filepath.Base(path), os.Link(path, inTemp("linked-"+strconv.Itoa(i))))
			if f, err := os.Open(path); err == nil {
				open = append(open, f)
			}
		}
		detach("keeper", open, "keep")
	case "plan":
		fmt.Println("plan has its own:", holds(filesBelow(secretsDir), ofEvery))
		tried("read the variable of another step", os.Getenv("LATER") != "" || os.Getenv(moduleVar) != "", "")
		kept, _ := filepath.Glob(inTemp("linked-*"))
		tried("read files of init by a second name", len(kept) != 2 || holds(kept, ofEvery, ofInit), fmt.Sprintf("%d names", len(kept)))
		pid, _ := os.ReadFile(inTemp("keeper"))
		open, _ := filepath.Glob("/proc/" + string(pid) + "/fd/[3-4]")
		tried("read files of init by a descriptor that was left open", len(open) != 2 || holds(open, ofEvery, ofInit), fmt.Sprintf("%d descriptors", len(open)))
		tried("find the secrets of other steps in the work directory", holds(filesBelow(jobDirs()...), ofApply, ofInit), "")
		seen, _ := filepath.Glob("/proc/[0-9]*/environ")
		more, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		tried("find the secrets of other steps in processes", holds(append(seen, regular(more)...), ofApply, ofInit), fmt.Sprintf("%d processes", len(seen)))
		detach("watcher", nil, "watch")
	case "apply":
		fmt.Println("apply has its own:", os.Getenv("LATER") == ofApply && holds(filesBelow(secretsDir), ofApply))
		tried("read credentials for modules after init", os.Getenv(moduleVar) != "" || holds(filesBelow(jobDirs()...), ofInit), "")
		time.Sleep(500 * time.Millisecond) // for who watches
		_, err := os.Stat(inTemp("watched"))
		tried("get the secrets of apply by a process that plan left", err == nil, err)
		pid, _ := os.ReadFile(inTemp("watcher"))
		_, err = os.Stat("/proc/" + string(pid))
		tried("be there still as a process that plan left", err == nil, err)
	}
}

// keep holds its descriptors open.
func keep(int, []string) {
	here("keeper")
	wait(0, nil)
}

// watch looks for the secrets of apply until it has them.
func watch(int, []string) {
	here("watcher")
	dir := os.Getenv("DAYFLY_SECRETS_DIR")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		if holds(append(filesBelow(dir), environs...), ofApply) {
			_ = os.WriteFile(inTemp("watched"), nil, 0o600)
		}
	}
}

// jobDirs are the directories of the job: it may be unable to list what is around them.
func jobDirs() []string {
	secrets := os.Getenv("DAYFLY_SECRETS_DIR")
	work := filepath.Dir(secrets)
	return []string{secrets, filepath.Join(work, "modules"), os.Getenv("TMPDIR"), os.Getenv("HOME"), os.Getenv("DAYFLY_ARTIFACTS"), ".", work}
}

// filesBelow are the files in directories.
func filesBelow(dirs ...string) (out []string) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, "/attack") {
				out = append(out, path)
			}
			return nil
		})
	}
	return out
}

// regular are those of the paths that lead to files: to read of others may block.
func regular(paths []string) (out []string) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
			out = append(out, path)
		}
	}
	return out
}

// holds reports whether one of the files has one of the values.
func holds(paths []string, values ...string) bool {
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		for _, v := range values {
			if bytes.Contains(b, []byte(v)) {
				return true
			}
		}
	}
	return false
}
