package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const passphrase = "planted-passphrase"

// A program that needs no provider, so that a real pulumi runs it with its language alone.
const outputsOnly = `
name: demo
runtime: yaml
config: {word: {type: string, default: first}}
outputs:
  word: ${word}
  number: 12345678901
  hidden: {"fn::secret": planted-output}
`

// withStandIn puts the stand-in for pulumi first in PATH.
func withStandIn(t *testing.T) *host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// The race detector would hold each call back for a second at its end.
	script := "#!/bin/sh\nGORACE=atexit_sleep_ms=0 PULUMI_STANDIN=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o700); err != nil { //nolint:gosec // a program must be executable
		t.Fatal(err)
	}
	return &host{path: dir + ":" + os.Getenv("PATH"), env: []string{"PULUMI_CONFIG_PASSPHRASE=" + passphrase}}
}

// eachPulumi runs a test with the stand-in, and with a real pulumi if the machine has one and its language yaml.
func eachPulumi(t *testing.T, test func(t *testing.T, fresh func() *host)) {
	t.Run("stand-in", func(t *testing.T) {
		h := withStandIn(t)
		test(t, func() *host { return &host{path: h.path, env: h.env} })
	})
	t.Run("pulumi", func(t *testing.T) {
		for _, program := range []string{"pulumi", "pulumi-language-yaml"} {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("%s is not on this machine", program)
			}
		}
		test(t, func() *host {
			return &host{path: os.Getenv("PATH"), env: []string{"PULUMI_CONFIG_PASSPHRASE=" + passphrase}}
		})
	})
}

// pulumiJob is a job of the stack dev that finds its program in the host's PATH and its variables in its environment.
func pulumiJob(t *testing.T, h *host, op workflow.Operation, program string) engine.Job {
	t.Helper()
	j := job(t, api.EnginePulumi, op, map[string]string{"Pulumi.yaml": program})
	j.Path, j.Spec.State.Workspace = h.path, "dev"
	j.Getenv = func(name string) string {
		for _, v := range h.env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	return j
}

// next is the next run of the same workspace, which knows what the last one found.
func next(t *testing.T, h *host, last engine.Job, out engine.Outcome, op workflow.Operation, program string) engine.Job {
	t.Helper()
	j := pulumiJob(t, h, op, program)
	j.StateDir, j.Spec.State, j.Spec.Variables = last.StateDir, last.Spec.State, last.Spec.Variables
	j.Spec.Known = out.State
	return j
}

func mustRun(t *testing.T, h *host, j engine.Job) engine.Outcome {
	t.Helper()
	out, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatalf("%s: %v\n%s", j.Spec.Operation, err, h.text())
	}
	for _, planted := range []string{passphrase, "planted-output", "planted-variable"} {
		for _, args := range h.args {
			if strings.Contains(strings.Join(args, " "), planted) {
				t.Errorf("%s is on a command line", planted)
			}
		}
		if strings.Contains(h.text(), planted) && planted != "planted-variable" {
			t.Errorf("%s is in the log:\n%s", planted, h.text())
		}
	}
	return out
}

