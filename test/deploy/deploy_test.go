// Package deploy_test runs make deploy and make destroy against stand-ins of the AWS CLI, docker and dayfly
// that keep what they are told to. What AWS makes of the templates is not shown here.
package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// site is a checkout with stand-ins, and what they keep.
type site struct {
	t     *testing.T
	root  string
	state string
}

func newSite(t *testing.T) *site {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	s := &site{t: t, root: t.TempDir(), state: t.TempDir()}
	s.copy("../../scripts/deploy", "scripts/deploy", 0o755)
	s.copy("../../scripts/destroy", "scripts/destroy", 0o755)
	s.copy("../../scripts/stacks", "scripts/stacks", 0o644)
	s.copy("../../infra/guardduty-agents", "infra/guardduty-agents", 0o644)
	s.copy("../../scripts/changesets", "scripts/changesets", 0o644)
	for _, name := range []string{"pool", "controlplane", "network", "artifacts"} {
		s.copy("../../infra/transformed/"+name+".json", "infra/transformed/"+name+".json", 0o644)
	}
	for _, name := range []string{"aws", "docker"} {
		s.copy("testdata/"+name, "stand-ins/"+name, 0o755)
	}
	s.copy("testdata/dayfly", "bin/dayfly", 0o755)
	s.write("stand-ins/make", "#!/bin/sh\necho \"make $*\" >>\"$STATE/log\"\n", 0o755)
	s.write("stand-ins/go", "#!/bin/sh\n", 0o755)
	s.write("scripts/image", "#!/bin/sh\necho \"image $* $IMAGE $GOARCH\" >>\"$STATE/log\"\n", 0o755)
	for _, name := range []string{"poller", "dispatcher", "status", "reaper", "deliverer", "controlplane"} {
		s.write("dist/functions/"+name+".zip", "code of "+name, 0o644)
	}
	return s
}

func (s *site) copy(from, to string, mode os.FileMode) {
	s.t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(to, string(b), mode)
}

func (s *site) write(to, text string, mode os.FileMode) {
	s.t.Helper()
	to = filepath.Join(s.root, to)
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), mode)); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a script; answer is what a person types. It returns what was printed, and what was called.
func (s *site) run(script, answer string, env ...string) (said string, calls []string, err error) {
	s.t.Helper()
	_ = os.Remove(filepath.Join(s.state, "log"))
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.root, "scripts", script))
	cmd.Env = append([]string{
		"PATH=" + filepath.Join(s.root, "stand-ins") + ":" + os.Getenv("PATH"), "HOME=" + s.root, "STATE=" + s.state,
		"AWS_REGION=eu-west-1", "VERSION=v1.0.0", "DRAIN_LOOK=0", "ROLE_WAIT=0", "CHANGE_WAIT=0",
	}, env...)
	cmd.Stdin = strings.NewReader(answer)
	out, err := cmd.CombinedOutput()
	b, _ := os.ReadFile(filepath.Join(s.state, "log"))
	return string(out), strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// keep puts something into what the stand-ins keep.
func (s *site) keep(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.state, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

// read is what the stand-ins have kept.
func (s *site) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.state, name))
	return strings.TrimSpace(string(b)), err
}

