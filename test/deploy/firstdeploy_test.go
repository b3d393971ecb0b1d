package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// deployed is a site after a first deploy.
func deployed(t *testing.T, env ...string) *site {
	t.Helper()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", append(env, "YES=1")...); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return s
}

func calls(list []string, pattern string) (n int) {
	for _, c := range list {
		if regexp.MustCompile(pattern).MatchString(c) {
			n++
		}
	}
	return n
}

// Lambda reserves at most what is unreserved, less 100. What the stacks reserve is read from their templates.
func TestDeploy_RequestsTheReservedConcurrency(t *testing.T) {
	t.Parallel()
	reserved := 0
	for _, name := range []string{"pool", "controlplane"} {
		s := deploy(t, name, nil)
		for _, f := range s.Of("AWS::Lambda::Function") {
			n, _ := strconv.Atoi(templates.Text(s.Resources[f].Properties["ReservedConcurrentExecutions"]))
			reserved += n
		}
	}
	if !strings.Contains(string(readFile(t, "../../docs/aws.md")), "reserve "+strconv.Itoa(reserved)+" function") {
		t.Errorf("docs/aws.md does not say that the stacks reserve %d", reserved)
	}
	s := newSite(t)
	s.keep("concurrency", strconv.Itoa(reserved+99))
	said, made, err := s.run("deploy", "", "YES=1")
	if err == nil || len(changing(made)) > 0 || !strings.Contains(said, "ask for 1 more") {
		t.Errorf("one too few: %v, %v: %s", err, changing(made), said)
	}
	s.keep("concurrency", strconv.Itoa(reserved+100))
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("just enough: %v: %s", err, said)
	}
	s.keep("concurrency", "100")
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Errorf("an update that reserves nothing more: %v: %s", err, said)
	}
	tmpl, err := templates.Load("../../infra/transformed/controlplane.json")
	if err != nil {
		t.Fatal(err)
	}
	now, _ := strconv.Atoi(templates.Text(tmpl.Parameters["Concurrency"].Default))
	raised := "CONTROL_PARAMETERS=Concurrency=" + strconv.Itoa(now+50)
	s.keep("concurrency", "149")
	if said, made, err := s.run("deploy", "", "YES=1", raised); err == nil || len(changing(made)) > 0 || !strings.Contains(said, "ask for 1 more") {
		t.Errorf("an update that reserves 50 more: %v, %v: %s", err, changing(made), said)
	}
	s.keep("concurrency", "150")
	if said, _, err := s.run("deploy", "", "YES=1", raised); err != nil || !strings.Contains(said, "50 more are reserved") {
		t.Errorf("and has them: %v: %s", err, said)
	}
	s.keep("concurrency", "105")
	pool, reserves2 := string(readFile(t, "../../infra/transformed/pool.json")), "\"ReservedConcurrentExecutions\": {\n     \"Fn::If\": [\n      \"Reserves\",\n      2,"
	s.write("infra/transformed/pool.json", strings.Replace(pool, reserves2, strings.Replace(reserves2, "2,", "8,", 1), 1), 0o644)
	if said, _, err := s.run("deploy", "", "YES=1"); err == nil || !strings.Contains(said, "ask for 1 more") {
		t.Errorf("a version that reserves 6 more: %v: %s", err, said)
	}
	s.write("infra/transformed/pool.json", strings.Replace(pool, reserves2, "\"ReservedConcurrentExecutions\": {\n\"Fn::If\": []}", 1), 0o644)
	if said, _, err := s.run("deploy", "", "YES=1"); err == nil || !strings.Contains(said, "not clear") {
		t.Errorf("a number that is not read: %v: %s", err, said)
	}
	// A new account: nothing can be reserved, and nothing is.
	s = newSite(t)
	s.keep("concurrency", "10")
	if said, _, err := s.run("deploy", "", "YES=1", "PARAMETERS=ReserveConcurrency=no", "CONTROL_PARAMETERS=ReserveConcurrency=no"); err != nil {
		t.Errorf("without reservations: %v: %s", err, said)
	}
	for _, name := range []string{"pool", "controlplane"} {
		without := deploy(t, name, map[string]string{"ReserveConcurrency": "no"})
		for _, f := range without.Of("AWS::Lambda::Function") {
			if n := without.Resources[f].Properties["ReservedConcurrentExecutions"]; n != nil {
				t.Errorf("%s reserves %v", f, n)
			}
		}
	}
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Errorf("the next deployment reserves none either: %v: %s", err, said)
	}
}

