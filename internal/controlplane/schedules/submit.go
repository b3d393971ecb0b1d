package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of one round.
const (
	maxWrites = 200 // workspaces for which something is submitted or noted
	roundPage = 100 // schedules, or workspaces, of one read
	perSweep  = 50  // records that one commit deletes
)

// round is one round over the schedules of an organization.
type round struct {
	*Calls
	org    string
	until  time.Time
	view   *ledger.Change    // of projects and pools, which are read once
	off    map[string]string // by route: why no pool takes its runs
	writes int
	errs   []error
}

// Round submits the due runs of the schedules of an organization. It is bounded in its writes and in time: more says
// that it did not come to the end; then the next one begins with another schedule. A second round is harmless, also
// at the same time. An error about one schedule or workspace does not stop the others.
func (p *Calls) Round(ctx context.Context, org string, until time.Time) (more bool, err error) {
	t := &round{Calls: p, org: org, until: until, view: p.ledger.View(), off: map[string]string{}}
	k := record.SchedulePlaceKey(org)
	r, err := p.ledger.Read(ctx, k)
	if err != nil {
		return false, err
	}
	place, _, err := ledger.Get[record.SchedulePlace](r, k)
	if err != nil {
		return false, err
	}
	stopped, err := t.all(ctx, place.Name)
	if err == nil && stopped != place.Name {
		err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
			err := c.Load(ctx, k)
			c.Put(k, record.SchedulePlace{Name: stopped})
			return err
		})
	}
	return stopped != "", errors.Join(append(t.errs, err)...)
}

// over says whether the round has to end.
func (t *round) over(ctx context.Context) bool {
	return t.writes >= maxWrites || ctx.Err() != nil || !t.ledger.Now().Before(t.until)
}

// all goes through the schedules after the one at which the last round was cut short, then through the others. It
// returns the one at which it was cut short itself.
func (t *round) all(ctx context.Context, from string) (stopped string, err error) {
	end := record.After(record.SettingsPrefix(kind.Schedule))
	scans := []store.Scan{{From: record.GoneSchedulesPrefix, To: end}}
	if from != "" {
		last := record.SettingsPrefix(kind.Schedule) + from
		scans = []store.Scan{{From: record.SettingsPrefix(kind.Schedule), After: last, To: end}, {From: record.GoneSchedulesPrefix, To: last + "!"}} // which no name has
	}
	for _, s := range scans {
		s.Part, s.Limit = record.OrganizationPart(t.org), roundPage
		for more := true; more; more = s.After != "" {
			page, err := t.ledger.Range(ctx, s)
			if err != nil {
				return from, err
			}
			if stopped, err := t.page(ctx, page.Records); stopped != "" || err != nil {
				return stopped, err
			}
			s.After = page.Next
		}
	}
	return "", nil
}

// page does the cycles of a page of schedules, and sweeps up after deleted ones.
func (t *round) page(ctx context.Context, records []store.Record) (stopped string, err error) {
	var list []schedule
	var keys []store.Key
	for _, r := range records {
		if r.Key.Sort < record.SettingsPrefix(kind.Schedule) {
			t.failed(t.sweep(ctx, r))
			continue
		}
		s, err := record.Decode[schedule](r)
		if err != nil {
			t.failed(err)
		} else if !s.V.IsPaused {
			list, keys = append(list, s), append(keys, record.CycleKey(s.ID))
		}
	}
	cycles, err := t.ledger.Read(ctx, keys...)
	if err != nil {
		return "", err
	}
	for i, s := range list {
		done, _, err := ledger.Get[record.Cycle](cycles, keys[i])
		if err != nil {
			t.failed(err)
			continue
		}
		now := t.ledger.Now()
		c, err := cycleOf(s, done, now)
		if err != nil || !c.open() {
			t.failed(err)
			continue
		}
		whole, err := t.cycle(ctx, s, c, now)
		if err == nil && whole {
			err = t.whole(ctx, s, c)
		}
		if t.failed(err); t.over(ctx) {
			return s.V.Name, nil
		}
	}
	return "", nil
}

func (t *round) failed(err error) {
	if err != nil {
		t.errs = append(t.errs, err)
	}
}

// cycle handles the workspaces of a schedule that are due. whole says that none remains for a later round.
func (t *round) cycle(ctx context.Context, s schedule, c cycle, now time.Time) (whole bool, err error) {
	whole = true
	for after, more := "", true; more; more = after != "" {
		var list []record.Workspace
		if list, after, err = t.targets(ctx, t.view, t.org, s.V, after, roundPage); err != nil {
			return false, err
		}
		known, err := t.plannedOf(ctx, s.ID, list)
		if err != nil {
			return false, err
		}
		for i, ws := range list {
			at := target{id: ws.ID, made: ws.Created, planned: known[i]}
			d := c.due(at, now)
			whole = whole && d.do != later
			if d.do == nothing || d.do == later {
				continue
			}
			if t.over(ctx) {
				return false, nil
			}
			if d, err = t.look(ctx, c, at, ws, now); err == nil {
				whole = whole && d.do != wait
				err = t.act(ctx, s, c, ws, at.planned, d)
			}
			if err != nil {
				whole = false
				t.failed(fmt.Errorf("schedule %s, workspace %s: %w", s.V.Name, ws.W.Name, err))
			}
		}
	}
	return whole, nil
}