// filesBelow lists the files of a directory, with their content.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			raw, readErr := os.ReadFile(path)
			out[strings.TrimPrefix(path, dir)], err = string(raw), readErr
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// R1: a preview of nothing, an update, a preview, a scan, a refresh and a destroy, over one directory of states. Runs that
// only read change nothing in it.
func TestPulumi_LifeOfAStack(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		h := fresh()
		j := pulumiJob(t, h, workflow.Preview, outputsOnly)
		j.Spec.Variables = map[string]any{"word": "planted-variable", "other:flag": true, "size": 12345678901}
		out := mustRun(t, h, j)
		if got := filesBelow(t, j.StateDir); len(got) != 0 {
			t.Errorf("a preview made %v", got)
		}

		h = fresh()
		update := next(t, h, j, out, workflow.Update, outputsOnly)
		update.Spec.Known = nil
		out = mustRun(t, h, update)
		var steps []string
		for _, s := range h.steps {
			steps = append(steps, s.Name)
		}
		if diff := cmp.Diff([]string{"init", "plan", "apply", "output"}, steps); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		wantOutputs := []api.Output{{Name: "hidden", Sensitive: true}, {Name: "number", Value: out.Outputs[1].Value}, {Name: "word", Value: "planted-variable"}}
		if diff := cmp.Diff(wantOutputs, out.Outputs); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if !slices.Contains(h.masked, "planted-output") {
			t.Error("the secret output is not masked")
		}
		if s := out.State; s == nil || s.Backend != "local" || s.Workspace != "dev" || s.Lineage != "demo/dev" || s.Serial == 0 {
			t.Errorf("state: got %+v", s)
		}

		h = fresh()
		asked := next(t, h, update, out, workflow.Preview, outputsOnly)
		asked.Spec.Options = &api.Options{Variables: map[string]any{"word": "of the run"}, Targets: []string{"urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"}}
		asked.Spec.Flags = map[string][]string{"plan": {"--parallel=3"}}
		mustRun(t, h, asked)
		if settings, err := os.ReadFile(filepath.Join(asked.Root, "Pulumi.dev.yaml")); err != nil || !strings.Contains(string(settings), "of the run") {
			t.Errorf("with options: the settings are %s, %v", settings, err)
		}
		if line := strings.Join(slices.Concat(h.args...), " "); !strings.Contains(line, "--target urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev --parallel=3 --stack dev") || strings.Contains(line, "of the run") {
			t.Errorf("with options: got %s", line)
		}

		kept := filesBelow(t, j.StateDir)
		for _, op := range []workflow.Operation{workflow.Preview, "", workflow.StateList} {
			h = fresh()
			read := next(t, h, update, out, op, outputsOnly)
			got := mustRun(t, h, read)
			if op != workflow.StateList && (got.State == nil || got.State.Serial != out.State.Serial) {
				t.Errorf("%s: state: got %+v, want %+v", op, got.State, out.State)
			}
			if (got.Inventory != nil) != (op == "") {
				t.Errorf("%s: inventory: got %+v", op, got.Inventory)
			}
			if listed := strings.Contains(h.text(), "\nurn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev\n"); listed != (op == workflow.StateList) {
				t.Errorf("%s: the stack is listed: %v\n%s", op, listed, h.text())
			}
		}
		if diff := cmp.Diff(kept, filesBelow(t, j.StateDir)); diff != "" {
			t.Errorf("runs that only read have changed the directory (-before +after):\n%s", diff)
		}
		for _, op := range []workflow.Operation{workflow.Refresh, workflow.Destroy, workflow.Update} {
			h = fresh()
			update = next(t, h, update, out, op, outputsOnly)
			out = mustRun(t, h, update)
		}
	})
}

// A stack that is gone, or empty, where the last run left one is not begun anew unless somebody says so.
func TestPulumi_StateThatIsGoneIsRefused(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		h := fresh()
		first := pulumiJob(t, h, workflow.Update, outputsOnly)
		out := mustRun(t, h, first)
		if err := os.RemoveAll(filepath.Join(first.StateDir, ".pulumi")); err != nil {
			t.Fatal(err)
		}
		for _, op := range []workflow.Operation{workflow.Preview, workflow.Update, workflow.Destroy} {
			h = fresh()
			_, err := engine.Run(t.Context(), h, next(t, h, first, out, op, outputsOnly))
			if f := failure(t, err); f.Reason != workflow.ReasonStateElsewhere || !strings.Contains(f.Detail, "there is no state in state/") || !strings.Contains(f.Detail, "left stack demo/dev, changed 2") {
				t.Errorf("%s: got %s: %s", op, f.Reason, f.Detail)
			}
			for path := range filesBelow(t, first.StateDir) {
				if strings.Contains(path, "stacks") {
					t.Errorf("%s made %s", op, path)
				}
			}
		}
		h = fresh()
		j := next(t, h, first, out, workflow.Update, outputsOnly)
		j.Spec.BeginAnew = true
		mustRun(t, h, j)

		h = fresh()
		_, err := engine.Run(t.Context(), h, next(t, h, first, out, workflow.Update, outputsOnly))
		if f := failure(t, err); f.Reason != workflow.ReasonStateElsewhere {
			t.Errorf("an empty stack in the place of another: got %s: %s", f.Reason, f.Detail)
		}
	})
}

