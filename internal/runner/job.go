package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	stepSource = "source"

	secretTries = 5 // for a reference whose store is unavailable
)

// do runs the parts of a run in order: spec, secrets, source, engine.
func (r *run) do(ctx context.Context) (engine.Outcome, error) {
	spec, err := r.spec(ctx)
	if err != nil {
		return engine.Outcome{}, err
	}
	if r.dirs.broken != nil {
		return engine.Outcome{}, failure(workflow.ReasonRunnerError, r.dirs.broken)
	}
	if err := r.allowed(spec.Hooks); err != nil {
		return engine.Outcome{}, failure(workflow.ReasonHookRefused, err)
	}
	// First, so that nothing else of the run can show them.
	if spec.Variables, err = r.inputs(ctx, spec); err != nil {
		return engine.Outcome{}, failure(workflow.ReasonArtifactFailed, err)
	}
	h := &host{r: r, spec: spec, forwarded: r.forwarded(spec)}
	if spec.Role != nil {
		if err := r.assumeRole(ctx, spec); err != nil {
			return engine.Outcome{}, failure(workflow.ReasonRoleUnavailable, err)
		}
	}
	if h.secrets, err = r.secrets(ctx, spec); err != nil {
		return engine.Outcome{}, failure(workflow.ReasonSecretUnavailable, err)
	}
	if h.env, err = r.environment(spec, h.forwarded, nil); err != nil {
		return engine.Outcome{}, failure(workflow.ReasonRunnerError, err)
	}
	if h.modules, err = r.modules(ctx, spec, h.env); err != nil {
		return engine.Outcome{}, failure(workflow.ReasonSecretUnavailable, err)
	}
	return r.runEngine(ctx, h)
}

// runEngine fetches the source and runs the engine. The host has the environment and the secrets.
func (r *run) runEngine(ctx context.Context, h *host) (engine.Outcome, error) {
	spec := h.spec
	roots := r.cfg.SourceRoots
	if r.cfg.SourceDir != "" && spec.Source.Directory != "" { // the launcher put it there
		spec.Source.Directory, roots = r.cfg.SourceDir, []string{r.cfg.SourceDir}
	}
	job := engine.Job{
		Spec: spec, TempDir: r.dirs.temp, SecretsDir: r.dirs.secrets,
		Work: r.cfg.WorkDir, Unsaved: r.cfg.Unsaved, StateDir: r.cfg.StateDir, StateOlds: r.cfg.StateOlds, StateStore: r.cfg.StateStore, Bucket: r.cfg.Bucket, Getenv: func(name string) string { return lookIn(h.env, name) },
		EnginePath: r.cfg.EnginePath, Path: r.cfg.Path, Tools: r.toolsOf(), Owner: r.owner(),
		Providers: r.cfg.Providers, HandOverProviders: r.noteProviders, Mirror: r.cfg.ProviderMirror, Mirrored: r.mirrored,
		Packages: r.lent(), DropPackages: func() { r.spoilt = true },
		ReadOnlyState: !workflow.ChangesState(spec.Type, spec.Operation),
	}
	job.Search = engine.StartSearch(ctx, &host{r: r, env: h.env}, job)
	defer job.Search.End()
	var awaited func() error // checks that hooks have made the root module; nil: it is there
	err := h.step(ctx, stepSource, func(ctx context.Context) (string, error) {
		fetched, err := source.Fetch(ctx, source.Request{
			Source: planned(spec), Dest: r.dirs.source, Roots: roots, Data: source.DataAbove(r.cfg.WorkDir),
			Secrets: r.resolver(), Objects: r.objects(),
			Owner: (*source.Owner)(r.owner()), Log: h.Logf, TempDir: r.dirs.work, Aside: r.dirs.aside, Mask: h.Mask,
			Made: makes(spec.Hooks),
		})
		r.dropGiven()
		job.Top, job.Root, job.Aside, job.Fetched = r.dirs.source, fetched.Root, fetched.Aside, cmp.Or(fetched.Commit, fetched.Digest)
		switch {
		case spec.Plan != nil: // its preview found the files as they were submitted
			err = fits(spec.Plan.Source, job.Fetched, err)
		case err == nil && spec.SourceDigest != "" && spec.SourceDigest != fetched.Digest:
			err = errMoved
		}
		h.root, awaited = job.Root, fetched.Awaited
		if err == nil && awaited == nil {
			err = r.writeFiles(job.Root, spec.Files)
		}
		return pointers(fetched.Pointers), err
	})
	if err != nil {
		return engine.Outcome{}, failure(sourceReason(err), err)
	}
	job.Search.Wait() // from here on, only processes of a step run
	if awaited != nil {
		if err := h.makeRoot(ctx, job.Top, awaited); err != nil {
			return engine.Outcome{}, err
		}
	}
	out, err := engine.Run(ctx, h, job)
	if err == nil {
		err = h.late
	}
	return out, err
}

