package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const agentAccount = "694911143906" // in eu-west-1

// GuardDuty adds a container with its agent to each task: the task's execution role pulls it and lets it report, the
// endpoints let it through, and tasks reach the endpoint that GuardDuty makes. Without GuardDuty there is none of it.
func TestGuardDuty_OpensWhatItsAgentNeeds(t *testing.T) {
	t.Parallel()
	image := "arn:aws:ecr:us-east-1:" + agentAccount + ":repository/aws-guardduty-agent-fargate"
	for parameter, watched := range map[string]bool{"no": false, agentAccount: true} {
		pool := deploy(t, "pool", map[string]string{"GuardDuty": parameter})
		n := network(t, pool)
		for action := range strings.FieldsSeq("ecr:BatchCheckLayerAvailability ecr:BatchGetImage ecr:GetDownloadUrlForLayer") {
			for _, foreign := range []string{image, strings.Replace(image, agentAccount, "210987654321", 1), strings.Replace(image, "aws-guardduty-agent-fargate", "other", 1)} {
				r := templates.Request{Action: action, Resource: foreign, Context: map[string]string{
					"aws:principalaccount": home.ID, "aws:resourceaccount": strings.Split(foreign, ":")[4],
				}}
				want := watched && foreign == image
				if got, _ := templates.Evaluate(pool.Statements("ExecutionRole"), r); got != want {
					t.Errorf("GuardDuty=%s: the execution role may %s: %t", parameter, r, got)
				}
				for _, service := range []string{"ecr.api", "ecr.dkr"} {
					policy, ok, err := n.Endpoint(service)
					if got, _ := templates.Evaluate(policy, r); !ok || err != nil || got != want {
						t.Errorf("GuardDuty=%s: the endpoint of %s lets %s through: %t (%v)", parameter, service, r, got, err)
					}
					r.Context["aws:principalaccount"] = "210987654321"
					if got, by := templates.Evaluate(policy, r); got {
						t.Errorf("GuardDuty=%s: the endpoint of %s lets others %s: %s", parameter, service, r, by)
					}
					r.Context["aws:principalaccount"] = home.ID
				}
			}
		}
		telemetry := templates.Request{Action: "guardduty:SendSecurityTelemetry", Resource: "*"}
		if got, _ := templates.Evaluate(pool.Statements("ExecutionRole"), telemetry); got != watched {
			t.Errorf("GuardDuty=%s: the agent may report: %t", parameter, got)
		}
		if got := slices.Contains(egress(n), "443 10.73.0.0/22"); got != watched {
			t.Errorf("GuardDuty=%s: tasks reach the VPC: %t", parameter, got)
		}
	}
}

// The table has one account for each of its Regions, and says where and when it was read.
func TestGuardDuty_TableOfAgents(t *testing.T) {
	t.Parallel()
	head, table, _ := strings.Cut(string(readFile(t, "../../infra/guardduty-agents")), "af-south-1")
	if !regexp.MustCompile(`user guide.*\n.*read on 20\d\d-\d\d-\d\d\)`).MatchString(head) {
		t.Errorf("it does not say where and when it was read: %s", head)
	}
	row, before := regexp.MustCompile(`^[a-z]{2}(-gov)?-[a-z]+-[1-9] \d{12}$`), ""
	accounts := map[string]bool{}
	for line := range strings.Lines("af-south-1" + table) {
		line = strings.TrimSpace(line)
		region, account, _ := strings.Cut(line, " ")
		if !row.MatchString(line) || region <= before || accounts[account] {
			t.Errorf("%q is no row, not in order or has the account of another", line)
		}
		before, accounts[account] = region, true
	}
	if len(accounts) < 30 {
		t.Errorf("it has %d Regions", len(accounts))
	}
}

