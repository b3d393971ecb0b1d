package docker

import (
	"context"
	"io"
	"os"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

// whyNoVersion is why an engine is not downloaded although it may be: nobody here knows the version in the image.
const whyNoVersion = "an engine for containers is downloaded only if the workspace has an engine_version"

// downloads reports whether tasks can have engines that were downloaded.
func (c *Config) downloads() bool { return c.ToolsDir != "" && len(c.Downloads) > 0 }

// makeTools makes the directory of engines, which containers mount.
func (c *Config) makeTools() error {
	if !c.downloads() {
		return nil
	}
	if err := os.MkdirAll(c.ToolsDir, 0o755); err != nil { //nolint:gosec // G301: tasks run as another user
		return err
	}
	return os.Chmod(c.ToolsDir, 0o755) //nolint:gosec // G302: see above
}

// admit opens the gate of a task, after its engine is downloaded if that is needed. The launch does not wait for a
// download, so that no other launch waits for it either. A task whose download failed begins too: its image may have
// an engine that fits.
func (l *Launcher) admit(ctx context.Context, gate io.WriteCloser, r launcher.Request, ref string) {
	open := func(ctx context.Context, whyNot string) {
		l.openGate(ctx, gate, r, ref, whyNot)
		_ = gate.Close()
	}
	tools := &toolcache.Cache{Dir: l.ToolsDir, Allowed: l.Downloads, From: l.config.Publishers}
	want, err := toolcache.Read(r.EngineVersion)
	if err != nil || tools.Refusal(r.Engine) != nil { // the runner says so itself, if it needs a download
		open(ctx, "")
		return
	}
	if want == nil {
		open(ctx, whyNoVersion)
		return
	}
	if _, there := tools.Cached(r.Engine, want); there {
		open(ctx, "")
		return
	}
	l.Work.Go(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the launch is over before the download is
		defer cancel()
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-l.closing:
				cancel()
			case <-done:
			}
		}()
		whyNot := ""
		if _, err := tools.Get(ctx, r.Engine, want); err != nil {
			whyNot = err.Error()
			l.Log.Warn("engine not downloaded", "task", ref, "engine", r.Engine, "version", r.EngineVersion, "err", err)
		}
		if ctx.Err() != nil {
			_ = gate.Close() // nothing was begun: the runner ends
			return
		}
		open(ctx, whyNot)
	})
}
