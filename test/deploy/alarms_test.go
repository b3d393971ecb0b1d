package deploy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const topic = "arn:aws:sns:us-east-1:123456789012:alarms"

// O5: what an operator must hear of has an alarm, with a topic and a sentence. (That repair.md explains each, its own
// test shows.)
func TestAlarms(t *testing.T) {
	for name, want := range map[string][]string{
		"pool": {
			"OldestMessageAlarm", "LaunchWaitAlarm", "JobsDeadAlarm", "ReportsWaitAlarm", "ReportsDeadAlarm", "EventsDeadAlarm", "DispatcherErrorsAlarm", "PollerErrorsAlarm", "DelivererErrorsAlarm",
			"PollerSilentAlarm", "StatusErrorsAlarm", "StatusRefusedAlarm", "TooManyStatusCallsAlarm", "PoolThrottlesAlarm", "SweepAlarm",
			"StatusFunctionErrorsAlarm", "DeadLettersErrorsAlarm", "ReaperErrorsAlarm", "UnstartedAlarm", "VcpuQuotaAlarm", "SpotQuotaAlarm",
		},
		"controlplane": {"ErrorsAlarm", "LongPollErrorsAlarm", "ServerErrorsAlarm", "PassAlarm", "ThrottlesAlarm", "TooManyCallsAlarm", "TableThrottlesAlarm", "InvocationQuotaAlarm"},
	} {
		s := deploy(t, name, map[string]string{"AlarmTopicArn": topic})
		if got := s.Of("AWS::CloudWatch::Alarm"); len(got) != len(want) {
			t.Errorf("%s: alarms %v", name, got)
		}
		for _, alarm := range want {
			p := s.Resources[alarm].Properties
			if str(templates.At(p, "AlarmActions", "0")) != topic || str(templates.At(p, "OKActions", "0")) != topic || str(p["AlarmDescription"]) == "" {
				t.Errorf("%s: %s has no topic or no description", name, alarm)
			}
		}
	}
}

// watched is a metric of an alarm.
type watched struct {
	Alarm, Namespace, Metric string
	Dimensions               []string // NAME=VALUE
	Period, Periods          float64  // in seconds, and how many
}

// watches lists the metrics of a stack's alarms. Each is charged.
func watches(s *templates.Stack) (all []watched) {
	for _, alarm := range s.Of("AWS::CloudWatch::Alarm") {
		p := s.Resources[alarm].Properties
		add := func(of any, period any) {
			w := watched{Alarm: alarm, Namespace: str(templates.At(of, "Namespace")), Metric: str(templates.At(of, "MetricName")), Period: number(period), Periods: number(p["EvaluationPeriods"])}
			dimensions, _ := templates.At(of, "Dimensions").([]any)
			for _, d := range dimensions {
				w.Dimensions = append(w.Dimensions, str(templates.At(d, "Name"))+"="+templates.Text(templates.At(d, "Value")))
			}
			all = append(all, w)
		}
		metrics, _ := p["Metrics"].([]any)
		for _, m := range metrics {
			if stat := templates.At(m, "MetricStat"); stat != nil {
				add(templates.At(stat, "Metric"), templates.At(stat, "Period"))
			}
		}
		if metrics == nil {
			add(p, p["Period"])
		}
	}
	return all
}

// A metric of AWS that an alarm watches is one of the list, with these dimensions, and each of the list is watched. Other
// metrics are those of the stack's own filters.
func TestAlarms_WatchMetricsThatThereAre(t *testing.T) {
	var list struct {
		Date    string `json:"read"`
		Metrics []struct {
			Namespace, Metric, Unit, Page string
			Dimensions                    []string
		}
	}
	err := json.Unmarshal(readFile(t, "testdata/metrics.json"), &list)
	if _, date := time.Parse(time.DateOnly, list.Date); err != nil || date != nil {
		t.Fatalf("%v, %v", err, date)
	}
	seen := map[int]bool{}
	for _, s := range []*templates.Stack{deploy(t, "pool", nil), deploy(t, "controlplane", nil), deploy(t, "controlplane", map[string]string{"ApiType": "private", "VpcEndpointIds": "vpce-0123456789abcdef0"})} {
		own := map[string]bool{}
		for _, filter := range s.Of("AWS::Logs::MetricFilter") {
			m := templates.At(s.Resources[filter].Properties, "MetricTransformations", "0")
			own[str(templates.At(m, "MetricNamespace"))+" "+str(templates.At(m, "MetricName"))] = true
		}
		for _, w := range watches(s) {
			known := own[w.Namespace+" "+w.Metric] && w.Dimensions == nil
			for i, m := range list.Metrics {
				same := m.Namespace == w.Namespace && m.Metric == w.Metric && len(m.Dimensions) == len(w.Dimensions) && m.Unit != "" && strings.HasPrefix(m.Page, "https://docs.aws.amazon.com/")
				for _, d := range w.Dimensions {
					name, _, _ := strings.Cut(d, "=")
					same = same && (slices.Contains(m.Dimensions, name) || slices.Contains(m.Dimensions, d))
				}
				seen[i], known = seen[i] || same, known || same
			}
			if !known {
				t.Errorf("nothing is known of the metric of %s: %s %s of %v", w.Alarm, w.Namespace, w.Metric, w.Dimensions)
			}
		}
	}
	for i, m := range list.Metrics {
		if !seen[i] {
			t.Errorf("no alarm watches %s %s of %v", m.Namespace, m.Metric, m.Dimensions)
		}
	}
}

