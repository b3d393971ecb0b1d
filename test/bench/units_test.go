package bench_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// BenchmarkUnits measures what a job costs in a DynamoDB table, from its claim to its result, with little and with much
// waiting. The rules run over a store in memory that counts units as the service would; that it does is shown by a test
// of the store.
func BenchmarkUnits(b *testing.B) {
	const jobs = 50
	sizes := []int{100, 1000, 10_000, 100_000}
	sizes = sizes[:quick(4, 3)]
	var per []dynamodbtest.Units
	for _, n := range sizes {
		inner := memory.New()
		config := controlplane.Config{DefaultState: api.StateDirectory, OrganizationLimit: 1 << 20}
		token, _ := submitAll(b, controlplane.New(inner, config), spread, n)
		meter := dynamodbtest.NewMeter(inner)
		plane := controlplane.New(meter, config)
		for range jobs {
			check(b, job(b.Context(), plane, token))
		}
		used, calls := meter.Used()
		one := dynamodbtest.Units{Read: used.Read / jobs, Write: used.Write / jobs}
		per = append(per, one)
		b.Logf("%7d waiting: %6.1f write units, %6.1f read units, %5.1f calls of the store", n, one.Write, one.Read, float64(calls)/jobs)
	}
	first, last := per[0], per[len(per)-1]
	write, read := last.Write/first.Write, last.Read/first.Read
	judge(b, max(write, read) <= 1.05, fmt.Sprintf("units of a job, %d to %d", sizes[len(sizes)-1], sizes[0]),
		fmt.Sprintf("x%.2f written, x%.2f read", write, read), "flat (<= x1.05)")
	metric(b, last.Write, "write-units")
	metric(b, last.Read, "read-units")
}

// job claims one job and takes it to its end as a pool and a runner do: each call of the pool with its token, four
// steps as they begin and end, two batches of lines. The spec comes with the start, the last step goes with the result,
// and each call is a sign of life.
func job(ctx context.Context, plane *controlplane.Plane, token string) error {
	var j api.Job
	pool := func(call func(who controlplane.Principal) error) error {
		who, err := plane.Authenticate(ctx, token)
		if err != nil {
			return err
		}
		return call(who)
	}
	err := pool(func(who controlplane.Principal) error {
		out, err := plane.Claim(ctx, who, api.Claim{Instance: "bench", Max: 1})
		if err == nil && len(out.Jobs) != 1 {
			err = fmt.Errorf("a claim got %d jobs, want 1", len(out.Jobs))
		}
		if err == nil {
			j = out.Jobs[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	run := api.Run{Workflow: j.ID, Attempt: j.Attempt, Task: "arn:aws:ecs:us-east-1:123456789012:task/dayfly/" + strings.Repeat("0", 32), Boot: strings.Repeat("b", 32)}
	now := time.Now()
	step := func(seq int, status workflow.StepStatus) []api.Step {
		return []api.Step{{Seq: seq, Name: "plan", Status: status, StartedAt: now}}
	}
	steps := func(seq int, status workflow.StepStatus) error {
		_, err := plane.Steps(ctx, j.Token, run, api.Steps{Steps: step(seq, status)})
		return err
	}
	calls := []func() error{
		func() error {
			return pool(func(who controlplane.Principal) error {
				return plane.Queued(ctx, who, j.ID, api.Attempt{Attempt: j.Attempt})
			})
		},
		func() error {
			return pool(func(who controlplane.Principal) error {
				return plane.Launch(ctx, who, j.ID, api.Launch{Attempt: j.Attempt, Kind: api.LaunchAccepted, Task: run.Task})
			})
		},
		func() error {
			_, err := plane.Start(ctx, j.Token, run, api.Start{Knows: api.RunnerKnows()})
			return err
		},
	}
	const last = 4
	for i := range last {
		calls = append(calls, func() error { return steps(i+1, workflow.StepRunning) })
		if i+1 < last {
			calls = append(calls, func() error { return steps(i+1, workflow.StepSucceeded) })
		}
	}
	for i := range 2 {
		calls = append(calls, func() error {
			lines := make([]api.LogLine, 50)
			for n := range lines {
				lines[n] = api.LogLine{At: now, Text: strings.Repeat("x", 80)}
			}
			_, err := plane.AppendLogs(ctx, j.Token, run, api.Logs{First: int64(i) * 50, Lines: lines})
			return err
		})
	}
	calls = append(calls, func() error {
		_, err := plane.Result(ctx, j.Token, run, api.Handover{Result: api.Result{Outcome: workflow.Succeeded}, Steps: step(last, workflow.StepSucceeded)})
		return err
	})
	for i, call := range calls {
		if err := call(); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}
