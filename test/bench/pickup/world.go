package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
	"github.com/dayfly-dev/dayfly/test/cloud"
)

// pool is the pool that everything runs in.
const pool = "main"

// world is one deployment. Its tasks are taken and never begin, but in the drain.
type world struct {
	*cloud.Cloud

	meter *meter // nil where nothing is added
	// plane is a control plane in this process, over the same table: what is prepared with it costs the
	// functions nothing.
	plane    *controlplane.Plane
	stop     context.CancelFunc // of the schedules
	next     int                // number of the next workspace
	schedule string             // of the poller, in the template
	alive    bool               // tasks begin

	mu          sync.Mutex
	accepted    map[string]time.Time // by workflow: when ECS took its first task
	tasks       int                  // that ECS took
	last        time.Time            // when it took the latest
	taken       chan struct{}        // closed and made anew with each of them
	failed      map[string]int       // tasks that ended with an error, by its text
	repeated    map[string]int       // calls of tasks that were not taken at first, by name
	watch       bool                 // what follows is kept
	invocations []lambdahost.Report
	requests    []cloud.Request
}

// admin is who prepares things.
var admin = controlplane.Principal{Organization: "default", Name: "pickup", Audience: "user", Role: api.RoleAdmin}

// unlimited is the environment of the control plane's functions: only the pool limits.
var unlimited = map[string]string{"DAYFLY_ORGANIZATION_LIMIT": "100000"}

// open deploys. Close must be called.
func open(ctx context.Context, b *bench, l latency, parameters map[string]string, change ...func(*cloud.Config)) (*world, error) {
	w := &world{accepted: map[string]time.Time{}, taken: make(chan struct{}), failed: map[string]int{}, repeated: map[string]int{}}
	cfg := cloud.Config{
		Root: b.root, Functions: b.functions, Image: "runner", Pool: pool, Parameters: parameters,
		Environment: map[string]map[string]string{"ControlPlane": unlimited, "LongPolls": unlimited},
		Runner:      ecs.Func(w.play),
		Latency:     l.lambda, QueueDelay: l.queue, GatewayDelay: l.gateway, CallDelay: l.calls, Observe: w.observe, Answered: w.answered,
	}
	if b.log != nil {
		var mu sync.Mutex
		cfg.Log = func(function, line string) {
			mu.Lock()
			defer mu.Unlock()
			_, _ = fmt.Fprintf(b.log, "%s %s %s\n", time.Now().Format("15:04:05.000"), function, line)
		}
	}
	if l.name != nothing.name {
		w.meter = newMeter(b.handshake)
		cfg.Step, cfg.Meter = w.meter.step, w.meter.wrap
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.Cloud, err = cloud.Start(ctx, cfg); err != nil {
		return nil, err
	}
	w.ECS.SetFate(w.take)
	store, err := dynamodb.New(awsdynamodb.NewFromConfig(w.Admin), w.Control.Name+"-Table", dynamodb.Config{})
	if err != nil {
		w.Close()
		return nil, err
	}
	w.plane = controlplane.New(store, controlplane.Config{})
	return w, nil
}

// take notes that ECS took a task.
func (w *world) take(t ecs.Task) ecs.Fate {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks++
	w.last = now
	if _, ok := w.accepted[t.Tags["dayfly:job"]]; !ok {
		w.accepted[t.Tags["dayfly:job"]] = now
	}
	close(w.taken)
	w.taken = make(chan struct{})
	if w.alive {
		return ecs.Fate{}
	}
	return ecs.Fate{StuckIn: "PROVISIONING"}
}

// workspaces makes n more workspaces, each of which one workflow is to be submitted to: nothing keeps any of
// them from being claimed.
func (w *world) workspaces(ctx context.Context, n int) ([]string, error) {
	names := make([]string, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range names {
		w.next++
		names[i] = fmt.Sprintf("ws-%05d", w.next)
		g.Go(func() error {
			_, _, err := w.plane.PutWorkspace(ctx, admin, api.Workspace{
				Name: names[i], RunSettings: api.RunSettings{
					Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git"}},
					Commands: map[string]string{"preview": "true"},
				},
				Pool: pool,
			})
			return err
		})
	}
	return names, g.Wait()
}

// submitters is how many clients submit at once where much is to be pending at once.
const submitters = 20

// submit submits a workflow to each workspace, as a client of the API, and returns when each of them was sent.
func (w *world) submit(ctx context.Context, names []string) (map[string]time.Time, error) {
	var mu sync.Mutex
	all := map[string]time.Time{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	for _, name := range names {
		g.Go(func() error {
			sent := time.Now()
			wf, err := w.Client.Submit(ctx, api.Submit{Workspace: name, Operation: workflow.Preview})
			mu.Lock()
			defer mu.Unlock()
			all[wf.ID] = sent
			return err
		})
	}
	return all, g.Wait()
}

// await waits until ECS took a task for each of the workflows.
func (w *world) await(ctx context.Context, since map[string]time.Time, most time.Duration) (figures.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		var took figures.Sample
		w.mu.Lock()
		for id, from := range since {
			if at, ok := w.accepted[id]; ok {
				took = append(took, at.Sub(from))
			}
		}
		another := w.taken
		w.mu.Unlock()
		if len(took) == len(since) {
			return took, nil
		}
		select {
		case <-another:
		case <-ctx.Done():
			return took, fmt.Errorf("of %d workflows %d were launched in %s", len(since), len(took), most)
		}
	}
}

// cool ends environments as a long idle time does.
func (w *world) cool(how cold) {
	switch how {
	case everything:
		for _, name := range w.FunctionNames() {
			w.Host.Kill(name)
		}
	case quiet:
		w.Host.Kill(w.FunctionName(w.Pool, "Dispatcher"))
		if w.meter != nil {
			w.meter.forget()
		}
	case warm:
	}
}

// begin lets happen what invokes the poller.
func (w *world) begin(ctx context.Context, by trigger) error {
	for _, logical := range w.Pool.Of("AWS::Scheduler::Schedule") {
		function := templates.Text(templates.At(w.Pool.Resources[logical].Properties, "Target", "Arn"))
		if strings.Contains(function, ":dayfly-wake-") {
			w.schedule = logical
		}
	}
	if w.schedule == "" {
		return errors.New("the template has no schedule for the poller")
	}
	if by == byWake {
		w.runSchedules(ctx)
		return nil
	}
	none := ""
	if _, err := w.Client.UpdatePool(ctx, pool, api.PoolSettings{WakeTarget: &none}); err != nil || by == byTick {
		return err
	}
	// The first of the schedule's times is a minute away.
	err := w.Tick(w.Pool, w.schedule)
	w.runSchedules(ctx)
	return err
}

// runSchedules lets the schedules fire until Close.
func (w *world) runSchedules(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.RunSchedules(ctx)
}

// Close ends everything.
func (w *world) Close() {
	if w.stop != nil {
		w.stop()
	}
	w.Cloud.Close()
}

// problems says what went wrong around the measurement. A dispatcher that is made cold may be at a message that was
// launched directly half a minute before; it comes again.
func (w *world) problems(b *bench) {
	for _, p := range w.Problems() {
		if !strings.Contains(p, "-Jobs failed as a whole") || !strings.Contains(p, "Runtime.ExitError") {
			b.out.line("problem: %s", p)
		}
	}
}
