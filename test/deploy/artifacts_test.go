package deploy_test

import (
	"maps"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// The bucket of artifacts denies what the policies of callers may allow.
func TestArtifacts_AreReachedByTheSignerAndReadersOnly(t *testing.T) {
	const (
		signer, reader = iam + "/dayfly-stack/prod/dayfly-prod-StatusRole-1A2B3C4D5E6F", iam + "/operators/ann"
		plan, pushed   = "runs/org/ws_1/wf_1/1/plan/bundle.tar", "runs/org/ws_1/push/9f86d081"
		endpoint       = "dayfly-prod-Network-S3EndpointId"
	)
	readers := map[string]string{"ArtifactReaders": iam + "/operators/*," + iam + "/auditor"}
	shared := map[string]string{"VpcHasEndpoints": "true", "VpcId": "vpc-01234567", "SubnetIds": "subnet-1", "EndpointSecurityGroupId": "sg-01234567", "S3EndpointIds": "vpce-01234567,vpce-76543210"}
	public := map[string]string{"NetworkMode": "public"}
	for _, c := range []struct {
		what                      string
		more                      map[string]string
		who, action, key, through string
		new                       string // If-None-Match
		plain, want               bool
	}{
		{what: "a task that fetches", who: signer, action: "s3:GetObject", key: plan, through: endpoint, want: true},
		{what: "a task that sends", who: signer, action: "s3:PutObject", key: plan, through: endpoint, new: "*", want: true},
		{what: "a task that replaces", who: signer, action: "s3:PutObject", key: plan, through: endpoint},
		{what: "a signed address elsewhere", who: signer, action: "s3:GetObject", key: plan},
		{what: "a signed address in another network", who: signer, action: "s3:GetObject", key: plan, through: "vpce-1"},
		{what: "the signer, over plain HTTP", who: signer, action: "s3:GetObject", key: plan, through: endpoint, plain: true},
		{what: "the signer, deleting", who: signer, action: "s3:DeleteObject", key: plan, through: endpoint},
		{what: "the role of a workspace", who: iam + "/dayfly/prod/deploy", action: "s3:GetObject", key: plan, through: endpoint},
		{what: "the role of a workspace, sending", who: iam + "/dayfly/prod/deploy", action: "s3:PutObject", key: plan, through: endpoint, new: "*"},
		{what: "an admin of the account", who: iam + "/admin", action: "s3:GetObject", key: plan},
		{what: "an admin, the bucket itself", who: iam + "/admin", action: "s3:PutBucketPolicy", want: true},
		{what: "nobody reads unless named", who: reader, action: "s3:GetObject", key: plan},
		{what: "a reader", more: readers, who: reader, action: "s3:GetObject", key: plan, want: true},
		{what: "a reader by name", more: readers, who: iam + "/auditor", action: "s3:GetObject", key: plan, want: true},
		{what: "a reader, a state to be pushed", more: readers, who: reader, action: "s3:PutObject", key: pushed, new: "*", want: true},
		{what: "a reader, replacing it", more: readers, who: reader, action: "s3:PutObject", key: pushed},
		{what: "a reader, a plan", more: readers, who: reader, action: "s3:PutObject", key: plan, new: "*"},
		{what: "a reader, deleting", more: readers, who: reader, action: "s3:DeleteObject", key: pushed},
		{what: "a task, with readers", more: readers, who: signer, action: "s3:GetObject", key: plan, through: endpoint, want: true},
		{what: "endpoints of the VPC", more: shared, who: signer, action: "s3:GetObject", key: plan, through: "vpce-76543210", want: true},
		{what: "past the endpoints of the VPC", more: shared, who: signer, action: "s3:GetObject", key: plan, through: endpoint},
		{what: "no endpoint", more: public, who: signer, action: "s3:GetObject", key: plan, want: true},
		{what: "no endpoint, and another role", more: public, who: iam + "/dayfly/prod/deploy", action: "s3:GetObject", key: plan},
	} {
		s := deploy(t, "pool", maps.Clone(c.more))
		policy, err := s.Bucket("dayfly-prod-artifacts")
		if err != nil || len(policy) == 0 {
			t.Fatalf("the policy of the bucket: %v, %v", policy, err)
		}
		r := templates.Request{Action: c.action, Resource: "arn:aws:s3:::dayfly-prod-artifacts", Context: map[string]string{"aws:principalarn": c.who, "aws:securetransport": "true"}}
		if c.key != "" {
			r.Resource += "/" + c.key
		}
		if c.plain {
			r.Context["aws:securetransport"] = "false"
		}
		if c.new != "" {
			r.Context["s3:if-none-match"] = c.new
		}
		if c.through != "" {
			r.Context["aws:sourcevpce"] = c.through
		}
		granted := templates.Statement{Effect: "Allow", Actions: []string{"s3:*"}, Resources: []string{"*"}} // as an admin has it
		if allowed, by := templates.Evaluate(append(policy, granted), r); allowed != c.want {
			t.Errorf("%s: allowed %v by %s, want %v", c.what, allowed, by, c.want)
		}
	}
	// What the tasks' own role is given, it is given for nothing here.
	s := deploy(t, "pool", nil)
	for _, role := range roles(s) {
		for _, action := range []string{"s3:GetObject", "s3:PutObject", "s3:ListBucket"} {
			r := templates.Request{Action: action, Resource: "arn:aws:s3:::dayfly-prod-artifacts/" + plan}
			if allowed, by := templates.Evaluate(s.Statements(role), r); allowed != (role == "StatusRole" && action != "s3:ListBucket") {
				t.Errorf("%s, %s: allowed %v by %s", role, action, allowed, by)
			}
		}
	}
}
