package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// logged submits an update whose steps init and apply print lines, n in all, and says whether the steps know it.
func (w *world) logged(n int, counted bool) (id string) {
	w.t.Helper()
	id = strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	_, runner := w.claim()
	step := api.Step{Seq: 1, Name: "init", Status: workflow.StepSucceeded, StartedAt: time.Now()}
	if counted {
		step.LogEnd = int64(n / 2)
	}
	for from := 0; from < n; from += 2000 {
		in := api.Logs{First: int64(from)}
		for i := from; i < min(n, from+2000); i++ {
			name := "init"
			if i >= n/2 {
				name = "apply"
			}
			in.Lines = append(in.Lines, api.LogLine{At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), Step: name, Text: fmt.Sprintf("line %d", i)})
		}
		if _, err := runner.Logs(w.t.Context(), in); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := runner.Steps(w.t.Context(), api.Steps{Steps: []api.Step{step}}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := runner.Result(w.t.Context(), api.Result{Outcome: workflow.Succeeded, LogEnd: int64(n)}); err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestLogs_TailPrintsTheLastLines(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	for _, n := range []int{1, 2, 3, 999, 1000, 1001, 5000} {
		id := w.logged(n, n%2 == 0)
		for _, tail := range []int{0, 1, 2, 1000, 1500, 9000} {
			var want strings.Builder
			for i := max(0, n-tail); i < n; i++ {
				step := "init "
				if i >= n/2 {
					step = "apply"
				}
				fmt.Fprintf(&want, "%s    │ line %d\n", step, i)
			}
			if got := w.ok("workflow", "logs", id, "--tail", fmt.Sprint(tail)); got != want.String() && !(tail == 0 && got == "") {
				t.Errorf("%d of %d: got %d bytes, want %d", tail, n, len(got), want.Len())
			}
		}
		got := w.ok("workflow", "logs", id, "--tail", "2", "--step", "init", "--timestamps")
		if n == 5000 && got != "2026-01-02T03:04:05.006Z init     │ line 2498\n2026-01-02T03:04:05.006Z init     │ line 2499\n" {
			t.Errorf("of a step: got\n%s", got)
		}
	}
	id := w.logged(10, true)
	followed := w.ok("workflow", "logs", "-f", id, "--tail", "1")
	has(t, "follow", followed, "line 9\n", "succeeded")
	if strings.Contains(followed, "line 8") {
		t.Errorf("got\n%s", followed)
	}
	if got := w.run("workflow", "logs", id, "--step", "plan"); got.stdout != "" || !strings.Contains(got.stderr, "no line of step plan") {
		t.Errorf("got %+v", got)
	}
	if got := w.run("workflow", "logs", id, "--tail", "-1"); got.code != cli.ExitUsage {
		t.Errorf("got %+v", got)
	}
}

func TestLogs_ATailOfALongLogCostsFewCalls(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := w.logged(40_000, true)
	var calls atomic.Int64
	api := httpapi.New(w.plane, httpapi.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		api.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.env["DAYFLY_URL"] = server.URL
	for _, tc := range []struct {
		args  []string
		limit int64
	}{{nil, 3}, {[]string{"--step", "apply"}, 4}} { // all of it costs 41
		calls.Store(0)
		w.ok(append([]string{"workflow", "logs", id, "--tail", "10"}, tc.args...)...)
		if got := calls.Load(); got > tc.limit {
			t.Errorf("%v: got %d calls, want at most %d", tc.args, got, tc.limit)
		}
	}
}

func TestWait_SaysHowTheyEnded(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	w.workspace("two")
	one := strings.TrimSpace(w.ok("run", "one"))
	two := strings.TrimSpace(w.ok("run", "two"))
	if got := w.run("workflow", "wait", one, "--timeout", "10ms"); got.code != cli.ExitTimeout || got.stdout != "" {
		t.Errorf("nobody runs it: got %+v", got)
	}
	done := make(chan answer)
	go func() { done <- w.run("workflow", "wait", one, two) }()
	w.finish(api.Result{Outcome: workflow.Succeeded})
	w.finish(api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed})
	if got := <-done; got.code != cli.ExitFailed || got.stdout+got.stderr != "" {
		t.Errorf("one failed: got %+v", got)
	}
	three := strings.TrimSpace(w.ok("run", "one"))
	go func() { done <- w.run("workflow", "wait", three, "--for", "started") }()
	_, runner := w.claim()
	if got := <-done; got.code != cli.ExitOK {
		t.Errorf("it has started: got %+v", got)
	}
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Cancelled, Reason: workflow.ReasonCancelled}); err != nil {
		t.Fatal(err)
	}
	if got := w.run("workflow", "wait", three); got.code != cli.ExitCancelled {
		t.Errorf("cancelled: got %+v", got)
	}
}

