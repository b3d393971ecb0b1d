package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestCarryOver(t *testing.T) {
	day := 24 * time.Hour
	vote := func(at time.Time, names ...string) (out []api.Vote) {
		for _, name := range names {
			out = append(out, api.Vote{By: name, ByID: "prn_" + name, At: at, Comment: "seen"})
		}
		return out
	}
	values := strings.Repeat("c", 64)
	plan := func(id, sum string) api.PlanRef {
		return api.PlanRef{Workflow: id, PlanMade: api.PlanMade{SHA256: strings.Repeat(sum, 64)}}
	}
	given := now.Add(-5 * day) // later than the pull request's plan could be approved
	from := record.Review{
		Status: api.ReviewMerge, For: workflow.Update, Settings: "s", Needed: 1, Submitters: refs("ada"), AfterMerge: true,
		Expires: given.Add(time.Hour), Plan: plan("wf_pull", "a"), Values: values, Votes: vote(given, "bob"),
	}
	to := record.Review{
		Status: api.ReviewWaiting, For: workflow.Update, Settings: "s", Needed: 1, Submitters: refs("mia"), Why: []string{"w"},
		Expires: now.Add(day), Plan: plan("wf_push", "b"), Values: values,
	}
	p := rules.Present{Settings: "s", Editor: ref("eve"), Made: now, Kept: now.Add(30 * day), Wanted: rules.Wanted{Why: []string{"w"}, Expires: day}}
	type parts struct {
		to, from *record.Review
		p        *rules.Present
	}
	for name, tc := range map[string]struct {
		change func(g parts)
		want   string // status, where something is carried over
		voters string
		why    string
	}{
		"approved, then merged": {want: api.ReviewApproved, voters: "bob"},
		"others":                {change: func(g parts) { g.from.Values = strings.Repeat("d", 64) }, why: "not all equal"},
		"none":                  {change: func(g parts) { g.from.Values, g.to.Values = "", "" }, why: "not all equal"},
		"for something else":    {change: func(g parts) { g.from.For = workflow.Destroy }, why: "for the operation destroy"},
		"settings before":       {change: func(g parts) { g.from.Settings = "r" }, why: "settings"},
		"settings since":        {change: func(g parts) { g.p.Settings = "t" }, why: "settings"},
		"rejected": {change: func(g parts) {
			g.from.Status, g.from.Votes = api.ReviewRejected, append(vote(given, "bob"), api.Vote{By: "joe", ByID: "prn_joe", Reject: true, Comment: "no"})
		}, why: "rejected by joe"},
		"applied before the merge":      {change: func(g parts) { g.from.Status = api.ReviewApproved }, why: "used already"},
		"carried over before":           {change: func(g parts) { g.from.Status = api.ReviewCarried }, why: "used already"},
		"one of two, and time is over":  {change: func(g parts) { g.from.Status, g.from.Needed = api.ReviewWaiting, 2 }, why: "not approved in time"},
		"one of two":                    {change: func(g parts) { g.from.Status, g.from.Needed, g.from.Expires = api.ReviewWaiting, 2, now.Add(1) }, want: api.ReviewWaiting, voters: "bob"},
		"too old":                       {change: func(g parts) { g.from.Votes[0].At = now.Add(-14*day - 1) }, why: "too old"},
		"as old as they may be":         {change: func(g parts) { g.from.Votes[0].At = now.Add(-14 * day) }, want: api.ReviewApproved, voters: "bob"},
		"by the merger, anybody may":    {change: func(g parts) { g.to.Submitters = refs("bob") }, want: api.ReviewApproved, voters: "bob"},
		"by the merger":                 {change: func(g parts) { g.to.Submitters, g.p.Wanted.NotBySubmitter = refs("bob"), true }, why: "none of those"},
		"by the opener":                 {change: func(g parts) { g.from.Votes, g.from.NotBySubmitter = vote(given, "ada"), true }, why: "none of those"},
		"by the editor of the settings": {change: func(g parts) { g.p.Editor, g.p.Wanted.NotBySubmitter = ref("bob"), true }, why: "none of those"},
		"one of two counts":             {change: func(g parts) { g.from.Votes, g.p.Wanted.NotBySubmitter = vote(given, "mia", "bob"), true }, want: api.ReviewApproved, voters: "bob"},
		"unknown authors":               {change: func(g parts) { g.p.Authors, g.p.Wanted.NotBySubmitter = true, true }, want: api.ReviewWaiting, voters: "bob"},
		"a stranger opened it":          {change: func(g parts) { g.from.Strangers, g.p.Wanted.NotBySubmitter = true, true }, want: api.ReviewWaiting, voters: "bob"},
		"earlier requirements stay":     {change: func(g parts) { g.from.Needed, g.from.NeededWhy = 2, "so" }, want: api.ReviewWaiting, voters: "bob"},
		"two of two":                    {change: func(g parts) { g.from.Needed, g.from.Votes = 2, vote(given, "bob", "joe") }, want: api.ReviewApproved, voters: "bob joe"},
	} {
		a, b, c := to, from, p
		b.Votes = append([]api.Vote(nil), from.Votes...)
		if tc.change != nil {
			tc.change(parts{&a, &b, &c})
		}
		got, why := rules.CarryOver(a, b, c, now)
		if tc.why != "" {
			if !strings.Contains(why, tc.why) || got.Status != api.ReviewWaiting || len(got.Votes) > 0 || got.CarriedFrom != "" {
				t.Errorf("%s: %+v, because %q; want nothing, because %q", name, got, why, tc.why)
			}
			continue
		}
		var voters []string
		for _, v := range got.Votes {
			voters = append(voters, v.By)
			if !v.At.Equal(b.Votes[0].At) || v.Comment != "seen" {
				t.Errorf("%s: vote %+v", name, v)
			}
		}
		if why != "" || got.Status != tc.want || strings.Join(voters, " ") != tc.voters || got.CarriedFrom != "wf_pull" || got.Plan != a.Plan || got.AfterMerge {
			t.Errorf("%s: %+v, because %q", name, got, why)
		}
		if got.Status == api.ReviewWaiting && got.NeededWhy == "" && b.Status == api.ReviewMerge {
			t.Errorf("%s: it does not say why it needs %d", name, got.Needed)
		}
	}
}
