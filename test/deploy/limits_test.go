package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// The limits that follow from that of the organization, in the order of the values below.
var (
	controlLimits = []string{"RateLimit", "BurstLimit", "Concurrency", "LongPollConcurrency"}
	poolLimits    = []string{"StatusRateLimit", "StatusBurstLimit"}
)

// given is what a stack was deployed with, "-" for what was not named.
func (s *site) given(stack string, parameters []string) string {
	var out []string
	named := s.parameters(stack)
	for _, name := range parameters {
		value, ok := named[name]
		if !ok {
			value = "-"
		}
		out = append(out, value)
	}
	return strings.Join(out, " ")
}

func TestDeploy_LimitsFollowFromTheOrganizationsLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string][2]string{
		"1": {"100 200 10 20", "100 200"}, "31": {"104 208 10 20", "104 208"}, "150": {"500 1000 40 60", "500 1000"},
		"160": {"534 1068 43 64", "534 1068"}, "1000": {"3334 5000 267 400", "3334 5000"}, "100000": {"10000 5000 1000 1000", "10000 5000"},
	} {
		s := newSite(t)
		s.keep("concurrency", "3000")
		if said, _, err := s.run("deploy", "", "YES=1", "CONTROL_PARAMETERS=OrganizationLimit="+limit); err != nil {
			t.Fatalf("%s: %v: %s", limit, err, said)
		}
		if d := cmp.Diff(want, [2]string{s.given("dayfly-control", controlLimits), s.given("dayfly-main", poolLimits)}); d != "" {
			t.Errorf("limit %s (-want +got):\n%s", limit, d)
		}
		// The templates take all of them.
		deploy(t, "controlplane", s.values("dayfly-control", controlLimits))
		deploy(t, "pool", s.values("dayfly-main", poolLimits))
	}
}

// values are the parameters that a stack was deployed with.
func (s *site) values(stack string, parameters []string) map[string]string {
	out := map[string]string{}
	for i, v := range strings.Fields(s.given(stack, parameters)) {
		out[parameters[i]] = v
	}
	return out
}

// The defaults of the templates are what follows from the default of the limit, for who deploys without make deploy.
func TestTemplates_LimitsAreThoseOfTheDefaultLimit(t *testing.T) {
	t.Parallel()
	defaults := func(name string, parameters ...string) string {
		tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range parameters {
			out = append(out, fmt.Sprint(tmpl.Parameters[p].Default))
		}
		return strings.Join(out, " ")
	}
	s := newSite(t)
	s.keep("concurrency", "3000")
	limit := defaults("controlplane", "OrganizationLimit")
	if said, _, err := s.run("deploy", "", "YES=1", "CONTROL_PARAMETERS=OrganizationLimit="+limit); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if got, want := defaults("controlplane", controlLimits...), s.given("dayfly-control", controlLimits); got != want {
		t.Errorf("control plane: defaults %s, want %s", got, want)
	}
	if got, want := defaults("pool", poolLimits...), s.given("dayfly-main", poolLimits); got != want {
		t.Errorf("pool: defaults %s, want %s", got, want)
	}
}

// What is named stays as it was named, and what is not is left as it is. A pool that comes later follows the control
// plane's stack.
func TestDeploy_LimitsThatAreGivenStay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keep("concurrency", "3000")
	run := func(env ...string) {
		t.Helper()
		if said, _, err := s.run("deploy", "", append(env, "YES=1")...); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	run("CONTROL_PARAMETERS=OrganizationLimit=600 Concurrency=77", "PARAMETERS=StatusBurstLimit=99")
	run() // and once more, with nothing named
	if got, want := s.given("dayfly-control", controlLimits), "2000 4000 77 240"; got != want {
		t.Errorf("control plane: got %s, want %s", got, want)
	}
	if got, want := s.given("dayfly-main", poolLimits), "2000 99"; got != want {
		t.Errorf("pool: got %s, want %s", got, want)
	}
	run("POOL=late")
	if got, want := s.given("dayfly-late", poolLimits), "2000 4000"; got != want {
		t.Errorf("a pool that comes later: got %s, want %s", got, want)
	}
	other := newSite(t)
	s = other
	run()
	if got := s.given("dayfly-control", controlLimits) + " " + s.given("dayfly-main", poolLimits); strings.Trim(got, "- ") != "" {
		t.Errorf("without a limit: %s", got)
	}
}

// Each stage throttles tasks by what it was deployed with.
func TestStatus_IsThrottledByItsParameters(t *testing.T) {
	t.Parallel()
	s := deploy(t, "pool", map[string]string{"StatusRateLimit": "777", "StatusBurstLimit": "888"})
	if d := cmp.Diff(map[string]string{"* /*": "777 888"}, throttles(t, s)); d != "" {
		t.Error(d)
	}
}