// sourceReason is the reason of a run whose source failed.
func sourceReason(err error) workflow.Reason {
	switch {
	case errors.Is(err, source.ErrCredential):
		return workflow.ReasonSecretUnavailable
	case errors.Is(err, errMoved):
		return workflow.ReasonSourceMoved
	case errors.Is(err, errStale):
		return workflow.ReasonPlanStale
	}
	return workflow.ReasonSourceFailed
}

// planned returns the source of a run: of one that applies a plan, the commit that the plan was made from.
func planned(spec api.Spec) api.Source {
	if spec.Plan == nil {
		return spec.Source
	}
	return spec.Source.At(spec.Plan.Source)
}

// fits refuses a source that is not the one that a plan was made from. A branch can have a commit's name, and a
// repository may have lost the commit, which is why fetching it failed.
func fits(want, fetched string, err error) error {
	refusal, refused := errors.AsType[*workflow.Error](err)
	switch lost := refused && errors.Is(err, workflow.ErrNotFound) && refusal.Field == "source.git.ref"; {
	case lost, err == nil && fetched == "":
		return fmt.Errorf("%w %s: it is not there any more; make a new preview and approve its plan", errStale, want)
	case err == nil && fetched != want:
		return fmt.Errorf("%w %s: the source is now %s; make a new preview and approve its plan", errStale, want, fetched)
	}
	return err
}

// dropGiven removes the copy of a directory source that the launcher put into the work directory: the run has its own.
func (r *run) dropGiven() {
	if rel, err := filepath.Rel(r.cfg.WorkDir, r.cfg.SourceDir); r.cfg.WorkDir != "" && err == nil && filepath.IsLocal(rel) && rel != "." {
		logRemoval(r.log, disk.RemoveTree(r.cfg.SourceDir))
	}
}

// Sources are the directory sources of a machine, for its launchers and its control plane.
type Sources = source.Sources

// DataMarker is a file that every data directory has: none is a source.
const DataMarker = source.DataMarker

// errMoved means that a directory source has changed.
var errMoved = errors.New("files of the source were changed after the run was submitted: submit it again to run the current files")

// pointers says in the step of the source that a run finds pointers of git LFS in place of some files.
func pointers(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("git LFS keeps the contents of %s elsewhere, and they are not fetched: reading one gives its pointer: %s",
		text.Count(len(names), "file"), text.Some(names, 5))
}

// errStale means that the source is not the one that the plan was made from.
var errStale = errors.New("the approved plan was made from source")