// real gives the outputs that become parameters values that the templates allow.
func (s *site) real() {
	s.keep("outputs/dayfly-artifacts-ImageRepository", "dayfly-runner\n")
	s.keep("outputs/dayfly-artifacts-RepositoryUri", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/dayfly-runner\n")
	s.keep("outputs/dayfly-control-ServiceUrl", "https://a1b2c3d4e5.execute-api.eu-west-1.amazonaws.com\n")
}

// parameters are those that a stack was deployed with.
func (s *site) parameters(stack string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	files, err := os.ReadDir(filepath.Join(s.state, "stacks", stack, "parameters"))
	if err != nil {
		s.t.Fatalf("stack %s has no parameters: %v", stack, err)
	}
	for _, f := range files {
		out[f.Name()], _ = s.read(filepath.Join("stacks", stack, "parameters", f.Name()))
	}
	return out
}

func (s *site) secret(name string) string {
	value, _ := s.read("secrets/" + name)
	return value
}

// changing are the calls that change something.
func changing(calls []string) []string {
	return slices.DeleteFunc(slices.Clone(calls), func(c string) bool {
		return !regexp.MustCompile(`cloudformation (deploy|delete)|put-secret|pool (create|rotate|update)|docker push|^image|s3 cp`).MatchString(c)
	})
}

func before(t *testing.T, calls []string, patterns ...string) {
	t.Helper()
	at := -1
	for _, p := range patterns {
		next := slices.IndexFunc(calls, func(c string) bool { return regexp.MustCompile(p).MatchString(c) })
		if next <= at {
			t.Errorf("%q comes at %d, after what should come later (%d):\n%s", p, next, at, strings.Join(calls, "\n"))
		}
		at = next
	}
}

var ticketKeys = regexp.MustCompile(`^\{"keys": \[\{"id": "[0-9a-f]{16}", "key": "[A-Za-z0-9_-]{43}"\}\]\}$`)

// D8: everything in the right order, said first and asked once, and no secret where it could be read.
func TestDeploy_FromNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	said, calls, err := s.run("deploy", "y\n")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "deploy --stack-name dayfly-artifacts", "deploy --stack-name dayfly-control", "^image .*:v1.0.0-arm64 arm64", "^image try .*:v1.0.0-arm64", "docker push",
		"deploy --stack-name dayfly-main", "put-secret-value --secret-id dayfly-main-TicketKeysSecret",
		"put-secret-value --secret-id dayfly-main-PoolTokenSecret", "pool update main .*--wake-target dayfly-main-WakeTarget")
	if i := strings.Index(said, "stack dayfly-main: create"); i < 0 || i > strings.Index(said, "Do it?") && strings.Contains(said, "Do it?") {
		t.Errorf("it does not say first what it will do: %s", said)
	}
	if got := s.secret("dayfly-main-PoolTokenSecret"); got != "pool-token-of-main-created" {
		t.Errorf("the pool's secret holds %q", got)
	}
	keys := s.secret("dayfly-main-TicketKeysSecret")
	if !ticketKeys.MatchString(keys) {
		t.Errorf("the ticket keys are in another form: %d bytes", len(keys))
	}
	if _, err := os.Stat(filepath.Join(s.state, "registry")); err == nil {
		t.Error("docker keeps the registry's password")
	}
	key := regexp.MustCompile(`[A-Za-z0-9_-]{43}`).FindString(keys)
	for _, secret := range []string{"pool-token-of", "first-admin-token", key, "registry-password"} {
		if strings.Contains(said, secret) || strings.Contains(strings.Join(calls, "\n"), secret) {
			t.Errorf("%.12s... was printed, or on a command line", secret)
		}
	}
	template, err := os.ReadFile(filepath.Join(s.state, "stacks", "dayfly-main", "template"))
	if err != nil || strings.Contains(string(template), "packaged") {
		t.Errorf("the template still has places that do not exist: %v", err)
	}
	for _, place := range regexp.MustCompile(`"S3Key": "([^"]+)"`).FindAllStringSubmatch(string(template), -1) {
		if !slices.ContainsFunc(calls, func(c string) bool { return strings.HasSuffix(c, "s3://dayfly-artifacts-Bucket/"+place[1]) }) {
			t.Errorf("%s was not put there", place[1])
		}
	}

	// Once more: secrets, pool and image stay as they are.
	said, calls, err = s.run("deploy", "y\n")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, c := range changing(calls) {
		if regexp.MustCompile("put-secret|pool (create|rotate)|docker push|^image").MatchString(c) {
			t.Errorf("a second time: %s", c)
		}
	}
}

func TestDeploy_DoesNothingUnasked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		env    []string
		fails  bool
	}{
		"no": {"n\n", nil, true}, "no answer": {"", nil, true}, "a plan": {"", []string{"PLAN=1"}, false},
		"a dirty tree": {"y\n", []string{"VERSION=v1-dirty"}, true}, "a wrong name": {"y\n", []string{"POOL=a b"}, true},
	} {
		s := newSite(t)
		said, calls, err := s.run("deploy", c.answer, c.env...)
		if (err != nil) != c.fails || len(changing(calls)) > 0 {
			t.Errorf("%s: %v, %v: %s", name, err, changing(calls), said)
		}
	}
}

// D8: a new version goes to the functions first, and to the tasks when they understand it.
func TestDeploy_UpgradesThePoolStackBeforeItsImage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	said, calls, err := s.run("deploy", "", "YES=1", "VERSION=v2.0.0")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "deploy --stack-name dayfly-control", "deploy --stack-name dayfly-main .*ImageUri=\\S+:v1.0.0-arm64", "deploy --stack-name dayfly-main .*ImageUri=\\S+:v2.0.0-arm64")
}

