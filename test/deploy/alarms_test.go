package deploy_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const topic = "arn:aws:sns:us-east-1:123456789012:alarms"

// O5: what an operator must hear of has an alarm, with a topic and a sentence. (That repair.md explains each, its own
// test shows.)
func TestAlarms(t *testing.T) {
	for name, want := range map[string][]string{
		"pool": {
			"OldestMessageAlarm", "LaunchWaitAlarm", "JobsDeadAlarm", "ReportsDeadAlarm", "EventsDeadAlarm", "DispatcherErrorsAlarm", "PollerErrorsAlarm", "DelivererErrorsAlarm",
			"PollerSilentAlarm", "StatusErrorsAlarm", "StatusRefusedAlarm", "TooManyStatusCallsAlarm", "PoolThrottlesAlarm", "SweepAlarm",
		},
		"controlplane": {"ErrorsAlarm", "LongPollErrorsAlarm", "ServerErrorsAlarm", "PassAlarm", "ThrottlesAlarm", "TooManyCallsAlarm"},
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