// Whichever variable names the Region, every tool is told the same. The stand-in refuses two.
func TestDeploy_AllToolsUseOneRegion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keep("region", "eu-south-1\n")
	for _, c := range []struct{ first, second, want string }{
		{"ap-south-1", "", "ap-south-1"}, {"", "ap-south-2", "ap-south-2"}, {"sa-east-1", "ca-west-1", "sa-east-1"}, {"", "", "eu-south-1"},
	} {
		for _, script := range []string{"deploy", "destroy"} {
			said, _, err := s.run(script, "", "PLAN=1", "AWS_REGION="+c.first, "AWS_DEFAULT_REGION="+c.second)
			if got := strings.TrimSpace(string(readFile(t, filepath.Join(s.state, "used-region")))); err != nil || got != c.want {
				t.Errorf("%s with %q and %q: %v, region %s: %s", script, c.first, c.second, err, got, said)
			}
		}
	}
	s.keep("region", "")
	if said, _, err := s.run("deploy", "", "PLAN=1", "AWS_REGION="); err == nil || !strings.Contains(said, "no Region is set") {
		t.Errorf("without a Region: %v: %s", err, said)
	}
}

// The CLI prints None for an output that a stack does not have. It is never taken for a value.
func TestDeploy_AnOutputThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	for key, stack := range map[string]string{
		"Bucket": "artifacts", "RepositoryUri": "artifacts", "ImageRepository": "artifacts", "ServiceUrl": "control", "AdminTokenSecret": "control",
		"TicketKeysSecret": "main", "PoolTokenSecret": "main", "WakeTarget": "main",
	} {
		s.keep("stacks/dayfly-"+stack+"/missing", key+"\n")
		said, made, err := s.run("deploy", "", "YES=1")
		if err == nil || !strings.Contains(said, "stack dayfly-"+stack+" has no output "+key) {
			t.Errorf("%s: %v: %s", key, err, said)
		}
		if all := strings.Join(made, "\n"); strings.Contains(strings.ReplaceAll(all, "None'", ""), "None") {
			t.Errorf("%s: None is a value: %s", key, all)
		}
		s.keep("stacks/dayfly-"+stack+"/missing", "")
	}
	s.keep("stacks/dayfly-main/missing", "Cluster\n")
	if said, made, err := s.run("destroy", "", "YES=1"); err == nil || !strings.Contains(said, "has no output Cluster") || len(changing(made)) > 0 {
		t.Errorf("a stack whose tasks cannot be found: %v: %s", err, said)
	}
	s.keep("stacks/dayfly-main/missing", "ReportsQueue\nStateBucket\nArtifactsBucket\n")
	said, made, err := s.run("destroy", "", "YES=1")
	if err != nil || calls(made, "None") > 0 || strings.Contains(said, "s3://None") || calls(made, "delete-stack") != 1 {
		t.Errorf("a stack of an older version: %v: %s", err, said)
	}
}

const notYet = "Cluster\tUnable to assume the service linked role. Please verify that the ECS service linked role exists.\n"