// The throttles of an index are not in those of its table.
func TestAlarms_ThrottlesOfEachIndex(t *testing.T) {
	s := deploy(t, "controlplane", nil)
	table := s.Resources["Table"].Properties
	want := []string{"ReadThrottleEvents ", "WriteThrottleEvents "}
	indexes, _ := table["GlobalSecondaryIndexes"].([]any)
	for _, index := range indexes {
		name := "GlobalSecondaryIndexName=" + str(templates.At(index, "IndexName"))
		want = append(want, "ReadThrottleEvents "+name, "WriteThrottleEvents "+name)
	}
	var got []string
	for _, w := range watches(s) {
		if w.Alarm == "TableThrottlesAlarm" {
			got = append(got, w.Metric+" "+strings.Join(w.Dimensions[1:], " "))
		}
	}
	if d := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); d != "" {
		t.Error(d)
	}
}

// Each function has an alarm over its errors.
func TestAlarms_ErrorsOfEachFunction(t *testing.T) {
	for _, name := range []string{"pool", "controlplane"} {
		s := deploy(t, name, nil)
		all := watches(s)
		for _, f := range s.Of("AWS::Lambda::Function") {
			physical := "FunctionName=" + s.Name + "-" + f
			if own := str(s.Resources[f].Properties["FunctionName"]); own != "" {
				physical = "FunctionName=" + own
			}
			if !slices.ContainsFunc(all, func(w watched) bool { return w.Metric == "Errors" && w.Dimensions[0] == physical }) {
				t.Errorf("%s: nobody hears of errors of %s", name, f)
			}
		}
	}
}

// A schedule that fails is heard of, because its group's metrics are those of all schedules of the account: an alarm counts
// what each tick does, and silence rings. A rule of EventBridge leaves what it cannot deliver with the dead letters.
func TestAlarms_EachScheduleIsHeard(t *testing.T) {
	heard := map[string]string{"PollerEachMinute": "PollerSilentAlarm", "ReaperSweep": "SweepAlarm", "ControlPlaneEachMinute": "PassAlarm"}
	for _, name := range []string{"pool", "controlplane"} {
		s := deploy(t, name, nil)
		all := watches(s)
		for _, schedule := range s.Of("AWS::Scheduler::Schedule") {
			alarm := heard[schedule]
			at := slices.IndexFunc(all, func(w watched) bool { return w.Alarm == alarm })
			if at < 0 || s.Resources[alarm].Properties["TreatMissingData"] != "breaching" {
				t.Errorf("%s: nobody hears that %s fails", name, schedule)
				continue
			}
			// The first ticks of a new stack: the alarm is not there before its schedule, and waits for several.
			var minutes float64
			if _, err := fmt.Sscanf(str(s.Resources[schedule].Properties["ScheduleExpression"]), "rate(%f minute", &minutes); err != nil {
				t.Fatal(err)
			}
			if s.Resources[alarm].DependsOn != schedule || all[at].Period*all[at].Periods < 4*60*minutes {
				t.Errorf("%s rings before the first ticks of %s, every %v minutes: it depends on %v", alarm, schedule, minutes, s.Resources[alarm].DependsOn)
			}
		}
		for _, rule := range s.Of("AWS::Events::Rule") {
			targets, _ := s.Resources[rule].Properties["Targets"].([]any)
			for _, target := range targets {
				arn := templates.Text(templates.At(target, "DeadLetterConfig", "Arn"))
				queue := "QueueName=" + arn[strings.LastIndex(arn, ":")+1:]
				if !slices.ContainsFunc(all, func(w watched) bool { return slices.Contains(w.Dimensions, queue) }) {
					t.Errorf("%s: nobody hears that the rule %s fails", name, rule)
				}
			}
		}
	}
}

// On a new stack the poller's ticks fail until its secrets are filled, which make deploy does at once.
func TestAlarms_ErrorsOfTheFirstTicksDoNotRing(t *testing.T) {
	for _, w := range watches(deploy(t, "pool", nil)) {
		if w.Metric == "Errors" && w.Alarm != "DispatcherErrorsAlarm" && w.Period*w.Periods < 900 {
			t.Errorf("%s rings after %v s", w.Alarm, w.Period*w.Periods)
		}
	}
}

