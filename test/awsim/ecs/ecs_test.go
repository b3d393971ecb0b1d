package ecs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// object is a JSON document.
type object = map[string]any

// theatre is a service whose containers are played, and whose events are kept.
type theatre struct {
	*ecs.Service
	t *testing.T

	mu     sync.Mutex
	events []object
}

// obedient runs until it is asked to end.
func obedient(ctx context.Context, _ ecs.Spec, terminate <-chan struct{}) int {
	select {
	case <-terminate:
		return 143
	case <-ctx.Done():
		return 0
	}
}

// deaf runs until it is killed.
func deaf(ctx context.Context, _ ecs.Spec, _ <-chan struct{}) int {
	<-ctx.Done()
	return 0
}

func newTheatre(t *testing.T, c ecs.Config) *theatre {
	t.Helper()
	th := &theatre{t: t}
	if c.Runner == nil {
		c.Runner = ecs.Func(obedient)
	}
	c.Events = func(body []byte) {
		var e object
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		th.mu.Lock()
		defer th.mu.Unlock()
		th.events = append(th.events, e)
	}
	s, err := ecs.New(c)
	if err != nil {
		t.Fatal(err)
	}
	th.Service = s
	s.Define(ecs.Definition{Family: "job", TaskRole: "arn:aws:iam::123456789012:role/pool", Containers: []ecs.Container{{Name: "main", Image: "image"}}})
	return th
}

// do makes a call and returns its result, or the code of its error.
func (th *theatre) do(operation string, in object) (out object, code string) {
	th.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		th.t.Fatal(err)
	}
	result, err := th.Operations()[operation](th.t.Context(), wire.Call{Service: "ecs", Operation: operation, Body: body})
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return object{"message": e.Message, "fields": e.Fields}, e.Code
	}
	if err != nil {
		th.t.Fatalf("%s: %v", operation, err)
	}
	text, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		th.t.Fatal(err)
	}
	return out, ""
}

func run(token string) object {
	return object{
		"taskDefinition": "job", "clientToken": token, "launchType": "FARGATE", "startedBy": "pool",
		"networkConfiguration": object{"awsvpcConfiguration": object{"subnets": []string{"subnet-a"}}},
		"overrides":            object{"containerOverrides": []object{{"name": "main", "environment": []object{{"name": "JOB", "value": token}}}}},
		"tags":                 []object{{"key": "job", "value": token}},
	}
}

func with(in object, more object) object {
	for k, v := range more {
		in[k] = v
	}
	return in
}

// launch runs a task and returns its ARN.
func (th *theatre) launch(in object) string {
	th.t.Helper()
	out, code := th.do("RunTask", in)
	if code != "" || len(out["tasks"].([]any)) == 0 {
		th.t.Fatalf("got %s %v, want a task", code, out)
	}
	return out["tasks"].([]any)[0].(object)["taskArn"].(string)
}

func (th *theatre) status(arn string) string {
	th.t.Helper()
	task, ok := th.Task(arn)
	if !ok {
		return "MISSING"
	}
	return task.LastStatus + " " + task.DesiredStatus
}

var slow = ecs.Times{
	Provisioning: 5 * time.Second, Pending: 10 * time.Second, Activating: 2 * time.Second, Deactivating: time.Second,
	Stopping: 3 * time.Second, Deprovision: 4 * time.Second,
}

// forward lets the bubble's clock run.
func forward(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
}

func TestTask_GoesThroughTheStatesOnTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan int)
		th := newTheatre(t, ecs.Config{Times: slow, Runner: ecs.Func(func(context.Context, ecs.Spec, <-chan struct{}) int { return <-done })})
		defer th.Close()
		arn := th.launch(run("one"))
		synctest.Wait()
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{0, "PROVISIONING RUNNING"},
			{4 * time.Second, "PROVISIONING RUNNING"},
			{time.Second, "PENDING RUNNING"},
			{10 * time.Second, "ACTIVATING RUNNING"},
			{2 * time.Second, "RUNNING RUNNING"},
			{time.Hour, "RUNNING RUNNING"},
		} {
			forward(step.after)
			if got := th.status(arn); got != step.want {
				t.Errorf("after %s: got %s, want %s", step.after, got, step.want)
			}
		}
		done <- 7
		synctest.Wait()
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{0, "DEACTIVATING STOPPED"},
			{time.Second, "STOPPING STOPPED"},
			{3 * time.Second, "DEPROVISIONING STOPPED"},
			{4 * time.Second, "STOPPED STOPPED"},
		} {
			forward(step.after)
			if got := th.status(arn); got != step.want {
				t.Errorf("%s after the exit: got %s, want %s", step.after, got, step.want)
			}
		}
		task, _ := th.Task(arn)
		if task.StopCode != "EssentialContainerExited" || task.ExitCode == nil || *task.ExitCode != 7 {
			t.Errorf("got %+v, want exit code 7 of an essential container", task)
		}
		var states []string
		for i, e := range th.events {
			d := e["detail"].(object)
			states = append(states, d["lastStatus"].(string)+" "+d["desiredStatus"].(string))
			if e["detail-type"] != "ECS Task State Change" || e["source"] != "aws.ecs" || d["version"] != float64(i+1) || d["taskArn"] != arn {
				t.Errorf("got event %v, want number %d of the task", e, i+1)
			}
			if _, tagged := d["tags"]; tagged {
				t.Error("the event has tags, which those of ECS do not")
			}
		}
		want := []string{
			"PROVISIONING RUNNING", "PENDING RUNNING", "ACTIVATING RUNNING", "RUNNING RUNNING", "RUNNING STOPPED",
			"DEACTIVATING STOPPED", "STOPPING STOPPED", "DEPROVISIONING STOPPED", "STOPPED STOPPED",
		}
		if diff := cmp.Diff(want, states); diff != "" {
			t.Errorf("events differ (-want +got):\n%s", diff)
		}
	})
}

func TestStopTask_AsksAndThenKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTheatre(t, ecs.Config{Runner: ecs.Func(deaf)})
		defer th.Close()
		arn := th.launch(run("one"))
		synctest.Wait()
		out, code := th.do("StopTask", object{"task": arn, "reason": "no longer wanted"})
		if code != "" || out["task"].(object)["desiredStatus"] != "STOPPED" {
			t.Fatalf("got %s %v", code, out)
		}
		forward(29 * time.Second)
		if got := th.status(arn); got != "STOPPING STOPPED" {
			t.Errorf("before its stopTimeout: got %s, want STOPPING", got)
		}
		forward(time.Second)
		task, _ := th.Task(arn)
		if task.LastStatus != "STOPPED" || task.StopCode != "UserInitiated" || task.StoppedReason != "no longer wanted" || *task.ExitCode != 137 || len(task.Tags) != 0 {
			t.Errorf("got %+v, want it killed, for the reason that was given, without its tags", task)
		}
		if _, code := th.do("StopTask", object{"task": arn}); code != "" {
			t.Errorf("stopped again: got %s", code)
		}
		if out, code := th.do("StopTask", object{"task": strings.Repeat("0", 32)}); code != "InvalidParameterException" || out["message"] != "The referenced task was not found." {
			t.Errorf("an unknown task: got %s %v", code, out)
		}
	})
}

func TestStopTask_BeforeItRunsStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0
		th := newTheatre(t, ecs.Config{Times: slow, Runner: ecs.Func(func(context.Context, ecs.Spec, <-chan struct{}) int { started++; return 0 })})
		defer th.Close()
		arn := th.launch(run("one"))
		forward(6 * time.Second)
		th.do("StopTask", object{"task": arn})
		forward(time.Minute)
		if task, _ := th.Task(arn); task.LastStatus != "STOPPED" || task.ExitCode != nil || !task.StartedAt.IsZero() || started != 0 {
			t.Errorf("got %+v, %d starts; want it stopped without a start", task, started)
		}
	})
}