// A role that was just made is not known everywhere. What fails because of that is repeated, a few times.
func TestDeploy_RepeatsWhatARoleWasTooNewFor(t *testing.T) {
	t.Parallel()
	other := "Bucket\tYou have attempted to create more buckets than allowed\n"
	for name, c := range map[string]struct {
		stack, reasons string
		fails          bool
		tries          int
	}{
		"ECS":                 {"main", notYet, false, 2},
		"API Gateway":         {"artifacts", "ApiGatewayAccount\tThe role ARN does not have required permissions configured.\n", false, 2},
		"a log of an API":     {"main", "Stage\tCloudWatch Logs role ARN must be set in account settings to enable logging\n", false, 2},
		"Lambda":              {"control", "Function\tThe role defined for the function cannot be assumed by Lambda.\n", false, 2},
		"Scheduler":           {"main", "Tick\tThe execution role you provide must allow AWS EventBridge Scheduler to assume the role.\n", false, 2},
		"a policy":            {"main", "Policy\tInvalid principal in policy\n", false, 2},
		"for ever":            {"main", notYet + notYet + notYet + notYet, true, 3},
		"for another reason":  {"artifacts", other, true, 1},
		"then another reason": {"artifacts", notYet + other, true, 2},
	} {
		s := newSite(t)
		s.keep("new-account", "")
		s.keep("reasons-dayfly-"+c.stack, c.reasons)
		said, made, err := s.run("deploy", "", "YES=1")
		if (err != nil) != c.fails || calls(made, "cloudformation deploy --stack-name dayfly-"+c.stack) != c.tries || calls(made, "delete-stack --stack-name dayfly-"+c.stack) != c.tries-1 {
			t.Errorf("%s: %v: %s: %s", name, err, said, strings.Join(made, "\n"))
		}
		if c.fails && !strings.Contains(said, strings.TrimSpace(c.reasons[strings.LastIndex(strings.TrimSpace(c.reasons), "\t")+1:])) {
			t.Errorf("%s: it does not say why: %s", name, said)
		}
	}
	s := newSite(t)
	s.keep("new-account", "")
	_, made, _ := s.run("deploy", "", "YES=1")
	before(t, made, "create-service-linked-role", "iam wait role-exists", "cloudformation deploy")
	// An update that failed was rolled back, and is repeated without deleting anything.
	s = deployed(t)
	s.keep("reasons-dayfly-main", notYet)
	if said, made, err := s.run("deploy", "", "YES=1"); err != nil || calls(made, "delete-stack") > 0 {
		t.Errorf("an update: %v: %s", err, said)
	}
}

// What a failed first create leaves can only be deleted. The plan says so, and nothing is taken from it.
func TestDeploy_AfterACreateThatFailed(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.keep("stacks/dayfly-main/status", "ROLLBACK_COMPLETE")
	s.keep("stacks/dayfly-main/parameters/NetworkMode", "nat")
	said, made, err := s.run("deploy", "n\n")
	if err == nil || !strings.Contains(said, "stack dayfly-main: delete the remains of a failed create (ROLLBACK_COMPLETE), and create") || calls(made, "delete-stack") > 0 {
		t.Errorf("no means no: %v: %s", err, said)
	}
	said, made, err = s.run("deploy", "y\n")
	if err != nil || !strings.Contains(said, "network endpoints-only") || calls(made, "pool update main .*--no-disabled") != 1 {
		t.Errorf("%v: %s", err, said)
	}
	before(t, made, "delete-stack --stack-name dayfly-main", "wait stack-delete-complete --stack-name dayfly-main", "cloudformation deploy --stack-name dayfly-main")
}

// reading are calls that look.
var reading = regexp.MustCompile(`^aws (\S+ (?:describe|get|list)-\S+)`)

// Nobody knows what is there after a throttle: whatever the scripts look at, one ends them, and nothing is deleted.
func TestScripts_AThrottleIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		site   func() *site // as it is before each run
		env    []string
		looks  int
	}{
		"a first deploy": {"deploy", func() *site { return newSite(t) }, nil, 11},
		"an update":      {"deploy", one(deployed(t)), []string{"VERSION=v2.0.0"}, 9},
		"destroy":        {"destroy", one(deployed(t)), []string{"CONTROL_PLANE=1", "DRAIN=0"}, 6},
	} {
		env := append(c.env, "YES=1", "AWS_REGION=us-east-1")
		run := func(broken string) (string, []string, error) {
			site := c.site()
			site.keep("stopping", "1") // so that destroy deletes nothing
			site.keep("images/v2.0.0-arm64", "")
			if err := os.Remove(filepath.Join(site.state, "images/v2.0.0-arm64")); err != nil { // the last run pushed it
				t.Fatal(err)
			}
			site.keep("broken", broken)
			return site.run(c.script, "", env...)
		}
		_, made, _ := run("^$")
		looks := map[string]bool{}
		for _, m := range made {
			if found := reading.FindStringSubmatch(m); found != nil {
				looks[found[1]] = true
			}
		}
		if len(looks) < c.looks {
			t.Errorf("%s looks only at %v", name, looks)
		}
		for look := range looks {
			said, made, err := run(look)
			if err == nil || !strings.Contains(said, "Rate exceeded") || calls(made, "delete-stack|pool create|put-secret-value .*PoolToken") > 0 {
				t.Errorf("%s, %s: %v: %s", name, look, err, said)
			}
		}
	}
}

