package deploy_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// network is that of a pool's stack, decided by what the stack hands it.
func network(t *testing.T, pool *templates.Stack) *templates.Stack {
	t.Helper()
	handed := map[string]string{}
	for k, v := range pool.Resources["Network"].Properties["Parameters"].(map[string]any) {
		handed[k] = templates.Text(v)
	}
	return deploy(t, "network", handed)
}

// egress is all that the security group of tasks lets out, as PORT WHERE.
func egress(n *templates.Stack) (out []string) {
	group := n.Outputs["TaskSecurityGroupId"]
	all, _ := n.Resources["TaskSecurityGroup"].Properties["SecurityGroupEgress"].([]any)
	for _, name := range n.Of("AWS::EC2::SecurityGroupEgress") {
		if p := n.Resources[name].Properties; p["GroupId"] == group {
			all = append(all, p)
		}
	}
	for _, r := range all {
		to := ""
		for _, key := range []string{"CidrIp", "DestinationSecurityGroupId", "DestinationPrefixListId"} {
			to += templates.Text(templates.At(r, key))
		}
		if to == n.Outputs["StackEndpointSecurityGroupId"] {
			to = "own endpoints"
		}
		out = append(out, fmt.Sprintf("%s %s", templates.Text(templates.At(r, "ToPort")), to))
	}
	slices.Sort(out)
	return out
}

// Tasks may reach what the mode needs, and what is named besides.
func TestEgress(t *testing.T) {
	own := []string{"443 own endpoints", "443 pl-63a5400a"}
	brought := map[string]string{"VpcId": "vpc-01234567", "SubnetIds": "subnet-1", "RouteTableIds": "rtb-1"}
	for name, c := range map[string]struct {
		more map[string]string
		want []string
	}{
		"endpoints-only":       {nil, own},
		"endpoints of the VPC": {map[string]string{"VpcHasEndpoints": "true", "EndpointSecurityGroupId": "sg-01234567"}, append([]string{"443 sg-01234567"}, own...)},
		"git in the network":   {map[string]string{"EgressCidr": "10.0.0.0/16", "AllowSshEgress": "true"}, append([]string{"22 10.0.0.0/16", "443 10.0.0.0/16"}, own...)},
		"a proxy":              {map[string]string{"EgressCidr": "10.0.0.0/16", "HttpsProxy": "http://proxy:3128"}, append([]string{"3128 10.0.0.0/16", "443 10.0.0.0/16"}, own...)},
		"a group for a proxy":  {map[string]string{"TaskSecurityGroupIds": "sg-01234567", "HttpsProxy": "http://proxy:3128"}, own},
		"nat":                  {map[string]string{"NetworkMode": "nat"}, []string{"443 0.0.0.0/0"}},
		"nat, all": {
			map[string]string{"NetworkMode": "nat", "HttpsProxy": "http://proxy:3128", "AllowSshEgress": "true", "EgressCidr": "10.0.0.0/16"},
			[]string{"22 0.0.0.0/0", "3128 0.0.0.0/0", "443 0.0.0.0/0"},
		},
	} {
		for k, v := range brought {
			if c.more == nil {
				c.more = map[string]string{}
			}
			c.more[k] = v
		}
		slices.Sort(c.want)
		pool := deploy(t, "pool", c.more)
		if diff := cmp.Diff(c.want, egress(network(t, pool))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		groups := templates.Text(templates.At(pool.Resources["Dispatcher"].Properties, "Environment", "Variables", "DAYFLY_SECURITY_GROUPS"))
		if more := c.more["TaskSecurityGroupIds"]; strings.HasSuffix(groups, ","+more) != (more != "") {
			t.Errorf("%s: tasks are in the groups %s", name, groups)
		}
	}
}

// One set of rules: make deploy, sam by hand as docs/aws.md says it, and the Terraform module let the same out.
func TestEgress_IsTheSameHoweverItIsDeployed(t *testing.T) {
	s := newSite(t)
	s.real()
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	deployed := s.parameters("dayfly-main")
	if !regexp.MustCompile(`describe-managed-prefix-lists(.|\n)*S3PrefixListId=`).Match(readFile(t, "../../docs/aws.md")) {
		t.Error("docs/aws.md does not say by hand what the others look up")
	}
	m := readModule(t, map[string]cty.Value{
		"pool_name": cty.StringVal("main"), "service_url": cty.StringVal(given["ServiceUrl"]), "image_uri": cty.StringVal(given["ImageUri"]),
		"stack_name": cty.StringVal("dayfly-main"), "artifacts_bucket": cty.StringVal("artifacts"), "functions_directory": cty.StringVal("dist/functions"),
	})
	module := map[string]string{}
	for name, v := range m.attr(t, m.of("resource", "aws_cloudformation_stack", "pool")[0], "parameters", nil).AsValueMap() {
		module[name] = v.AsString()
	}
	want := []string{"443 own endpoints", "443 pl-63a5400a"}
	for path, parameters := range map[string]map[string]string{"make deploy": deployed, "sam": given, "terraform": module} {
		if diff := cmp.Diff(want, egress(network(t, deploy(t, "pool", parameters)))); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// What cannot be together is refused before anything is made, with the parameter that is missing.
func TestParameters_TogetherOrRefused(t *testing.T) {
	tmpl, err := templates.Load("../../infra/transformed/pool.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ parameters, want string }{
		{"", ""},
		{"NetworkMode=public S3PrefixListId=", ""},
		{"S3PrefixListId=", "Set S3PrefixListId"},
		{"NetworkMode=nat", ""},
		{"NetworkMode=nat VpcId=vpc-01234567", "Set SubnetIds"},
		{"NetworkMode=nat VpcId=vpc-01234567 SubnetIds=subnet-1", ""},
		{"SubnetIds=subnet-1", "Set VpcId"},
		{"VpcId=vpc-01234567 SubnetIds=subnet-1", "Set RouteTableIds"},
		{"VpcId=vpc-01234567 SubnetIds=subnet-1 RouteTableIds=rtb-1", ""},
		{"VpcHasEndpoints=true EgressCidr=10.0.0.0/16", "Set VpcId"},
		{"VpcHasEndpoints=true VpcId=vpc-01234567 SubnetIds=subnet-1", "Set EndpointSecurityGroupId"},
		{"VpcHasEndpoints=true VpcId=vpc-01234567 SubnetIds=subnet-1 EndpointSecurityGroupId=sg-01234567", ""},
		{"VpcHasEndpoints=true VpcId=vpc-01234567 SubnetIds=subnet-1 EgressCidr=10.0.0.0/16", ""},
		{"VpcHasEndpoints=true VpcId=vpc-01234567 SubnetIds=subnet-1 TaskSecurityGroupIds=sg-01234567", ""},
		{"EndpointSecurityGroupId=sg-01234567", "Set VpcHasEndpoints"},
		{"HttpsProxy=http://proxy:3128", "EgressCidr has its address"},
		{"HttpsProxy=http://proxy:3128 EgressCidr=10.0.0.0/16", ""},
		{"HttpsProxy=http://proxy:3128 NetworkMode=public", ""},
		{"AllowSshEgress=true", "Set it to the addresses"},
		{"AllowSshEgress=true NetworkMode=public", ""},
	} {
		values := map[string]string{}
		for k, v := range given {
			values[k] = v
		}
		for _, p := range strings.Fields(c.parameters) {
			k, v, _ := strings.Cut(p, "=")
			values[k] = v
		}
		_, err := tmpl.Deploy("dayfly-prod", home, values, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.parameters, err, c.want)
		}
	}
}
