package deploy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// hours of a month, and the minutes in which schedules tick.
const hours, minutes = 730.0, 43_800.0

// idle is what a stack costs in a month in which nothing runs, as docs/figures.md adds it up: a function of the given
// seconds runs each minute, and each call of it to the control plane is one to an HTTP API. It returns the counts as the page
// writes them, too.
func idle(t *testing.T, s *templates.Stack, function string, seconds float64) (dollars float64, counts string) {
	t.Helper()
	alarmed, own := len(watches(s)), 0
	for _, w := range watches(s) {
		if strings.HasPrefix(w.Namespace, "Dayfly/") && s.Resources[w.Alarm].Properties["TreatMissingData"] == "breaching" {
			own++ // others are written only in trouble
		}
	}
	ticks := 0.0
	for _, schedule := range s.Of("AWS::Scheduler::Schedule") {
		var every float64
		if _, err := fmt.Sscanf(str(s.Resources[schedule].Properties["ScheduleExpression"]), "rate(%f minute", &every); err != nil {
			t.Fatal(err)
		}
		ticks += minutes / every
	}
	queues, secrets := len(s.Of("AWS::Lambda::EventSourceMapping")), len(s.Of("AWS::SecretsManager::Secret"))
	dollars = minutes*(seconds*number(s.Resources[function].Properties["MemorySize"])/1024*0.0000133334+0.0000002) + ticks*1e-6 +
		float64(queues)*5*3*minutes*0.40e-6 + float64(secrets)*0.40 + float64(alarmed)*0.10 + float64(own)*0.30
	if queues > 0 {
		counts = fmt.Sprintf("%d queues × 5 pollers × 3 receives a minute × $0.40/M + %d secrets × $0.40 + ", queues, secrets)
	}
	return dollars, counts + fmt.Sprintf("%d alarmed metrics × $0.10 + %d metric at $0.30 | about $%.2f", alarmed, own, math.Round(dollars*10)/10)
}

// The figures of the docs that follow from the templates follow from them. What was measured (the sum of an idle month and
// of 1,000 jobs beside compute) is taken from the page.
func TestFigures_AreThoseOfTheTemplates(t *testing.T) {
	pool, control := deploy(t, "pool", nil), deploy(t, "controlplane", nil)
	network := deploy(t, "network", map[string]string{"NetworkMode": "endpoints-only", "S3PrefixListId": "pl-63a5400a"})
	page := string(readFile(t, "../../docs/figures.md"))
	var month, thousand float64
	for name, to := range map[string]*float64{"| an idle control plane and an idle pool, a month, without the network | $": &month, "of log, beside compute, on AWS | $": &thousand} {
		_, after, _ := strings.Cut(page, name)
		if _, err := fmt.Sscanf(after, "%f", to); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	ofPool, poolCounts := idle(t, pool, "Poller", 0.15)
	ofControl, controlCounts := idle(t, control, "ControlPlane", 0.2)
	if rest := month - ofPool - ofControl; rest < 0 || rest > 0.40 {
		t.Errorf("the measured month is $%.2f, and the templates make $%.2f + $%.2f of it", month, ofPool, ofControl)
	}
	endpoints := 0
	for _, e := range network.Of("AWS::EC2::VPCEndpoint") {
		if network.Resources[e].Properties["VpcEndpointType"] == "Interface" {
			endpoints++
		}
	}
	zones := len(network.Of("AWS::EC2::Subnet"))
	private := float64(endpoints*zones) * 0.01 * hours
	const nat, address = (0.045 + 0.005) * hours, 0.005 * 330 / 3600 * 1000
	arm := 330 * 1000 * (0.03238 + 2*0.00356) / 3600
	jobs := 108.0 * 365 / 12 / 1000 // thousands a month, of the team
	team := month + jobs*(math.Round(arm*100)/100) + jobs*thousand
	reserved := 0.0
	for _, s := range []*templates.Stack{pool, control} {
		for _, f := range s.Of("AWS::Lambda::Function") {
			reserved += number(s.Resources[f].Properties["ReservedConcurrentExecutions"])
		}
	}
	addresses := zones * (512 - 5) // AWS keeps five of each subnet
	if addresses-endpoints*zones < 950 || addresses > 1050 {
		t.Errorf("a VPC has room for %d tasks", addresses)
	}
	for file, figures := range map[string][]string{
		"docs/figures.md": {
			poolCounts, controlCounts, fmt.Sprintf("%d endpoints × %d zones × $0.01 × H | $%.2f", endpoints, zones, private),
			fmt.Sprintf("× H, and $0.045/GB | $%.2f; 300 MB of providers a job are $%.2f per 1,000 jobs; $%.2f with both zones", nat, 300*0.045, nat*float64(zones)),
			fmt.Sprintf("$0 idle; $%.2f per 1,000 jobs of 330 s", address), fmt.Sprintf("| $%.2f on ARM", arm),
			fmt.Sprintf("alarms $%.2f", 0.10*float64(len(watches(pool))+len(watches(control)))+2*0.30),
			fmt.Sprintf("idle control plane: $%.2f a month", month), fmt.Sprintf("| as above | $%.2f |", month), fmt.Sprintf("**$%.2f** |\n", team),
			fmt.Sprintf("**$%.2f**", team+jobs*address), fmt.Sprintf("**$%.2f**", team+nat), fmt.Sprintf("**$%.2f**", team+nat+jobs*300*0.045), fmt.Sprintf("**$%.2f**", team+private),
		},
		"README.md": {
			fmt.Sprintf("about $%.0f, and the network", month), fmt.Sprintf("about $%.2f in public mode", math.Round((arm+thousand+address)*10)/10),
			fmt.Sprintf("NAT is $%.2f a month", nat), fmt.Sprintf("about $%.0f; endpoints are $%.2f", arm+thousand+300*0.045, private), fmt.Sprintf("the jobs $%.2f.", math.Round((arm+thousand)*10)/10),
		},
		"docs/aws.md":     {fmt.Sprintf("stacks reserve %.0f function", reserved), "about a thousand tasks"},
		"docs/compare.md": {fmt.Sprintf("$%.2f a month", month)},
	} {
		text := strings.ReplaceAll(string(readFile(t, "../../"+file)), "\n", " ")
		for _, figure := range figures {
			if !strings.Contains(text, strings.ReplaceAll(figure, "\n", " ")) {
				t.Errorf("%s does not say %q", file, figure)
			}
		}
	}
}
