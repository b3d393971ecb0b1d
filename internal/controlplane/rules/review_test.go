package rules_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestDecide(t *testing.T) {
	sum := strings.Repeat("a", 64)
	later := now.Add(time.Hour)
	waiting := record.Review{
		Status: api.ReviewWaiting, For: workflow.Update, Settings: "s", Needed: 1, Submitters: refs("ada"), Expires: later,
		Plan: api.PlanRef{Workflow: "wf_a", PlanMade: api.PlanMade{SHA256: sum}},
	}
	was := func(change func(*record.Review)) record.Review { r := waiting; change(&r); return r }
	vote := func(names ...string) (out []api.Vote) {
		for _, name := range names {
			out = append(out, api.Vote{By: name, ByID: "prn_" + name})
		}
		return out
	}
	usual := rules.Present{Settings: "s", Editor: ref("eve"), Made: now, Kept: now.Add(24 * time.Hour), Wanted: rules.Wanted{Expires: time.Hour}}
	present := func(change func(*rules.Present)) rules.Present { p := usual; change(&p); return p }
	strict := present(func(p *rules.Present) { p.Wanted.NotBySubmitter, p.Wanted.Why = true, []string{"w"} })
	unknown := present(func(p *rules.Present) { p.Wanted.NotBySubmitter, p.Authors = true, true })
	merge := present(func(p *rules.Present) { p.Wanted.AfterMerge, p.Pull = true, true })
	based := was(func(r *record.Review) { r.Base = &record.Base{Lineage: "l", Serial: 3} })
	state := func(lineage string, serial int64) rules.Present {
		return present(func(p *rules.Present) { p.State = api.StateFound{Lineage: lineage, Serial: serial} })
	}
	valued := func(change func(*record.Review)) record.Review {
		return was(func(r *record.Review) { r.Values = sum; change(r) })
	}
	for name, tc := range map[string]struct {
		was    record.Review
		by     string
		reject bool
		sum    string
		p      rules.Present
		want   string // status
		same   bool   // nothing was decided
		err    error
	}{
		"approved":                          {was: waiting, by: "ada", p: usual, want: api.ReviewApproved},
		"rejected":                          {was: waiting, by: "ada", reject: true, want: api.ReviewRejected},
		"another plan":                      {was: waiting, by: "bob", sum: strings.Repeat("b", 64), p: usual, err: workflow.ErrConflict},
		"rejecting another plan":            {was: waiting, by: "bob", sum: "b", reject: true, err: workflow.ErrConflict},
		"other settings":                    {was: waiting, by: "bob", p: present(func(p *rules.Present) { p.Settings = "t" }), err: workflow.ErrConflict},
		"a deleted workspace":               {was: waiting, by: "bob", p: rules.Present{Made: now}, err: workflow.ErrConflict},
		"rejected, workspace deleted":       {was: waiting, by: "bob", reject: true, p: rules.Present{Made: now}, want: api.ReviewRejected},
		"by the submitter":                  {was: waiting, by: "ada", p: strict, err: workflow.ErrForbidden},
		"by the editor":                     {was: waiting, by: "eve", p: strict, err: workflow.ErrForbidden},
		"the submitter rejects":             {was: waiting, by: "ada", reject: true, p: strict, want: api.ReviewRejected},
		"by somebody else":                  {was: waiting, by: "bob", p: strict, want: api.ReviewApproved},
		"earlier requirements stay":         {was: was(func(r *record.Review) { r.NotBySubmitter = true }), by: "ada", p: usual, err: workflow.ErrForbidden},
		"the first of two":                  {was: waiting, by: "bob", p: unknown, want: api.ReviewWaiting},
		"authors nobody knows, anybody may": {was: waiting, by: "ada", p: present(func(p *rules.Present) { p.Authors = true }), want: api.ReviewApproved},
		"a stranger's":                      {was: was(func(r *record.Review) { r.Strangers = true }), by: "bob", p: strict, want: api.ReviewWaiting},
		"a stranger's, anybody may":         {was: was(func(r *record.Review) { r.Strangers = true }), by: "bob", p: usual, want: api.ReviewApproved},
		"of a pull request":                 {was: valued(func(*record.Review) {}), by: "bob", p: merge, want: api.ReviewMerge},
		"of no pull request":                {was: valued(func(*record.Review) {}), by: "bob", p: present(func(p *rules.Present) { p.Wanted.AfterMerge = true }), want: api.ReviewApproved},
		"after the merge stays":             {was: valued(func(r *record.Review) { r.AfterMerge = true }), by: "bob", p: usual, want: api.ReviewMerge},
		"it cannot be compared":             {was: waiting, by: "bob", p: merge, err: workflow.ErrConflict},
		"it waits for the merge":            {was: valued(func(r *record.Review) { r.Status, r.Votes = api.ReviewMerge, vote("bob") }), by: "eve", p: merge, err: workflow.ErrConflict},
		"rejected before the merge":         {was: valued(func(r *record.Review) { r.Status, r.Votes = api.ReviewMerge, vote("bob") }), by: "eve", reject: true, p: merge, want: api.ReviewRejected},
		"carried over":                      {was: valued(func(r *record.Review) { r.Status, r.Votes = api.ReviewCarried, vote("bob") }), by: "eve", reject: true, p: merge, err: workflow.ErrConflict},
		"the second of two":                 {was: was(func(r *record.Review) { r.Needed, r.Votes = 2, vote("bob") }), by: "joe", p: usual, want: api.ReviewApproved},
		"the same one again":                {was: was(func(r *record.Review) { r.Needed, r.Votes = 2, vote("bob") }), by: "bob", p: usual, want: api.ReviewWaiting, same: true},
		"a voter edited since":              {was: was(func(r *record.Review) { r.Needed, r.Votes = 2, vote("eve") }), by: "bob", p: strict, want: api.ReviewWaiting},
		"expired":                           {was: was(func(r *record.Review) { r.Expires = now }), by: "bob", p: usual, err: workflow.ErrConflict},
		"rejecting an expired plan":         {was: was(func(r *record.Review) { r.Expires = now }), by: "bob", reject: true, err: workflow.ErrConflict},
		"expired by a level of now":         {was: waiting, by: "bob", p: present(func(p *rules.Present) { p.Made = now.Add(-time.Hour) }), err: workflow.ErrConflict},
		"the same state":                    {was: based, by: "bob", p: state("l", 3), want: api.ReviewApproved},
		"an older state was seen":           {was: based, by: "bob", p: state("l", 2), want: api.ReviewApproved},
		"the state has moved":               {was: based, by: "bob", p: state("l", 4), err: workflow.ErrConflict},
		"another state":                     {was: based, by: "bob", p: state("m", 3), err: workflow.ErrConflict},
		"no state any more":                 {was: based, by: "bob", p: usual, err: workflow.ErrConflict},
		"there was no state":                {was: was(func(r *record.Review) { r.Base = &record.Base{} }), by: "bob", p: state("l", 1), err: workflow.ErrConflict},
		"still no state":                    {was: was(func(r *record.Review) { r.Base = &record.Base{} }), by: "bob", p: usual, want: api.ReviewApproved},
		"rejecting a stale plan":            {was: based, by: "bob", reject: true, p: state("l", 4), want: api.ReviewRejected},
		"unchanged":                         {was: was(func(r *record.Review) { r.Status = api.ReviewEmpty }), by: "bob", p: usual, err: workflow.ErrConflict},
		"rejected before":                   {was: was(func(r *record.Review) { r.Status = api.ReviewRejected }), by: "bob", p: usual, err: workflow.ErrConflict},
		"approved before by another":        {was: was(func(r *record.Review) { r.Status, r.Votes = api.ReviewApproved, vote("eve") }), by: "bob", p: usual, err: workflow.ErrConflict},
		"approved before by the same":       {was: was(func(r *record.Review) { r.Status, r.Votes = api.ReviewApproved, vote("bob") }), by: "bob", p: usual, want: api.ReviewApproved, same: true},
		"rejecting an approved plan":        {was: was(func(r *record.Review) { r.Status, r.Votes = api.ReviewApproved, vote("bob") }), by: "bob", reject: true, err: workflow.ErrConflict},
	} {
		d := rules.Decision{Decision: api.Decision{SHA256: sum}, By: ref(tc.by), Reject: tc.reject}
		if tc.sum != "" {
			d.SHA256 = tc.sum
		}
		got, made, err := rules.Decide(tc.was, d, tc.p, now)
		switch {
		case tc.err != nil:
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: %v, want %v", name, err, tc.err)
			}
		case err != nil || got.Status != tc.want || made == tc.same:
			t.Errorf("%s: %s, made %t, %v", name, got.Status, made, err)
		case made && len(got.Votes) != len(tc.was.Votes)+1:
			t.Errorf("%s: votes %+v", name, got.Votes)
		}
	}
}