// R19: the value of another workspace's sensitive output is encrypted by the stack, and nowhere else.
func TestPulumi_SensitiveInputsAreSecretsOfTheStack(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		program := "name: demo\nruntime: yaml\nconfig: {key: {type: string}, list: {type: string}}\noutputs: {key: '${key}', list: '${list}'}\n"
		h := fresh()
		j := pulumiJob(t, h, workflow.Update, program)
		j.Spec.Inputs = []api.WorkspaceInput{{Workspace: "net", Output: "token", Variable: "key", Sensitive: true}, {Workspace: "net", Output: "list", Sensitive: true}, {Workspace: "net", Output: "id"}}
		j.Spec.Variables = map[string]any{"key": "planted-input\nof two lines\n", "list": []any{"planted-in-a-list"}, "id": "plain"}
		out := mustRun(t, h, j)
		if diff := cmp.Diff([]api.Output{{Name: "key", Sensitive: true}, {Name: "list", Sensitive: true}}, out.Outputs); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
		if !slices.Contains(h.masked, "planted-input\nof two lines\n") || !slices.ContainsFunc(h.masked, func(s string) bool { return strings.Contains(s, "planted-in-a-list") }) {
			t.Errorf("masked: %q", h.masked)
		}
		settings, err := os.ReadFile(filepath.Join(j.Root, "Pulumi.dev.yaml"))
		if err != nil || strings.Count(string(settings), "secure:") != 2 || !strings.Contains(string(settings), "demo:id: ") {
			t.Errorf("settings: %s, %v", settings, err)
		}
		everywhere := string(settings) + h.text() + strings.Join(slices.Concat(h.args...), " ")
		if strings.HasSuffix(t.Name(), "/pulumi") { // the stand-in encrypts nothing in its state
			for _, content := range filesBelow(t, j.StateDir) {
				everywhere += content
			}
		}
		if strings.Contains(everywhere, "planted-in") {
			t.Errorf("a value is readable:\n%s", everywhere)
		}
	})
}

// A lock is told with its holder, and released by its id.
func TestPulumi_LockIsToldAndReleased(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		h := fresh()
		first := pulumiJob(t, h, workflow.Update, outputsOnly)
		out := mustRun(t, h, first)
		put(t, filepath.Join(first.StateDir, ".pulumi/locks/organization/demo/dev"), map[string]string{
			"aaaa-bbbb.json": `{"pid":42,"username":"root","hostname":"ci","timestamp":"2026-01-02T03:04:05Z"}`,
		})
		h = fresh()
		locked := next(t, h, first, out, workflow.Update, outputsOnly)
		_, err := engine.Run(t.Context(), h, locked)
		f := failure(t, err)
		if f.Lock == nil || f.Lock.ID != "aaaa-bbbb" || f.Lock.Who != "root@ci (pid 42)" || f.Lock.Created != "2026-01-02T03:04:05Z" || !strings.Contains(f.Detail, "dayfly state unlock app aaaa-bbbb") {
			t.Errorf("got %+v: %s", f.Lock, f.Detail)
		}
		if ran := h.ran(); slices.Contains(ran, "install") || slices.Contains(ran, "preview") || h.steps[0].Name != "init" || h.steps[0].Text != f.Detail {
			t.Errorf("it was found after %v, in the steps %v", ran, h.steps)
		}
		h = fresh()
		mustRun(t, h, next(t, h, first, out, workflow.Preview, outputsOnly)) // which takes none
		h = fresh()
		unlock := next(t, h, first, out, workflow.StateUnlock, outputsOnly)
		unlock.Spec.LockID = f.Lock.ID
		mustRun(t, h, unlock)
		h = fresh()
		mustRun(t, h, next(t, h, first, out, workflow.Update, outputsOnly))
	})
}