// lookIn looks up a variable in an environment, in which later ones win.
func lookIn(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// spec returns the spec of the run, which came with the start, or is asked for.
func (r *run) spec(ctx context.Context) (spec api.Spec, err error) {
	if r.given != nil {
		return *r.given, r.accept(*r.given)
	}
	err = r.persist(ctx, "spec", func(ctx context.Context) (c api.Control, err error) {
		spec, err = r.cfg.Relay.Spec(ctx)
		return c, err
	})
	if err != nil {
		if client.RunOver(err) {
			r.over(err)
		}
		return spec, failure(workflow.ReasonRunnerError, fmt.Errorf("read spec: %w", err))
	}
	return spec, r.accept(spec)
}

// accept checks that a spec is that of the run, and keeps its bounds.
func (r *run) accept(spec api.Spec) error {
	if spec.Workflow != r.cfg.Run.Workflow || spec.Attempt != r.cfg.Run.Attempt {
		return failure(workflow.ReasonRunnerError, fmt.Errorf("the spec is for attempt %d of workflow %s, not for attempt %d of %s", spec.Attempt, spec.Workflow, r.cfg.Run.Attempt, r.cfg.Run.Workflow))
	}
	r.logs.SetQuota(spec.LogQuota)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline == 0 {
		r.deadline = r.clock() + cmp.Or(seconds(spec.MaxRuntimeSeconds), workflow.DefaultMaxRuntime)
		r.firstDeadline = r.deadline
	}
	return nil
}

// resolver resolves references. It uses the run's role, if it has one, for those of the cloud. It asks a few
// times if the store of a secret is unavailable. If a reference picks one key of a document, the rest of the document
// is masked too: this process has read it.
func (r *run) resolver() secrets.Resolver {
	var all secrets.Resolver = secrets.Mux{}
	if r.cfg.Secrets != nil {
		all = r.cfg.Secrets
	}
	if r.role != nil {
		all = withRole{all, r.role.identity}
	}
	return patient{all, func(document string) { r.hidden.Add(document) }}
}

type patient struct {
	secrets.Resolver
	hide func(document string)
}

// Resolve implements secrets.Resolver.
func (p patient) Resolve(ctx context.Context, ref string) (redact.String, error) {
	retry := newBackoff()
	for n := 1; ; n++ {
		value, err := p.Resolver.Resolve(ctx, ref)
		p.hide(value.Document())
		if !errors.Is(err, secrets.ErrUnavailable) || n == secretTries || wait.For(ctx, retry.NextBackOff()) != nil {
			return value, err
		}
	}
}

// hide masks every text of a result and cuts it to its bound.
func (r *run) hide(in api.Result) api.Result {
	hide := func(s *string, limit int) { *s = text.Cut(r.hidden.String(*s), limit) }
	hide(&in.Detail, 2000)
	if in.Changes != nil {
		changes := *in.Changes
		changes.Resources = append([]api.ResourceChange(nil), changes.Resources...)
		for i := range changes.Resources {
			c := &changes.Resources[i]
			c.Changed, c.Forces = slices.Clone(c.Changed), slices.Clone(c.Forces)
			hide(&c.Address, 1000)
			hide(&c.Provider, 255)
			hide(&c.From, 1000)
			for _, names := range [][]string{c.Changed, c.Forces} {
				for j := range names {
					hide(&names[j], 255)
				}
			}
		}
		changes.Outputs = slices.Clone(changes.Outputs)
		for i := range changes.Outputs {
			hide(&changes.Outputs[i].Name, 255)
		}
		in.Changes = &changes
	}
	in.Units = slices.Clone(in.Units)
	for i := range in.Units {
		hide(&in.Units[i].Unit, 1000)
		hide(&in.Units[i].Result, 32)
	}
	if in.Inventory != nil {
		inventory := *in.Inventory
		inventory.Types = slices.Clone(inventory.Types)
		for i := range inventory.Types {
			hide(&inventory.Types[i].Type, 255)
		}
		in.Inventory = &inventory
	}
	if in.Checks != nil {
		checks := *in.Checks
		checks.Names = slices.Clone(checks.Names)
		for i := range checks.Names {
			hide(&checks.Names[i], 255)
		}
		in.Checks = &checks
	}
	in.Policies = r.hidePolicies(in.Policies)
	outputs := append([]api.Output(nil), in.Outputs...)
	for i := range outputs {
		hide(&outputs[i].Name, 255)
		if outputs[i].Sensitive {
			outputs[i].Value = nil
		}
		value := r.hideValue(outputs[i].Value)
		outputs[i].Masked = !sameJSON(value, outputs[i].Value)
		outputs[i].Value = value
	}
	in.Outputs, in.OmittedOutputs = outputs, slices.Clone(in.OmittedOutputs)
	for i := range in.OmittedOutputs {
		hide(&in.OmittedOutputs[i], 255)
	}
	if in.Lock != nil {
		lock := *in.Lock
		hide(&lock.ID, 255)
		hide(&lock.Who, 255)
		hide(&lock.Operation, 255)
		hide(&lock.Created, 64)
		hide(&lock.Path, 1000)
		in.Lock = &lock
	}
	return in
}

// sameJSON reports whether two values are the same in JSON.
func sameJSON(a, b any) bool {
	one, err := json.Marshal(a)
	two, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, two)
}

// hideValue masks every text and number of a JSON value.
func (r *run) hideValue(v any) any {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return mask.Marker
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return mask.Marker
	}
	return r.hideTree(out)
}

func (r *run) hideTree(v any) any {
	switch v := v.(type) {
	case string:
		return r.hidden.String(v)
	case json.Number:
		if s := r.hidden.String(v.String()); s != v.String() {
			return s
		}
		return v
	case []any:
		for i := range v {
			v[i] = r.hideTree(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[r.hidden.String(k)] = r.hideTree(e)
		}
		return out
	default:
		return v
	}
}

// cleanup removes the files of the run. If it fails, the outcome stays the same.
func (r *run) cleanup() {
	started := time.Now()
	r.dirs.removeSecrets(r.log)
	r.dirs.remove(r.log)
	r.log.Debug("directories removed", "duration", time.Since(started))
}
