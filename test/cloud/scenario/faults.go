package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	launcherecs "github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// onLaunch strikes the first launches of a workspace: 0 times means all of them, until it is removed.
func (s *scene) onLaunch(workspace string, times int, f wire.Fault) (remove func()) {
	var mu sync.Mutex
	left := times
	ours := func(c wire.Call) bool { return bytes.Contains(c.Body, []byte(`"`+workspace+`"`)) }
	f.Service, f.Operation = "ecs", "RunTask"
	if before := f.Before; before != nil {
		f.Before = func(c wire.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if !ours(c) || times > 0 && left == 0 {
				return nil
			}
			left--
			return before(c)
		}
	}
	if after := f.After; after != nil {
		f.After = func(c wire.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if !ours(c) || times > 0 && left == 0 {
				return nil
			}
			left--
			return after(c)
		}
	}
	return s.c.AWS.Inject(f)
}

// throttle is how ECS often says it: in another exception, which only its text gives away.
func throttle() error {
	return &wire.Error{Code: "InvalidParameterException", Message: "Error creating network interface: Rate exceeded (Service: AmazonEC2; Status Code: 400; ErrorCode: Throttling)"}
}

func cancelledQueued(ctx context.Context, s *scene) {
	const name = "cancelled-in-queue"
	s.workspace(ctx, name, "plain", commands("update", "echo never"))
	remove := s.onLaunch(name, 0, wire.Fault{Before: func(wire.Call) error { return throttle() }})
	defer remove()
	w := s.submit(ctx, name, "update", "cancelled while its launch is throttled")
	s.await(ctx, func() (bool, string) {
		why, err := s.c.Client.Why(ctx, w.ID)
		return err == nil && why.Workflow.State == workflow.Claimed && strings.Contains(why.Waiting, "throttled"), "why does not say that its launch is throttled: " + why.Summary + "; " + why.Waiting
	})
	_, err := s.c.Client.Cancel(ctx, w.ID, "")
	s.must(err)
	remove()
	s.ends(ctx, w.ID, workflow.Cancelled, workflow.ReasonCancelled, 1)
	s.drained(ctx, w.ID)
	s.check(len(s.tasks(w.ID)) == 0, "a task of it was launched")
}

// drained waits until the launch of a workflow is no longer handled, which is when a later one has ended.
func (s *scene) drained(ctx context.Context, id string) {
	s.await(ctx, func() (bool, string) {
		n, err := s.c.Messages(ctx, "Jobs")
		if err != nil {
			return false, err.Error()
		}
		return n == 0, "the launch message of " + id + " is still in the queue"
	})
}

func cancelledProvisioning(ctx context.Context, s *scene) {
	const name = "cancelled-provisioning"
	s.workspace(ctx, name, "plain", commands("update", "echo never"))
	s.fated(name, ecs.Fate{StuckIn: "PENDING"})
	w := s.submit(ctx, name, "update", "cancelled while its task is provisioned; the sweep stops it")
	task := s.aTask(ctx, w.ID, "PENDING")
	_, err := s.c.Client.Cancel(ctx, w.ID, "")
	s.must(err)
	s.ends(ctx, w.ID, workflow.Cancelled, workflow.ReasonCancelled, 1)
	s.row.Task = short(task.ARN)
	s.swept(task.ARN)
}

