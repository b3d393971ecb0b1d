package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// programs is a dayfly of some version, with its runner beside it, over the data of a world.
type programs struct {
	*uptest.World
	bin string
}

// of unpacks the programs of a release.
func of(t *testing.T, w *uptest.World, release string) programs {
	t.Helper()
	script := exec.CommandContext(t.Context(), "scripts/released", release)
	var said bytes.Buffer
	script.Dir, script.Stderr = "../..", &said
	archive, err := script.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() == 75 {
		t.Skip(strings.TrimSpace(said.String()))
	}
	if err != nil {
		t.Fatalf("build the programs of %s: %v\n%s", release, err, &said)
	}
	dir := uptest.Directory(t)
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", strings.TrimSpace(string(archive)), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return programs{w, dir}
}

// build builds those of this version, and returns their directory.
func build(t *testing.T) string {
	t.Helper()
	dir := uptest.Directory(t)
	if out, err := exec.CommandContext(t.Context(), "../../scripts/build", dir, "./cmd/dayfly").CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}

func (p programs) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "dayfly"), args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(p.Data), "DAYFLY_URL="+p.URL, "DAYFLY_API_TOKEN="+p.Token)
	return cmd
}

// up starts it; stop ends it and waits.
func (p programs) up(t *testing.T) (stop func()) {
	t.Helper()
	up := p.Spawn(p.command(context.WithoutCancel(t.Context()), "up", "--data", p.Data, "--listen", "127.0.0.1:0", "--source-root", p.Source, "--deploy-target", "process"))
	return func() {
		t.Helper()
		if err := up.Stop(); err != nil {
			t.Errorf("up ended with %v:\n%s", err, up.Said())
		}
	}
}

// agent starts the agent of a pool that has a token.
func (p programs) agent(t *testing.T, token string) {
	t.Helper()
	cmd := p.command(context.WithoutCancel(t.Context()), "agent", "--data", uptest.Directory(t), "--service-url", p.URL, "--source-root", p.Source, "--deploy-target", "process", "--http-server-port", "0")
	cmd.Env = append(cmd.Env, "DAYFLY_TOKEN="+token)
	agent, err := built.Start(t.Context(), cmd, regexp.MustCompile(`works for`))
	if err != nil {
		t.Fatal(err)
	}
	agent.EndWith(t)
}

// cli runs the command line against the control plane that is up, and returns its output.
func (p programs) cli(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(t.Context(), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("dayfly %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// apply registers a workspace whose updates count themselves in its state.
func (p programs) apply(t *testing.T, name, pool string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	text := fmt.Sprintf(`kind: workspace
name: %s
engine: command
pool: %s
source: {directory: %s}
commands:
  update: echo x >> "$DAYFLY_STATE_DIR/updates"; echo "update $(wc -l < "$DAYFLY_STATE_DIR/updates" | tr -d ' ')"
`, name, pool, p.Source)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cli(t, "apply", "-f", file)
}

// update runs one and holds its log to how many there were.
func (p programs) update(t *testing.T, workspace string, want int) {
	t.Helper()
	if got := p.cli(t, "run", workspace, "--op", "update", "--yes", "--follow"); !strings.Contains(got, fmt.Sprintf("update %d\n", want)) {
		t.Errorf("the log of update %d of %s:\n%s", want, workspace, got)
	}
}

// A data directory goes to a later version and back with its history, states, tokens and waiting runs. The agent and
// the command line of the release work with a control plane of this version.
func TestPrograms_OfAReleaseAndThisWorkTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs of two versions")
	}
	releases, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	thisVersion := sync.OnceValue(func() string { return build(t) })
	for _, release := range releases {
		t.Run(release.Name(), func(t *testing.T) {
			w := uptest.New(t)
			old := of(t, w, release.Name())
			now := programs{w, thisVersion()}

			stop := old.up(t)
			old.apply(t, "net", "default")
			old.update(t, "net", 1)
			old.cli(t, "pool", "pause", "default")
			waiting := strings.TrimSpace(old.cli(t, "run", "net", "--op", "update", "--yes", "-o", "name"))
			history := old.cli(t, "workflow", "list", "-o", "name")
			stop()

			stop = now.up(t)
			if got := now.cli(t, "workflow", "list", "-o", "name"); got != history {
				t.Errorf("the runs of the release are\n%s, want\n%s", got, history)
			}
			now.cli(t, "pool", "resume", "default")
			now.cli(t, "workflow", "wait", waiting)
			now.update(t, "net", 3)
			var made api.PoolToken
			if err := json.Unmarshal([]byte(old.cli(t, "pool", "create", "apart", "-o", "json")), &made); err != nil {
				t.Fatal(err)
			}
			old.agent(t, made.Token)
			old.apply(t, "far", "apart")
			old.update(t, "far", 1)
			now.update(t, "far", 2)
			stop()

			stop = old.up(t)
			old.update(t, "net", 4)
			if got := strings.Fields(old.cli(t, "workflow", "list", "-o", "name")); len(got) != 6 || !slices.Contains(got, waiting) {
				t.Errorf("the release shows %d runs of this version and its own, want 6: %v", len(got), got)
			}
			stop()
		})
	}
}