func TestWait_ForADecisionOnAPlan(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put("name: net\nengine: terraform\nsource: {directory: /src}\napproval: {required: true}"))
	asked := make(chan answer)
	go func() { asked <- w.run("run", "net", "--op", "update", "--yes") }()
	id := w.planned(api.Changes{Add: 1})
	<-asked
	if got := w.run("workflow", "wait", id); got.code != cli.ExitOK {
		t.Errorf("ended: got %+v", got)
	}
	if got := w.run("workflow", "wait", id, "--for", "approval", "--timeout", "10ms"); got.code != cli.ExitTimeout {
		t.Errorf("undecided: got %+v", got)
	}
	w.ok("workflow", "reject", id, "--yes")
	if got := w.run("workflow", "wait", id, "--for", "approval"); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "rejected") {
		t.Errorf("rejected: got %+v", got)
	}
}

func TestOutput_IsThatOfTheLastRunThatChangedTheState(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	if got := w.run("output", "one"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "no run that succeeded") {
		t.Errorf("before any run: got %+v", got)
	}
	w.ok("run", "one", "--op", "update", "--yes")
	w.finish(api.Result{Outcome: workflow.Succeeded, Outputs: []api.Output{{Name: "address", Value: "10.0.0.1"}, {Name: "ports", Value: []any{80, 443}}, {Name: "password", Sensitive: true}}})
	for _, later := range []api.Result{{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed}, {Outcome: workflow.Succeeded}} {
		op := map[workflow.State]string{workflow.Failed: "update", workflow.Succeeded: "preview"}[later.Outcome]
		w.ok("run", "one", "--op", op, "--yes")
		w.finish(later)
	}
	for want, args := range map[string][]string{
		"address = 10.0.0.1\nports = [80,443]\npassword = (sensitive)\n": {"output", "one"},
		"10.0.0.1":       {"output", "one", "address", "--raw"},
		"10.0.0.1\n":     {"output", "one", "address"},
		"[80,443]\n":     {"output", "one", "ports", "--raw"},
		"\"10.0.0.1\"\n": {"output", "one", "address", "-o", "json"},
	} {
		if got := w.ok(args...); got != want {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
	for says, name := range map[string]string{"its value never leaves the runner": "password", "its outputs: address, ports, password": "adr"} {
		if got := w.run("output", "one", name); got.code != cli.ExitRefused || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestOutput_SaysHowToReadOneThatDidNotFit(t *testing.T) {
	w := newWorld(t)
	for engine, read := range map[string]string{
		api.EngineTerraform:  "in a directory without code, dayfly state pull terraform, then terraform output -state=terraform.tfstate NAME",
		api.EngineTofu:       "in a directory without code, dayfly state pull tofu, then tofu output -state=tofu.tfstate NAME",
		api.EngineTerragrunt: "in the directory of its unit, terragrunt output NAME",
		api.EnginePulumi:     "with the backend and the stack of the workspace, pulumi stack output NAME",
		api.EngineCommand:    "have the command leave it as a file in DAYFLY_ARTIFACTS, for dayfly artifact get",
	} {
		more := map[string]string{api.EngineCommand: "commands: {update: 'true'}\n", api.EnginePulumi: "state: {workspace: prod}\n"}[engine]
		w.ok("apply", "-f", w.put("name: "+engine+"\nengine: "+engine+"\nsource: {git: {url: 'https://git.example.com/net.git'}}\n"+more))
		result := func(r api.Result) (id string) {
			id = strings.TrimSpace(w.ok("run", engine, "--op", "update", "--yes"))
			r.Outcome = workflow.Succeeded
			w.finish(r)
			return id
		}
		id := result(api.Result{Truncated: true, Outputs: []api.Output{{Name: "address", Value: "10.0.0.1"}}, OmittedOutputs: []string{"net/big", "net/large"}})
		name := "'net/big'"
		if engine == api.EngineTerragrunt {
			name = "'big'"
		}
		for _, tc := range []struct {
			args   []string
			code   int
			stdout string
			says   string
		}{
			{[]string{"output", engine}, cli.ExitOK, "address = 10.0.0.1\n", "these outputs did not fit into the result of " + id + ": net/big, net/large; to read one: " + read},
			{[]string{"output", engine, "-o", "json"}, cli.ExitOK, "[\n  {\n    \"name\": \"address\",\n    \"value\": \"10.0.0.1\"\n  }\n]\n", "net/big, net/large; to read one: "},
			{[]string{"output", engine, "net/big"}, cli.ExitRefused, "", "output net/big did not fit into the result of " + id + "; to read it: " + strings.Replace(read, "NAME", name, 1)},
			{[]string{"output", engine, "other"}, cli.ExitRefused, "", "reported no output other; its outputs: address; not all of them may have fitted into its result; to read one: " + read},
		} {
			if got := w.run(tc.args...); got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(got.stderr, tc.says) {
				t.Errorf("%v: got %+v, want %d, %q and %q", tc.args, got, tc.code, tc.stdout, tc.says)
			}
		}
		id = result(api.Result{Truncated: true}) // of a runner of 0.1.0
		if got := w.run("output", engine); got.code != cli.ExitOK || !strings.Contains(got.stderr, "the result of "+id+" was cut and has no outputs; to read one: "+read) {
			t.Errorf("cut: got %+v", got)
		}
		result(api.Result{})
		if got := w.run("output", engine); !strings.Contains(got.stderr, "reported no outputs") || strings.Contains(got.stderr, "to read one") {
			t.Errorf("without outputs: got %+v", got)
		}
	}
}

func TestShow_NamesFailingChecks(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	w.finish(api.Result{Outcome: workflow.Succeeded, Checks: &api.Checks{Failing: 2, Names: []string{"check.dns", "check.health"}}})
	has(t, "the run", w.ok("workflow", "show", id), "checks        2 failing: check.dns, check.health")
	has(t, "the workspace", w.ok("workspace", "show", "one"), "checks          2 failing, see dayfly workflow show "+id)
}

func TestRun_DetailedExitcodeTellsChanges(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	for _, tc := range []struct {
		result api.Result
		code   int
	}{
		{api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}}, cli.ExitOK},
		{api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Change: 1}}, cli.ExitDiffers},
		{api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Outputs: []api.OutputChange{{Name: "x", Action: "update"}}}}, cli.ExitDiffers},
		{api.Result{Outcome: workflow.Succeeded}, cli.ExitDiffers},
		{api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Changes: &api.Changes{Change: 1}}, cli.ExitFailed},
	} {
		done := make(chan answer)
		go func() { done <- w.run("run", "one", "--follow", "--detailed-exitcode") }()
		w.finish(tc.result)
		if got := <-done; got.code != tc.code {
			t.Errorf("%+v: got exit %d, want %d", tc.result, got.code, tc.code)
		}
	}
	if got := w.run("run", "nowhere", "--follow", "--detailed-exitcode"); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "there is no workspace nowhere") {
		t.Errorf("a refusal: got %+v", got)
	}
	if got := w.run("run", "one", "--detailed-exitcode"); got.code != cli.ExitUsage {
		t.Errorf("without --follow: got %+v", got)
	}
}
