package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// changesOf are the parameters that a change set was given, and which of them keep their values.
func (s *site) changesOf(stack string) (given map[string]string, kept []string) {
	s.t.Helper()
	var list []struct {
		ParameterKey, ParameterValue string
		UsePreviousValue             bool
	}
	text, _ := s.read(stack + ".parameters")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		s.t.Fatalf("%s: %v: %s", stack, err, text)
	}
	given = map[string]string{}
	for _, p := range list {
		if p.UsePreviousValue {
			kept = append(kept, p.ParameterKey)
		} else if _, twice := given[p.ParameterKey]; twice {
			s.t.Errorf("%s gets %s twice", stack, p.ParameterKey)
		} else {
			given[p.ParameterKey] = p.ParameterValue
		}
	}
	return given, kept
}

// tidied finds what a run left: change sets, objects, buckets, and stacks beside those named.
func (s *site) tidied(what string, stacks ...string) {
	s.t.Helper()
	var left []string
	for _, pattern := range []string{"sets/*", "buckets/*/changesets/*/*", "buckets/*-changeset-*", "stacks/*"} {
		found, _ := filepath.Glob(filepath.Join(s.state, pattern))
		for _, f := range found {
			if filepath.Base(filepath.Dir(f)) != "stacks" || !slices.Contains(stacks, filepath.Base(f)) {
				left = append(left, strings.TrimPrefix(f, s.state))
			}
		}
	}
	if len(left) > 0 {
		s.t.Errorf("%s: it leaves %v", what, left)
	}
}

var three = []string{"dayfly-artifacts", "dayfly-control", "dayfly-main"}