func TestInterruptSpot_WarnsAndThenKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := make(chan time.Time, 1)
		th := newTheatre(t, ecs.Config{Runner: ecs.Func(func(ctx context.Context, _ ecs.Spec, terminate <-chan struct{}) int {
			<-terminate
			heard <- time.Now()
			<-ctx.Done()
			return 0
		})})
		defer th.Close()
		th.Define(ecs.Definition{Family: "patient", Containers: []ecs.Container{{Name: "main", Image: "image", StopTimeout: time.Hour}}})
		arn := th.launch(with(run("one"), object{"taskDefinition": "patient", "launchType": "", "capacityProviderStrategy": []object{{"capacityProvider": "FARGATE_SPOT", "weight": 1}}}))
		synctest.Wait()
		at := time.Now()
		if !th.InterruptSpot(arn) {
			t.Fatal("there is no such task")
		}
		synctest.Wait()
		if got := <-heard; !got.Equal(at) {
			t.Errorf("SIGTERM came %s after the warning", got.Sub(at))
		}
		var warning object
		for _, e := range th.events {
			if d := e["detail"].(object); warning == nil && d["stopCode"] != nil {
				warning = d
			}
		}
		if warning["lastStatus"] != "RUNNING" || warning["desiredStatus"] != "STOPPED" || warning["stopCode"] != "SpotInterruption" || warning["stoppedReason"] != "Your Spot Task was interrupted." {
			t.Errorf("got warning %v", warning)
		}
		forward(119 * time.Second)
		if got := th.status(arn); got != "STOPPING STOPPED" {
			t.Errorf("within two minutes: got %s", got)
		}
		forward(time.Second)
		if task, _ := th.Task(arn); task.LastStatus != "STOPPED" || *task.ExitCode != 137 || task.Provider != "FARGATE_SPOT" {
			t.Errorf("after two minutes: got %+v, want it killed", task)
		}
		if th.InterruptSpot(arn) {
			t.Error("a stopped task was interrupted")
		}
	})
}

func TestFates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTheatre(t, ecs.Config{Times: slow})
		defer th.Close()
		th.SetFate(func(task ecs.Task) ecs.Fate {
			return map[string]ecs.Fate{
				"stuck":  {StuckIn: "PENDING"},
				"fails":  {FailToStart: "ResourceInitializationError: no secret"},
				"hidden": {Hidden: time.Minute},
			}[task.Env["JOB"]]
		})
		stuck, fails, hidden := th.launch(run("stuck")), th.launch(run("fails")), th.launch(run("hidden"))
		describe := func(arn string) (object, string) {
			out, code := th.do("DescribeTasks", object{"tasks": []string{arn}})
			if code != "" {
				t.Fatalf("got %s", code)
			}
			if f := out["failures"].([]any); len(f) == 1 {
				return nil, f[0].(object)["reason"].(string)
			}
			return out["tasks"].([]any)[0].(object), ""
		}
		if _, reason := describe(hidden); reason != "MISSING" {
			t.Errorf("hidden: got %q, want MISSING", reason)
		}
		if out, _ := th.do("ListTasks", object{"startedBy": "pool"}); len(out["taskArns"].([]any)) != 2 {
			t.Errorf("got list %v, want it without the hidden task", out)
		}
		forward(time.Hour / 2)
		if _, reason := describe(hidden); reason != "" {
			t.Errorf("hidden, later: got %q", reason)
		}
		if got := th.status(stuck); got != "PENDING RUNNING" {
			t.Errorf("stuck: got %s", got)
		}
		task, _ := describe(fails)
		if task["stopCode"] != "TaskFailedToStart" || task["stoppedReason"] != "ResourceInitializationError: no secret" || len(task["containers"].([]any)) != 0 || task["lastStatus"] != "STOPPED" {
			t.Errorf("fails: got %v, want it stopped, without containers", task)
		}
		th.do("StopTask", object{"task": stuck})
		forward(time.Minute)
		if got := th.status(stuck); got != "STOPPED STOPPED" {
			t.Errorf("stuck, and stopped: got %s", got)
		}
		th.SetFate(func(ecs.Task) ecs.Fate { return ecs.Fate{} })
		lost, retired := th.launch(run("lost")), th.launch(run("retired"))
		forward(time.Minute)
		th.LoseHost(lost)
		th.Retire(retired)
		forward(time.Minute)
		for arn, code := range map[string]string{lost: "InfrastructureHealth", retired: "TerminationNotice"} {
			task, _ := th.Task(arn)
			if task.LastStatus != "STOPPED" || task.StopCode != code || (task.ExitCode != nil) != (arn == retired) {
				t.Errorf("%s: got %+v", code, task)
			}
		}
	})
}

