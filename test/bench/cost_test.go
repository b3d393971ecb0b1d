package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// What is not counted but assumed, because it happens inside of AWS.
const (
	minutes      = 43_800 // of a month
	receives     = 15     // of a queue a minute by Lambda's event source mapping: five pollers that each wait 20 s
	platformLine = 330    // bytes that Lambda itself logs of an invocation: START, END and REPORT
	accessLine   = 400    // bytes that an API logs of a request, by the formats in the templates
	gigabyte     = 1 << 30
)

// fiveMinutes prints about 200 KB in five minutes.
const fiveMinutes = `i=0; while [ $i -lt 300 ]; do j=0
while [ $j -lt 7 ]; do echo "aws_instance.machine[$i-$j]: Still creating... [10s elapsed], which is a line as long as many are"; j=$((j+1)); done
sleep 1; i=$((i+1)); done`

// BenchmarkCost adds up what AWS would charge for 1,000 jobs of five minutes beside their compute, and for an idle
// month. The built functions, the templates and the real runner play such jobs in their real time on an AWS of fakes,
// which counts requests, invocations and capacity units. Durations of functions are those of this machine, with the
// stated times of calls.
func BenchmarkCost(b *testing.B) {
	jobs := quick(8, 2)
	m := deployed(b)
	scheduled := m.scheduled(b)
	idle := m.standing(b).plus(scheduled, 1)
	m.prepare(b, jobs)
	began, before := time.Now(), m.read()
	m.c.RunSchedules(b.Context())
	ids := m.play(b, jobs)
	elapsed := time.Since(began)
	used := m.read().plus(before, -1).plus(scheduled, -elapsed.Minutes()/minutes)
	for _, id := range ids {
		wf, err := m.c.Client.Workflow(b.Context(), id)
		if check(b, err); wf.State != workflow.Succeeded {
			b.Fatalf("workflow %s is %s: %s %s; problems: %q", id, wf.State, wf.Reason, wf.Detail, m.c.Problems())
		}
	}
	b.Logf("prices: %s; times of calls: %v; a function's memory is that of its template", pricesAsOf, callTimes)
	b.Logf("1,000 jobs of 5 minutes and 200 KB of log, by %d that began one after the other, submits included; stored for a month:", jobs)
	thousand := m.print(b, counts{}.plus(used, 1000/float64(jobs)))
	b.Log("a month of an idle control plane and an idle pool, without the network:")
	month := m.print(b, idle)
	judge(b, thousand <= 0.25, "1,000 jobs beside compute", fmt.Sprintf("$%.2f", thousand), "<= $0.25")
	metric(b, thousand, "$/1000-jobs")
	metric(b, month, "$/idle-month")
}

// callTimes are what calls of services take, for the durations of functions: some of what bench-pickup states.
var callTimes = map[string]time.Duration{
	"dynamodb": 8 * time.Millisecond, "sqs": 10 * time.Millisecond, "secretsmanager": 20 * time.Millisecond, "lambda": 15 * time.Millisecond, "ecs": 100 * time.Millisecond,
}

// metered is a deployment that counts.
type metered struct {
	c    *cloud.Cloud
	git  *scenario.Git
	auth string // ARN of the secret with the token of the repository

	mu     sync.Mutex
	status string             // name of the function behind the API of tasks
	memory map[string]float64 // of a function, in GB
	used   counts
	runs   map[string]int // invocations that have ended, by function
	ended  int            // tasks
	news   chan struct{}  // closed, and replaced, when one of both has ended
}

