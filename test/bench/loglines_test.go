package bench_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// planLog makes lines as a plan and an apply of some hundred resources print them, so many bytes, spread evenly over
// the time of a job: each resource has its address and its id, both of which come back, and most ids are random. Lines
// come in bursts, as they do through a pipe.
func planLog(seed uint64, size int, from time.Time, over time.Duration) []api.LogLine {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a series, not a secret
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	type resource struct{ kind, address, id string }
	resources := make([]resource, 300)
	for i := range resources {
		kind := pick("subnet", "route_table_association", "security_group", "iam_role", "instance", "lb_target_group", "s3_bucket", "cloudwatch_log_group", "route53_record", "db_instance")
		resources[i] = resource{
			kind, fmt.Sprintf("%saws_%s.%s[%d]", pick("", "module.network.", `module.app["eu"].`, "module.data."), kind, pick("this", "private", "public", "main"), r.IntN(30)),
			fmt.Sprintf("%s-%017x", kind[:3], r.Uint64()),
		}
		switch kind {
		case "iam_role", "s3_bucket", "cloudwatch_log_group", "db_instance": // these have names
			resources[i].id = fmt.Sprintf("acme-prod-%s-%d", pick("web", "batch", "billing", "search"), i)
		}
	}
	attribute := func(a resource) string {
		name := pick("arn", "id", "availability_zone", "cidr_block", "owner_id", "vpc_id", "name", "description", "kms_key_id", "retention_in_days", "instance_type", "ami", "subnet_id", "monitoring")
		value := pick("(known after apply)", "(known after apply)", "true", "false", `"eu-central-1a"`, `"t3.micro"`, fmt.Sprintf("%q", a.id),
			fmt.Sprintf(`"10.%d.%d.0/24"`, r.IntN(256), r.IntN(256)), fmt.Sprintf(`"arn:aws:ec2:eu-central-1:123456789012:%s/%s"`, a.kind, a.id))
		return fmt.Sprintf("      + %-32s = %s", name, value)
	}
	var lines []api.LogLine
	written := 0
	say := func(step, text string) {
		lines, written = append(lines, api.LogLine{Step: step, Text: text}), written+len(text)
	}
	for i := 0; written < size/5; i++ {
		a := resources[i%len(resources)]
		say("plan", fmt.Sprintf("%s: Refreshing state... [id=%s]", a.address, a.id))
	}
	for i := 0; written < size*7/10; i++ {
		a := resources[i%len(resources)]
		say("plan", "")
		say("plan", "  # "+a.address+" will be created")
		say("plan", fmt.Sprintf(`  + resource "aws_%s" "this" {`, a.kind))
		for range 5 + r.IntN(12) {
			say("plan", attribute(a))
		}
		say("plan", "    }")
	}
	for i := 0; written < size; i++ {
		a := resources[i/6%len(resources)]
		switch i % 6 {
		case 0:
			say("apply", a.address+": Creating...")
		case 5:
			say("apply", fmt.Sprintf("%s: Creation complete after %ds [id=%s]", a.address, 10+r.IntN(50), a.id))
		default:
			say("apply", fmt.Sprintf("%s: Still creating... [%dm%d0s elapsed]", resources[r.IntN(len(resources))].address, r.IntN(5), r.IntN(6)))
		}
	}
	at, before := from, 0
	for i := range lines {
		even := from.Add(over * time.Duration(before) / time.Duration(written))
		if before += len(lines[i].Text); r.IntN(8) == 0 || even.Sub(at) > time.Second/2 {
			at = even
		} else {
			at = at.Add(time.Duration(r.IntN(300)) * time.Microsecond)
		}
		lines[i].At = at
	}
	return lines
}

// logUnits is what the log of a job of five minutes with 200 KB costs in a table, sent every five seconds.
func logUnits(tb testing.TB, seed uint64) (units dynamodbtest.Units, kb float64) {
	const size, over, every = 200 << 10, 5 * time.Minute, 5 * time.Second
	began := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	inner := memory.New()
	meter := dynamodbtest.NewMeter(inner)
	// On a clock that stands still, no sign of life is counted with the lines.
	config := controlplane.Config{DefaultState: api.StateDirectory, Now: func() time.Time { return began }}
	token, _ := submitAll(tb, controlplane.New(inner, config), spread, 1)
	plane := controlplane.New(meter, config)
	j, run := startOne(tb, plane, token)
	lines := planLog(seed, size, began, over)
	meter.Reset()
	for first, n, until := 0, 0, began; first < len(lines); first = n {
		for until = until.Add(every); n < len(lines) && lines[n].At.Before(until); {
			n++
		}
		for _, l := range lines[first:n] {
			kb += float64(len(l.Text)) / 1024
		}
		_, err := plane.AppendLogs(tb.Context(), j.Token, run, api.Logs{First: int64(first), Lines: lines[first:n]})
		check(tb, err)
	}
	units, _ = meter.Used()
	return units, kb
}

// startOne claims one job and grants its start.
func startOne(tb testing.TB, plane *controlplane.Plane, token string) (api.Job, api.Run) {
	tb.Helper()
	who, err := plane.Authenticate(tb.Context(), token)
	check(tb, err)
	out, err := plane.Claim(tb.Context(), who, api.Claim{Instance: "bench", Max: 1})
	check(tb, err)
	j := out.Jobs[0]
	run := api.Run{Workflow: j.ID, Attempt: j.Attempt, Task: "arn:aws:ecs:us-east-1:123456789012:task/dayfly/" + strings.Repeat("0", 32), Boot: strings.Repeat("b", 32)}
	check(tb, plane.Launch(tb.Context(), who, j.ID, api.Launch{Attempt: j.Attempt, Kind: api.LaunchAccepted, Task: run.Task}))
	_, err = plane.Start(tb.Context(), j.Token, run, api.Start{Knows: api.RunnerKnows()})
	check(tb, err)
	return j, run
}

// maxLogUnits is how many write units a kilobyte of a log may cost.
const maxLogUnits = 0.3

func TestLogUnits_AreWithinTheirBound(t *testing.T) {
	for seed := range uint64(5) {
		units, kb := logUnits(t, seed)
		if per := units.Write / kb; per > maxLogUnits {
			t.Errorf("seed %d: %.0f write units for %.0f KB of log are %.3f each, want at most %.1f", seed, units.Write, kb, per, maxLogUnits)
		}
	}
}

// BenchmarkUnitsOfLogs measures what the log of a job costs in a DynamoDB table, without the signs of life that its
// batches are.
func BenchmarkUnitsOfLogs(b *testing.B) {
	units, kb := logUnits(b, 1)
	per := units.Write / kb
	judge(b, per <= maxLogUnits, "units of a log's kilobyte", fmt.Sprintf("%.3f written (%.0f for %.0f KB)", per, units.Write, kb), fmt.Sprintf("<= %.1f", maxLogUnits))
	metric(b, per, "write-units/KB")
}