// A new user sees what CloudFormation says before anything is there, and nothing is there afterwards. The change sets have the
// templates, tags and parameters of the deployment that follows.
func TestChangeSet_BeforeTheFirstDeployment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := os.Remove(filepath.Join(s.root, "stand-ins/docker")); err != nil {
		t.Fatal(err)
	}
	s.real()
	env := []string{"TAGS=cost center=47=11", `PARAMETERS=VpcCidr=10.1.0.0/22 TaskTags=a="b\c",d PollingWindow=20 PollingWindow=30`, "CONTROL_PARAMETERS=OrganizationLimit=150", "YES=1"}
	said, made, err := s.run("deploy", "", append(env, "PLAN=changeset")...)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if calls(made, `^aws|^$`) != len(made) || calls(made, "execute-change-set|cloudformation deploy|put-secret") > 0 || calls(made, "create-change-set.* --include-nested-stacks") != 3 {
		t.Errorf("it does more than look: %s", strings.Join(made, "\n"))
	}
	before(t, made, "s3 mb s3://dayfly-changeset-123456789012-eu-west-1", "create-change-set --stack-name dayfly-artifacts", "create-change-set --stack-name dayfly-control", "create-change-set --stack-name dayfly-main", "delete-stack", "s3 rb")
	for _, want := range []string{
		"Plan for account 123456789012", "stack dayfly-main: create", "Modify  AWS::CloudFormation::Stack +Network", `nested: dayfly-changeset-\S+-Network-1A2B`,
		"placeholder: ServiceUrl=https://placeholder.execute-api.eu-west-1.amazonaws.com, because stack dayfly-control does not exist yet",
		"placeholder: S3Bucket=dayfly-changeset-123456789012-eu-west-1 of the functions, because stack dayfly-artifacts does not exist yet",
		"placeholder: S3Key=", "placeholder: ImageUri=123456789012.dkr.ecr.eu-west-1.amazonaws.com/dayfly-runner:v1.0.0-arm64", "accepts each change set",
	} {
		if calls([]string{said}, want) == 0 {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	s.tidied("a first run")

	s.copy("testdata/docker", "stand-ins/docker", 0o755)
	if said, _, err := s.run("deploy", "", env...); err != nil {
		t.Fatalf("make deploy after it: %v: %s", err, said)
	}
	for _, stack := range three {
		got, kept := s.changesOf(stack)
		want := s.parameters(stack)
		for _, placeholder := range []string{"ServiceUrl", "ImageUri"} {
			if want[placeholder] != "" {
				want[placeholder] = got[placeholder]
			}
		}
		if !maps.Equal(got, want) || len(kept) > 0 {
			t.Errorf("%s: %v and %v kept, want %v", stack, got, kept, want)
		}
		tags, _ := s.read(stack + ".tags")
		if tags != `[{"Key": "dayfly:version", "Value": "v1.0.0"}, {"Key": "dayfly:deployment", "Value": "dayfly"}, {"Key": "cost center", "Value": "47=11"}]` {
			t.Errorf("%s has the tags %s", stack, tags)
		}
	}
}

// What CloudFormation refuses, by itself or for a nested stack, is said, and the other stacks are looked at all the same.
func TestChangeSet_SaysWhatCloudFormationRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nested := "arn:aws:cloudformation:eu-west-1:123456789012:changeSet/nested/dayfly-main-Network-1A2B"
	s.keep("refused-dayfly-artifacts", "Parameter RolePath failed to satisfy constraint")
	s.keep("status-dayfly-control", "FAILED\tThe following validation failed: [AWS::EarlyValidation::PropertyValidation]\n")
	s.keep("validation-dayfly-control", "FAIL\tFAILED\tPROPERTY_VALIDATION\tTable\t/Resources/Table\trequired key [KeySchema] not found\n")
	s.keep("status-dayfly-main", "FAILED\tNested change set "+nested+" was not successfully created: Currently in FAILED.\n")
	s.keep("status-dayfly-main-Network-1A2B", "FAILED\tTemplate error: no zones\n")
	said, made, err := s.run("deploy", "", "PLAN=changeset", "BUCKET=mine")
	if err == nil || calls(made, "create-change-set") != 3 || calls(made, "s3 mb|s3 rb") > 0 {
		t.Errorf("%v: %s", err, strings.Join(made, "\n"))
	}
	for _, want := range []string{
		"refused: .*RolePath failed", "FAILED: The following validation failed", `FAIL PROPERTY_VALIDATION \(FAILED\): Table /Resources/Table: required key`,
		"FAILED: Nested change set", "FAILED: Template error: no zones", "at least one change set failed",
	} {
		if calls([]string{said}, want) == 0 {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	s.tidied("a run that failed")
}

// On an update, what is not given keeps its value. No changes, and warnings, are no failures; nor is a CLI that is too old.
func TestChangeSet_OfAnUpdate(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.keep("status-dayfly-artifacts", "FAILED\tThe submitted information didn't contain changes. Submit different information to create a change set.\n")
	s.keep("status-dayfly-control", "FAILED\tNo updates are to be performed.\n")
	s.keep("validation-dayfly-main", "WARN\tFAILED\tBUCKET_EMPTINESS_VALIDATION\tReports\t/Resources/Reports\tThe bucket is not empty\n")
	said, made, err := s.run("deploy", "", "PLAN=changeset", "PARAMETERS=VpcId=")
	if err != nil || calls(made, "s3 mb|delete-stack --stack-name dayfly-") > 0 || calls(made, "--change-set-type UPDATE") != 3 || strings.Contains(said, "placeholder: ServiceUrl") {
		t.Errorf("%v: %s", err, said)
	}
	if strings.Count(said, "no changes") != 2 || !strings.Contains(said, "WARN BUCKET_EMPTINESS_VALIDATION (FAILED): Reports") {
		t.Error(said)
	}
	given, kept := s.changesOf("dayfly-main")
	if value, is := given["VpcId"]; !is || value != "" || !slices.Contains(kept, "S3PrefixListId") || slices.Contains(kept, "PollingWindow") {
		t.Errorf("given %v, kept %v", given, kept)
	}
	if _, kept := s.changesOf("dayfly-artifacts"); !slices.Contains(kept, "RepositoryName") {
		t.Errorf("the artifacts' stack keeps %v", kept)
	}
	s.tidied("an update", three...)
	s.keep("old-cli", "")
	if said, _, err := s.run("deploy", "", "PLAN=changeset"); err != nil || !strings.Contains(said, "this AWS CLI is too old") {
		t.Errorf("an old CLI: %v: %s", err, said)
	}
}

// However it ends, it deletes what it made, and nothing else; what it cannot delete it names.
func TestChangeSet_TidiesUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keep("stacks/dayfly-control/status", "REVIEW_IN_PROGRESS")
	for what, cause := range map[string][2]string{
		"interrupted": {"interrupt", ""}, "after a throttle": {"broken", "describe-events"},
	} {
		s.keep(cause[0], cause[1])
		if said, made, err := s.run("deploy", "", "PLAN=changeset", "YES=1"); err == nil || calls(made, "create-change-set") != 1 || strings.Contains(said, "stays:") {
			t.Errorf("%s: %v: %s", what, err, said)
		}
		s.tidied(what, "dayfly-control")
		_ = os.Remove(filepath.Join(s.state, cause[0]))
	}
	s.keep("denied", "")
	said, made, err := s.run("deploy", "", "PLAN=changeset", "YES=1")
	if err == nil || calls([]string{said}, `stays: change set dayfly-changeset-\S+ of stack dayfly-main: .*AccessDenied`) == 0 || calls(made, "delete-stack.*dayfly-control/") > 0 {
		t.Errorf("%v: %s", err, said)
	}
	if _, err := s.read("stacks/dayfly-control/status"); err != nil {
		t.Error("it deleted a stack that was there before")
	}
}

// Without a bucket it asks, and a no is a no. PLAN is never taken for none.
func TestChangeSet_MakesNothingUnasked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for what, c := range map[string]struct{ script, answer, plan, want string }{
		"no":          {"deploy", "n\n", "PLAN=changeset", "nothing was done"},
		"destroy":     {"destroy", "y\n", "PLAN=changeset", "PLAN=changeset is for make deploy"},
		"another one": {"deploy", "y\n", "PLAN=change-set", "write 1 or changeset"},
		"no right":    {"deploy", "y\n", "PLAN=changeset", "Name one that you may write to: BUCKET="},
	} {
		if what == "no right" {
			s.keep("no-buckets", "")
		}
		said, made, err := s.run(c.script, c.answer, c.plan)
		if err == nil || !strings.Contains(said, c.want) || calls(made, "create-change-set|s3 cp|s3 rb|delete-") > 0 {
			t.Errorf("%s: %v: %s", what, err, said)
		}
	}
}
