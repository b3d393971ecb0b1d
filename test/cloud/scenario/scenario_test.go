package scenario_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// TestQuickStories tells what needs neither containers, nor an engine, nor long waiting. `make e2e` tells all.
func TestQuickStories(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it builds and runs the functions")
	}
	dir := t.TempDir()
	runner, err := build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := gitserver.OpenAuthority(filepath.Join(dir, "authority"))
	if err != nil {
		t.Fatal(err)
	}
	git, err := scenario.ServeGit(t.Context(), authority, "127.0.0.1")
	if err != nil {
		t.Skip(err)
	}
	defer git.Close()
	bundle := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(bundle, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	options := func(t *testing.T, root string) scenario.Options {
		tap := scenario.NewTap()
		return scenario.Options{
			Tap: tap, Git: git, Quick: true, Say: t.Logf, NoEngine: "none is needed",
			Cloud: cloud.Config{
				Root: root, Functions: filepath.Join(dir, "functions"), Image: "runner", TaskEnv: map[string]string{"SSL_CERT_FILE": bundle},
				Runner: &procrun.Runner{
					Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")},
					Dir: filepath.Join(dir, "tasks"), DirEnv: "DAYFLY_WORK_DIR", Output: tap.Writer("the output of a task"),
				},
			},
		}
	}
	t.Run("end as they must", func(t *testing.T) {
		rows, err := scenario.Run(t.Context(), options(t, root))
		if err != nil {
			t.Fatal(err)
		}
		if err := scenario.Failed(rows); err != nil {
			t.Error(err)
		}
		if len(rows) < 9 {
			t.Errorf("only %d outcomes", len(rows))
		}
	})
	// The templates are what runs: a permission that is missing there is missing here.
	t.Run("fail without a permission", func(t *testing.T) {
		o := options(t, without(t, `"ecs:RunTask"`, `"ecs:DescribeClusters"`))
		o.Only, o.Hasty = "command", true // it is tried again and again, and the reason is what counts here
		rows, err := scenario.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := scenario.Failed(rows); err == nil || !strings.Contains(err.Error(), "dayfly-main-DispatcherRole-1A2B3C4D5E6F may not ecs:RunTask") {
			t.Errorf("without the permission to launch tasks: %v", err)
		}
	})
}

const root = "../../.."

// without copies the templates, with something else in place of a text.
func without(t *testing.T, text, other string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "root")
	from := filepath.Join(root, "infra", "transformed")
	if err := os.CopyFS(filepath.Join(to, "infra", "transformed"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, "infra", "transformed", "pool.json")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(old), text, other)
	if changed == string(old) {
		t.Fatalf("the template has no %s", text)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// build builds the functions and the runner.
func build(ctx context.Context, dir string) (runner string, err error) {
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return "", err
	}
	if _, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: filepath.Join(dir, "functions"), NoZip: true}, packages...); err != nil {
		return "", err
	}
	return built.Program(ctx, dir, "runnerimage")
}
