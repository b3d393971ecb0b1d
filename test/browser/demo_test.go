package browser_test

import (
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// demo is a server with runs in every state; the ids of those that pages are shown of.
type demo struct {
	*server
	approval, running, failed, retried, waiting string
}

// networkPlan has one of each kind of change.
var networkPlan = api.Changes{
	Add: 4, Change: 2, Destroy: 2, Replace: 1, Drift: 1,
	Resources: []api.ResourceChange{
		{Address: "aws_nat_gateway.old", Action: "delete", Provider: "registry.terraform.io/hashicorp/aws"},
		{Address: "module.vpc.aws_subnet.private[1]", Action: "replace", Changed: []string{"cidr_block", "availability_zone"}, Forces: []string{"cidr_block"}},
		{Address: "module.vpc.aws_route_table.private", Action: "update", Changed: []string{"route", "tags"}},
		{Address: "aws_security_group.web", Action: "update", Changed: []string{"ingress"}, Drifted: true},
		{Address: "module.vpc.aws_subnet.private[2]", Action: "create"},
		{Address: "module.vpc.aws_route_table_association.private[2]", Action: "create"},
		{Address: "aws_vpc_endpoint.s3", Action: "create"},
		{Address: "aws_eip.gateway", Action: "move", From: "aws_eip.nat"},
	},
	Outputs: []api.OutputChange{{Name: "private_subnet_ids", Action: "update"}, {Name: "nat_address", Action: "delete"}},
}

var initLines = []string{
	"\x1b[0m\x1b[1mInitializing the backend...\x1b[0m",
	"\x1b[32mSuccessfully configured the backend \"s3\"!\x1b[0m Terraform will automatically",
	"use this backend unless the backend configuration changes.",
	"\x1b[1mInitializing provider plugins...\x1b[0m",
	"- Installing hashicorp/aws v6.22.0...",
	"- Installed hashicorp/aws v6.22.0 (signed by HashiCorp)",
	"\x1b[32m\x1b[1mTerraform has been successfully initialized!\x1b[0m",
}

var planLines = []string{
	"\x1b[0m\x1b[1maws_nat_gateway.old: Refreshing state...\x1b[0m [id=nat-0c3f7a]",
	"\x1b[1mmodule.vpc.aws_subnet.private[1]: Refreshing state...\x1b[0m [id=subnet-08f21c]",
	"  \x1b[31m-\x1b[0m\x1b[0m resource \"aws_nat_gateway\" \"old\" {",
	"      \x1b[31m-\x1b[0m allocation_id = \"eipalloc-04d1\" -> \x1b[90mnull\x1b[0m",
	"    }",
	"\x1b[31m-\x1b[0m/\x1b[32m+\x1b[0m resource \"aws_subnet\" \"private\" {",
	"      \x1b[33m~\x1b[0m cidr_block = \"10.0.1.0/24\" -> \"10.0.16.0/20\" \x1b[31m# forces replacement\x1b[0m",
	"    }",
	"\x1b[1mPlan:\x1b[0m 4 to add, 2 to change, 2 to destroy.",
}

// demo fills the server.
func (s *server) demo() *demo {
	s.t.Helper()
	d := &demo{server: s}
	ctx := s.t.Context()
	_, err := s.people.CreateProject(ctx, api.ProjectSettings{Name: new("shop"), Description: new("Everything that sells")})
	s.must(err)
	message := func(text string) func(*api.Submit) { return func(in *api.Submit) { in.Message = text } }
	s3 := func(ws *api.Workspace) {
		ws.State = &api.State{Kind: api.StateS3, Bucket: "acme-states", Region: "eu-central-1"}
	}

	// What went well, with outputs and an artifact.
	s.plays("dns", s3)
	s.submit("dns", workflow.Update, message("add the record of the new shop"))
	a := s.act()
	a.did("source", 0.4, workflow.StepSucceeded, "")
	a.did("init", 3.1, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 6.2, workflow.StepSucceeded, "1 to add")
	a.did("apply", 9.8, workflow.StepSucceeded, "", "\x1b[1maws_route53_record.shop: Creating...\x1b[0m", "\x1b[1maws_route53_record.shop: Creation complete after 8s\x1b[0m")
	a.leaves("files/sbom.json", api.ArtifactFile, `{"components": []}`)
	a.ends(api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 1}, Outputs: []api.Output{{Name: "name", Value: "shop.example.com"}}})

	// Drift.
	s.plays("kubernetes", func(ws *api.Workspace) { ws.Project = "shop"; ws.Description = "The cluster of the shop" })
	s.submit("kubernetes", "", func(in *api.Submit) { in.Type = workflow.InsightsScan })
	a = s.act()
	a.did("init", 2.9, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 12.4, workflow.StepSucceeded, "1 to change, 2 drifted")
	a.ends(api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Change: 1, Drift: 2, Resources: []api.ResourceChange{
		{Address: "aws_eks_node_group.web", Action: "update", Changed: []string{"scaling_config"}, Drifted: true},
		{Address: "aws_iam_role.web", Action: "drift", Changed: []string{"tags"}, Drifted: true},
	}}})

	// A failure, with a lock that is still held.
	s.plays("billing", func(ws *api.Workspace) { ws.Project = "shop" })
	d.failed = s.submit("billing", workflow.Update, message("raise the limits of the queue"))
	a = s.act()
	a.did("init", 3.3, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 5.1, workflow.StepSucceeded, "1 to change")
	a.did("apply", 31, workflow.StepFailed, "terraform apply ended with 1", "\x1b[1maws_sqs_queue.invoices: Modifying...\x1b[0m", "\x1b[31m╷\x1b[0m",
		"\x1b[31m│\x1b[0m \x1b[1m\x1b[31mError: \x1b[0m\x1b[1msetting attributes of queue: AccessDenied\x1b[0m",
		"\x1b[31m│\x1b[0m   with aws_sqs_queue.invoices,", "\x1b[31m│\x1b[0m   on main.tf line 12, in resource \"aws_sqs_queue\" \"invoices\":", "\x1b[31m╵\x1b[0m")
	a.ends(api.Result{
		Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "terraform apply: setting attributes of queue: AccessDenied",
		Lock: &api.Lock{ID: "5e1f3c1a-0d7e-4c3b-9b2f-1f6f0a3a8b11", Who: "runner@build-01", Operation: "OperationTypeApply"},
	})

	// Cancelled while it waited.
	s.plays("backup")
	_, err = s.people.Cancel(ctx, s.submit("backup", workflow.Destroy, message("not needed any more")), "")
	s.must(err)

	// Refused twice, and then run.
	s.plays("search")
	d.retried = s.submit("search", workflow.Preview)
	s.refusedAndRetried(d.retried)

	// A plan that waits for its approval.
	s.plays("network", guarded, s3)
	d.approval = s.submit("network", workflow.Update, message("a third zone for the private subnets"))
	a = s.act()
	a.did("source", 0.6, workflow.StepSucceeded, "commit 3f9c2ab")
	a.did("init", 4.2, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 14.7, workflow.StepSucceeded, "1 to destroy, 1 to replace, 2 to change, 3 to add", planLines...)
	a.plans(networkPlan)

	// What runs, and what waits behind it.
	s.plays("web")
	d.running = s.submit("web", workflow.Update, message("release 42"))
	d.waiting = s.submit("web", workflow.Update, message("release 43"))
	a = s.act()
	a.did("source", 0.5, workflow.StepSucceeded, "commit 71d0e44")
	a.did("init", 3.8, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 8.9, workflow.StepSucceeded, "1 to change, 2 to add", planLines...)
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf("\x1b[1maws_ecs_service.web[%d]: Still modifying...\x1b[0m [00m%02ds elapsed]", i%4, i))
	}
	a.did("apply", 1, workflow.StepRunning, "", lines...)

	// A pool that nobody serves.
	_, err = s.people.CreatePool(ctx, api.PoolSettings{
		Name: new("isolated"), Description: new("Runners without a way out"), Concurrency: new(2), Labels: &[]string{"isolated", "eu"}, AssignedToAll: new(true),
	})
	s.must(err)
	s.plays("audit", func(ws *api.Workspace) { ws.Pool = "isolated" })
	s.submit("audit", workflow.Preview)
	return d
}