// A pool whose stack was made anew gets a new token; one on somebody's control plane needs theirs.
func TestDeploy_PoolOnAControlPlaneThatExists(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1", "SERVICE_URL=https://dayfly.example.com"); err == nil || !strings.Contains(said, "DAYFLY_API_TOKEN") {
		t.Errorf("without a token: %v: %s", err, said)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(s.state, "pools"), 0o755), os.WriteFile(filepath.Join(s.state, "pools", "main"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	said, calls, err := s.run("deploy", "", "YES=1", "SERVICE_URL=https://dayfly.example.com", "DAYFLY_API_TOKEN=first-admin-token-of-the-deployment")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if got := s.secret("dayfly-main-PoolTokenSecret"); got != "pool-token-of-main-rotated" {
		t.Errorf("the pool's secret holds %q", got)
	}
	if slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "deploy --stack-name dayfly-control") }) {
		t.Error("it deploys a control plane")
	}
}

// D8: the pool is drained before its stack goes, and what stays is said.
func TestDestroy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, calls, err := s.run("destroy", "n\n", "CONTROL_PLANE=1"); err == nil || len(changing(calls)) > 0 {
		t.Errorf("no means no: %v, %v: %s", err, changing(calls), said)
	}
	if err := os.WriteFile(filepath.Join(s.state, "tasks"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	said, calls, err := s.run("destroy", "y\n", "CONTROL_PLANE=1")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "pool update main --disabled", "ecs list-tasks", "delete-stack --stack-name dayfly-main", "wait stack-delete-complete --stack-name dayfly-main",
		"delete-log-group .*dayfly-main-ReaperLogs-1A", "delete-log-group .*dayfly-main-Network-1A2B-FlowLogs-3C", "delete-stack --stack-name dayfly-control", "delete-log-group .*dayfly-control-ControlPlaneLogs-1A",
		"delete-log-group .*/aws/vendedlogs/dayfly-control-api-0a1b2c3d")
	for _, want := range []string{
		"s3://dayfly-main-StateBucket", "s3://dayfly-main-ArtifactsBucket", "table dayfly-control-Table", "s3://dayfly-control-LogBucket", "s3://dayfly-control-AuditBucket", "dayfly-artifacts", "/aws/ecs/containerinsights/", "2 tasks run", "1 tasks run",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if err := os.WriteFile(filepath.Join(s.state, "tasks"), []byte("1000"), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, calls, err := s.run("destroy", "", "YES=1", "DRAIN=0"); err == nil || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "delete-stack") }) {
		t.Errorf("it deletes what still runs: %v: %s", err, said)
	}
}

// Logs stay where that is asked for; else they go after their stack, and are listed before it.
func TestDestroy_KeepsLogs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run := func(script string, env ...string) (string, []string, error) {
		t.Helper()
		if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return s.run(script, "", append(env, "YES=1")...)
	}
	said, calls, err := run("destroy", "KEEP_LOGS=1", "CONTROL_PLANE=1")
	if err != nil || !strings.Contains(said, "the log groups of the deleted stacks") || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "delete-log-group") }) {
		t.Errorf("%v: %s\n%s", err, said, strings.Join(calls, "\n"))
	}
	s.keep("broken", "list-stack-resources")
	if said, calls, err = run("destroy"); err == nil || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "delete-stack") }) {
		t.Errorf("it deletes a stack whose log groups it cannot see: %v: %s", err, said)
	}
	for _, name := range []string{"pool", "controlplane", "network"} {
		tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		for group, r := range tmpl.Resources {
			if r.Type == "AWS::Logs::LogGroup" && r.DeletionPolicy != "RetainExceptOnCreate" {
				t.Errorf("%s: %s goes with its stack", name, group)
			}
		}
	}
}

// What an account that was never used lacks is made, and said first; what it cannot give is refused before anything is made.
func TestDeploy_InANewAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keep("new-account", "")
	said, calls, err := s.run("deploy", "y\n")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "iam create-service-linked-role --aws-service-name ecs", "deploy --stack-name dayfly-artifacts .*ApiGatewayLogs=true", "deploy --stack-name dayfly-main")
	for _, want := range []string{"vCPU of Fargate: 6,", "AWSServiceRoleForECS): create", "API Gateway writes logs: create"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	// Once more: they are there.
	if _, calls, err = s.run("deploy", "y\n"); err != nil || slices.ContainsFunc(calls, func(c string) bool {
		return strings.Contains(c, "create-service-linked-role") || strings.Contains(c, "ApiGatewayLogs")
	}) {
		t.Errorf("a second time: %v: %s", err, strings.Join(calls, "\n"))
	}
}

