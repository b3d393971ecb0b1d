package cloud

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

const key = "arn:aws:kms:us-east-1:123456789012:key/0b4f"

func deployed(t *testing.T, template, name string, parameters map[string]string) *templates.Stack {
	t.Helper()
	loaded, err := templates.Load("../../infra/transformed/" + template + ".json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := loaded.Deploy(name, Account, parameters, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask makes a call with a role of the pool, out of the network of tasks where it is inside.
func ask(j *judge, role string, in bool, service, operation, body string) (err error) {
	call := wire.Call{Service: service, Operation: operation, Body: []byte(body), Caller: wire.Identity{
		Account: wire.Account, ARN: "arn:aws:sts::123456789012:assumed-role/dayfly-main-" + role + "-1A2B3C4D5E6F/session",
	}}
	h := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		call.Request = r
		err = j.allow(call)
	}))
	if in {
		h = inside(h)
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	return err
}

// What the network's endpoints do not let through fails, whatever the role may do.
func TestJudge_EndpointsOfTheNetwork(t *testing.T) {
	pool := deployed(t, "pool", "dayfly-main", map[string]string{"PoolName": "main", "ServiceUrl": "https://x", "ImageUri": "i", "S3PrefixListId": "pl-63a5400a"})
	network := deployed(t, "network", "dayfly-main-Network", map[string]string{"NetworkMode": "endpoints-only"})
	j := newJudge()
	j.add(pool)
	j.enclose(network, true)
	become := `{"RoleArn":"arn:aws:iam::123456789012:role/dayfly/main/net"}`
	if err := ask(j, "TaskRole", true, "sts", "AssumeRole", become); err != nil {
		t.Errorf("a call that role and endpoint allow: %v", err)
	}
	if err := ask(j, "TaskRole", true, "sts", "GetCallerIdentity", ``); err != nil {
		t.Errorf("a call that IAM does not ask after: %v", err)
	}
	j.open = []string{"dayfly-main-workspace-1A2B3C4D5E6F"}
	for account, fails := range map[string]bool{"123456789012": false, "210987654321": true} {
		secret := `{"SecretId":"arn:aws:secretsmanager:us-east-1:` + account + `:secret:db-AbCdEf"}`
		if err := ask(j, "workspace", true, "secretsmanager", "GetSecretValue", secret); (err != nil) != fails {
			t.Errorf("a secret of account %s through the endpoint: %v", account, err)
		}
	}
	if err := ask(j, "workspace", true, "lambda", "Invoke", `{"FunctionName":"f"}`); err == nil {
		t.Error("a service without an endpoint is reached out of a network without a way out")
	}

	statement := templates.At(network.Resources["StsEndpoint"].Properties, "PolicyDocument", "Statement", "0").(map[string]any)
	statement["Action"] = "sts:GetCallerIdentity"
	err := ask(j, "TaskRole", true, "sts", "AssumeRole", become)
	if err == nil || !strings.Contains(err.Error(), "because no VPC endpoint policy allows the sts:AssumeRole action") {
		t.Errorf("an endpoint whose policy forgets the action: got %v", err)
	}
	if err := ask(j, "TaskRole", false, "sts", "AssumeRole", become); err != nil {
		t.Errorf("a call from elsewhere goes through the endpoint: %v", err)
	}
	statement["Action"], statement["Condition"] = "*", map[string]any{"StringEquals": map[string]any{"aws:PrincipalAccount": "210987654321"}}
	if err := ask(j, "workspace", true, "sts", "AssumeRole", become); err == nil {
		t.Error("an endpoint for principals of another account lets one of this account through")
	}
	statement["Principal"] = map[string]any{"AWS": "arn"}
	if err := ask(j, "TaskRole", true, "sts", "AssumeRole", become); err == nil {
		t.Error("a principal that is not understood is let through")
	}
}

// A queue under a key of the account needs that key of whoever sends and receives.
func TestJudge_KeyOfAQueue(t *testing.T) {
	pool := deployed(t, "pool", "dayfly-main", map[string]string{"PoolName": "main", "ServiceUrl": "https://x", "ImageUri": "i", "S3PrefixListId": "pl-63a5400a", "KmsKeyArn": key})
	j := newJudge()
	j.add(pool)
	send := `{"QueueUrl":"http://127.0.0.1/123456789012/dayfly-main-Jobs"}`
	if err := ask(j, "PollerRole", false, "sqs", "SendMessage", send); err != nil {
		t.Fatal(err)
	}
	policies, _ := pool.Resources["PollerRole"].Properties["Policies"].([]any)
	removed := 0
	for _, p := range policies {
		statements, _ := templates.At(p, "PolicyDocument", "Statement").([]any)
		for _, s := range statements {
			if templates.At(s, "Sid") == "Key" {
				s.(map[string]any)["Action"] = []any{"kms:Decrypt"}
				removed++
			}
		}
	}
	err := ask(j, "PollerRole", false, "sqs", "SendMessage", send)
	if removed != 1 || err == nil || !strings.Contains(err.Error(), "KmsAccessDenied") || !strings.Contains(err.Error(), "kms:GenerateDataKey on "+key) {
		t.Errorf("a role without the key (%d statements): got %v", removed, err)
	}
}