func TestRunner_ThatCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTheatre(t, ecs.Config{Runner: broken{}})
		defer th.Close()
		arn := th.launch(run("one"))
		synctest.Wait()
		if task, _ := th.Task(arn); task.LastStatus != "STOPPED" || task.StopCode != "TaskFailedToStart" || task.StoppedReason != "CannotPullContainerError: no image" || !task.StartedAt.IsZero() {
			t.Errorf("got %+v", task)
		}
	})
}

type broken struct{}

func (broken) Start(context.Context, ecs.Spec) (ecs.Process, error) {
	return nil, errors.New("CannotPullContainerError: no image")
}

func TestClientToken_IsOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan int, 9)
		th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true}, Clusters: []string{"default", "second"}, Runner: ecs.Func(func(context.Context, ecs.Spec, <-chan struct{}) int { return <-done })})
		defer th.Close()
		defer close(done)
		arn := th.launch(run("one"))
		if again := th.launch(run("one")); again != arn {
			t.Errorf("the same call: got %s, want %s", again, arn)
		}
		out, code := th.do("RunTask", with(run("one"), object{"startedBy": "another"}))
		if code != "ConflictException" || !slices.Equal(out["fields"].(map[string]any)["resourceIds"].([]string), []string{arn}) {
			t.Errorf("another call with the token: got %s %v, want a conflict that names the task", code, out)
		}
		if other := th.launch(with(run("one"), object{"cluster": "second"})); other == arn {
			t.Error("a token of one cluster counts in another")
		}
		done <- 0
		done <- 0
		forward(59 * time.Minute)
		out, _ = th.do("RunTask", run("one"))
		want := object{"taskArn": arn, "lastStatus": "STOPPED", "desiredStatus": "STOPPED"}
		if diff := cmp.Diff([]any{want}, out["tasks"]); diff != "" {
			t.Errorf("within an hour of its end (-want +got):\n%s", diff)
		}
		forward(2 * time.Minute)
		if later := th.launch(run("one")); later == arn {
			t.Error("an hour after its end the token is still known")
		}
		if got := th.status(arn); got != "MISSING" {
			t.Errorf("an hour after its end it is still shown: %s", got)
		}
		for _, token := range []string{strings.Repeat("x", 65), "with space", "ünï"} {
			if _, code := th.do("RunTask", run(token)); code != "InvalidParameterException" {
				t.Errorf("token %q: got %s", token, code)
			}
		}
	})
}