func one(s *site) func() *site { return func() *site { return s } }

// A control plane that does not answer is not one without the pool.
func TestScripts_ABusyControlPlaneIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	for _, busy := range []string{"pool list", "pool update"} {
		s.keep("busy", busy)
		if said, made, err := s.run("destroy", "", "YES=1"); err == nil || calls(made, "delete-stack") > 0 || !strings.Contains(said, "busy") {
			t.Errorf("destroy, %s: %v: %s", busy, err, said)
		}
	}
	for _, busy := range []string{"pool list", "pool create", "pool rotate"} {
		s := newSite(t)
		if busy == "pool rotate" {
			s.keep("pools/main", "")
		}
		s.keep("busy", busy)
		if said, made, err := s.run("deploy", "", "YES=1"); err == nil || calls(made, "put-secret-value .*PoolToken") > 0 || !strings.Contains(said, "busy") {
			t.Errorf("deploy, %s: %v: %s", busy, err, said)
		}
	}
}

// The pool is found in the list as dayfly prints it, by its name and by nothing else.
func TestDeploy_FindsThePoolInTheList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool api.Pool
		made int
	}{
		"it": {api.Pool{Name: "main"}, 0}, "another": {api.Pool{Name: "main-2", Description: `"name": "main"`, AssignedWorkspaces: []string{"main"}}, 1},
	} {
		list, err := json.MarshalIndent([]api.Pool{{Name: "first"}, c.pool}, "", "  ") // as cmd/dayfly does
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t)
		s.keep("list", string(list))
		s.keep("pools/main", "")
		if said, made, err := s.run("deploy", "", "YES=1"); err != nil || calls(made, "pool create") != c.made {
			t.Errorf("%s: %v: %s", name, err, said)
		}
	}
}

// More tasks stop than one call describes.
func TestDestroy_CountsEveryTaskThatStops(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.keep("stopping", "250")
	if said, made, err := s.run("destroy", "", "YES=1", "DRAIN=0"); err == nil || !strings.Contains(said, "250 tasks run") || calls(made, "ecs describe-tasks") != 3 {
		t.Errorf("%v: %s", err, said)
	}
}

// A pool whose stack is being updated is a pool too.
func TestDestroy_SeesPoolsInEveryState(t *testing.T) {
	t.Parallel()
	s := deployed(t)
	s.keep("stacks/dayfly-prod/status", "UPDATE_ROLLBACK_FAILED")
	s.keep("stacks/dayfly-prod/parameters/ServiceUrl", "dayfly-control-ServiceUrl")
	if said, made, err := s.run("destroy", "", "YES=1", "CONTROL_PLANE=1"); err == nil || len(changing(made)) > 0 || !strings.Contains(said, "dayfly-prod") {
		t.Errorf("%v: %s", err, said)
	}
}

// The boundary is given to each stack, or to none.
func TestDeploy_GivesEachStackTheBoundary(t *testing.T) {
	t.Parallel()
	const boundary = "PermissionsBoundaryArn=arn:aws:iam::123456789012:policy/deployer-of-dayfly-Boundary-1A2B"
	s := newSite(t)
	for _, name := range []string{"artifacts", "controlplane", "pool"} {
		file := "infra/transformed/" + name + ".json"
		template := string(readFile(t, filepath.Join(s.root, file)))
		without := strings.Replace(template, `  "PermissionsBoundaryArn": {`, `  "Other": {`, 1)
		s.write(file, without, 0o644)
		if said, made, err := s.run("deploy", "", "YES=1", "BOUNDARY="+strings.SplitN(boundary, "=", 2)[1]); err == nil || len(changing(made)) > 0 || !strings.Contains(said, name+".json of this version takes none") {
			t.Errorf("%s: %v: %s", name, err, said)
		}
		s.write(file, strings.Replace(without, "\n \"Parameters\": {", "\n \"Parameters\": {\n  \"PermissionsBoundaryArn\": {\n  \"Type\": \"String\"\n  },", 1), 0o644)
	}
	if said, made, err := s.run("deploy", "", "YES=1", "BOUNDARY=mine"); err == nil || len(changing(made)) > 0 || !strings.Contains(said, "BOUNDARY=mine") {
		t.Errorf("%v: %s", err, said)
	}
	said, made, err := s.run("deploy", "", "YES=1", "BOUNDARY="+strings.SplitN(boundary, "=", 2)[1])
	if got := calls(made, "cloudformation deploy .* "+boundary); err != nil || got != 3 || calls(made, "cloudformation deploy") != 3 {
		t.Errorf("%d stacks have it: %v: %s", got, err, said)
	}
}

