package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// policyTime is how long the policies of a run may take in all, with the fetching of their packages.
	policyTime = 15 * time.Minute
	// maxAnswer bounds the program's answer for one input.
	maxAnswer = 32 << 20
	// maxPolicyErrors is how much of its error output is read.
	maxPolicyErrors = 4 << 10
	// policyLines is how many findings are written to the log.
	policyLines = 200
)

// Policies implements engine.Host. Neither hooks nor secrets are for this step, and no code of the job runs in it.
func (h *host) Policies(ctx context.Context, on engine.PolicyInputs) (out []api.PolicyResult, err error) {
	held := h.spec.Policies
	if len(held) == 0 && h.spec.Type != workflow.PolicyEvaluation {
		return nil, nil
	}
	err = h.step(ctx, api.StepPolicy, func(ctx context.Context) (string, error) {
		if len(held) == 0 {
			return "no policy group applies to the workspace: nothing was evaluated", nil
		}
		answers, err := h.evaluate(ctx, on)
		if err != nil {
			return "", err
		}
		// Waivers name unmasked addresses, so the results are masked after waivers apply, and cut after that.
		out = bounded(h.r.hidePolicies(evaluateGroups(held, answers)))
		h.logPolicies(out)
		if why := stopped(out); why != "" && (!on.Optional || on.Missing == "") {
			return "", &engine.Failure{Reason: workflow.ReasonPolicyFailed, Detail: why}
		}
		return text.Middle(runtext.Groups(out), 1000), nil
	})
	return out, err
}

// logPolicies writes the findings of policies to the log.
func (h *host) logPolicies(all []api.PolicyResult) {
	lines := 0
	for _, r := range all {
		for _, line := range runtext.GroupLines(r) {
			if lines++; lines > policyLines {
				h.Logf("there are more findings; the result of the run has them")
				return
			}
			h.Logf("%s", line)
		}
	}
}

