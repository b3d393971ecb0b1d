package isolation_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/test/built"
)

// L9: with deploy_target auto, a dayfly that finds an engine without the image of its version makes the
// image of itself and of what lies on its path, and runs jobs in it.
func TestAuto_MakesTheImageThatIsNotThere(t *testing.T) {
	needs(t, config.TargetDocker)
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	version := fmt.Sprintf("made-%d", os.Getpid())
	image := embedded.DefaultImage(version)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "docker", "image", "rm", "-f", image).Run() })
	path := filepath.Join(dir, "bin")
	build := func(name, pkg, flags string) string {
		file := filepath.Join(path, name)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", flags, "-o", file, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, out)
		}
		return file
	}
	build("busybox", "./testdata/shell", "")
	build("terraform", "./testdata/shell", "") // no more than a program without libraries
	program := build("dayfly", "../../cmd/dayfly", "-s -w -X github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick.Version="+version)

	source := filepath.Join(dir, "say")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	const workspace = "name: say\nengine: command\nsource: {directory: .}\ncommands: {preview: echo hello}\n"
	if err := os.WriteFile(filepath.Join(source, "workspace.yaml"), []byte(workspace), 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+dir, "PATH="+path, "XDG_CONFIG_HOME=", "DAYFLY_URL=", "DAYFLY_API_TOKEN=")
	data := filepath.Join(dir, "data")
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "up", "--data", data, "--listen", "127.0.0.1:0", "--deploy-target", "auto", "--source-root", dir)
	cmd.Env = env
	up, err := built.StartUp(t.Context(), cmd, data)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), program, "run", source+"/", "--follow")
	run.Env = env
	out, err := run.CombinedOutput()
	if err := up.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err != nil || !strings.Contains(string(out), "the shell of a made image ran") {
		t.Errorf("the job of a made image: %v: %s", err, out)
	}
	for _, want := range []string{"containers of " + image, "the image was not there: it was made of this program"} {
		if !strings.Contains(up.Said(), want) {
			t.Errorf("up does not say %q: %s", want, up.Said())
		}
	}
}
