// Command attack is workflow code that wants to be its runner, another job, or the machine. It prints a line
// "tried WAY: WHAT: held" for each single attempt, or "BREACH" for what it got that it must not have, with what it was
// told. It exits with 0 either way.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

var ways = map[string]func(runner int, args []string){
	"environ": environ, "mem": mem, "fds": fds, "ptrace": ptrace, "userns": userns, "core": core, "prlimit": prlimit, "signals": signals,
	"ticket": ticket, "relay": relay, "connections": connections, "others": others, "private": private, "inherited": inherited, "planted": planted,
	"setuid": setuid, "mounts": mounts, "outside": outside, "symlinks": symlinks, "hardlink": hardlink, "leave": leave, "tools": tools, "leftovers": leftovers, "poison": poison,
	"escape": escape, "stray": stray, "swarm": swarm, "masks": masks, "posing": posing,
	"artifacts": artifacts, "report": report, "swap": swap, "rules": rewriteRules,
	"allowed": allowed, "another": another, "failing": failing, "replace": replace, "keep": keep, "watch": watch,
	"wait": wait, "whoami": whoami, "once": once, "count": count, "say": say,
}

func main() {
	if filepath.Base(os.Args[0]) == "sh" {
		shell()
	}
	switch filepath.Base(os.Args[0]) {
	case "terraform":
		engine()
	case "pulumi":
		pulumi()
	case "terragrunt":
		terragrunt()
	}
	way, ok := ways[os.Args[1]]
	if !ok {
		tried("find the attack", true, "there is none")
		os.Exit(3)
	}
	way(runner(), os.Args[2:])
}

// tried says what came of a single attempt. detail tells why, if it is not nil.
func tried(what string, breach bool, detail any) {
	outcome := "held"
	if breach {
		outcome = "BREACH"
	}
	if detail != nil && detail != "" {
		outcome += fmt.Sprintf(" (%v)", detail)
	}
	fmt.Printf("tried %s: %s: %s\n", os.Args[1], what, strings.ReplaceAll(outcome, "\n", "; "))
}

// must is tried for what an error holds.
func must(what string, err error) { tried(what, err == nil, err) }

func second(_ any, err error) error { return err }

// shell is as much of a shell as a script of one command needs, for an image that has none.
func shell() {
	script, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		os.Exit(127)
	}
	words := strings.Fields(os.ExpandEnv(string(script)))
	_ = syscall.Exec(words[0], words, os.Environ())
	os.Exit(126)
}

// runner is the process that started the engine: the first process, or the nearest above that belongs
// to somebody else.
func runner() int {
	if v := os.Getenv("RUNNER_PID"); v != "" {
		n, _ := strconv.Atoi(v)
		return n
	}
	pid := os.Getppid()
	for pid > 1 {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		uid, parent := field(status, "Uid:"), field(status, "PPid:")
		if uid != strconv.Itoa(os.Getuid()) {
			return pid
		}
		pid, _ = strconv.Atoi(parent)
	}
	return 1
}

func field(status []byte, name string) string {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	f := strings.Fields(string(rest))
	if len(f) == 0 {
		return ""
	}
	return f[0]
}