// A lock that comes between the preview and the update is that of another run, whose changes are not counted.
func TestPulumi_AnotherRunsChangesAreNotCounted(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	out := mustRun(t, h, first)
	again := &host{path: h.path, env: h.env, onExec: func(c engine.Command) {
		if c.Args[1] == "up" {
			file := ".pulumi/stacks/demo/dev.json"
			put(t, first.StateDir, map[string]string{
				".pulumi/locks/organization/demo/dev/theirs.json": "{}", file: strings.ReplaceAll(filesBelow(t, first.StateDir)["/"+file], "::b\"", "::theirs\""),
			})
		}
	}}
	locked, err := engine.Run(t.Context(), again, next(t, h, first, out, workflow.Update, withResources("t", "x")))
	if f := failure(t, err); f.Lock == nil || f.Lock.ID != "theirs" || locked.Changes != nil {
		t.Errorf("got %+v, the lock %+v, changes %+v", f, f.Lock, locked.Changes)
	}
}

// withResources is a program of the stand-in.
func withResources(size, forceNew string) string {
	return lines("name: demo", "resources:", "  a: {type: 'demo:index:Disk', properties: {size: "+size+", forceNew: "+forceNew+"}}", "  b: {type: 'demo:index:Disk', properties: {size: one}}")
}

func address(name string) string { return "urn:pulumi:dev::demo::demo:index:Disk::" + name }

// R1, R10: changes are listed by their URN without values; a scan tells drift and counts types.
func TestPulumi_ChangesDriftAndInventory(t *testing.T) {
	h := withStandIn(t)
	fresh := func() *host { h.env = slices.Clone(h.env); return &host{path: h.path, env: h.env} }
	j := pulumiJob(t, h, workflow.Update, withResources("planted-size", "x"))
	out := mustRun(t, h, j)
	wantResources := []api.ResourceChange{
		{Address: address("a"), Action: "create", Provider: "demo"}, {Address: address("b"), Action: "create", Provider: "demo"},
	}
	if diff := cmp.Diff(&api.Changes{Add: 2, Resources: wantResources}, out.Changes); diff != "" {
		t.Errorf("changes of the first update (-want +got):\n%s", diff)
	}

	h = fresh()
	preview := next(t, h, j, out, workflow.Preview, withResources("planted-size", "y"))
	got := mustRun(t, h, preview)
	want := &api.Changes{Add: 1, Destroy: 1, Replace: 1, Resources: []api.ResourceChange{
		{Address: address("a"), Action: "replace", Provider: "demo", Changed: []string{"forceNew"}, Forces: []string{"forceNew"}},
	}}
	if diff := cmp.Diff(want, got.Changes); diff != "" {
		t.Errorf("changes of a replacement (-want +got):\n%s", diff)
	}
	if !strings.Contains(h.text(), "replace "+address("a")+", changes forceNew, replaced because of forceNew") || strings.Contains(h.text(), "planted-size") {
		t.Errorf("the log is\n%s", h.text())
	}

	h = fresh()
	h.env = append(h.env, "DRIFT=forceNew")
	scan := next(t, h, j, out, "", withResources("planted-size", "x"))
	got = mustRun(t, h, scan)
	if c := got.Changes; c.Drift != 1 || len(c.Resources) != 1 || c.Resources[0].Address != address("a") || !slices.Equal(c.Resources[0].Changed, []string{"forceNew"}) {
		t.Errorf("drift: got %+v", c)
	}
	if diff := cmp.Diff(&api.Inventory{Resources: 2, Types: []api.InventoryCount{{Type: "demo:index:Disk", Count: 2}}}, got.Inventory); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}

	h = fresh()
	failing := next(t, h, j, out, workflow.Update, withResources("planted-size", "x")+"\nfails: the program has no idea")
	_, err := engine.Run(t.Context(), h, failing)
	if f := failure(t, err); !strings.Contains(f.Detail, "plan failed with exit code 1: error: the program has no idea") || slices.Contains(h.ran(), "up") {
		t.Errorf("got %s, after %v", f.Detail, h.ran())
	}
}

