package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// shell runs a script in a real shell, where dayfly is this program.
func (w *world) shell(name, script string) string {
	w.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		w.t.Skipf("%s is not installed", name)
	}
	bin := w.t.TempDir()
	program := fmt.Sprintf("#!/bin/sh\nexec env %s %s=1 %s \"$@\"\n", noWait, asProgram, os.Args[0])
	if err := os.WriteFile(filepath.Join(bin, "dayfly"), []byte(program), 0o700); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), path, "-c", script)
	cmd.Dir = bin
	for key, value := range w.env {
		if key == "PATH" {
			value = bin + ":" + value
		}
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func completing(t *testing.T) (w *world, id string) {
	w = newWorld(t)
	w.workspace("network")
	w.workspace("storage")
	w.ok("pool", "create", "build")
	w.ok("project", "create", "payments")
	return w, strings.TrimSpace(w.ok("run", "network"))
}

func TestComplete_CommandsFlagsValuesIDsAndNames(t *testing.T) {
	w, id := completing(t)
	for _, tc := range []struct {
		line []string
		want string
	}{
		{[]string{"workf"}, "workflow"},
		{[]string{"wf", "lo"}, "logs"},
		{[]string{"pool", "up"}, "update"},
		{[]string{"run", "x", "--fo"}, "--follow"},
		{[]string{"run", "--op", "re"}, "refresh"},
		{[]string{"run", "--op=re"}, "--op=refresh"},
		{[]string{"run", "--op", "=", "re"}, "refresh"}, // as bash splits it
		{[]string{"-o", "ya"}, "yaml"},
		{[]string{"run", ""}, "network storage"},
		{[]string{"run", "--op", "scan", "ne"}, "network"},
		{[]string{"run", "network", ""}, ""},
		{[]string{"run", "./"}, ""},
		{[]string{"workflow", "show", ""}, id},
		{[]string{"why", ""}, id},
		{[]string{"artifact", "get", ""}, id},
		{[]string{"workflow", "list", "-w", "st"}, "storage"},
		{[]string{"workflow", "list", "--state", "pen"}, "pending"},
		{[]string{"ws", "show", ""}, "network storage"},
		{[]string{"takeover", "report", "network", "s"}, "storage"},
		{[]string{"pool", "show", ""}, "default build"},
		{[]string{"pool", "create", ""}, ""},
		{[]string{"pool", "assign", "build", "--project", "p"}, "payments"},
		{[]string{"organization", "update", "--default-pool", "b"}, "build"},
		{[]string{"project", "delete", "pay"}, "payments"},
		{[]string{"apply", "-f", ""}, ""},
		{[]string{"nonsense", "x"}, ""},
	} {
		var words []string
		for line := range strings.Lines(w.ok(append([]string{completeCommand}, tc.line...)...)) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			words = append(words, word)
		}
		if got := strings.Join(words, " "); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.line, got, tc.want)
		}
	}
	if got := w.ok(completeCommand, "why", ""); !strings.Contains(got, "\tpending, preview of network\n") {
		t.Errorf("got %q, want the state and the title", got)
	}
}

func TestComplete_SaysNothingWithoutAControlPlane(t *testing.T) {
	w := newWorld(t)
	for _, address := range []string{"", "http://127.0.0.1:1", "ftp://x"} {
		w.env["DAYFLY_URL"] = address
		began := time.Now()
		if got := w.run(completeCommand, "why", ""); got.stdout+got.stderr != "" || got.code != cli.ExitOK || time.Since(began) > 5*completeWait {
			t.Errorf("%q: got %+v after %s", address, got, time.Since(began))
		}
	}
}

func TestCompletion_InBash(t *testing.T) {
	w, id := completing(t)
	const try = `source <(dayfly completion bash)
complete -p dayfly
ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dayfly; echo "[${COMPREPLY[*]}]"; }
ask dayfly wo; ask dayfly why ''; ask dayfly run --op = up; ask dayfly run x --fol; ask dayfly run ./`
	want := "complete -o default -F _dayfly dayfly\n[workflow workspace]\n[" + id + "]\n[update]\n[--follow]\n[]\n"
	if got := w.shell("bash", try); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The functions of zsh's completion system work in a widget only: those that the script calls print their arguments
// here.
func TestCompletion_InZsh(t *testing.T) {
	w, id := completing(t)
	const try = `compdef() { echo "compdef $*" }; compadd() { echo "$words_ | $about" }; _files() { echo files }
source <(dayfly completion zsh)
ask() { words=("$@"); CURRENT=$#; _dayfly }
ask dayfly wh; ask dayfly why ''; ask dayfly run --op up; ask dayfly run ./`
	want := "compdef _dayfly dayfly\nwhy whoami | why  -- Show what a workflow waits for"
	got := w.shell("zsh", try)
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n"+id+" | "+id+"  -- pending, preview of network\nupdate | update\nfiles\n") {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
}

// A file of $fpath is read when a word is completed for the first time, and completes that word too.
func TestCompletion_InAFileOfZsh(t *testing.T) {
	w, _ := completing(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "_dayfly"), []byte(w.ok("completion", "zsh")), 0o600); err != nil {
		t.Fatal(err)
	}
	const try = `fpath=(DIR $fpath); autoload -Uz compinit; compinit -u -d DIR/dump; echo "$_comps[dayfly]"
compadd() { echo "$words_" }; _files() { echo files }
words=(dayfly whoa) CURRENT=2; _dayfly; words=(dayfly versi) CURRENT=2; _dayfly`
	if got := w.shell("zsh", strings.ReplaceAll(try, "DIR", dir)); got != "_dayfly\nwhoami\nversion\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestCompletion_InFish(t *testing.T) {
	w, id := completing(t)
	const try = `dayfly completion fish | source
complete -C 'dayfly workf'; complete -C 'dayfly why '; complete -C 'dayfly run --op up'; complete -C 'dayfly run ./d'`
	want := "workflow\tList, show, follow, cancel and retry workflows; approve their plans.\n" +
		id + "\tpending, preview of network\nupdate\n./dayfly\n"
	if got := w.shell("fish", try); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestComplete_OperationsAndStatesNeedNoControlPlane(t *testing.T) {
	w := newWorld(t)
	w.env = map[string]string{"HOME": t.TempDir(), "PATH": w.env["PATH"]}
	for want, line := range map[string][]string{"preview": {"run", "--op", "pre"}, "awaiting_approval": {"workflow", "list", "--state", "aw"}} {
		if got := w.ok(append([]string{completeCommand}, line...)...); !strings.HasPrefix(got, want+"\t") {
			t.Errorf("%q is completed to %q, want %s", line, got, want)
		}
	}
}