// swept expects that a sweep stops a task, which is old enough to be taken for what it seems.
func (s *scene) swept(arn string) {
	s.c.ECS.Backdate(arn, 5*time.Minute)
	s.must(s.c.Tick(s.c.Pool, "ReaperSweep"))
	row := s.row
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, func(ctx context.Context) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for end := time.Now().Add(2 * s.Patience); ; {
			t, _ := s.c.ECS.Task(arn)
			if t.LastStatus == "STOPPED" {
				if !strings.HasPrefix(t.StopCode, "UserInitiated") {
					row.Wrong = append(row.Wrong, "its task was not stopped by the sweep: "+t.StopCode+": "+t.StoppedReason)
				}
				return
			}
			if time.Now().After(end) {
				row.Wrong = append(row.Wrong, "its task was not stopped; it is "+t.LastStatus)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

func orphan(ctx context.Context, s *scene) {
	s.begin("(none)", "", "a task of an unknown job; the sweep stops it")
	s.row.Expected, s.row.Got = "stopped", "stopped"
	s.fated("orphan", ecs.Fate{StuckIn: "PENDING"})
	p := s.c.Pool.Resources["Dispatcher"].Properties
	variable := func(name string) string { return templates.Text(templates.At(p, "Environment", "Variables", name)) }
	cfg := launcherecs.Config{
		Cluster: variable("DAYFLY_CLUSTER"), TaskDefinition: variable("DAYFLY_TASK_DEFINITION"), Container: variable("DAYFLY_CONTAINER"),
		Pool: variable("DAYFLY_POOL"), Subnets: strings.Split(variable("DAYFLY_SUBNETS"), ","),
	}
	l, err := launcherecs.New(awsecs.NewFromConfig(s.c.Admin), cfg)
	s.must(err)
	task, err := l.Launch(ctx, launcher.Request{
		Needs:    contract.Needs{Attempt: 1, Organization: "default", Workspace: "orphan", Pool: variable("DAYFLY_POOL")},
		Workflow: "wf_orphan", Placement: cfg.Placements(api.LaunchMessage{})[0], Ticket: "none", Relay: s.c.StatusURL,
	})
	s.must(err)
	s.row.Task = short(task.Ref)
	s.swept(task.Ref)
}

func cancelledRunning(ctx context.Context, s *scene) {
	const name = "cancelled-command"
	s.workspace(ctx, name, "plain", commands("update", "echo it is at work; sleep 600"))
	w := s.submit(ctx, name, "update", "cancelled while it runs")
	s.prints(ctx, w.ID, "it is at work")
	_, err := s.c.Client.Cancel(ctx, w.ID, "")
	s.must(err)
	s.ends(ctx, w.ID, workflow.Cancelled, workflow.ReasonCancelled, 1)
}

func cancelledPending(ctx context.Context, s *scene) {
	const name = "cancelled-pending"
	s.workspace(ctx, name, "plain", commands("update", "echo never"))
	s.disabled(ctx, true)
	defer s.disabled(context.WithoutCancel(ctx), false)
	w := s.submit(ctx, name, "update", "cancelled while its pool is disabled")
	s.must(s.c.Tick(s.c.Pool, "PollerEachMinute"))
	why, err := s.c.Client.Why(ctx, w.ID)
	s.must(err)
	s.check(why.Workflow.State == workflow.Pending && strings.Contains(why.Summary+why.Waiting, "disabled"), "it is %s, and waits for %q", why.Workflow.State, why.Waiting)
	_, err = s.c.Client.Cancel(ctx, w.ID, "")
	s.must(err)
	s.ends(ctx, w.ID, workflow.Cancelled, workflow.ReasonCancelled, 0)
	s.disabled(ctx, false)
	s.check(len(s.tasks(w.ID)) == 0, "a task of it was launched")
}

func (s *scene) disabled(ctx context.Context, is bool) {
	pool, err := s.c.Client.Pools(ctx, "", 10)
	s.must(err)
	for _, p := range pool.Items {
		if strings.HasSuffix(s.c.Pool.Name, "-"+p.Name) {
			_, err = s.c.Client.UpdatePool(ctx, p.Name, api.PoolSettings{IsDisabled: &is})
			s.must(err)
			return
		}
	}
	s.must(errors.New("the pool of the stack is not there"))
}

func redeliveredScan(ctx context.Context, s *scene) {
	const name = "scan"
	s.workspace(ctx, name, "plain", commands("insights_scan", `if [ "$DAYFLY_ATTEMPT" -lt 3 ]; then echo it is at work; sleep 600; fi; echo done`))
	w := s.submit(ctx, name, "scan", "its task dies twice; delivered again each time")
	for attempt := 1; attempt <= 2; attempt++ {
		w = s.running(ctx, w.ID, attempt)
		s.check(s.c.ECS.LoseHost(w.Task), "its task %s is not there", w.Task)
	}
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 3)
	s.told(ctx, w.ID, "The underlying host of the task is unhealthy.")
	s.check(len(s.tasks(w.ID)) == 3, "it had %d tasks, not 3", len(s.tasks(w.ID)))
}

func lostUpdate(ctx context.Context, s *scene) {
	const name = "lost"
	s.workspace(ctx, name, "plain", commands("update", "echo it is at work; sleep 600"))
	w := s.submit(ctx, name, "update", "its task dies; never delivered again")
	s.prints(ctx, w.ID, "it is at work")
	w = s.running(ctx, w.ID, 1)
	s.check(s.c.ECS.LoseHost(w.Task), "its task %s is not there", w.Task)
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonTaskStopped, 1)
	s.check(strings.Contains(w.Detail, "The underlying host of the task is unhealthy."), "the reason is %q", w.Detail)
	s.check(!w.SlotHeld, "the slot of its workspace is still held")
}

func interruptedPreview(ctx context.Context, s *scene) {
	const name = "on-spot"
	s.workspace(ctx, name, "plain", commands("preview", "echo it is at work; sleep 600"))
	w := s.submit(ctx, name, "preview", "on Spot capacity, which is taken back")
	s.prints(ctx, w.ID, "it is at work")
	w = s.running(ctx, w.ID, 1)
	t, _ := s.c.ECS.Task(w.Task)
	s.check(t.Provider == "FARGATE_SPOT", "its task runs on %s", t.Provider)
	s.check(s.c.ECS.InterruptSpot(w.Task), "its task %s is not there", w.Task)
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonInterrupted, 1)
	s.await(ctx, func() (bool, string) {
		t, _ := s.c.ECS.Task(w.Task)
		return t.LastStatus == "STOPPED" && t.ExitCode != nil && *t.ExitCode == 0, "its task did not end by itself"
	})
}