func TestDeploy_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, content string
		env           []string
		want          string
	}{
		"functions at once":           {"concurrency", "10", nil, "The account has 10 unreserved, of which Lambda keeps 100: ask for "},
		"vCPU of Fargate":             {"vcpus", "0.0", nil, "no vCPU of Fargate"},
		"a quota that is no number":   {"vcpus", "None", nil, "how many vCPU of Fargate"},
		"a repository of no stack":    {"repositories/dayfly-runner", "", nil, "there is a repository dayfly-runner"},
		"a VPC without subnets":       {"", "", []string{"PARAMETERS=NetworkMode=public VpcId=vpc-01234567"}, "SubnetIds"},
		"a VPC without route tables":  {"", "", []string{"PARAMETERS=VpcId=vpc-01234567 SubnetIds=subnet-1"}, "RouteTableIds"},
		"somebody's control plane":    {"", "", []string{"SERVICE_URL=https://dayfly.example.com"}, "DAYFLY_API_TOKEN"},
		"a name of 21 characters":     {"", "", []string{"NAME=abcdefghijklmnopqrstu"}, "up to 20 letters"},
		"a tag without a value":       {"", "", []string{"TAGS=team=a,owner"}, "TAGS: write KEY=VALUE"},
		"a tag of ours":               {"", "", []string{"TAGS=dayfly:version=1"}, "TAGS: write KEY=VALUE"},
		"an account that cannot look": {"broken", "cloudformation describe-stacks", nil, "cannot describe stack"},
	} {
		s := newSite(t)
		if c.file != "" {
			s.keep(c.file, c.content)
		}
		said, calls, err := s.run("deploy", "", append(c.env, "YES=1")...)
		if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
			t.Errorf("%s: %v, %v: %s", name, err, changing(calls), said)
		}
	}
}

// A change set that could not be made leaves a stack that is none.
func TestDeploy_AfterAChangeSetThatFailed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keep("stacks/dayfly-main/status", "REVIEW_IN_PROGRESS")
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil || !strings.Contains(said, "stack dayfly-main: create") {
		t.Errorf("%v: %s", err, said)
	}
}

// No trace shows a token, for any user who asks for one.
func TestDeploy_IsNotTraced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	said, _, err := s.run("deploy", "", "YES=1", "SHELLOPTS=xtrace")
	if err != nil || strings.Contains(said, "first-admin-token") {
		t.Errorf("%v: %s", err, said)
	}
	if said, _, err = s.run("destroy", "", "YES=1", "SHELLOPTS=xtrace"); err != nil || strings.Contains(said, "first-admin-token") {
		t.Errorf("%v: %s", err, said)
	}
}

// The API's deployment has another name in another network, so that it is deployed anew.
func TestDeploy_DeploysTheAPIAnewInAnotherNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	name := func(env ...string) string {
		t.Helper()
		if said, _, err := s.run("deploy", "", append(env, "YES=1")...); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		b, err := os.ReadFile(filepath.Join(s.state, "stacks", "dayfly-main", "template"))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`StatusApiDeployment[0-9a-f]+`).FindAllString(string(b), -1)
		if len(found) != 2 || found[0] != found[1] {
			t.Fatalf("got %v", found)
		}
		return found[0]
	}
	first := name()
	if again := name(); again != first {
		t.Errorf("it is deployed anew without a reason: %s, %s", first, again)
	}
	other := name("PARAMETERS=NetworkMode=public")
	if other == first {
		t.Error("another endpoint, and the same deployment")
	}
	if again := name(); again != other {
		t.Errorf("the network that the stack has is forgotten: %s, %s", other, again)
	}
}

func TestDeploy_Zones(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]bool{"us-east-1": true, "eu-west-1": false} {
		s := newSite(t)
		_, calls, err := s.run("deploy", "", "YES=1", "AWS_REGION="+region)
		got := slices.ContainsFunc(calls, func(c string) bool {
			return strings.Contains(c, "--stack-name dayfly-main") && strings.Contains(c, "AvailabilityZones=us-east-1b,us-east-1c")
		})
		if err != nil || got != want {
			t.Errorf("%s: %v, zones %v", region, err, got)
		}
	}
}