func TestStart_NeedsAPermit(t *testing.T) {
	approved := record.Review{Status: api.ReviewApproved, Settings: "s", Applies: deployment(workflow.Claimed).ID}
	for name, tc := range map[string]struct {
		op     workflow.Operation
		planOf string
		permit rules.Permit
		want   workflow.Reason
	}{
		"nothing is required":       {workflow.Update, "", rules.Permit{Settings: "s"}, ""},
		"it has no plan":            {workflow.Update, "", rules.Permit{Required: true, Settings: "s"}, workflow.ReasonNotApproved},
		"it changes nothing":        {workflow.Preview, "", rules.Permit{Required: true, Settings: "s"}, ""},
		"approved":                  {workflow.Update, "wf_p", rules.Permit{Required: true, Settings: "s", Review: approved}, ""},
		"approved, not required":    {workflow.Update, "wf_p", rules.Permit{Settings: "s", Review: approved}, ""},
		"approved for another run":  {workflow.Update, "wf_p", rules.Permit{Settings: "s", Review: record.Review{Status: api.ReviewApproved, Settings: "s", Applies: "wf_x"}}, workflow.ReasonNotApproved},
		"its review is gone":        {workflow.Update, "wf_p", rules.Permit{Settings: "s"}, workflow.ReasonNotApproved},
		"other settings":            {workflow.Update, "wf_p", rules.Permit{Settings: "t", Review: approved}, workflow.ReasonPlanStale},
		"the workspace was deleted": {workflow.Update, "wf_p", rules.Permit{Review: approved}, workflow.ReasonPlanStale},
	} {
		w := deployment(workflow.Claimed)
		w.Op, w.PlanOf = tc.op, tc.planOf
		out, err := rules.Start(w, rules.MayStart, own(w), nil, tc.permit, at(now))
		if err != nil || out.Move.Reason != tc.want || (out.Move.To == workflow.Failed) != (tc.want != "") {
			t.Errorf("%s: %+v, %v", name, out.Move, err)
		}
	}
}