// look decides about a workspace that is due, with the facts that take more reads.
func (t *round) look(ctx context.Context, c cycle, at target, ws record.Workspace, now time.Time) (d decision, err error) {
	if at.off, err = t.offOf(ctx, ws); err != nil {
		return d, err
	}
	if id := at.planned.Run; id != "" && at.off == "" {
		w, ok, err := ledger.Load[record.Workflow](ctx, t.ledger.View(), record.WorkflowKey(id))
		if err != nil {
			return d, err
		}
		if ok && !w.State.Terminal() {
			at.running = id
		}
	}
	return c.due(at, now), nil
}

// offOf says why no pool would take a run of a workspace now; "" if one would, or if a submission says more.
func (t *round) offOf(ctx context.Context, ws record.Workspace) (string, error) {
	choice, err := catalog.ChoiceOf(ctx, t.view, t.org, ws)
	if errors.Is(err, workflow.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if why, known := t.off[choice.Key]; known {
		return why, nil
	}
	why, err := choice.Disabled(ctx, t.view, t.org)
	if err == nil {
		t.off[choice.Key] = why
	}
	return why, err
}

// act carries out the decision about a workspace, and then notes it: a run that was submitted and not noted is found
// by its idempotency key.
func (t *round) act(ctx context.Context, s schedule, c cycle, ws record.Workspace, before record.Planned, d decision) error {
	after := record.Planned{At: c.at, Run: before.Run, Missed: d.missed, Note: d.note}
	switch {
	case d.do == wait:
		if before.Waits && before.Note == d.note {
			return nil
		}
		after = before
		after.Note, after.Waits = d.note, true
	case d.do == submit:
		who := identity.Principal{Organization: t.org, ID: s.ID, Name: "schedule/" + s.V.Name, Audience: identity.User, Role: api.RoleOperator}
		key := fmt.Sprintf("%s/%d", ws.ID, c.at.Unix())
		by := runs.Triggered{Trigger: record.Trigger{Kind: api.TriggerSchedule, Name: s.V.Name}, Submitters: api.PrincipalRefs{{ID: s.ByID, Name: s.By}}}
		wf, err := t.runs.SubmitFor(ctx, who, key, submitOf(s.V, ws.W.Name), by)
		refusal, refused := errors.AsType[*workflow.Error](err)
		switch {
		case refused && !errors.Is(err, workflow.ErrBusy):
			after.Note = refusal.Message
		case err != nil:
			return err
		default:
			after.Run = wf.ID
		}
	}
	t.writes++
	return t.ledger.Change(ctx, func(ctx context.Context, ch *ledger.Change) error {
		k := record.PlannedKey(s.ID, ws.ID)
		has, _, err := ledger.Load[record.Planned](ctx, ch, k)
		if err != nil || !has.At.Before(c.at) {
			return err // another round was here
		}
		var until time.Time
		if t.ledger.StoreExpires {
			until = rules.Latest(c.at, c.times.next(c.at)).Add(record.PlannedKept)
		}
		ch.PutUntil(k, after, until)
		return nil
	})
}

// whole notes that a cycle is done. Once a day it deletes the records of workspaces that are gone.
func (t *round) whole(ctx context.Context, s schedule, c cycle) error {
	k := record.CycleKey(s.ID)
	err := t.ledger.Change(ctx, func(ctx context.Context, ch *ledger.Change) error {
		done, _, err := ledger.Load[record.Cycle](ctx, ch, k)
		if err != nil || !done.At.Before(c.at) {
			return err
		}
		ch.Put(k, record.Cycle{At: c.at})
		return nil
	})
	if err != nil || c.done.IsZero() || c.at.Truncate(record.Day).Equal(c.done.Truncate(record.Day)) {
		return err
	}
	has := map[string]bool{k.Sort: true}
	for after, more := "", true; more; more = after != "" {
		var list []record.Workspace
		if list, after, err = t.targets(ctx, t.view, t.org, s.V, after, roundPage); err != nil {
			return err
		}
		for _, ws := range list {
			has[ws.ID] = true
		}
	}
	return unlessLost(t.forget(ctx, s.ID, func(r store.Record) bool { return !has[r.Key.Sort] }))
}

// sweep deletes the records of a deleted schedule, and then the note that it was deleted.
func (t *round) sweep(ctx context.Context, gone store.Record) error {
	name, err := record.Decode[record.Name](gone)
	if err == nil {
		err = t.forget(ctx, name.ID, func(store.Record) bool { return true })
	}
	if err == nil {
		err = t.ledger.Commit(ctx, []store.Op{store.Delete(gone.Key, gone.Version)})
	}
	return unlessLost(err)
}

// forget deletes records of the last actions of a schedule.
func (t *round) forget(ctx context.Context, id string, which func(store.Record) bool) error {
	var ops []store.Op
	for r, err := range t.ledger.View().All(ctx, store.Scan{Part: record.PlannedPart(id), Limit: roundPage}) {
		if err != nil {
			return err
		}
		if which(r) {
			ops = append(ops, store.Delete(r.Key, r.Version))
		}
	}
	for some := range slices.Chunk(ops, perSweep) {
		if err := t.ledger.Commit(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// unlessLost drops the error of a lost race: the winner has done the same, or the next round looks again.
func unlessLost(err error) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrBusy) {
		return nil
	}
	return err
}
