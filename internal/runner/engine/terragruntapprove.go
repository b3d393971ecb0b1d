package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// tfplanName is the plan file of a unit, below the directory that --out-dir names.
const tfplanName = "tfplan.tfplan"

// The plan of a tree is one plan file for each unit, with the dependency lock files of the units. What people approve is
// what the wrapped engine shows of these bytes. When the tree is applied, the script of wrapEngine gives each unit a copy
// of its file, if that has the digest which was approved. The engine itself refuses a plan of a state that has moved.

// now lists the inputs of this run.
func (g *terragrunt) now() manifest { return manifestOf(g.j, g.op, g.bin, api.StateFound{}, nil) }

// notApprovable says why a plan of all units cannot be approved; empty: it can.
func (g *terragrunt) notApprovable(e ended, mocked bool) string {
	switch ignored := e.named(unitIgnored); {
	case len(ignored) > 0:
		return "it cannot be approved, because terragrunt ignored an error of " + text.Some(ignored, maxNamed)
	case mocked:
		return "it cannot be approved, because a unit was planned with mock outputs of one that was never applied: its log names both. A workspace for each unit, as dayfly workspace discover --terragrunt units makes them, lets the first ones be applied first"
	}
	return ""
}

// storePlans stores the plans of all units, as they are in a directory, and describes them. The JSON that terragrunt
// wrote beside them counts no more: code of a unit could have changed either file.
func (g *terragrunt) storePlans(ctx context.Context, dir string, e ended) (said string, err error) {
	if err := g.readPinned(ctx, dir); err != nil {
		return "", err
	}
	all, err := g.showPinned(ctx, stepPlan)
	if err != nil {
		return "", err
	}
	said = g.recordPlans(ctx, e, all)
	raw, err := packFiles(g.pinned)
	if err != nil {
		return "", stepFailed(stepPlan, err)
	}
	g.out.Plan, err = storeBundle(ctx, g.h, g.now(), all, map[string][]byte{entryPlan: raw}, g.nothing)
	return said, err
}

// readPinned reads the plan files, and the dependency lock files of their units, when no process of the job runs.
func (g *terragrunt) readPinned(ctx context.Context, dir string) error {
	if err := g.h.EndProcesses(ctx); err != nil {
		return runnerError(err)
	}
	g.pinned = map[string][]byte{}
	return fs.WalkDir(g.temp.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != tfplanName {
			return err
		}
		own := strings.TrimPrefix(name, dir+"/")
		unit := path.Dir(own)
		if g.pinned[own], err = g.temp.read(name, maxPlanFile); err != nil {
			return stepFailed(stepPlan, fmt.Errorf("the plan file of unit %s cannot be kept: %w", unit, err))
		}
		lock, err := g.root.read(path.Join(unit, lockFileName), maxLockFile)
		if err == nil {
			g.pinned[path.Join(unit, lockFileName)] = lock
		} else if !errors.Is(err, fs.ErrNotExist) {
			return stepFailed(stepPlan, fmt.Errorf("the dependency lock file of unit %s cannot be kept: %w", unit, err))
		}
		return nil
	})
}

// planned are the units with a plan.
func (g *terragrunt) planned() (units []string) {
	for _, name := range slices.Sorted(maps.Keys(g.pinned)) {
		if path.Base(name) == tfplanName {
			units = append(units, path.Dir(name))
		}
	}
	return units
}

// showPinned reads the plans, of the bytes that count, as the engine shows them, and makes one summary of them. It claims
// the states of their units.
func (g *terragrunt) showPinned(ctx context.Context, step string) (all summary, err error) {
	g.plans, g.shown.Inputs = map[string]summary{}, nil
	if err := errors.Join(g.writePinned(ctx), g.temp.mkdir(g.shownIn)); err != nil {
		return all, err
	}
	if _, err := g.run(ctx, step, []string{"--out-dir", g.temp.join(g.planDir)}, []string{"show", "-json"}); err != nil {
		return all, err
	}
	if err := g.h.EndProcesses(ctx); err != nil {
		return all, runnerError(err)
	}
	dirs, _ := g.temp.names(g.shownIn)
	for _, dir := range dirs {
		dir = path.Join(g.shownIn, dir)
		unit, ok := g.unitOf(dir)
		raw, err := g.temp.read(path.Join(dir, "shown"), maxPlanJSON)
		if _, pinned := g.pinned[path.Join(unit, tfplanName)]; !ok || !pinned || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var s summary
		if err == nil {
			s, err = readPlan(raw, g.mode)
		}
		if err != nil {
			return all, stepFailed(step, fmt.Errorf("read the plan of unit %s: %w", unit, err))
		}
		g.h.Mask(s.secrets...)
		g.plans[unit] = s
		g.addPolicyInput(unit, raw)
	}
	g.units = g.planned()
	for _, unit := range g.units {
		left, err := g.temp.read(path.Join(g.planDir, unit, tfplanName), maxPlanFile)
		if err != nil || !bytes.Equal(left, g.pinned[path.Join(unit, tfplanName)]) {
			return all, stepFailed(step, fmt.Errorf("the plan file of unit %s was changed while the engine showed it, by a provider or a program of the code", unit))
		}
		if _, shown := g.plans[unit]; !shown {
			return all, stepFailed(step, fmt.Errorf("the engine did not show the plan of unit %s", unit))
		}
	}
	if len(g.units) == 0 {
		return all, stepFailed(step, errors.New("terragrunt found no unit, which is a directory with a terragrunt.hcl"))
	}
	states, err := g.checkBackends(g.units)
	if err == nil {
		err = claimStates(ctx, g.h, g.j.Spec.Workflow, !g.mode.apply, states...)
	}
	if err != nil {
		return all, err
	}
	return mergePlans(g.plans)
}

