//go:build linux || darwin

package child_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/child"
)

const inheritVariable = "CHILD_TEST_INHERIT"

// inherit plays a program that was started with descriptors: it reads its own, as that of a <(command), and starts
// a child that looks for one that a script forgot to close.
func inherit() int {
	child.CloseInherited()
	own, err := io.ReadAll(os.NewFile(3, "own"))
	if err != nil {
		return 2
	}
	_, _ = os.Stdout.WriteString("the program read " + string(own) + "\n")
	look := `for fd in 3 4 5 6 7; do if (: <&$fd) 2>/dev/null; then echo "the child has $fd"; fi; done; echo "the child looked"`
	p, err := child.Start(child.Spec{Path: "/bin/sh", Args: []string{"-c", look}, Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return 3
	}
	if exit, err := p.Wait(); err != nil {
		return 4
	} else if exit.Code != 0 {
		return 5
	}
	return 0
}

func TestCloseInherited_ChildHasNoInheritedFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("a secret"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	defer r.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{inheritVariable + "=1"}
	cmd.ExtraFiles = []*os.File{r, r, r, r, r} // 3 to 7
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := strings.TrimSpace(string(out)), "the program read a secret\nthe child looked"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
