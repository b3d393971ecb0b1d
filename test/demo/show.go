package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func indent(by, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprint(os.Stdout, by+line)
	}
}

// call runs a program. What it prints is shown and kept; code is how it ended.
func (d *demo) call(c *exec.Cmd) (code int) {
	var b bytes.Buffer
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	d.out = b.String()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended.ExitCode()
	}
	must(err)
	return 0
}

// showCode shows a command of dayfly and what it prints. It must end with this code.
func (d *demo) showCode(code int, args ...string) {
	note("$ dayfly %s", strings.Join(args, " "))
	got := d.call(d.command(args...))
	indent("      ", d.out)
	if got != code {
		die("dayfly %s exited with %d, not %d", strings.Join(args[:min(2, len(args))], " "), got, code)
	}
}

// show is showCode of a command that succeeds.
func (d *demo) show(args ...string) { d.showCode(0, args...) }

// quiet runs a command of dayfly that must succeed, and shows nothing.
func (d *demo) quiet(args ...string) string {
	if d.call(d.command(args...)) != 0 {
		die("dayfly %s failed: %s", strings.Join(args, " "), d.out)
	}
	return d.out
}

// value is what a command of dayfly answers to programs.
func value[T any](d *demo, args ...string) (v T) {
	c := d.command(append(args, "-o", "json")...)
	var said bytes.Buffer
	c.Stderr = &said
	b, err := c.Output()
	if err != nil {
		die("dayfly %s: %v: %s", strings.Join(args, " "), err, &said)
	}
	must(json.Unmarshal(b, &v))
	return v
}

// apply gives dayfly the documents of a file.
func (d *demo) apply(documents string) {
	c := d.command("apply", "--yes", "-f", "-")
	c.Stdin = strings.NewReader(documents)
	if d.call(c) != 0 {
		die("dayfly apply failed: %s", d.out)
	}
}

// says requires of what was shown last that it matches each pattern, a line each.
func (d *demo) says(patterns ...string) {
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(d.out) {
			die("that does not show: %s", p)
		}
	}
}

// run shows a run until it ends; see ends.
func (d *demo) run(title, end string, wants []string, args ...string) api.Workflow {
	heading("%s: dayfly run %s --follow", title, strings.Join(args, " "))
	return d.ends(title, end, wants, d.submit(args...))
}

// submit asks for a run and returns its id.
func (d *demo) submit(args ...string) string {
	return value[api.Workflow](d, append([]string{"run"}, args...)...).ID
}

// ends shows a run until it ends. It must end so, at its first attempt, and its log and its summary must match each
// pattern, a line each. Otherwise the demo goes on, and fails at its end. A run whose log says what cancelAt wants is
// cancelled then.
func (d *demo) ends(title, end string, wants []string, id string, cancelAt ...string) api.Workflow {
	c := d.command("workflow", "logs", "--follow", id)
	r, w := io.Pipe()
	c.Stdout, c.Stderr = w, w
	must(c.Start())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_ = c.Wait() // its code is looked at below
		_ = w.Close()
	})
	var said strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fmt.Fprintln(os.Stdout, lines.Text())
		said.WriteString(lines.Text() + "\n")
		for _, at := range cancelAt {
			if strings.Contains(lines.Text(), at) {
				must(d.command("workflow", "cancel", id).Run())
			}
		}
	}
	waiting.Wait()
	got, err := d.admin().Workflow(d.ctx, id)
	must(err)
	wrong, how := "", string(got.State)
	if got.Reason != workflow.ReasonNone && string(got.Reason) != how {
		how += " (" + string(got.Reason) + ")"
	}
	if how != end || got.Attempt != 1 {
		wrong += fmt.Sprintf("; it ended as %s at attempt %d", how, got.Attempt)
	}
	code := map[workflow.State]int{workflow.Succeeded: 0, workflow.Failed: 1, workflow.Cancelled: 4}[got.State]
	if c.ProcessState.ExitCode() != code {
		wrong += fmt.Sprintf("; following it exited with %d, not %d", c.ProcessState.ExitCode(), code)
	}
	for _, p := range wants {
		if !regexp.MustCompile("(?m)" + p).MatchString(said.String()) {
			wrong += "; it does not show: " + p
		}
	}
	verdict := "as expected"
	if wrong != "" {
		d.bad++
		verdict = "NOT as expected" + wrong
	}
	d.results = append(d.results, fmt.Sprintf("%-64s %-24s %s", title, end, verdict))
	return got
}

// repo is git in a clone, as carol.
func (d *demo) repo(args ...string) string {
	c := exec.CommandContext(context.WithoutCancel(d.ctx), "git", append([]string{"-C", d.forge.clone}, args...)...) //nolint:gosec // our own
	c.Env = append([]string{
		"HOME=" + d.forge.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=carol", "GIT_AUTHOR_EMAIL=carol@example.com",
		"GIT_COMMITTER_NAME=carol", "GIT_COMMITTER_EMAIL=carol@example.com",
	}, d.env...)
	if d.call(c) != 0 {
		die("git %s failed: %s", strings.Join(args, " "), d.out)
	}
	return strings.TrimSpace(d.out)
}
