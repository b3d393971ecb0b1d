package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// The bucket of logs has a rule for each of the days for which an organization may keep them, and the name of an object
// falls under that of its days alone.
func TestRunLogs_ExpireByTheDaysInTheirNames(t *testing.T) {
	rules, ok := templates.At(deploy(t, "controlplane", nil).Resources["RunLogs"].Properties, "LifecycleConfiguration", "Rules").([]any)
	if !ok {
		t.Fatal("the bucket has no rules")
	}
	for _, days := range api.LogRetentions() {
		name := record.BlobName(days, "wf_1m7y6r825rcvqh83rh3a", 1, nil)
		var expire []int
		for _, rule := range rules {
			p, ok := rule.(map[string]any)
			if ok && p["Status"] == "Enabled" && p["ExpirationInDays"] != nil && strings.HasPrefix(name, str(p["Prefix"])) {
				expire = append(expire, int(number(p["ExpirationInDays"])))
				if templates.At(p, "NoncurrentVersionExpiration", "NoncurrentDays") == nil {
					t.Errorf("the rule %v leaves versions", p)
				}
			}
		}
		if !slices.Equal(expire, []int{days}) {
			t.Errorf("%s expires after %v days, want %d", name, expire, days)
		}
	}
}

// Nobody can take a lock back, so one of more than ten years is confirmed.
func TestAuditTrail_ALongLockIsConfirmed(t *testing.T) {
	tmpl, err := templates.Load("../../infra/transformed/controlplane.json")
	if err != nil {
		t.Fatal(err)
	}
	for given, days := range map[string]string{
		"1": "1", "365": "365", "3650": "3650", "7300-confirmed": "7300", "36500-confirmed": "36500",
		"3651": "", "7300": "", "36501-confirmed": "", "99999-confirmed": "", "00": "", "-confirmed": "", "0-confirmed": "",
	} {
		parameters := map[string]string{"AuditLockDays": given}
		if err := tmpl.Allows(parameters); (err == nil) != (days != "") {
			t.Errorf("%s: %v", given, err)
		}
		if days == "" {
			continue
		}
		s, err := tmpl.Deploy("dayfly-control", home, parameters, nil)
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		if got := templates.Text(templates.At(s.Resources["AuditTrail"].Properties, "ObjectLockConfiguration", "Rule", "DefaultRetention", "Days")); got != days {
			t.Errorf("%s locks for %q days, want %q", given, got, days)
		}
	}
}

// What outlives its stack does not keep a later stack of the same name from being made.
func TestRetained_LeavesTheNextStackItsNames(t *testing.T) {
	everyBranch(t, func(branch string, s *templates.Stack) {
		for logical, r := range s.Resources {
			if !strings.HasPrefix(r.DeletionPolicy, "Retain") || r.Type == "AWS::ECR::Repository" { // of which make deploy speaks before
				continue
			}
			for _, key := range []string{"LogGroupName", "BucketName", "TableName", "Name"} {
				if name := templates.Text(r.Properties[key]); name != "" && !strings.Contains(name, "0a1b2c3d") {
					t.Errorf("%s: %s stays, and the next stack gives %q to its own", branch, logical, name)
				}
			}
		}
	})
}