// Tags that are given once stay until others are given; the artifacts' stack is made with the key and the path of the others.
func TestDeploy_GivesEachStackTagsKeyAndPath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const key, path = "KmsKeyArn=arn:aws:kms:eu-west-1:123456789012:key/0a", "RolePath=/teams/"
	for i, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"TAGS=team=platform,cost center=47=11", "PARAMETERS=" + key + " " + path}, "dayfly:version=v1.0.0\ndayfly:deployment=dayfly\nteam=platform\ncost center=47=11"},
		{nil, "dayfly:version=v1.0.0\ndayfly:deployment=dayfly\nteam=platform\ncost center=47=11"},
		{[]string{"TAGS=team=core"}, "dayfly:version=v1.0.0\ndayfly:deployment=dayfly\nteam=core"},
	} {
		said, made, err := s.run("deploy", "", append(c.env, "YES=1")...)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, stack := range []string{"dayfly-artifacts", "dayfly-control", "dayfly-main"} {
			if got, _ := s.read("stacks/" + stack + "/tags"); got != c.want {
				t.Errorf("deployment %d: %s has the tags %q, want %q", i+1, stack, got, c.want)
			}
		}
		if got := calls(made, "deploy --stack-name dayfly-artifacts .* "+path+" "+key); got != 1-min(i, 1) {
			t.Errorf("deployment %d gives key and path %d times", i+1, got)
		}
	}
}

// Roles and secrets of a new stack are told from those of other deployments. A stack that exists keeps its own, because with other
// secrets its running jobs could not report; an admin moves the roles of all three.
func TestDeploy_NamesRolesAndSecretsOfNewStacks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const fresh, moved = "RolePath=/dayfly-stack/x/", "RolePath=/teams/x/"
	for i, c := range []struct {
		env        []string
		each, more string
	}{
		{nil, fresh, " SecretNames=stack"}, {nil, "", ""}, {[]string{"CONTROL_PARAMETERS=" + moved, "PARAMETERS=" + moved}, moved, ""},
	} {
		said, made, err := s.run("deploy", "", append(c.env, "YES=1", "NAME=x")...)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for stack, want := range map[string]string{"x-artifacts": c.each, "x-control": c.each + c.more, "x-main": c.each + c.more} {
			var got []string
			for _, line := range made {
				if strings.Contains(line, "cloudformation deploy --stack-name "+stack) {
					got = slices.DeleteFunc(strings.Fields(line), func(w string) bool {
						return !strings.HasPrefix(w, "RolePath=") && !strings.HasPrefix(w, "SecretNames=")
					})
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("deployment %d: %s gets %q, want %q", i+1, stack, got, want)
			}
		}
	}
}

// CloudFormation would make new subnets in the place of those that are in use.
func TestDeploy_KeepsTheSubnetsOfItsVPC(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if said, _, err := s.run("deploy", "", "YES=1", "PARAMETERS=VpcCidr=10.1.0.0/22"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for parameters, refused := range map[string]bool{"VpcCidr=10.1.0.0/22": false, "VpcCidr=10.2.0.0/22": true, "AvailabilityZones=eu-west-1b,eu-west-1c": true} {
		said, made, err := s.run("deploy", "", "YES=1", "PARAMETERS="+parameters)
		if (err != nil) != refused || refused && (len(changing(made)) > 0 || !strings.Contains(said, parameters+": stack dayfly-main has")) {
			t.Errorf("%s: %v: %s", parameters, err, said)
		}
	}
}
