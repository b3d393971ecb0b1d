package built_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/test/built"
)

func TestProgram_IsTakenFromDayflyBinElseBuilt(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	t.Setenv("DAYFLY_BIN", bin)
	made := filepath.Join(bin, "runnerimage")
	if err := os.WriteFile(made, []byte("made before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := built.Program(t.Context(), dir, "runnerimage"); err != nil || got != made {
		t.Errorf("got %s, %v, want %s", got, err, made)
	}
	if testing.Short() {
		t.Skip("the rest builds a program")
	}
	got, err := built.Program(t.Context(), dir, "test/awsim/lambdahost/testdata/function")
	if err != nil || filepath.Dir(got) != dir {
		t.Fatalf("got %s, %v, want a program in %s", got, err, dir)
	}
	if _, err := exec.LookPath(got); err != nil {
		t.Error(err)
	}
}