func TestRunTask_RefusesWhatECSRefuses(t *testing.T) {
	th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true}})
	defer th.Close()
	override := func(more object) object {
		return object{"overrides": with(object{"containerOverrides": []object{{"name": "main"}}}, more)}
	}
	for name, tc := range map[string]struct {
		change object
		code   string
		says   string
	}{
		"cluster":      {object{"cluster": "nowhere"}, "ClusterNotFoundException", "not found"},
		"definition":   {object{"taskDefinition": "nothing"}, "ClientException", "TaskDefinition not found"},
		"revision":     {object{"taskDefinition": "job:2"}, "ClientException", "TaskDefinition not found"},
		"both":         {object{"capacityProviderStrategy": []object{{"capacityProvider": "FARGATE", "weight": 1}}}, "InvalidParameterException", "both a launch type"},
		"no weight":    {object{"launchType": "", "capacityProviderStrategy": []object{{"capacityProvider": "FARGATE"}}}, "InvalidParameterException", "weight"},
		"provider":     {object{"launchType": "", "capacityProviderStrategy": []object{{"capacityProvider": "MINE", "weight": 1}}}, "InvalidParameterException", "capacity provider"},
		"startedBy":    {object{"startedBy": "a.b"}, "InvalidParameterException", "startedBy"},
		"count":        {object{"count": 11}, "InvalidParameterException", "count"},
		"propagate":    {object{"propagateTags": "SERVICE"}, "InvalidParameterException", "propagateTags"},
		"network":      {object{"networkConfiguration": object{}}, "InvalidParameterException", "Network Configuration"},
		"reserved tag": {object{"tags": []object{{"key": "aws:x", "value": ""}}}, "InvalidParameterException", "tag"},
		"tag text":     {object{"tags": []object{{"key": "x", "value": "a<b"}}}, "InvalidParameterException", "tag"},
		"size":         {override(object{"cpu": "1024", "memory": "1024"}), "InvalidParameterException", "No Fargate configuration"},
		"disk":         {override(object{"ephemeralStorage": object{"sizeInGiB": 20}}), "InvalidParameterException", "EphemeralStorage"},
		"container":    {object{"overrides": object{"containerOverrides": []object{{"name": "other"}}}}, "InvalidParameterException", "Override for container named other"},
		"overrides":    {override(object{"taskRoleArn": strings.Repeat("x", 8192)}), "InvalidParameterException", "at most 8192"},
	} {
		if out, code := th.do("RunTask", with(run(strings.ReplaceAll(name, " ", "-")), tc.change)); code != tc.code || !strings.Contains(fmt.Sprint(out["message"]), tc.says) {
			t.Errorf("%s: got %s %v, want %s that says %q", name, code, out["message"], tc.code, tc.says)
		}
	}
	if got := th.Tasks(); len(got) != 0 {
		t.Errorf("got tasks %v, want none", got)
	}
}

func TestCapacityAndQuota(t *testing.T) {
	th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true, VCPU: 2}})
	defer th.Close()
	spot := object{"launchType": "", "capacityProviderStrategy": []object{{"capacityProvider": "FARGATE_SPOT", "weight": 1}}}
	th.SetMissing(ecs.Capacity{Provider: "FARGATE_SPOT"}, ecs.Capacity{Subnet: "subnet-a", AsFailure: true})
	if out, code := th.do("RunTask", with(run("1"), spot)); code != "ClientException" || !strings.HasPrefix(out["message"].(string), "Capacity is unavailable") {
		t.Errorf("Spot: got %s %v", code, out)
	}
	out, code := th.do("RunTask", run("2"))
	if code != "" || len(out["tasks"].([]any)) != 0 || !strings.HasPrefix(out["failures"].([]any)[0].(object)["reason"].(string), "Capacity is unavailable") {
		t.Errorf("the subnet: got %s %v, want failures with status 200", code, out)
	}
	elsewhere := object{"networkConfiguration": object{"awsvpcConfiguration": object{"subnets": []string{"subnet-b"}}}}
	th.launch(with(run("3"), elsewhere))
	th.SetMissing()
	th.launch(run("4"))
	if out, code := th.do("RunTask", run("5")); code != "ClientException" || !strings.Contains(out["message"].(string), "reached the limit on the number of vCPUs") {
		t.Errorf("beyond the quota: got %s %v", code, out)
	}
	th.launch(with(run("6"), spot)) // which has a quota of its own
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTheatre(t, ecs.Config{Limits: ecs.Limits{Wrapped: true}})
		defer th.Close()
		n := 0
		many := func(count int) (code string) {
			n++
			_, code = th.do("RunTask", with(run(fmt.Sprint("t", n)), object{"count": count}))
			return code
		}
		until := func(what string, want int, call func() string) string {
			t.Helper()
			for i := range 1000 {
				if code := call(); code != "" {
					if i != want {
						t.Errorf("%s: %d went through, want %d", what, i, want)
					}
					return code
				}
			}
			t.Errorf("%s: nothing holds it", what)
			return ""
		}
		one := func() string { return many(1) }
		if code := until("RunTask", 20, one); code != "ThrottlingException" {
			t.Errorf("got %s", code)
		}
		forward(time.Second)
		until("RunTask, a second later", 20, one)

		forward(time.Minute) // all full again
		if code := until("launches, ten with each call", 10, func() string { return many(10) }); code != "InvalidParameterException" {
			t.Errorf("got %s, want a throttle that is wrapped", code)
		}
		forward(time.Second)
		until("launches, a second later", 2, func() string { return many(10) })
		spot := object{"launchType": "", "capacityProviderStrategy": []object{{"capacityProvider": "FARGATE_SPOT", "weight": 1}}, "count": 10}
		if _, code := th.do("RunTask", with(run("spot"), spot)); code != "" {
			t.Errorf("launches on Spot: got %s, want a rate of their own", code)
		}

		forward(time.Minute)
		arn := th.launch(run("last")) // which takes one of 100
		until("StopTask", 99, func() string { _, code := th.do("StopTask", object{"task": arn}); return code })
		if code := one(); code != "ThrottlingException" {
			t.Errorf("RunTask beside it: got %q, want the rate that both share", code)
		}
		forward(time.Second)
		until("StopTask, a second later", 40, func() string { _, code := th.do("StopTask", object{"task": arn}); return code })

		read := false
		until("reads", 100, func() string {
			read = !read
			if read {
				_, code := th.do("ListTasks", object{})
				return code
			}
			_, code := th.do("DescribeTasks", object{"tasks": []string{arn}})
			return code
		})
		forward(time.Second)
		until("reads, a second later", 20, func() string { _, code := th.do("ListTasks", object{}); return code })
	})
}