// What was destroyed and is made again claims again.
func TestDeploy_AfterDestroyThePoolIsEnabled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, script := range []string{"deploy", "destroy", "deploy"} {
		said, calls, err := s.run(script, "", "YES=1")
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, said)
		}
		if enabled := slices.ContainsFunc(calls, func(c string) bool {
			return strings.Contains(c, "pool update main") && strings.Contains(c, "--no-disabled")
		}); enabled != (script == "deploy") {
			t.Errorf("%s: enabled %v", script, enabled)
		}
	}
	if _, calls, err := s.run("deploy", "", "YES=1"); err != nil || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "--no-disabled") }) {
		t.Errorf("what somebody disabled is enabled: %v", err)
	}
}

// Results that wait, and tasks that are told to stop, are waited for too.
func TestDestroy_WaitsForResultsAndForTasksThatStop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	s.keep("reports", "3")
	s.keep("stopping", "2")
	said, calls, err := s.run("destroy", "", "YES=1")
	if err != nil || !strings.Contains(said, "1 results wait") || !strings.Contains(said, "1 tasks run") {
		t.Errorf("%v: %s", err, said)
	}
	before(t, calls, "sqs get-queue-attributes .*ReportsQueue", "delete-stack --stack-name dayfly-main")
}

func TestDestroy_DeletesNothingThatItCannotSee(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"ecs list-tasks", "sqs get-queue-attributes", "cloudformation describe-stacks"} {
		s := newSite(t)
		if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		s.keep("broken", broken)
		said, calls, err := s.run("destroy", "", "YES=1")
		if err == nil || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "delete-stack") }) {
			t.Errorf("%s: %v: %s", broken, err, said)
		}
	}
}

// A stack that could not be made has nothing to drain, and goes.
func TestDestroy_OfAStackThatWasNeverMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	s.keep("stacks/dayfly-main/status", "ROLLBACK_COMPLETE")
	said, calls, err := s.run("destroy", "", "YES=1")
	if err != nil || slices.ContainsFunc(calls, func(c string) bool {
		return strings.Contains(c, "ecs list-tasks") || strings.Contains(c, "pool update")
	}) {
		t.Errorf("%v: %s: %v", err, said, calls)
	}
	before(t, calls, "delete-stack --stack-name dayfly-main", "wait stack-delete-complete")
}

func TestDestroy_KeepsTheControlPlaneOfOtherPools(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, pool := range []string{"main", "prod"} {
		if said, _, err := s.run("deploy", "", "YES=1", "POOL="+pool); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	// Not theirs, whatever its name.
	s.keep("stacks/dayfly-website/status", "CREATE_COMPLETE")
	s.keep("stacks/dayfly-website/parameters/ServiceUrl", "https://website.example.com")
	said, calls, err := s.run("destroy", "", "YES=1", "CONTROL_PLANE=1")
	if err == nil || !strings.Contains(said, "control plane: dayfly-prod. Destroy") || len(changing(calls)) > 0 {
		t.Errorf("%v: %s", err, said)
	}
	if said, _, err := s.run("destroy", "", "YES=1"); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	if said, _, err := s.run("destroy", "", "YES=1", "CONTROL_PLANE=1", "POOL=prod"); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// Another name or role path of a pool leaves the roles of its workspaces behind, and the plan says so.
func TestDeploy_SaysThatWorkspaceRolesMustFollow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const told = "roles of workspaces: "
	plan := func(parameters string) string {
		t.Helper()
		said, calls, err := s.run("deploy", "", "PLAN=1", "PARAMETERS="+parameters)
		if err != nil || len(changing(calls)) > 0 {
			t.Fatalf("%s: %v: %s", parameters, err, said)
		}
		return said
	}
	if said := plan("PoolName=other RolePath=/teams/"); strings.Contains(said, told) {
		t.Errorf("for a pool that is new: %s", said)
	}
	if said, _, err := s.run("deploy", "", "YES=1", "PARAMETERS=RolePath=/dayfly-stack/"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for parameters, want := range map[string][]string{
		"": nil, "RolePath=/dayfly-stack/ PoolName=main": nil,
		"RolePath=/teams/":                {"RolePath changes from /dayfly-stack/ to /teams/"},
		"PoolName=other":                  {"PoolName changes from main to other"},
		"PoolName=other RolePath=/teams/": {"PoolName changes from main to other", "RolePath changes from /dayfly-stack/ to /teams/"},
	} {
		said := plan(parameters)
		if n := strings.Count(said, told); n != len(want) {
			t.Errorf("%s: said %d times: %s", parameters, n, said)
		}
		for _, change := range want {
			if !strings.Contains(said, change) {
				t.Errorf("%s: it does not say %q: %s", parameters, change, said)
			}
		}
	}
}
