package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// answer is what the demo needs of a workflow, as dayfly prints it.
type answer struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace"`
	Operation string `json:"operation"`
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	Pool      string `json:"pool"`
	Attempt   int    `json:"attempt"`
	Steps     []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"steps"`
	Result *struct {
		Changes *struct {
			Add, Change, Destroy, Drift int
			Resources                   []struct{ Address, Action string }
		} `json:"changes"`
		Outputs []struct {
			Name      string `json:"name"`
			Sensitive bool   `json:"sensitive"`
			Value     any    `json:"value"`
		} `json:"outputs"`
	} `json:"result"`
}

// outcome is a workflow of the demo and what was wrong with how it ended.
type outcome struct {
	title  string
	answer answer
	wrong  []string
}

// driftFile is the file that the workspace drift makes and the demo changes behind its back.
func (d *demo) driftFile() string { return filepath.Join(d.temp, "drift", "note.txt") }

// workspaces registers the examples, with what this machine needs.
func (d *demo) workspaces(ctx context.Context) error {
	heading("Workspaces of examples/")
	// The engine's user writes there, whoever it is.
	dir := filepath.Dir(d.driftFile())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // see above
		return err
	}
	for _, name := range []string{"basic", "failing-plan", "drift", "command", "slow"} {
		if err := d.register(ctx, name); err != nil {
			return err
		}
	}
	list, err := d.read(ctx, "workspace", "list")
	fmt.Fprint(os.Stdout, indent(string(list)))
	return err
}

// register applies a workspace file of the examples, changed where this machine needs it.
func (d *demo) register(ctx context.Context, name string) error {
	text, err := os.ReadFile(filepath.Join(d.examples, name, "workspace.yaml"))
	if err != nil {
		return err
	}
	var w map[string]any
	if err := yaml.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("examples/%s: %w", name, err)
	}
	w["source"] = map[string]any{"directory": filepath.Join(d.examples, name)}
	switch {
	case w["engine"] == "command" && name == "command":
		w["pool"] = "second"
	case w["engine"] == "command":
	case d.engine.name == "":
		return nil
	default:
		w["engine"] = d.engine.name
		if d.engine.cliConfig != "" {
			w["environment"] = map[string]any{"TF_CLI_CONFIG_FILE": d.engine.cliConfig}
		}
	}
	if name == "drift" {
		w["variables"] = map[string]any{"path": d.driftFile()}
	}
	return d.apply(ctx, w)
}

// workflows runs the scenario. An error ends the demo; a workflow that ended otherwise than it must
// is noted, and the others go on.
func (d *demo) workflows(ctx context.Context) error {
	if d.engine.name != "" {
		if err := d.withEngine(ctx); err != nil {
			return err
		}
		if err := d.ranBefore(ctx); err != nil {
			return err
		}
	}
	w, err := d.follow(ctx, "A plain command, on the second pool", "command", "update", "")
	if err != nil {
		return err
	}
	d.expect(&w, "succeeded", "")
	w.check(w.answer.Pool == "second", "it ran on pool %s", w.answer.Pool)
	w.check(fmt.Sprint(w.output("release")) == "1" && w.output("service") == "web", "outputs %v", w.answer.Result)
	d.results = append(d.results, w)

	if w, err = d.follow(ctx, "One that is cancelled while it runs", "slow", "update", "still at work after 2 s"); err != nil {
		return err
	}
	d.expect(&w, "cancelled", "cancelled")
	d.results = append(d.results, w)
	return nil
}

func (d *demo) withEngine(ctx context.Context) error {
	preview, err := d.follow(ctx, "A preview: what an update would do", "basic", "preview", "")
	if err != nil {
		return err
	}
	d.expect(&preview, "succeeded", "")
	preview.counts(3, 0, 0, 0)

	update, err := d.follow(ctx, "The update: several steps, outputs, a sensitive one", "basic", "update", "")
	if err != nil {
		return err
	}
	d.expect(&update, "succeeded", "")
	update.counts(3, 0, 0, 0)
	update.check(len(update.answer.Steps) >= 3, "only %d steps", len(update.answer.Steps))
	update.check(update.output("cidr") == "10.20.0.0/16", "output cidr is %v", update.output("cidr"))
	update.check(update.sensitive("password") && update.output("password") == nil, "the sensitive output password is not kept back")

	again, err := d.follow(ctx, "A second update: the state was kept, so its plan is empty", "basic", "update", "")
	if err != nil {
		return err
	}
	d.expect(&again, "succeeded", "")
	again.counts(0, 0, 0, 0)

	destroy, err := d.follow(ctx, "The destroy: exactly what was created", "basic", "destroy", "")
	if err != nil {
		return err
	}
	d.expect(&destroy, "succeeded", "")
	destroy.counts(0, 0, 3, 0)
	made, ended := update.addresses("create"), destroy.addresses("delete")
	destroy.check(len(made) == 3 && slices.Equal(made, ended), "created %v and destroyed %v", made, ended)

	failing, err := d.follow(ctx, "One that fails in its plan, and says why", "failing-plan", "update", "")
	if err != nil {
		return err
	}
	d.expect(&failing, "failed", "step_failed")
	failing.check(strings.Contains(failing.answer.Detail, "environment must be dev, staging or prod"), "the reason is %q", failing.answer.Detail)

	file, err := d.follow(ctx, "A file that can drift", "drift", "update", "")
	if err != nil {
		return err
	}
	d.expect(&file, "succeeded", "")
	file.counts(1, 0, 0, 0)
	d.results = append(d.results, preview, update, again, destroy, failing, file)

	if file.answer.State == "succeeded" {
		if err := os.WriteFile(d.driftFile(), []byte("changed by hand\n"), 0o600); err != nil {
			return fmt.Errorf("change the file: %w", err)
		}
		note("the demo changed %s behind the engine's back", d.driftFile())
	}
	scan, err := d.follow(ctx, "An insights scan, which finds the drift", "drift", "scan", "")
	if err != nil {
		return err
	}
	d.expect(&scan, "succeeded", "")
	scan.counts(-1, -1, -1, 1)
	d.results = append(d.results, scan)
	return nil
}

// follow submits a workflow and shows its log until it ends. With a text in cancelAt, the workflow
// is cancelled when its log has that text.
func (d *demo) follow(ctx context.Context, title, workspace, op, cancelAt string, more ...string) (outcome, error) {
	args := append([]string{"run", workspace, "--op", op}, more...)
	if op == "update" || op == "destroy" {
		args = append(args, "--yes") // nobody can be asked
	}
	heading("%s: dayfly %s --follow", title, strings.Join(args, " "))
	out := outcome{title: title}
	w, err := ask[answer](ctx, d, args...)
	if err != nil {
		return out, err
	}
	c := exec.CommandContext(ctx, d.dayfly, "workflow", "logs", "--follow", w.ID)
	c.Env, c.Dir, c.Stdin = d.env, d.temp, nil
	c.Stdout, c.Stderr = os.Stdout, os.Stderr // the terminal itself, where there is one: for the live line
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Minute
	if cancelAt != "" {
		c.Stdout = &trigger{to: os.Stdout, at: []byte(cancelAt), then: func() {
			_, err := d.read(ctx, "workflow", "cancel", w.ID)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			} else {
				note("dayfly workflow cancel %s", w.ID)
			}
		}}
	}
	err = c.Run()
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		return out, fmt.Errorf("follow %s: %w", w.ID, err)
	}
	if out.answer, err = ask[answer](ctx, d, "workflow", "show", w.ID); err != nil {
		return out, err
	}
	want := map[string]int{"succeeded": 0, "failed": 1, "cancelled": 4}[out.answer.State]
	out.check(code == want, "following it exited with %d, not %d", code, want)
	return out, nil
}

// trigger passes output on and acts once when it has a text.
type trigger struct {
	to   io.Writer
	at   []byte
	then func()

	once sync.Once
	seen bytes.Buffer
}

func (t *trigger) Write(p []byte) (int, error) {
	n, err := t.to.Write(p)
	t.seen.Write(p)
	if bytes.Contains(t.seen.Bytes(), t.at) {
		t.once.Do(t.then)
	}
	return n, err
}

func (o *outcome) check(ok bool, format string, args ...any) {
	if !ok {
		o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
	}
}

// expect checks the end of a workflow.
func (d *demo) expect(o *outcome, state, reason string) {
	o.check(o.answer.State == state && o.answer.Reason == reason, "it ended %s (%s), not %s (%s): %s",
		o.answer.State, o.answer.Reason, state, reason, o.answer.Detail)
	o.check(o.answer.Attempt == 1, "it took %d attempts", o.answer.Attempt)
}

// counts checks the numbers of a plan; one below 0 may be anything.
func (o *outcome) counts(add, change, destroy, drift int) {
	if o.answer.Result == nil || o.answer.Result.Changes == nil {
		o.check(false, "it reports no changes")
		return
	}
	c := o.answer.Result.Changes
	got, want := []int{c.Add, c.Change, c.Destroy, c.Drift}, []int{add, change, destroy, drift}
	for i := range want {
		if want[i] < 0 {
			want[i] = got[i]
		}
	}
	o.check(slices.Equal(got, want), "add, change, destroy, drift are %v, not %v", got, want)
}

func (o *outcome) addresses(action string) []string {
	set := map[string]bool{}
	if o.answer.Result != nil && o.answer.Result.Changes != nil {
		for _, r := range o.answer.Result.Changes.Resources {
			if r.Action == action {
				set[r.Address] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func (o *outcome) output(name string) any {
	if o.answer.Result != nil {
		for _, v := range o.answer.Result.Outputs {
			if v.Name == name {
				return v.Value
			}
		}
	}
	return nil
}

func (o *outcome) sensitive(name string) bool {
	if o.answer.Result != nil {
		for _, v := range o.answer.Result.Outputs {
			if v.Name == name {
				return v.Sensitive
			}
		}
	}
	return false
}

// report shows the table and one timeline, and says what was not as it must be.
func (d *demo) report(ctx context.Context) error {
	heading("All workflows: dayfly workflow list")
	list, err := d.read(ctx, "workflow", "list", "-n", "50")
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, indent(string(list)))
	last := d.results[len(d.results)-1].answer.ID
	heading("The story of one of them: dayfly why %s", last)
	why, err := d.read(ctx, "why", last)
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, indent(string(why)))

	heading("Outcomes")
	bad := 0
	for _, o := range d.results {
		sign := "as expected"
		if len(o.wrong) > 0 {
			bad++
			sign = "NOT as expected: " + strings.Join(o.wrong, "; ")
		}
		note("%-62s %-10s %s", o.title, o.answer.State, sign)
	}
	if d.engine.name == "" {
		note("left out, because ENGINE=none: preview, update, second update, destroy, failing plan, drift scan, takeovers")
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d workflows did not end as they must", bad, len(d.results))
	}
	note("all %d workflows ended as they must", len(d.results))
	return nil
}