// deployed deploys the functions until the benchmark ends.
func deployed(b *testing.B) *metered {
	b.Helper()
	dir := directory(b)
	packages, err := bootstrap.Functions("../..")
	check(b, err)
	_, err = bootstrap.Build(b.Context(), bootstrap.Config{Root: "../..", Out: filepath.Join(dir, "functions"), NoZip: true}, packages...)
	check(b, err)
	runner, err := built.Program(b.Context(), dir, "runnerimage")
	check(b, err)
	authority, err := gitserver.OpenAuthority(filepath.Join(dir, "authority"))
	check(b, err)
	m := &metered{used: counts{}, runs: map[string]int{}, memory: map[string]float64{}, news: make(chan struct{})}
	m.git, err = scenario.ServeGit(b.Context(), authority, "127.0.0.1")
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(m.git.Close)
	certificates := filepath.Join(dir, "ca.pem")
	check(b, os.WriteFile(certificates, authority.PEM, 0o600))
	m.c, err = cloud.Start(b.Context(), cloud.Config{
		Root: "../..", Functions: filepath.Join(dir, "functions"), Image: "runner", TaskEnv: map[string]string{"SSL_CERT_FILE": certificates},
		Runner: meteredRunner{&procrun.Runner{
			Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")},
			Dir: filepath.Join(dir, "tasks"), DirEnv: "DAYFLY_WORK_DIR", Output: m,
		}, m},
		CallDelay: callTimes, Observe: m.invoked,
		Log:      func(_, line string) { m.count(counts{"log": float64(len(line)+1) / gigabyte}) },
		Answered: func(cloud.Request) { m.count(counts{"HTTP API": 1, "log": accessLine / float64(gigabyte)}) },
	})
	check(b, err)
	b.Cleanup(m.c.Close)
	m.mu.Lock()
	m.status = m.c.FunctionName(m.c.Pool, "Status")
	for _, s := range []*templates.Stack{m.c.Control, m.c.Pool} {
		for _, logical := range s.Of("AWS::Lambda::Function") {
			mb, err := strconv.ParseFloat(templates.Text(s.Resources[logical].Properties["MemorySize"]), 64)
			check(b, err)
			m.memory[m.c.FunctionName(s, logical)] = mb / 1024
		}
	}
	m.mu.Unlock()
	m.auth, err = m.c.Secret(b.Context(), "git-token", m.git.Token)
	check(b, err)
	return m
}

// count adds to what was used.
func (m *metered) count(c counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, n := range c {
		m.used[what] += n
	}
}

// Write implements io.Writer: what tasks print is logged.
func (m *metered) Write(p []byte) (int, error) {
	m.count(counts{"log": float64(len(p)) / gigabyte})
	return len(p), nil
}

// tell says that something has ended. The lock is held.
func (m *metered) tell() {
	close(m.news)
	m.news = make(chan struct{})
}

// invoked counts an invocation, which is charged by the millisecond, the start of its process included.
func (m *metered) invoked(r lambdahost.Report) {
	took := r.Duration + r.Init
	used := counts{"invocations": 1, "log": platformLine / float64(gigabyte)}
	m.mu.Lock()
	used["memory"] = (took + time.Millisecond - 1).Truncate(time.Millisecond).Seconds() * m.memory[r.Function]
	m.runs[r.Function]++
	m.tell()
	status := m.status
	m.mu.Unlock()
	if r.Function == status {
		used["REST API"], used["log"] = 1, used["log"]+accessLine/float64(gigabyte)
	}
	m.count(used)
}

