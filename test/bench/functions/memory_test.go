package functions_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// What Lambda charges in us-east-1 for arm64 (AWS Lambda Pricing), and the memory that has one whole processor (Lambda
// developer guide, "Configure Lambda function memory").
const (
	perGBSecond = 0.0000133334
	perMillion  = 0.20
	wholeMB     = 1769
)

// sizes are the memory sizes that are compared, in MB.
var sizes = []int{128, 256, 512, 1024}

// awaited are the functions that a pick-up waits for. Of those the cheapest size is chosen with which the processor's
// part of an invocation takes at most tolerable, in milliseconds; of the others the cheapest of all.
var awaited = []string{"ControlPlane", "LongPolls", "Poller", "Dispatcher"}

const tolerable = 20

// Calls of AWS take as long as test/bench/pickup states it: a function waits for them, and is paid for while it does.
var callDelay = map[string]time.Duration{
	"dynamodb.BatchGetItem": 5 * time.Millisecond, "dynamodb.Query": 5 * time.Millisecond, "dynamodb.PutItem": 8 * time.Millisecond,
	"dynamodb.UpdateItem": 8 * time.Millisecond, "dynamodb.DeleteItem": 8 * time.Millisecond, "dynamodb.TransactWriteItems": 30 * time.Millisecond,
	"ecs.RunTask": 300 * time.Millisecond, "lambda.Invoke": 15 * time.Millisecond, "secretsmanager.GetSecretValue": 20 * time.Millisecond,
	"sqs.SendMessageBatch": 10 * time.Millisecond, "sqs.GetQueueAttributes": 10 * time.Millisecond, "sqs.ChangeMessageVisibility": 10 * time.Millisecond,
}

// BenchmarkMemory prints what an invocation of each function takes of a processor, measured over whole lives of
// workflows in a deployment of the templates, what it would take and cost with other memory sizes, and which size
// follows beside the one that the template has. TLS and cold starts are not in it.
func BenchmarkMemory(b *testing.B) {
	const workflows = 20
	used, memory := measureMemory(b, workflows, nil)
	// Of single workflows the poller launches the tasks. Where it does not, the dispatcher launches them.
	other, _ := measureMemory(b, workflows, map[string]string{"DirectLaunch": "false"})
	used["Dispatcher"] = other["Dispatcher"]
	fmt.Fprintf(b.Output(), "\n%d workflows, one after the other, until each has ended; calls of AWS take as long as make bench-pickup states\n\n", workflows)
	fmt.Fprintf(b.Output(), "%-13s %11s %13s %9s", "function", "invocations", "processor ms", "waits ms")
	for _, mb := range sizes {
		fmt.Fprintf(b.Output(), " %17s", fmt.Sprintf("%d MB: ms, $/M", mb))
	}
	fmt.Fprintln(b.Output(), "  best, template")
	b.ReportMetric(0, "ns/op")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		line(b.Output(), name, used[name], memory[name])
	}
}

// measureMemory measures one deployment, and says which memory the functions have in the templates.
func measureMemory(b *testing.B, workflows int, parameters map[string]string) (used map[string]invocations, memory map[string]int) {
	b.Helper()
	d, err := deployForMemory(b, parameters)
	if err != nil {
		b.Fatal(err)
	}
	defer d.cloud.Close()
	if err := d.run(b.Context(), 5); err != nil { // every function has started then
		b.Fatal(err)
	}
	d.forget()
	if err := d.run(b.Context(), workflows); err != nil {
		b.Fatal(err)
	}
	return d.used(), d.memory
}

// invocations is what the invocations of a function took.
type invocations struct {
	n         int
	processor time.Duration
	whole     time.Duration // from the event to the answer
}

// per is what one of them takes: of a processor, and without one.
func (i invocations) per() (processor, waits float64) {
	processor = i.processor.Seconds() * 1000 / float64(i.n)
	return processor, max(0, i.whole.Seconds()*1000/float64(i.n)-processor)
}

// with is how long an invocation takes with so much memory, in milliseconds, and what a million of them cost.
func with(processor, waits float64, mb int) (ms, dollars float64) {
	ms = waits + processor*max(1, wholeMB/float64(mb))
	return ms, perMillion + ms/1000*float64(mb)/1024*perGBSecond*1e6
}

// choose is the size for a function.
func choose(name string, processor, waits float64) int {
	best := sizes[len(sizes)-1]
	for _, mb := range slices.Backward(sizes) {
		_, least := with(processor, waits, best)
		ms, dollars := with(processor, waits, mb)
		if dollars <= least && (!slices.Contains(awaited, name) || ms-waits <= tolerable) {
			best = mb
		}
	}
	return best
}

func line(out io.Writer, name string, i invocations, template int) {
	processor, waits := i.per()
	fmt.Fprintf(out, "%-13s %11d %13.2f %9.1f", name, i.n, processor, waits)
	for _, mb := range sizes {
		ms, dollars := with(processor, waits, mb)
		fmt.Fprintf(out, " %17s", fmt.Sprintf("%.1f, %.2f", ms, dollars))
	}
	fmt.Fprintf(out, "  %4d, %d\n", choose(name, processor, waits), template)
}