func TestListTasks_PagesAndFilters(t *testing.T) {
	th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true}})
	defer th.Close()
	var want []string
	for i := range 23 {
		out, _ := th.do("RunTask", with(run(fmt.Sprint("t", i)), object{"count": 10, "startedBy": []string{"pool", "other"}[i%2]}))
		for _, task := range out["tasks"].([]any) {
			if i%2 == 0 {
				want = append(want, task.(object)["taskArn"].(string))
			}
		}
	}
	slices.Sort(want)
	list := func(in object) (arns []string, pages int) {
		t.Helper()
		for {
			out, code := th.do("ListTasks", in)
			if code != "" {
				t.Fatalf("%v: got %s", in, code)
			}
			pages++
			for _, arn := range out["taskArns"].([]any) {
				arns = append(arns, arn.(string))
			}
			if out["nextToken"] == nil {
				return arns, pages
			}
			in["nextToken"] = out["nextToken"]
		}
	}
	if got, pages := list(object{"startedBy": "pool"}); !slices.Equal(got, want) || pages != 2 {
		t.Errorf("got %d tasks in %d pages, want %d in 2", len(got), pages, len(want))
	}
	if got, pages := list(object{"family": "job", "maxResults": 50}); len(got) != 230 || pages != 5 {
		t.Errorf("by family: got %d tasks in %d pages, want 230 in 5", len(got), pages)
	}
	for name, in := range map[string]object{
		"another filter": {"startedBy": "pool", "desiredStatus": "RUNNING"},
		"family":         {"startedBy": "pool", "family": "job"},
		"page size":      {"maxResults": 101},
		"status":         {"desiredStatus": "GONE"},
		"token":          {"nextToken": "???"},
	} {
		if _, code := th.do("ListTasks", in); code != "InvalidParameterException" {
			t.Errorf("%s: got %q, want InvalidParameterException", name, code)
		}
	}
	if got, _ := list(object{"desiredStatus": "PENDING"}); len(got) != 0 {
		t.Errorf("PENDING: got %d tasks; ECS never desires that", len(got))
	}
	th.do("StopTask", object{"task": want[0]})
	if got, _ := list(object{"desiredStatus": "STOPPED"}); !slices.Equal(got, want[:1]) {
		t.Errorf("STOPPED: got %v, want the one that was told to stop", got)
	}
	if got, _ := list(object{"startedBy": "pool"}); slices.Contains(got, want[0]) {
		t.Error("a task that was told to stop is listed among those that are to run")
	}
	for name, tasks := range map[string][]string{
		"none": {}, "no task": {"x"}, "another cluster's": {strings.Replace(want[0], "default", "other", 1)},
		"101": append(append([]string{}, want[:100]...), want[100]),
	} {
		if _, code := th.do("DescribeTasks", object{"tasks": tasks}); code != "InvalidParameterException" {
			t.Errorf("describe %s: got %q", name, code)
		}
	}
}