// evaluate returns the answer for each policy group of the run, in their order. The mistakes of a group are in its
// answer; the error says that the run is ended from outside.
func (h *host) evaluate(ctx context.Context, on engine.PolicyInputs) ([]api.PackageAnswer, error) {
	held := h.spec.Policies
	out := make([]api.PackageAnswer, len(held))
	if len(on.Inputs) > 0 {
		bound, cancel := context.WithTimeoutCause(ctx, policyTime, fmt.Errorf("the policies of the run took longer than %s", policyTime))
		defer cancel()
		h.evaluateAll(bound, on.Inputs, out)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i := range out {
		out[i].Error = cmp.Or(on.Missing, out[i].Error)
	}
	return out, nil
}

// evaluateAll fetches the packages, once each, and evaluates every input. In a container the engine shares the runner's
// user, so nothing of the job may run from before the packages are fetched until they were read.
func (h *host) evaluateAll(ctx context.Context, inputs []engine.PolicyInput, out []api.PackageAnswer) {
	fail := func(err error) {
		for i := range out {
			out[i].Error = cmp.Or(out[i].Error, err.Error())
		}
	}
	program := h.r.cfg.PolicyProgram
	if program == "" {
		var err error
		if program, err = child.Find(api.PolicyProgram); err != nil {
			fail(fmt.Errorf("the program %s is missing: it is installed beside the runner", api.PolicyProgram))
			return
		}
	}
	if err := h.EndProcesses(ctx); err != nil {
		fail(err)
		return
	}
	top, err := os.MkdirTemp(h.r.dirs.work, "policies-*")
	if err == nil {
		err = os.Chmod(top, 0o711) //nolint:gosec // the engine's user passes through it
	}
	if err != nil {
		fail(fmt.Errorf("no directory for packages of policies: %w", err))
		return
	}
	defer func() { logRemoval(h.r.log, disk.RemoveTree(top)) }()
	packages, of := h.packages(ctx, top, out)
	if len(packages) == 0 {
		return
	}
	for _, in := range inputs {
		answer, err := h.ask(ctx, program, top, in.JSON, packages)
		if err != nil {
			fail(err)
			return
		}
		for i := range out {
			if of[i] >= 0 {
				add(&out[i], answer.Packages[of[i]], in.Unit)
			}
		}
	}
}

// packages fetches the packages of the policy groups, each source once. of has for each group the place of its package,
// or -1 where that could not be fetched.
func (h *host) packages(ctx context.Context, top string, out []api.PackageAnswer) (packages []api.PolicyPackage, of []int) {
	seen := map[string]int{}
	errs := map[string]error{}
	for i, p := range h.spec.Policies {
		raw, err := json.Marshal(p.Source)
		key := string(raw)
		if _, ok := seen[key]; !ok && errs[key] == nil {
			if err == nil {
				err = h.fetchPackage(ctx, p, filepath.Join(top, strconv.Itoa(i)), &packages)
			}
			if seen[key] = len(packages) - 1; err != nil {
				delete(seen, key)
				errs[key] = err
			}
		}
		place, ok := seen[key]
		if !ok {
			place = -1
			out[i].Error = fmt.Sprintf("its package could not be fetched: %v", errs[key])
		}
		of = append(of, place)
	}
	return packages, of
}

// fetchPackage fetches the package of a policy group and adds it to the others.
func (h *host) fetchPackage(ctx context.Context, p api.Policy, dest string, packages *[]api.PolicyPackage) error {
	h.Logf("fetching the package of policy group %s", p.Group)
	fetched, err := source.Fetch(ctx, source.Request{
		Source: p.Source, Dest: dest, Roots: h.r.cfg.SourceRoots, Data: source.DataAbove(h.r.cfg.WorkDir),
		Secrets: h.r.resolver(), Objects: h.r.objects(), Owner: (*source.Owner)(h.r.owner()),
		Log: h.Logf, TempDir: h.r.dirs.work, Mask: h.Mask,
	})
	if err != nil {
		return err
	}
	*packages = append(*packages, api.PolicyPackage{Name: strconv.Itoa(len(*packages)), Directory: fetched.Root})
	return nil
}

// ask lets the program evaluate packages over one input. It has nothing of the job's environment.
func (h *host) ask(ctx context.Context, program, dir string, input []byte, packages []api.PolicyPackage) (out api.PolicyAnswer, err error) {
	list, err := json.Marshal(packages)
	if err != nil {
		return out, fmt.Errorf("encode the packages of policies: %w", err)
	}
	// As api.PolicyQuery, without a second copy of a large input.
	query := io.MultiReader(strings.NewReader(`{"input":`), bytes.NewReader(input), strings.NewReader(`,"packages":`), bytes.NewReader(list), strings.NewReader("}\n"))
	answer, said := &limited{limit: maxAnswer}, &limited{limit: maxPolicyErrors}
	oomBefore := oomKills()
	exit, err := h.r.exec(ctx, child.Spec{
		Path: program, Args: []string{"evaluate"}, Dir: dir, Stdin: query, Stdout: answer, Stderr: said,
		User: h.r.cfg.Engine, NoNewPrivileges: true, // it inherits the limit that it writes no core file
	})
	switch {
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case err != nil && exit.Code == 0 && exit.Signal == 0:
		return out, fmt.Errorf("%s cannot be run: %w", api.PolicyProgram, err)
	case exit.Code != 0:
		code := exit.Code
		if exit.Signal != 0 {
			code = 128 + int(exit.Signal)
		}
		h.r.examine(ctx, oomBefore, code)
		return out, fmt.Errorf("%s ended with exit code %d: %s", api.PolicyProgram, code, cmp.Or(strings.Join(strings.Fields(said.String()), " "), "it did not say why"))
	case answer.over:
		return out, fmt.Errorf("%s answered with more than %d MiB", api.PolicyProgram, maxAnswer>>20)
	}
	if err := json.Unmarshal(answer.Bytes(), &out); err != nil {
		return out, fmt.Errorf("%s answered in a form that this version cannot read", api.PolicyProgram)
	}
	same := slices.EqualFunc(out.Packages, packages, func(a api.PackageAnswer, p api.PolicyPackage) bool { return a.Name == p.Name })
	if !same {
		return out, fmt.Errorf("%s did not answer for each package", api.PolicyProgram)
	}
	return out, nil
}

// add adds the answer of a package for one unit to the answer of its group.
func add(to *api.PackageAnswer, a api.PackageAnswer, unit string) {
	to.Rules = max(to.Rules, a.Rules)
	for _, f := range a.Findings {
		f.Address = engine.InUnit(unit, f.Address)
		to.Findings = append(to.Findings, f)
	}
	if a.Error != "" && unit != "" {
		a.Error = "unit " + unit + ": " + a.Error
	}
	to.Error = cmp.Or(to.Error, a.Error)
}

// limited keeps the beginning of a stream.
type limited struct {
	bytes.Buffer
	limit int
	over  bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	room := max(l.limit-l.Len(), 0)
	l.over = l.over || len(p) > room
	_, _ = l.Buffer.Write(p[:min(len(p), room)])
	return len(p), nil
}

// hidePolicies masks every text of the results of policies, and cuts it to its bound.
func (r *run) hidePolicies(all []api.PolicyResult) []api.PolicyResult {
	hide := func(s *string, limit int) { *s = text.Cut(r.hidden.String(*s), limit) }
	all = slices.Clone(all)
	for i := range all {
		hide(&all[i].Error, 1000)
		all[i].Findings = slices.Clone(all[i].Findings)
		for j := range all[i].Findings {
			f := &all[i].Findings[j]
			hide(&f.Rule, 255)
			hide(&f.Address, 1000)
			hide(&f.Message, 1000)
		}
		all[i].Waivers = slices.Clone(all[i].Waivers)
		for j := range all[i].Waivers {
			hide(&all[i].Waivers[j].Reason, 500)
		}
	}
	return all
}