// deployment is one in which workflows live and end.
type deployment struct {
	cloud  *cloud.Cloud
	plane  *controlplane.Plane // over the same table: what looks on costs the functions nothing
	memory map[string]int      // of the functions, in their templates, by the names there
	logic  map[string]string   // those names, by the functions' own

	mu      sync.Mutex
	seen    map[string]*invocations
	before  map[int]time.Duration // processor time by process
	changed chan struct{}
	next    int
}

func deployForMemory(b *testing.B, parameters map[string]string) (*deployment, error) {
	b.Helper()
	dir, root := b.TempDir(), "../../.."
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return nil, err
	}
	functions := filepath.Join(dir, "functions")
	if _, err := bootstrap.Build(b.Context(), bootstrap.Config{Root: root, Out: functions, NoZip: true}, packages...); err != nil {
		return nil, err
	}
	runner, err := built.Program(b.Context(), dir, "runnerimage")
	if err != nil {
		return nil, err
	}
	d := &deployment{seen: map[string]*invocations{}, changed: make(chan struct{}, 1), memory: map[string]int{}, logic: map[string]string{}}
	d.cloud, err = cloud.Start(b.Context(), cloud.Config{
		Root: root, Functions: functions, Image: "runner", Parameters: parameters, TaskEnv: map[string]string{"DAYFLY_WORK_DIR": dir}, CallDelay: callDelay, Observe: d.observe,
		Runner: &procrun.Runner{Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: dir},
	})
	if err != nil {
		return nil, err
	}
	for _, stack := range []*templates.Stack{d.cloud.Control, d.cloud.Pool} {
		for _, logical := range stack.Of("AWS::Lambda::Function") {
			d.logic[d.cloud.FunctionName(stack, logical)] = logical
			d.memory[logical], _ = strconv.Atoi(templates.Text(stack.Resources[logical].Properties["MemorySize"]))
		}
	}
	store, err := dynamodb.New(awsdynamodb.NewFromConfig(d.cloud.Admin), d.cloud.Control.Name+"-Table", dynamodb.Config{})
	if err != nil {
		d.cloud.Close()
		return nil, err
	}
	d.plane = controlplane.New(store, controlplane.Config{})
	return d, nil
}

// observe counts an invocation.
func (d *deployment) observe(r lambdahost.Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.seen[r.Function]
	if i == nil {
		i = &invocations{}
		d.seen[r.Function] = i
	}
	i.n++
	i.whole += r.Duration
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// run takes workflows to their ends, one after the other, and waits until nothing follows from them any more. Their
// source is nowhere, so that they need nothing else: a runner starts, reports a step and lines, and a result.
func (d *deployment) run(ctx context.Context, n int) error {
	admin := controlplane.Principal{Organization: "default", Name: "bench", Audience: "user", Role: api.RoleAdmin}
	for range n {
		d.next++
		name := fmt.Sprintf("ws-%d", d.next)
		if _, _, err := d.plane.PutWorkspace(ctx, admin, api.Workspace{
			Name: name, RunSettings: api.RunSettings{
				Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: "https://127.0.0.1:1/none.git"}},
				Commands: map[string]string{"preview": "true"},
			},
			Pool: "main",
		}); err != nil {
			return err
		}
		wf, err := d.cloud.Client.Submit(ctx, api.Submit{Workspace: name, Operation: workflow.Preview})
		if err != nil {
			return err
		}
		for end := time.Now().Add(patience); !wf.State.Terminal(); {
			if time.Now().After(end) {
				return fmt.Errorf("workflow %s is still %s", wf.ID, wf.State)
			}
			_ = wait.Until(ctx, 100*time.Millisecond, d.changed)
			if wf, err = d.plane.Workflow(ctx, admin, wf.ID); err != nil {
				return err
			}
		}
	}
	return wait.For(ctx, 2*time.Second) // for the events of the last task
}

// forget begins anew with what is counted.
func (d *deployment) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.seen)
	d.before = map[int]time.Duration{}
	for _, p := range d.processes() {
		d.before[p.pid] = p.used
	}
}

// used is what was counted since, by the functions' names in the templates. What a process used before its first
// invocation is its init's, and is left out with it: only processes count that were there.
func (d *deployment) used() map[string]invocations {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]invocations{}
	for _, p := range d.processes() {
		i := d.seen[p.function]
		before, there := d.before[p.pid]
		if i == nil || !there {
			continue
		}
		sum := cmp.Or(out[d.logic[p.function]], invocations{n: i.n, whole: i.whole})
		sum.processor += p.used - before
		out[d.logic[p.function]] = sum
	}
	return out
}

// process is one of a function.
type process struct {
	pid      int
	function string
	used     time.Duration // of a processor
}

// processes are those of all functions of the deployment.
func (d *deployment) processes() (out []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environment, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue // somebody else's
		}
		_, name, found := strings.Cut("\x00"+string(environment), "\x00AWS_LAMBDA_FUNCTION_NAME=")
		name, _, _ = strings.Cut(name, "\x00")
		pid, _ := strconv.Atoi(filepath.Base(dir))
		used, err := procrun.ProcessorTime(pid)
		if _, ours := d.logic[name]; !found || !ours || err != nil {
			continue
		}
		out = append(out, process{pid, name, used})
	}
	return out
}