// read returns what was used so far, with what the fakes of the services have counted.
func (m *metered) read() counts {
	read, written, stored := m.c.DynamoDB.Used()
	used := counts{"read units": read, "write units": written, "stored": float64(stored) / gigabyte}
	for _, call := range m.c.AWS.Calls() {
		switch {
		case call.Service == "sqs" && call.Operation == "ReceiveMessage": // at the pace of the fake
		case call.Service == "sqs" && strings.HasPrefix(call.Operation, "DeleteMessage"):
			used["SQS"] += 2 // and the receive before
		case call.Service == "sqs":
			used["SQS"]++
		case call.Service == "secretsmanager":
			used["Secrets Manager"]++
		case call.Service == "s3" && slices.Contains([]string{"GetObject", "HeadObject", "HeadBucket"}, call.Operation):
			used["S3 reads"]++
		case call.Service == "s3" && call.Operation != "DeleteObject":
			used["S3 writes"]++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return used.plus(m.used, 1)
}

// await waits until something is so, which is looked at whenever a task or an invocation has ended.
func (m *metered) await(b *testing.B, what string, is func() bool) {
	b.Helper()
	late, cancel := context.WithTimeout(b.Context(), 15*time.Minute)
	defer cancel()
	for {
		m.mu.Lock()
		yes, news := is(), m.news
		m.mu.Unlock()
		if yes {
			return
		}
		select {
		case <-news:
		case <-late.Done():
			b.Fatalf("%s: not within 15 minutes; problems: %q", what, m.c.Problems())
		}
	}
}

// standing is what a month costs for what is there, and for what Lambda does to look for messages.
func (m *metered) standing(b *testing.B) counts {
	b.Helper()
	month := counts{}
	for _, s := range []*templates.Stack{m.c.Control, m.c.Pool} {
		month = month.plus(counts{
			"secret": float64(len(s.Of("AWS::SecretsManager::Secret"))), "SQS": float64(len(s.Of("AWS::Lambda::EventSourceMapping"))) * receives * minutes,
		}, 1)
		for _, alarm := range s.Of("AWS::CloudWatch::Alarm") {
			metrics := 0
			of, _ := s.Resources[alarm].Properties["Metrics"].([]any)
			for _, one := range of {
				if templates.At(one, "MetricStat") != nil {
					metrics++
				}
			}
			month["alarmed metric"] += float64(max(1, metrics))
			// A metric of a stack's own is charged while lines are counted: other lines than these are written only in trouble.
			p := s.Resources[alarm].Properties
			if strings.HasPrefix(templates.Text(p["Namespace"]), "Dayfly/") && p["TreatMissingData"] == "breaching" {
				month["custom metric"]++
			}
		}
		for _, schedule := range s.Of("AWS::Scheduler::Schedule") {
			month["schedule"] += minutes / every(b, s, schedule)
		}
	}
	return month
}

// every is after how many minutes a schedule fires.
func every(b *testing.B, s *templates.Stack, schedule string) (n float64) {
	b.Helper()
	_, err := fmt.Sscanf(templates.Text(s.Resources[schedule].Properties["ScheduleExpression"]), "rate(%f minute", &n)
	check(b, err)
	return n
}

// scheduled is what the schedules use in a month without work.
func (m *metered) scheduled(b *testing.B) counts {
	b.Helper()
	const times = 4
	month := counts{}
	for _, s := range []*templates.Stack{m.c.Control, m.c.Pool} {
		for _, schedule := range s.Of("AWS::Scheduler::Schedule") {
			m.tick(b, s, schedule) // which starts processes
			before := m.read()
			for range times {
				m.tick(b, s, schedule)
			}
			used := m.read().plus(before, -1)
			delete(used, "stored") // over and over the same
			month = month.plus(used, minutes/every(b, s, schedule)/times)
		}
	}
	return month
}

// tick lets a schedule fire and waits until what it invokes has ended.
func (m *metered) tick(b *testing.B, s *templates.Stack, schedule string) {
	b.Helper()
	arn := templates.Text(templates.At(s.Resources[schedule].Properties, "Target", "Arn"))
	function := arn[strings.LastIndex(arn, ":")+1:]
	m.mu.Lock()
	ended := m.runs[function]
	m.mu.Unlock()
	check(b, m.c.Tick(s, schedule))
	m.await(b, "the schedule "+schedule, func() bool { return m.runs[function] > ended })
}

// prepare registers a workspace for each job.
func (m *metered) prepare(b *testing.B, jobs int) {
	b.Helper()
	for i := range jobs {
		w := api.Workspace{
			Name: fmt.Sprintf("cost-%d", i), RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Commands: map[string]string{"update": fiveMinutes},
				Source: api.Source{Git: &api.GitSource{URL: m.git.URL, Path: "plain", TokenRef: m.auth}},
			},
			Pool: "main",
		}
		made, _, err := m.c.Client.PutWorkspace(b.Context(), w)
		check(b, err)
		w.Role = m.c.WorkspaceRole(w.Name, made.ID)
		_, _, err = m.c.Client.PutWorkspace(b.Context(), w)
		check(b, err)
	}
}

// play submits jobs, one after the other, and waits for their ends.
func (m *metered) play(b *testing.B, jobs int) (ids []string) {
	b.Helper()
	for i := range jobs {
		wf, err := m.c.Client.Submit(b.Context(), api.Submit{Workspace: fmt.Sprintf("cost-%d", i), Operation: workflow.Update})
		check(b, err)
		ids = append(ids, wf.ID)
		check(b, wait.For(b.Context(), 5*time.Second)) // each has its own wake
	}
	m.await(b, "the ends of the tasks", func() bool { return m.ended == jobs })
	check(b, wait.For(b.Context(), 10*time.Second)) // their events
	return ids
}

// print prints a bill and returns its sum.
func (m *metered) print(b *testing.B, c counts) float64 {
	b.Helper()
	parts, total, err := bill(c)
	check(b, err)
	for _, p := range parts {
		b.Logf("  %-26s $%7.4f  %s", p.part, p.dollars, strings.Join(p.of, ", "))
	}
	b.Logf("  %-26s $%7.4f", "sum", total)
	return total
}

// meteredRunner tells when tasks have ended.
type meteredRunner struct {
	ecs.Runner
	m *metered
}

// Start implements ecs.Runner.
func (r meteredRunner) Start(ctx context.Context, s ecs.Spec) (ecs.Process, error) {
	p, err := r.Runner.Start(ctx, s)
	return meteredTask{p, r.m}, err
}

type meteredTask struct {
	ecs.Process
	m *metered
}

// Wait implements ecs.Process.
func (w meteredTask) Wait(ctx context.Context) (ecs.Exit, error) {
	exit, err := w.Process.Wait(ctx)
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.ended++
	w.m.tell()
	return exit, err
}