// refusedAndRetried plays a run that the launcher refuses at first.
func (s *server) refusedAndRetried(id string) {
	s.t.Helper()
	s.passes(4)
	job := s.claim()
	if job.ID != id {
		s.t.Fatalf("%s was claimed, want %s", job.ID, id)
	}
	for _, reason := range []workflow.Reason{workflow.ReasonCapacity, workflow.ReasonThrottled} {
		s.must(s.played.Launch(s.t.Context(), id, api.Launch{
			Attempt: job.Attempt, Kind: api.LaunchRefused, Reason: reason, Text: "no capacity in eu-central-1a", RetrySeconds: 0.01,
		}))
		s.passes(6)
	}
	a := s.begin(job)
	a.did("init", 2.2, workflow.StepSucceeded, "", initLines...)
	a.did("plan", 4.5, workflow.StepSucceeded, "no changes")
	a.ends(api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}})
}

// shown is a page that has something to show, by a short name.
type shown struct{ name, path string }

// pages are all pages of the console.
func (d *demo) pages() []shown {
	return []shown{
		{"home", "/"}, {"runs", "/runs"}, {"workspaces", "/workspaces"}, {"pools", "/pools"}, {"signin", "/signin"},
		{"workspace", "/workspaces/billing"}, {"workspace-drift", "/workspaces/kubernetes"}, {"workspace-queue", "/workspaces/web"},
		{"run-approval", "/runs/" + d.approval}, {"run-running", "/runs/" + d.running}, {"run-failed", "/runs/" + d.failed},
		{"run-retried", "/runs/" + d.retried}, {"run-waiting", "/runs/" + d.waiting},
	}
}