func neverStarted(ctx context.Context, s *scene) {
	const name, reason = "no-image", "CannotPullContainerError: pull image manifest has been retried 5 time(s): image not found"
	s.workspace(ctx, name, "plain", commands("update", "echo never"))
	s.fated(name, ecs.Fate{FailToStart: reason})
	w := s.submit(ctx, name, "update", "its image cannot be pulled, five times")
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonNeverStarted, 5)
	s.check(strings.Contains(w.Detail, "the image of the runner could not be pulled"), "the reason is %q", w.Detail)
}

func throttledLaunch(ctx context.Context, s *scene) {
	const name = "throttled"
	s.workspace(ctx, name, "plain", commands("update", "echo done"))
	remove := s.onLaunch(name, 3, wire.Fault{Before: func(wire.Call) error { return throttle() }})
	defer remove()
	w := s.submit(ctx, name, "update", "its launch is throttled three times, in disguise")
	s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.told(ctx, w.ID, "rate was exceeded")
}

func lostAnswer(ctx context.Context, s *scene) {
	const name = "lost-answer"
	s.workspace(ctx, name, "plain", commands("update", "echo done"))
	remove := s.onLaunch(name, 1, wire.Fault{After: wire.Fail(wire.Drop)})
	defer remove()
	w := s.submit(ctx, name, "update", "the answer of its launch is lost: one task all the same")
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.check(len(s.tasks(w.ID)) == 1, "it had %d tasks", len(s.tasks(w.ID)))
}

func adopted(ctx context.Context, s *scene) {
	const name = "adopted"
	s.workspace(ctx, name, "plain", commands("update", "echo done"))
	remove := s.onLaunch(name, 1, wire.Fault{After: func(wire.Call) error {
		for _, t := range s.c.ECS.Tasks() {
			if t.Tags["dayfly:workspace"] == name {
				return &wire.Error{
					Code: "ConflictException", Message: "The client token was used with other parameters.",
					Fields: map[string]any{"resourceIds": []string{t.ARN}},
				}
			}
		}
		return nil
	}})
	defer remove()
	w := s.submit(ctx, name, "update", "launched before with other parameters: its task is adopted")
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.check(len(s.tasks(w.ID)) == 1, "it had %d tasks", len(s.tasks(w.ID)))
}