// The id identifies a person, and the name is only shown: of one person under two names, and of two under one.
func TestDecide_GoesByTheIDAndNotByTheName(t *testing.T) {
	ada, alias, namesake := ref("ada"), api.PrincipalRef{ID: "prn_ada", Name: "root"}, api.PrincipalRef{ID: "prn_2", Name: "ada"}
	strict := rules.Present{Settings: "s", Kept: now.Add(24 * time.Hour), Made: now, Wanted: rules.Wanted{Why: []string{"w"}, NotBySubmitter: true, Expires: time.Hour}}
	decide := func(was record.Review, by api.PrincipalRef) (record.Review, error) {
		got, _, err := rules.Decide(was, rules.Decision{Decision: api.Decision{SHA256: strings.Repeat("a", 64)}, By: by}, strict, now)
		return got, err
	}
	was := record.Review{
		Status: api.ReviewWaiting, For: workflow.Update, Settings: "s", Needed: 1, Submitters: api.PrincipalRefs{ada}, Expires: now.Add(time.Hour),
		Plan: api.PlanRef{Workflow: "wf_p", PlanMade: api.PlanMade{SHA256: strings.Repeat("a", 64)}},
	}
	if _, err := decide(was, alias); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("the submitter approves it under another name: %v", err)
	}
	if got, err := decide(was, namesake); err != nil || got.Status != api.ReviewApproved {
		t.Errorf("another of the submitter's name: %s, %v", got.Status, err)
	}
	was.Needed, was.Submitters = 2, refs("mia")
	first, err := decide(was, ada)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decide(first, alias); err != nil || got.Status != api.ReviewWaiting || len(got.Votes) != 1 {
		t.Errorf("one person counts twice: %s, %v, %v", got.Status, got.Votes, err)
	}
	if got, err := decide(first, namesake); err != nil || got.Status != api.ReviewApproved {
		t.Errorf("two people of one name count once: %s, %v", got.Status, err)
	}
}

// ref is a principal, whose id is not its name.
func ref(name string) api.PrincipalRef { return api.PrincipalRef{ID: "prn_" + name, Name: name} }

func refs(names ...string) (out api.PrincipalRefs) {
	for _, name := range names {
		out = append(out, ref(name))
	}
	return out
}
