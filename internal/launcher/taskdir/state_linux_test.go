package taskdir_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
)

// Whoever may not make a directory for a state is told whose it is and what heals it, at once and for good.
func TestState_OfAnotherUserIsNamed(t *testing.T) {
	const stranger, given = 65534, "DAYFLY_TEST_STATES"
	if dir := os.Getenv(given); dir != "" { // the stranger
		d, err := taskdir.Open[*entry](launcher.Machine{Dir: filepath.Join(dir, "jobs"), StateRoot: filepath.Join(dir, "state"), Now: time.Now}, 0, stranger)
		if err != nil {
			t.Fatal(err)
		}
		err = d.MakeState("default/net")
		if final, ok := errors.AsType[*launcher.Refusal](err); !ok || !final.Permanent {
			t.Errorf("it is tried again: %v", err)
		}
		for _, want := range []string{"belongs to user 0", "the mode 0711", "is user 65534", "chown -R 65534 " + filepath.Join(dir, "state")} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: it does not say %s", err, want)
			}
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may be another user")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o711), os.MkdirAll(filepath.Join(dir, "state/default"), 0o711)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), given+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