// yes becomes the account of the Region; where the table has none, and where tasks would not reach the endpoint, it ends.
func TestDeploy_GuardDuty(t *testing.T) {
	t.Parallel()
	const brought = " VpcId=vpc-01234567 SubnetIds=subnet-1 RouteTableIds=rtb-1"
	for _, c := range []struct{ region, parameters, given, refused string }{
		{"eu-west-1", "GuardDuty=yes NetworkMode=public", "GuardDuty=" + agentAccount, ""},
		{"eu-west-1", "GuardDuty=123456789012", "GuardDuty=123456789012", ""},
		{"eu-west-1", "", "", ""},
		{"xx-west-1", "GuardDuty=yes", "", "no account of the agent in xx-west-1"},
		{"eu-west-1", "GuardDuty=yes" + brought, "", "give EgressCidr too"},
		{"eu-west-1", "GuardDuty=yes EgressCidr=10.0.0.0/16" + brought, "GuardDuty=" + agentAccount, ""},
	} {
		s := newSite(t)
		said, _, err := s.run("deploy", "", "PLAN=1", "AWS_REGION="+c.region, "PARAMETERS="+c.parameters)
		if (err != nil) != (c.refused != "") || !strings.Contains(said, c.refused) {
			t.Errorf("%+v: %v: %s", c, err, said)
		}
		_, plan, _ := strings.Cut(said, "stack dayfly-main: create")
		if plan, _, _ = strings.Cut(plan, "\n"); c.refused == "" && (!strings.Contains(plan, c.given) || strings.Contains(plan, "GuardDuty") != (c.given != "")) {
			t.Errorf("%+v: the plan is %s", c, plan)
		}
	}
}

// GuardDuty's endpoint would keep the VPC that the stack made: it goes before that, with its security group. An endpoint of
// somebody else ends the command before it changes anything, and in a VPC of yours nothing is deleted.
func TestDestroy_TakesGuardDutysEndpointsAway(t *testing.T) {
	t.Parallel()
	const guards, stranger = "vpce-0a com.amazonaws.eu-west-1.guardduty-data true\n", "vpce-0b com.amazonaws.eu-west-1.ssm None\n"
	for name, c := range map[string]struct {
		vpc, endpoints, kept string
		deletes, fails       bool
		says                 string
	}{
		"GuardDuty's":       {"", guards, "", true, false, "endpoints of GuardDuty in vpc-0a1b2c3d, with their security group: delete (vpce-0a)"},
		"none":              {"", "", "", false, false, ""},
		"of somebody else":  {"", guards + stranger, "", false, true, "delete these endpoints in it first: vpce-0b (com.amazonaws.eu-west-1.ssm)"},
		"in a VPC of yours": {"vpc-01234567", guards + stranger, "", false, false, "endpoints of GuardDuty in vpc-01234567: vpce-0a"},
		"that stays":        {"", guards, "you are not allowed to\n", true, true, "endpoints of GuardDuty were not deleted: you are not allowed to"},
	} {
		s := newSite(t)
		for _, stack := range []string{"dayfly-control", "dayfly-main"} {
			s.keep("stacks/"+stack+"/status", "CREATE_COMPLETE")
		}
		s.keep("stacks/dayfly-main/parameters/VpcId", c.vpc)
		s.keep("endpoints", c.endpoints)
		if c.kept != "" {
			s.keep("kept-endpoints", c.kept)
		}
		said, made, err := s.run("destroy", "", "YES=1", "DRAIN_LOOK=0")
		if (err != nil) != c.fails || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v: %s", name, err, said)
		}
		if got := calls(made, "delete-vpc-endpoints --vpc-endpoint-ids vpce-0a") == 1; got != c.deletes {
			t.Errorf("%s: deleted: %t", name, got)
		}
		if c.deletes && !c.fails {
			before(t, made, "ecs list-tasks", "ec2 delete-vpc-endpoints", "ec2 delete-security-group --group-id sg-0a1b2c3d", "delete-stack --stack-name dayfly-main")
		}
		if c.fails && calls(made, "delete-stack") > 0 {
			t.Errorf("%s: a stack is deleted: %v", name, made)
		}
	}
}