func wrongToken(ctx context.Context, s *scene) {
	const name = "wrong-token"
	s.workspace(ctx, name, "plain", commands("update", "echo never"), func(w *api.Workspace) { w.Source.Git.TokenRef = s.secrets[1].arn })
	w := s.submit(ctx, name, "update", "its token does not open the repository")
	s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonSourceFailed, 1)
}

func directory(ctx context.Context, s *scene) {
	const name = "directory"
	s.workspace(ctx, name, "", commands("update", "echo never"), func(w *api.Workspace) { w.Source = api.Source{Directory: "/srv/code"} })
	w := s.submit(ctx, name, "update", "a directory of a machine, which no task of ECS has")
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonLaunchFailed, 1)
	s.check(strings.Contains(w.Detail, "an ECS task cannot read it"), "the reason is %q", w.Detail)
	s.check(len(s.tasks(w.ID)) == 0, "a task of it was launched")
}

func noCapacity(ctx context.Context, s *scene) {
	const name = "no-capacity"
	s.workspace(ctx, name, "plain", commands("update", "echo done"))
	subnets := strings.Split(templates.Text(templates.At(s.c.Pool.Resources["Dispatcher"].Properties, "Environment", "Variables", "DAYFLY_SUBNETS")), ",")
	s.check(len(subnets) > 1, "the stack has the subnets %q only", subnets)
	defer s.c.ECS.SetMissing()
	// Wherever it goes first, there is none; where it goes then, there is.
	var first string
	remove := s.onLaunch(name, 1, wire.Fault{Before: func(c wire.Call) error {
		for _, subnet := range subnets {
			if bytes.Contains(c.Body, []byte(subnet)) {
				first = subnet
				s.c.ECS.SetMissing(ecs.Capacity{Subnet: subnet})
			}
		}
		return nil
	}})
	defer remove()
	w := s.submit(ctx, name, "update", "no capacity in the first subnet: the next one")
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	t, _ := s.c.ECS.Task(w.Task)
	s.check(first != "" && t.Subnet != first, "it ran in %s, and there was no capacity in %s", t.Subnet, first)
}

func deliveredTwice(ctx context.Context, s *scene) {
	const name = "twice"
	s.workspace(ctx, name, "plain", commands("update", "echo done"))
	queue := s.c.Pool.Name + "-Jobs"
	s.must(s.c.SQS.Duplicate(queue, true))
	defer func() { _ = s.c.SQS.Duplicate(queue, false) }()
	w := s.submit(ctx, name, "update", "its launch message is delivered twice: one task")
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.drained(ctx, w.ID)
	s.check(len(s.tasks(w.ID)) == 1, "it had %d tasks", len(s.tasks(w.ID)))
}

func controlPlaneAway(ctx context.Context, s *scene) {
	const name = "kept-result"
	for _, p := range []string{"cannot reach the control plane", "claims pause"} {
		s.excuse(p, "the poller's schedule fires while the control plane is away, and such a tick is not repeated")
	}
	s.begin(name, "update", "ends while the control plane is away; its result is kept")
	var w api.Workflow
	back := func() error { return nil }
	defer func() { _ = back() }()
	// On a busy machine one may end before the control plane is away: the next one takes longer.
	for takes, kept := 5*time.Second, false; !kept; takes *= 4 {
		s.must(back())
		s.workspace(ctx, name, "plain", commands("update", fmt.Sprintf("echo it is at work; sleep %d; echo done", takes/time.Second)))
		var err error
		w, err = s.c.Client.Submit(ctx, api.Submit{Workspace: name, Operation: workflow.Update})
		s.must(err)
		s.prints(ctx, w.ID, "it is at work") // before that its runner may yet have to ask what to do
		on, err := s.c.SwitchOff(s.c.Control, "ControlPlane")
		back = sync.OnceValue(on)
		s.must(err)
		s.await(ctx, func() (bool, string) {
			over := slices.ContainsFunc(s.tasks(w.ID), func(t ecs.Task) bool { return t.LastStatus == "STOPPED" })
			n, err := s.c.Messages(ctx, "Reports")
			kept = err == nil && n > 0
			return kept || over && takes < s.Patience, "no result is kept in the reports"
		})
	}
	// A delivery that fails, and one that does not.
	s.await(ctx, func() (bool, string) {
		return s.called("sqs", "ChangeMessageVisibility", "Reports"), "no attempt was made to deliver it"
	})
	s.must(back())
	s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.await(ctx, func() (bool, string) {
		n, err := s.c.Messages(ctx, "Reports")
		return err == nil && n == 0, "the result is still kept"
	})
}