// A state beside the code, or of an earlier workspace of the name, is not passed over: it is taken over if somebody says so.
func TestPulumi_StateElsewhere(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	mustRun(t, h, first)
	file := ".pulumi/stacks/demo/dev.json"
	kept := filesBelow(t, first.StateDir)["/"+file]
	for name, lay := range map[string]func(j *engine.Job){
		"beside the code":      func(j *engine.Job) { put(t, j.Root, map[string]string{file: kept}) },
		"an earlier workspace": func(j *engine.Job) { j.StateOlds = []string{first.StateDir} },
	} {
		for _, op := range []workflow.Operation{workflow.Preview, workflow.Update} {
			j := pulumiJob(t, h, op, withResources("s", "x"))
			lay(&j)
			_, err := engine.Run(t.Context(), &host{path: h.path, env: h.env}, j)
			if f := failure(t, err); f.Reason != workflow.ReasonStateElsewhere || !strings.Contains(f.Detail, "--take-over") {
				t.Errorf("%s, %s: got %s: %s", name, op, f.Reason, f.Detail)
			}
			j = pulumiJob(t, h, op, withResources("s", "x"))
			lay(&j)
			j.Spec.TakeOver = true
			out := mustRun(t, &host{path: h.path, env: h.env}, j)
			if c := out.Changes; c.Add+c.Change+c.Destroy != 0 {
				t.Errorf("%s, %s: took over, and has changes %+v", name, op, c)
			}
			if made := filesBelow(t, j.StateDir); (made["/"+file] != "") != (op == workflow.Update) {
				t.Errorf("%s, %s: the directory of states has %d files", name, op, len(made))
			}
		}
	}
}

// An update that was killed leaves its lock, which the result names, and what is known of the state stays.
func TestPulumi_KilledRunNamesTheLockItLeft(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	out := mustRun(t, h, first)
	killed := &host{path: h.path, env: append(slices.Clone(h.env), "KILLED=1")}
	after, err := engine.Run(t.Context(), killed, next(t, h, first, out, workflow.Update, withResources("t", "x")))
	f := failure(t, err)
	if f.Lock == nil || f.Lock.ID != "cccc" || !strings.Contains(f.Detail, "apply failed: pulumi was ended by signal 9 (killed)") {
		t.Errorf("got %+v: %s", f.Lock, f.Detail)
	}
	if after.State == nil || after.State.Serial != out.State.Serial {
		t.Errorf("state: got %+v, want %+v", after.State, out.State)
	}
}

// With install: false nothing is installed, also where the state has dynamic resources.
func TestPulumi_InstallIsLeftOut(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, lines("name: demo", "resources:", "  a: {type: 'pulumi-nodejs:dynamic:Resource'}"))
	put(t, first.Root, map[string]string{"node_modules/of": "the source"})
	for _, installs := range []bool{true, false} {
		first.Spec.Install = &installs
		again := &host{path: h.path, env: h.env}
		first.Spec.Known = mustRun(t, again, first).State
		if got := slices.Contains(again.ran(), "install"); got != installs {
			t.Errorf("with install: %t, it installed: %t", installs, got)
		}
	}
}

// Package managers get the workspace's cache, but for variables of its own. One that an installer fails with is dropped.
func TestPulumi_PackagesAreCached(t *testing.T) {
	h := withStandIn(t)
	run := func(dir string, env ...string) (said string, dropped bool) {
		h := &host{path: h.path, env: append(slices.Clone(h.env), env...)}
		j := pulumiJob(t, h, workflow.Preview, outputsOnly)
		j.Packages, j.DropPackages = dir, func() { dropped = true }
		_, err := engine.Run(t.Context(), h, j)
		if failed := err != nil; failed != slices.Contains(env, "BROKEN_INSTALL=1") {
			t.Errorf("%v: %v", env, err)
		}
		return h.text(), dropped
	}
	for _, tc := range []struct {
		dir, want string
		env       []string
		dropped   bool
	}{
		{"", "npm caches in  uv in ", nil, false},
		{"/cache", "npm caches in /cache/npm uv in /cache/uv\n", nil, false},
		{"/cache", "npm caches in  uv in /own\n", []string{"NPM_CONFIG_CACHE=/own", "UV_CACHE_DIR=/own"}, false},
		{"/cache", "npm caches in /cache/npm", []string{"BROKEN_INSTALL=1"}, true},
		{"", "npm caches in  uv in ", []string{"BROKEN_INSTALL=1"}, false},
	} {
		if said, dropped := run(tc.dir, tc.env...); !strings.Contains(said, tc.want) || dropped != tc.dropped {
			t.Errorf("%q, %v: dropped: %v\n%s", tc.dir, tc.env, dropped, said)
		}
	}
}

