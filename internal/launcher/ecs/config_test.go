package ecs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func config() ecs.Config {
	return ecs.Config{
		Cluster: "dayfly", TaskDefinition: "dayfly-runner:7", Container: "runner", Pool: "prod",
		Subnets: []string{"subnet-a", "subnet-b", "subnet-c"}, SecurityGroups: []string{"sg-1"},
	}
}

func TestValidate_TakesNamesAndARNs(t *testing.T) {
	for name, change := range map[string]func(*ecs.Config){
		"names":        func(*ecs.Config) {},
		"no revision":  func(c *ecs.Config) { c.TaskDefinition = "dayfly-runner" },
		"cluster ARN":  func(c *ecs.Config) { c.Cluster = "arn:aws:ecs:us-east-1:123456789012:cluster/dayfly" },
		"another part": func(c *ecs.Config) { c.Cluster = "arn:aws-us-gov:ecs:us-gov-west-1:123456789012:cluster/dayfly" },
		"definition": func(c *ecs.Config) {
			c.TaskDefinition = "arn:aws:ecs:us-east-1:123456789012:task-definition/dayfly-runner:7"
		},
		"spot": func(c *ecs.Config) { c.Spot = ecs.SpotReads },
	} {
		c := config()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate_ReportsEveryMistake(t *testing.T) {
	bad := ecs.Config{
		Cluster: "a/b", TaskDefinition: "runner:x", Container: "a b", Subnets: []string{"subnet-a", "vpc-1", "subnet-a"},
		SecurityGroups: []string{"sg-1", "sg-2", "sg-3", "sg-4", "sg-5", "default"}, Spot: "sometimes",
		CallTime: -1,
	}
	err := bad.Validate()
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the joined errors themselves are looked at
	if !ok {
		t.Fatalf("got %v, want all mistakes", err)
	}
	got := map[string]int{}
	for _, err := range joined.Unwrap() {
		e, ok := errors.AsType[*workflow.Error](err)
		if !ok || !errors.Is(err, workflow.ErrInvalid) {
			t.Fatalf("got %v, want a refusal with its field", err)
		}
		got[e.Field]++
	}
	want := map[string]int{
		"cluster": 1, "task_definition": 1, "container": 1, "pool": 1, "subnets": 2, "security_groups": 2, "spot": 1,
		"call_time": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes differ (-want +got):\n%s", diff)
	}
	if _, err := ecs.New(nil, bad); err == nil {
		t.Error("New takes what Validate refuses")
	}
	if err := (ecs.Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "there are 0 subnets") {
		t.Errorf("nothing at all: got %v", err)
	}
}

func TestPlacements_RotateSubnetsAndPutSpotFirst(t *testing.T) {
	preview := api.LaunchMessage{Job: "wf-1", Needs: task.Needs{Attempt: 1}, Type: workflow.Deployment, Operation: workflow.Preview, ReadsState: true}
	update := preview
	update.Operation, update.ReadsState = workflow.Update, false
	scan := api.LaunchMessage{Job: "wf-1", Needs: task.Needs{Attempt: 1}, Type: workflow.InsightsScan, ReadsState: true}
	wishes := func(m api.LaunchMessage, spot string) api.LaunchMessage { m.Spot = spot; return m }
	for name, tc := range map[string]struct {
		spot ecs.Spot
		m    api.LaunchMessage
		want bool
	}{
		"never":               {ecs.SpotNever, preview, false},
		"unsaid":              {"", scan, false},
		"reads: a preview":    {ecs.SpotReads, preview, true},
		"reads: a scan":       {ecs.SpotReads, scan, true},
		"reads: an update":    {ecs.SpotReads, update, false},
		"reads: nobody knows": {ecs.SpotReads, api.LaunchMessage{Job: "wf-1", Type: workflow.Deployment}, false},
		"all: an update":      {ecs.SpotAll, update, true},

		"never of its workspace":               {ecs.SpotAll, wishes(preview, "never"), false},
		"reads of its workspace: a read":       {ecs.SpotAll, wishes(preview, "reads"), true},
		"reads of its workspace: a change":     {ecs.SpotAll, wishes(update, "reads"), false},
		"all of its workspace, a pool's reads": {ecs.SpotReads, wishes(update, "all"), false},
		"all of its workspace, a pool's never": {ecs.SpotNever, wishes(preview, "all"), false},
		"a word of a later version":            {ecs.SpotAll, wishes(preview, "weekends"), false},
	} {
		c := config()
		c.Spot = tc.spot
		got := c.Placements(tc.m)
		if !slices.Equal(got, c.Placements(tc.m)) {
			t.Errorf("%s: twice the same message, and not the same placements", name)
		}
		demand := got
		if tc.want {
			if len(got) != 6 {
				t.Fatalf("%s: got %v, want each subnet twice", name, got)
			}
			demand = got[3:]
			for i, p := range got[:3] {
				if p != "spot/"+strings.TrimPrefix(demand[i], "on-demand/") {
					t.Errorf("%s: got %v, want Spot first, in the same order", name, got)
				}
			}
		}
		sorted := slices.Sorted(slices.Values(demand))
		if diff := cmp.Diff([]string{"on-demand/subnet-a", "on-demand/subnet-b", "on-demand/subnet-c"}, sorted); diff != "" {
			t.Errorf("%s: differs (-want +got):\n%s", name, diff)
		}
	}

	c, first := config(), map[string]int{}
	for i := range 300 {
		first[c.Placements(api.LaunchMessage{Job: "wf-" + strings.Repeat("x", i), Needs: task.Needs{Attempt: 1}})[0]]++
	}
	for p, n := range first {
		if n < 50 {
			t.Errorf("of 300 jobs, %d begin with %s: they are not spread", n, p)
		}
	}
	one := c.Placements(api.LaunchMessage{Job: "wf-1", Needs: task.Needs{Attempt: 1}})
	two := c.Placements(api.LaunchMessage{Job: "wf-1", Needs: task.Needs{Attempt: 2}})
	if one[0] == two[0] {
		t.Errorf("the second attempt begins where the first did, with %s", one[0])
	}
	if got := (ecs.Config{}).Placements(preview); got != nil {
		t.Errorf("without subnets: got %v", got)
	}
}

func TestStartedBy_IsWhatECSTakes(t *testing.T) {
	for _, pool := range []string{"prod", "Team-1_b/x", "pool.with.dots", "pool-with-dots", "été", strings.Repeat("p", 200), strings.Repeat("p", 201), ""} {
		got := ecs.StartedBy(pool)
		if len(got) > 128 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/_") != "" {
			t.Errorf("%q: got %q", pool, got)
		}
	}
	if got := ecs.StartedBy("prod-1"); got != "prod-1" {
		t.Errorf("got %q, want a good name as it is", got)
	}
	if ecs.StartedBy("a.b") == ecs.StartedBy("a:b") || ecs.StartedBy(strings.Repeat("p", 200)) == ecs.StartedBy(strings.Repeat("p", 201)) {
		t.Error("two pools have one name")
	}
}

func TestTagText_IsWhatAWSTakes(t *testing.T) {
	for in, want := range map[string]string{
		"network":                "network",
		"prod/eu_1:a@b+c=d.e -f": "prod/eu_1:a@b+c=d.e -f",
		"a\nb<c>\"d\"":           "a_b_c__d_",
		"straße":                 "straße",
		"bad\xff":                "bad_",
		strings.Repeat("ä", 300): strings.Repeat("ä", 256),
	} {
		if got := ecs.TagText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestValidate_Tags(t *testing.T) {
	many := map[string]string{}
	for i := range 46 {
		many[fmt.Sprint("tag", i)] = "x"
	}
	for name, c := range map[string]struct {
		tags map[string]string
		want string
	}{
		"fit":             {map[string]string{"cost-center": "4711", "Team": "", "a:b": "c/d=e@f"}, ""},
		"too many":        {many, "room for 45"},
		"no key":          {map[string]string{"": "x"}, "not the key"},
		"a long key":      {map[string]string{strings.Repeat("k", 129): "x"}, "not the key"},
		"an odd key":      {map[string]string{"a\nb": "x"}, "not the key"},
		"a key of AWS":    {map[string]string{"AWS:cloudformation": "x"}, "reserved"},
		"a key of Dayfly": {map[string]string{"dayfly:job": "x"}, "reserved"},
		"an odd value":    {map[string]string{"a": "<b>"}, "the value of a"},
		"a long value":    {map[string]string{"a": strings.Repeat("v", 257)}, "the value of a"},
	} {
		cfg := config()
		cfg.Tags = c.tags
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