func TestDelivery_TwiceLateAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newTheatre(t, ecs.Config{})
		defer th.Close()
		th.SetDelivery(func(version int64, _ []byte) ecs.Delivery {
			switch version {
			case 1:
				return ecs.Late(time.Minute)
			case 2:
				return ecs.Delivery{}
			}
			return ecs.Delivery{Copies: 2}
		})
		th.launch(run("one"))
		forward(2 * time.Minute)
		var got []float64
		for _, e := range th.events {
			got = append(got, e["detail"].(object)["version"].(float64))
		}
		if diff := cmp.Diff([]float64{3, 3, 4, 4, 1}, got); diff != "" {
			t.Errorf("versions differ (-want +got):\n%s", diff)
		}
	})
}

// grants are credentials of tasks.
type grants struct{ open map[string]string }

func (g *grants) Grant(role, task string, _ time.Duration) string {
	g.open["/v2/credentials/"+task] = role
	return "/v2/credentials/" + task
}

func (g *grants) End(path string) { delete(g.open, path) }

func TestEndpoints_OfATask(t *testing.T) {
	for name, tc := range map[string]struct{ endpoint, want string }{
		"as in AWS": {"http://169.254.170.2", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/credentials/"},
		"elsewhere": {"http://127.0.0.1:81/", "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:81/v2/credentials/"},
	} {
		specs, g := make(chan ecs.Spec, 1), &grants{open: map[string]string{}}
		th := newTheatre(t, ecs.Config{
			Endpoint: tc.endpoint, Credentials: g,
			Runner: ecs.Func(func(ctx context.Context, s ecs.Spec, terminate <-chan struct{}) int {
				specs <- s
				return obedient(ctx, s, terminate)
			}),
		})
		arn := th.launch(run("one"))
		spec := <-specs
		id := arn[strings.LastIndex(arn, "/")+1:]
		if !slices.Contains(spec.Env, tc.want+id) || g.open["/v2/credentials/"+id] != "arn:aws:iam::123456789012:role/pool" {
			t.Errorf("%s: got environment %v, grants %v", name, spec.Env, g.open)
		}
		i := slices.IndexFunc(spec.Env, func(v string) bool { return strings.HasPrefix(v, "ECS_CONTAINER_METADATA_URI_V4=") })
		_, path, _ := strings.Cut(strings.TrimPrefix(spec.Env[i], "ECS_CONTAINER_METADATA_URI_V4=http://"), "/")
		ask := func(path string) (int, object) {
			w := httptest.NewRecorder()
			th.TaskHandler(nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			var out object
			_ = json.Unmarshal(w.Body.Bytes(), &out) // not every answer is JSON
			return w.Code, out
		}
		if code, out := ask("/" + path + "/task"); code != 200 || out["TaskARN"] != arn || out["Family"] != "job" {
			t.Errorf("%s: the task's metadata: got %d %v", name, code, out)
		}
		if code, out := ask("/" + path); code != 200 || out["Name"] != "main" {
			t.Errorf("%s: the container's metadata: got %d %v", name, code, out)
		}
		for _, wrong := range []string{"/v4/other/task", "/" + path + "/stats", "/v2/credentials/x"} {
			if code, _ := ask(wrong); code != http.StatusNotFound {
				t.Errorf("%s: %s: got %d, want 404", name, wrong, code)
			}
		}
		th.Close()
		if len(g.open) != 0 {
			t.Errorf("%s: credentials outlive their task: %v", name, g.open)
		}
	}
}