// A plugin that was killed is named as that: pulumi itself only says that a call broke off.
func TestPulumi_ExplainsErrors(t *testing.T) {
	h := withStandIn(t)
	const killed, reference = "a plugin of pulumi was killed", "name outputs of other workspaces under inputs"
	for said, explained := range map[string]string{
		"error reading from server: EOF": killed, "an unhandled error occurred: Program exited unexpectedly: signal: killed": killed,
		`Preview failed: unknown stack "organization/net/prod"`: reference, "the program has no idea": "",
	} {
		_, err := engine.Run(t.Context(), &host{path: h.path, env: h.env}, pulumiJob(t, h, workflow.Update, withResources("s", "x")+"\nfails: '"+said+"'"))
		f := failure(t, err)
		for _, sentence := range []string{killed, reference} {
			if !strings.Contains(f.Detail, said) || strings.Contains(f.Detail, sentence) != (sentence == explained) {
				t.Errorf("%s: got %s", said, f.Detail)
			}
		}
	}
}

// What pulumi had begun when it was cut off is named, until a refresh has corrected the state.
func TestPulumi_NamesWhatItDoesNotKnowTheEndOf(t *testing.T) {
	h := withStandIn(t)
	first := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	out := mustRun(t, h, first)
	const said = "does not know the result of: creating urn:pulumi:dev::demo::demo:index:Thing::creating, updating urn:pulumi:dev"
	cut, err := engine.Run(t.Context(), &host{path: h.path, env: append(slices.Clone(h.env), "CUT_OFF=1")}, next(t, h, first, out, workflow.Update, withResources("t", "x")))
	if f := failure(t, err); !strings.Contains(f.Detail, said) || !strings.Contains(f.Detail, "dayfly run app --op refresh") {
		t.Errorf("got %s", f.Detail)
	}
	want := &api.Changes{Add: 1, Resources: []api.ResourceChange{{Address: "urn:pulumi:dev::demo::demo:index:Thing::made", Action: "create"}}}
	if diff := cmp.Diff(want, cut.Changes); diff != "" || cut.State == nil || cut.State.Serial <= out.State.Serial {
		t.Errorf("changes that were made before (-want +got):\n%s\nstate %+v after %+v", diff, cut.State, out.State)
	}
	for _, one := range []struct {
		op     workflow.Operation
		warned bool
	}{{workflow.Preview, true}, {workflow.Update, true}, {workflow.Refresh, true}, {workflow.Preview, false}} {
		again := &host{path: h.path, env: h.env}
		out = mustRun(t, again, next(t, h, first, out, one.op, withResources("t", "x")))
		if got := strings.Contains(again.text(), "WARNING: pulumi was interrupted, and "+said); got != one.warned {
			t.Errorf("%s: it is warned: %t, want %t\n%s", one.op, got, one.warned, again.text())
		}
	}
}

// The code of a dynamic resource is in the program's own modules, so all operations on a stack that has one install
// them. Other runs that do not run the program install nothing.
func TestPulumi_InstallsForDynamicResources(t *testing.T) {
	h := withStandIn(t)
	for kind, installs := range map[string]bool{
		"demo:index:Disk": false, "my-pulumi-nodejs:dynamic:Resource": false,
		"pulumi-nodejs:dynamic:Resource": true, "pulumi-nodejs:dynamic/net:Disk": true, "pulumi:providers:pulumi-nodejs": true,
		"pulumi-python:dynamic:Resource": true, "pulumi:providers:pulumi-python": true,
	} {
		program := lines("name: demo", "resources:", "  a: {type: '"+kind+"', properties: {size: one}}")
		first := pulumiJob(t, h, workflow.Update, program)
		out := mustRun(t, &host{path: h.path, env: h.env}, first)
		for _, op := range []workflow.Operation{"", workflow.StateList, workflow.Refresh, workflow.Destroy} {
			again := &host{path: h.path, env: h.env}
			out = mustRun(t, again, next(t, h, first, out, op, program))
			if got, want := slices.Contains(again.ran(), "install"), installs && op != workflow.StateList; got != want {
				t.Errorf("%s of a stack with %s: it installed: %t, want %t", op, kind, got, want)
			}
		}
	}
}