// What stops without an error is heard of too: silence is an alarm.
func TestAlarms_SilenceBreaches(t *testing.T) {
	for name, alarms := range map[string][]string{"pool": {"PollerSilentAlarm", "SweepAlarm"}, "controlplane": {"PassAlarm"}} {
		s := deploy(t, name, nil)
		for _, alarm := range alarms {
			p := s.Resources[alarm].Properties
			waits := number(p["Period"]) * number(p["EvaluationPeriods"])
			if p["TreatMissingData"] != "breaching" || p["ComparisonOperator"] != "LessThanThreshold" || number(p["Threshold"]) != 1 || waits > 900 {
				t.Errorf("%s hears nothing of silence: %v", alarm, p)
			}
		}
	}
	p := deploy(t, "pool", nil).Resources["PollerSilentAlarm"].Properties
	if p["MetricName"] != "Invocations" || templates.Text(templates.At(p, "Dimensions", "0", "Value")) != "dayfly-wake-dayfly-prod" {
		t.Errorf("it looks at %v of %v", p["MetricName"], p["Dimensions"])
	}
}

// The throttles of each function are looked at.
func TestAlarms_ThrottlesOfEachFunction(t *testing.T) {
	for name, alarm := range map[string]string{"pool": "PoolThrottlesAlarm", "controlplane": "ThrottlesAlarm"} {
		s := deploy(t, name, nil)
		b, err := json.Marshal(s.Resources[alarm].Properties["Metrics"])
		if err != nil {
			t.Fatal(err)
		}
		functions := s.Of("AWS::Lambda::Function")
		if n := strings.Count(string(b), `"MetricName":"Throttles"`); n != len(functions) {
			t.Errorf("%s looks at %d functions of %d", alarm, n, len(functions))
		}
		for _, f := range functions {
			physical := s.Name + "-" + f
			if own := str(s.Resources[f].Properties["FunctionName"]); own != "" {
				physical = own
			}
			if !strings.Contains(string(b), `"Name":"FunctionName","Value":"`+physical+`"`) {
				t.Errorf("%s does not look at %s", alarm, physical)
			}
		}
	}
}

// tooMany finds calls that a gateway refused because there were too many.
const tooMany = `{ $.status = "429" }`

// What API Gateway puts into a line of the access log, of the variables that the formats have. No caller can put a quote
// into any of them. (API Gateway developer guide, "Variables for access logging for API Gateway" and "Customize HTTP API
// access logs": values are put in as they are; only $context.error.messageString brings its own quotes.)
var harmless = map[string]string{
	"$context.requestId":             "JKJaXmPLvHcESHA=",
	"$context.integration.requestId": "b6ba3f5c-3c0f-4b0b-9d7a-7a2f4a1f7b63",
	"$context.httpMethod":            "!#$%&'*+-.^_`|~POST", // all that a method may have (RFC 9110, section 5.6.2)
	"$context.resourcePath":          "/v1/jobs/{job}/{call}",
	"$context.routeKey":              "ANY /v1/jobs/{id}/{call}",
	"$context.status":                "429",
	"$context.identity.userArn":      "arn:aws:sts::123456789012:assumed-role/dayfly-prod-TaskRole/all+that=a,session.name@may-have",
	"$context.identity.sourceIp":     "2001:db8::1",
	"$context.responseLatency":       "17",
	"$context.error.responseType":    "THROTTLED",
}

// A line of an access log is JSON whatever a caller sends, and says which invocation served it.
func TestAccessLogs(t *testing.T) {
	for name, kind := range map[string]string{"pool": "AWS::ApiGateway::Stage", "controlplane": "AWS::ApiGatewayV2::Stage"} {
		s := deploy(t, name, nil)
		p := s.Resources[s.Of(kind)[0]].Properties
		setting := p["AccessLogSetting"]
		if setting == nil {
			setting = p["AccessLogSettings"]
		}
		format := str(templates.At(setting, "Format"))
		for _, missing := range []bool{false, true} {
			line := regexp.MustCompile(`\$context(\.\w+)+`).ReplaceAllStringFunc(format, func(v string) string {
				value, ok := harmless[v]
				if !ok {
					value = `"}\` + "\n" // a caller's, for all we know
				}
				if missing {
					return "-" // what a variable without a value is
				}
				return value
			})
			var got map[string]string
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Errorf("%s: %v: %s", name, err, line)
			}
			for _, key := range []string{"request_id", "invocation_id", "status"} {
				if got[key] == "" {
					t.Errorf("%s: no %s in %v", name, key, got)
				}
			}
		}
		filter := slices.IndexFunc(s.Of("AWS::Logs::MetricFilter"), func(f string) bool {
			of := s.Resources[f].Properties
			group := templates.Text(of["LogGroupName"])
			return of["FilterPattern"] == tooMany && group != "" && strings.Contains(templates.Text(templates.At(setting, "DestinationArn")), ":"+group+":")
		})
		if filter < 0 {
			t.Errorf("%s: nobody counts the calls that are refused because there are too many", name)
		}
	}
}