// called reports whether a call about a queue was made.
func (s *scene) called(service, operation, queue string) bool {
	for _, r := range s.c.AWS.Calls() {
		if r.Service == service && r.Operation == operation && strings.HasSuffix(r.Resource, "-"+queue) {
			return true
		}
	}
	return false
}

// deadLetter is a message that ends each dispatcher that takes it. The queue is made to count sooner than the
// template says, which would take an hour, and the letter to be older than it is.
func deadLetter(ctx context.Context, s *scene) {
	const name = "dead-letter"
	s.workspace(ctx, name, "plain", commands("update", "echo never"))
	queue := awssqs.NewFromConfig(s.c.Admin)
	attributes := func(visibility, receives string) error {
		url := s.c.QueueURL("Jobs")
		redrive, err := json.Marshal(map[string]string{"deadLetterTargetArn": "arn:aws:sqs:" + wire.Region + ":" + wire.Account + ":" + s.c.Pool.Name + "-JobsDead", "maxReceiveCount": receives})
		if err != nil {
			return err
		}
		_, err = queue.SetQueueAttributes(ctx, &awssqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{"VisibilityTimeout": visibility, "RedrivePolicy": string(redrive)}})
		return err
	}
	s.must(attributes("1", "3"))
	if url := s.c.QueueURL("Jobs"); s.Cloud.External["sqs"] != "" {
		// Polls that wait go on with the old time-out in LocalStack. They end before one that begins now.
		_, err := queue.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, WaitTimeSeconds: 20})
		s.must(err)
	}
	s.excuse("a batch of "+s.c.Pool.Name+"-Jobs failed as a whole", "the dispatcher dies of a message, three times")
	function := s.c.FunctionName(s.c.Pool, "Dispatcher")
	s.must(s.c.Host.Inject(function, lambdahost.Fault{Moment: lambdahost.BeforeEvent, Times: 3}))
	died := s.c.Host.Stats(function).Died
	w := s.submit(ctx, name, "update", "its message ends its dispatcher again and again")
	s.await(ctx, func() (bool, string) {
		n, err := s.c.Messages(ctx, "JobsDead")
		return err == nil && n == 1, "its message is not a dead letter"
	})
	s.await(ctx, func() (bool, string) {
		n := s.c.Host.Stats(function).Died - died
		return n == 3, fmt.Sprintf("%d dispatchers died of it, not 3", n)
	})
	// Its last launch is so recent that its task may not be listed yet: the letter is kept.
	s.await(ctx, func() (bool, string) {
		return s.called("sqs", "ChangeMessageVisibility", "JobsDead"), "the dead letter was not looked at"
	})
	s.must(s.aged(ctx, queue, w.ID, 20*time.Minute))
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonLaunchFailed, 1)
	s.check(strings.Contains(w.Detail, "the dispatcher died while it handled the launch message"), "the reason is %q", w.Detail)
	s.must(attributes("180", "200"))
}

// aged replaces the dead letter of a workflow by one that was sent earlier.
func (s *scene) aged(ctx context.Context, queue *awssqs.Client, id string, by time.Duration) error {
	var batch struct {
		Entries []struct{ MessageBody string }
	}
	var body map[string]any
	for line := range strings.Lines(s.Tap.text(sent)) {
		if json.Unmarshal([]byte(line), &batch) != nil {
			continue
		}
		for _, e := range batch.Entries {
			var m map[string]any
			if json.Unmarshal([]byte(e.MessageBody), &m) == nil && m["job"] == id {
				body = m
			}
		}
	}
	at, ok := body["sent_at_ms"].(float64)
	if !ok {
		return errors.New("the message of " + id + " was not seen")
	}
	body["sent_at_ms"] = int64(at) - by.Milliseconds()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	url, message := s.c.QueueURL("JobsDead"), string(text)
	_, err = queue.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &message})
	return err
}