// fetchApproved fetches the approved plans, and writes the dependency lock files of their units.
func (g *terragrunt) fetchApproved(ctx context.Context) (err error) {
	if g.approved, err = fetchBundle(ctx, g.h, g.j.Spec.Plan, g.now()); err != nil {
		return err
	}
	if g.pinned, err = unpackFiles(g.approved.entries[entryPlan]); err != nil {
		return planStale("its bundle cannot be used: " + err.Error())
	}
	for name, data := range g.pinned {
		if path.Base(name) == lockFileName {
			if err := errors.Join(g.root.mkdirs(path.Dir(name)), g.root.write(name, data)); err != nil {
				return runnerError(fmt.Errorf("write the dependency lock file of a unit: %w", err))
			}
		}
	}
	return nil
}

// check is the last check of the approved plans before they are applied.
func (g *terragrunt) check(ctx context.Context) (string, error) {
	all, err := g.showPinned(ctx, stepCheck)
	if err != nil {
		return "", err
	}
	now := g.now()
	now.Summary = all.digest
	if err := g.approved.equals(now); err != nil {
		return "", err
	}
	return g.recordPlans(ctx, ended{}, all), nil
}

// writePinned writes the plan files into a new directory, whose name no process of the job can know.
func (g *terragrunt) writePinned(ctx context.Context) error {
	if err := g.h.EndProcesses(ctx); err != nil {
		return runnerError(err)
	}
	g.planDir = newName("plans-", "")
	for name, data := range g.pinned {
		at := path.Join(g.planDir, name)
		if path.Base(name) != tfplanName {
			continue
		}
		if err := errors.Join(g.temp.mkdirs(path.Dir(at)), g.temp.write(at, data)); err != nil {
			return runnerError(fmt.Errorf("write the plan file of a unit: %w", err))
		}
	}
	return nil
}

// placePlans writes the approved plans right before they are applied, with their digests.
func (g *terragrunt) placePlans(ctx context.Context) error {
	if err := g.writePinned(ctx); err != nil {
		return err
	}
	var sums strings.Builder
	for _, unit := range g.planned() {
		name := path.Join(unit, tfplanName)
		fmt.Fprintf(&sums, "%s %s\n", sha256Hex(g.pinned[name]), g.temp.join(path.Join(g.planDir, name)))
	}
	if err := g.temp.write(g.sums, []byte(sums.String())); err != nil {
		return runnerError(fmt.Errorf("write the digests of the plans: %w", err))
	}
	return nil
}

// onlyApproved is the part of the script that gives the engine a copy of the approved plan of its unit, and no other.
// destroy takes no plan, and a plan to destroy is applied.
func (g *terragrunt) onlyApproved() string {
	if g.j.Spec.Plan == nil {
		return ""
	}
	g.sums = newName("sums-", "")
	return fmt.Sprintf(`	for plan; do :; done
	copy=$(mktemp -d %s/XXXXXXXXXX) && cp "$plan" "$copy/plan" && sum=$(sha256sum <"$copy/plan") &&
		grep -qxF "${sum%%%% *} $plan" %s || {
		echo "Error: the plan of this unit is not the one that was approved" >&2
		exit 1
	}
	shift
	for arg; do
		shift
		[ "$arg" = "$plan" ] || set -- "$@" "$arg"
	done
	set -- apply "$@" "$copy/plan"
`, text.ShellWord(g.temp.join(g.printed)), text.ShellWord(g.temp.join(g.sums)))
}

// keepsShown is the part of the script that keeps what the engine shows of a plan out of the log, once the runner has
// made a directory for it.
func (g *terragrunt) keepsShown() string {
	g.shownIn = newName("shown-", "")
	return fmt.Sprintf(`show)
	if [ -d %[1]s ]; then
		kept=$(mktemp -d %[1]s/XXXXXXXXXX) && pwd -P >"$kept/dir" && exec >"$kept/shown"
	fi ;;
`, text.ShellWord(g.temp.join(g.shownIn)))
}

// spot says whether a text went through it.
type spot struct {
	text []byte
	rest []byte
	seen bool
}

// Write looks for the text, also across two writes.
func (s *spot) Write(b []byte) (int, error) {
	s.rest = append(s.rest, b...)
	s.seen = s.seen || bytes.Contains(s.rest, s.text)
	s.rest = bytes.Clone(s.rest[max(0, len(s.rest)-len(s.text)):])
	return len(b), nil
}

// packFiles makes one archive of files: always the same bytes for the same files.
func packFiles(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	err := archive(&out, slices.Sorted(maps.Keys(files)), files)
	if err == nil && out.Len() > maxPlanFile {
		err = fmt.Errorf("the plans of all units have more than %d MiB, which is too large to be approved", maxPlanFile>>20)
	}
	return out.Bytes(), err
}

// unpackFiles is strict: it accepts only archives of packFiles with plan and lock files.
func unpackFiles(raw []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	in := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Size > int64(len(raw)) || !filepath.IsLocal(h.Name) || path.Clean(h.Name) != h.Name {
			return nil, errors.New("its plans are not a whole archive")
		}
		if base := path.Base(h.Name); base != tfplanName && base != lockFileName || h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("its plans have the file %s, which none has", quote(h.Name))
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			return nil, errors.New("its plans are not a whole archive")
		}
	}
	again, err := packFiles(files)
	if err != nil || !bytes.Equal(again, raw) {
		return nil, errors.New("its plans have something that no bundle has")
	}
	return files, nil
}
