package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// scan is what public scanners demand of resources. Where resources do not keep it, Why is the reason.
type scan struct {
	IDs   string // of Security Hub, checkov and cfn_nag
	Types string // of resources, divided by spaces
	On    string // the resources that do not keep it, divided by spaces; with Why and without On it is each of the types
	Why   string
	Holds func(s *templates.Stack, p map[string]any) bool
	Spoil func(p map[string]any) // makes a resource that does not keep it, where all do
}

// The types of which no scanner demands anything that these templates could keep or break.
var unscanned = strings.Fields(`
	AWS::ApiGateway::Account AWS::EC2::FlowLog AWS::EC2::InternetGateway AWS::EC2::NatGateway AWS::EC2::Route AWS::EC2::RouteTable
	AWS::EC2::SubnetRouteTableAssociation AWS::EC2::VPCEndpoint AWS::EC2::VPCGatewayAttachment AWS::Events::Rule
	AWS::Lambda::EventInvokeConfig AWS::Lambda::EventSourceMapping AWS::Logs::MetricFilter AWS::Scheduler::Schedule`)

// What public scanners say of the stacks, in every mode, is what is excused, and no more.
func TestScanners(t *testing.T) {
	broken, there := make([]map[string]bool, len(scans)), map[string]bool{} // by type and name
	for mode, more := range modes {
		for _, name := range []string{"pool", "controlplane", "network", "artifacts", "deployer", "workspace-role"} {
			values := fitting(t, name, mode, more)
			if name == "workspace-role" {
				values = roleOfNetwork
			}
			s := deploy(t, name, values)
			for i, rule := range scans {
				if broken[i] == nil {
					broken[i] = map[string]bool{}
				}
				for _, resource := range rule.breaks(s) {
					broken[i][resource] = true
				}
			}
			for resource, r := range s.Resources {
				there[r.Type+" "+resource] = true
			}
		}
	}
	for i, rule := range scans {
		if diff := cmp.Diff(rule.excused(there), slices.Sorted(maps.Keys(broken[i]))); diff != "" {
			t.Errorf("%s: who is excused does not break it, or who breaks it is not excused (-excused +broken): %s", rule.IDs, diff)
		}
	}
	for resource := range there {
		kind, _, _ := strings.Cut(resource, " ")
		if !slices.Contains(unscanned, kind) && !slices.ContainsFunc(scans, func(r scan) bool { return slices.Contains(strings.Fields(r.Types), kind) }) {
			t.Errorf("%s: nothing says what scanners demand of it", resource)
		}
	}
}

// excused are those of the resources that have the reason of the rule; a name in On that there is not stands alone.
func (r scan) excused(there map[string]bool) (out []string) {
	on, used := strings.Fields(r.On), map[string]bool{}
	for resource := range there {
		kind, name, _ := strings.Cut(resource, " ")
		if r.Why != "" && slices.Contains(strings.Fields(r.Types), kind) && (len(on) == 0 || slices.Contains(on, name)) {
			out, used[name] = append(out, resource), true
		}
	}
	for _, name := range on {
		if !used[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// breaks are the resources of a stack that do not keep the rule, by type and name.
func (r scan) breaks(s *templates.Stack) (out []string) {
	for _, kind := range strings.Fields(r.Types) {
		for _, name := range s.Of(kind) {
			if !r.Holds(s, s.Resources[name].Properties) {
				out = append(out, kind+" "+name)
			}
		}
	}
	return out
}

// Each rule that all resources keep can be broken: for the others, TestScanners finds who does.
func TestScanners_CanFail(t *testing.T) {
	for _, rule := range scans {
		if (rule.Spoil == nil) == (rule.Why == "") {
			t.Errorf("%s: a rule that all keep has a way to break it, and no other has", rule.IDs)
		}
		for _, kind := range strings.Fields(rule.Types) {
			if rule.Spoil != nil && !canBreak(t, rule, kind) {
				t.Errorf("%s: it cannot fail on %s", rule.IDs, kind)
			}
		}
	}
}

func canBreak(t *testing.T, rule scan, kind string) bool {
	for _, name := range []string{"pool", "controlplane", "network", "artifacts", "deployer"} {
		s := deploy(t, name, fitting(t, name, "", nil))
		for _, resource := range s.Of(kind) {
			rule.Spoil(s.Resources[resource].Properties)
			return !rule.Holds(s, s.Resources[resource].Properties)
		}
	}
	return false
}

// A reviewer finds each finding with its reason in docs/aws-permissions.md, and the command that skips them with checkov.
func TestScanners_AreExplained(t *testing.T) {
	_, section, _ := strings.Cut(string(readFile(t, "../../docs/aws-permissions.md")), "\n## Findings of scanners\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got, skip []string
	for _, rule := range scans {
		if rule.Why != "" {
			want = append(want, "| "+rule.IDs+" | "+rule.Why+" |")
			for _, id := range strings.Split(rule.IDs, ", ") {
				if strings.HasPrefix(id, "CKV") {
					skip = append(skip, id)
				}
			}
		}
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| finding") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/aws-permissions.md (-rules +docs): %s", diff)
	}
	if !strings.Contains(section, "--skip-check "+strings.Join(skip, ",")+"\n") {
		t.Errorf("docs/aws-permissions.md does not skip what is excused: want --skip-check %s", strings.Join(skip, ","))
	}
}
