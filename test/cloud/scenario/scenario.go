// Package scenario takes workflows through a deployment of test/cloud, in good order and in each kind of trouble
// that it must bear, and says of each how it must end and how it ended. What it deploys, it also watches: no secret
// may be read anywhere, no call may lack a permission, and no permission may be without a call.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
	"github.com/dayfly-dev/dayfly/test/cloud"
)

// Options say what there is to run with.
type Options struct {
	Cloud cloud.Config // Log is set here
	Tap   *Tap         // which also reads what tasks write; required
	// Engine is that of the tasks: terraform or tofu; empty means none, and NoEngine says why.
	Engine, NoEngine string
	// Git is where the code is. Required.
	Git *Git
	// Quick runs only the stories that wait for nothing and need no engine.
	Quick bool
	// Only, where it is not empty, is in the names of the stories that are run.
	Only string
	// Patience is how long anything may take; 0 means 4 minutes.
	Patience time.Duration
	// Hasty ends a story as soon as there is a problem.
	Hasty bool
	Say   func(format string, args ...any) // reports progress; nil: it is not reported
}

// Row is one workflow, and what became of it.
type Row struct {
	Workflow string // its workspace and what was asked for
	What     string
	Expected string
	Got      string
	Took     time.Duration // from submission to end; 0 if it never was one
	Task     string
	Wrong    []string
	Skipped  string // why it was not run
}

// story is something that happens to workflows. A story alone has the deployment for itself, because it breaks what
// others need.
type story struct {
	name               string
	engine, alone, now bool // what it needs; now: it is quick
	last               bool // alone, and after what sweeps see to: they need what it breaks
	ours               bool // it needs our own queues, which deliver twice on demand
	tell               func(ctx context.Context, s *scene)
}

// world is what all stories share.
type world struct {
	Options
	c       *cloud.Cloud
	secrets []secret

	mu      sync.Mutex
	rows    []*Row
	inbox   *inbox
	fates   map[string]ecs.Fate // by workspace
	later   []func(ctx context.Context)
	excused []excuse
}

type secret struct{ name, arn, value string }

// excuse is a problem that a story makes.
type excuse struct{ text, why string }

// defaultPatience is Options.Patience if it is not set.
const defaultPatience = 4 * time.Minute

// Run deploys and runs all stories. The error is that of the machinery; what went wrong in a story is in the rows.
func Run(ctx context.Context, o Options) (rows []Row, err error) {
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	// What goes wrong with launches in the stories is meant for the dispatcher.
	o.Cloud.Parameters = maps.Clone(o.Cloud.Parameters)
	if o.Cloud.Parameters == nil {
		o.Cloud.Parameters = map[string]string{}
	}
	o.Cloud.Parameters["DirectLaunch"] = cmp.Or(o.Cloud.Parameters["DirectLaunch"], "false")
	o.Cloud.Parameters["DeliverySecrets"] = mayRead
	o.Cloud.Parameters["PrivateDeliveries"] = strings.Join(slices.Compact([]string{"127.0.0.1", o.Git.address}), ",") // inbox and git host
	o.Cloud.Environment = maps.Clone(o.Cloud.Environment)
	if o.Cloud.Environment == nil {
		o.Cloud.Environment = map[string]map[string]string{}
	}
	o.Cloud.Environment["Deliverer"] = map[string]string{"SSL_CERT_FILE": o.Git.certificates()}
	o.Cloud.Parameters["ArtifactReaders"] = "arn:aws:iam::" + wire.Account + ":user/admin"
	o.Cloud.Log = func(function, line string) { o.Tap.Add("the log of function "+function, line) }
	c, err := cloud.Start(ctx, o.Cloud)
	if err != nil {
		return nil, err
	}
	defer func() {
		c.Close()
		err = errors.Join(err, c.Remove(context.WithoutCancel(ctx)))
	}()
	o.Cloud.Pool = c.PoolName()
	w := &world{Options: o, c: c, inbox: openInbox(), fates: map[string]ecs.Fate{}}
	defer w.inbox.server.Close()
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	if err := w.tell(ctx); err != nil {
		return nil, err
	}
	w.watched(ctx)
	for _, r := range w.rows {
		rows = append(rows, *r)
	}
	return rows, ctx.Err()
}

// prepare makes what all stories need.
func (w *world) prepare(ctx context.Context) error {
	w.c.RunSchedules(ctx)
	w.c.AWS.Inject(wire.Fault{Service: "sqs", Before: w.Tap.call})
	w.c.AWS.Inject(wire.Fault{Service: "ecs", Before: w.Tap.call})
	w.c.AWS.Inject(wire.Fault{Service: "lambda", Before: w.Tap.call})
	w.c.ECS.SetFate(func(t ecs.Task) ecs.Fate {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.fates[t.Tags["dayfly:workspace"]]
	})
	// EventBridge delivers at least once.
	w.c.ECS.SetDelivery(func(int64, []byte) ecs.Delivery { return ecs.Delivery{Copies: 2} })
	all := []secret{{name: "the token of git", value: w.Git.Token}, {name: "the password of a workspace", value: "correct-horse/battery+staple"}}
	all = append(all, w.inbox.secrets()...)
	all = append(all, secret{name: "delivery token of a git host", value: w.Git.host.Token().Reveal()})
	for _, s := range all {
		arn, err := w.c.Secret(ctx, "dayfly-e2e-"+strings.ReplaceAll(s.name, " ", "-"), s.value)
		if err != nil {
			return err
		}
		s.arn = arn
		w.secrets = append(w.secrets, s)
	}
	return w.c.MakeBucket(ctx, bucket)
}

// together is how many stories run at once.
const together = 4

// tell runs the stories: first those that do not mind each other, then the others one by one.
func (w *world) tell(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(together)
	all := stories()
	for _, s := range all {
		if !s.alone && !s.last {
			group.Go(func() error { return w.play(ctx, s) })
		}
	}
	err := group.Wait()
	for _, s := range all {
		if s.alone && err == nil {
			err = w.play(ctx, s)
		}
	}
	for _, f := range w.later {
		if err == nil {
			f(ctx)
			err = context.Cause(ctx)
		}
	}
	for _, s := range all {
		if s.last && err == nil {
			err = w.play(ctx, s)
		}
	}
	return err
}

func (w *world) play(ctx context.Context, s story) (err error) {
	if w.Quick && !s.now || !strings.Contains(s.name, w.Only) {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if why := w.missing(s); why != "" {
		w.add(&Row{Workflow: s.name, Skipped: why})
		return nil
	}
	began := time.Now()
	sc := &scene{world: w, story: s.name}
	defer func() {
		// A story that cannot go on says so by this; the others can.
		if r := recover(); r != nil {
			stop, ok := r.(giveUp)
			if !ok {
				panic(r)
			}
			sc.row.Wrong = append(sc.row.Wrong, string(stop))
			err = context.Cause(ctx)
		}
		w.Say("%-44s %5.1fs", s.name, time.Since(began).Seconds())
	}()
	s.tell(ctx, sc)
	return context.Cause(ctx)
}

// missing says why a story cannot be told here.
func (w *world) missing(s story) string {
	switch {
	case s.engine && w.Engine == "":
		return w.NoEngine
	case s.ours && w.Cloud.External["sqs"] != "":
		return "other queues than ours do not deliver twice on demand"
	}
	return ""
}

func (w *world) add(r *Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows = append(w.rows, r)
}

// watched adds rows for what was seen apart from the stories.
func (w *world) watched(ctx context.Context) {
	leaks := &Row{Workflow: "(all)", What: "secrets of stacks and workspaces", Expected: "nowhere to be read"}
	for _, t := range w.c.ECS.Tasks() {
		w.Tap.Add("the environment or the tags of a task", fmt.Sprint(t.Env, t.Tags, t.StartedBy))
	}
	if launched := w.logs(ctx, leaks); launched && w.Tap.text(sent) == "" {
		leaks.Wrong = append(leaks.Wrong, "no message to a queue was read, and some were sent")
	}
	for _, s := range w.secrets {
		leaks.Wrong = append(leaks.Wrong, w.Tap.find(s.name, s.value)...)
	}
	for i, v := range w.c.SecretValues() {
		leaks.Wrong = append(leaks.Wrong, w.Tap.find(fmt.Sprintf("secret %d of the stacks", i+1), v)...)
	}
	leaks.Wrong = append(leaks.Wrong, w.Tap.find("the signature of an address", signed)...)
	leaks.Got = fmt.Sprintf("%d places read", len(w.Tap.places()))
	w.add(leaks)
	if len(w.Cloud.External) > 0 {
		w.answered()
	}

	problems := &Row{Workflow: "(all)", What: "calls that a role may not make, failed events and batches", Expected: "none", Got: "none"}
	for _, p := range w.c.Problems() {
		if !slices.ContainsFunc(w.excused, func(e excuse) bool { return strings.Contains(p, e.text) }) {
			problems.Wrong = append(problems.Wrong, p)
		}
	}
	w.add(problems)
	if w.Quick || w.Only != "" || w.skipped() {
		return // some permissions had no chance
	}
	unused := &Row{Workflow: "(all)", What: "permissions of the roles that no call used", Expected: "those of a list, with reasons"}
	known, wrong := explained(w.c.Unused())
	unused.Wrong, unused.Got = wrong, fmt.Sprintf("%d of the list", known)
	w.add(unused)
	roles := &Row{Workflow: "(all)", What: "roles of workspaces: external id and session tags", Expected: "of the workspace"}
	for _, s := range w.c.STS.Sessions() {
		name, ok := strings.CutPrefix(s.Role, rolePrefix(w.Cloud.Pool))
		if name = strings.TrimSuffix(name, ofPreviews); !ok || s.ExternalID == "" || s.Tags["workspace"] != name || s.Tags["organization"] != "default" {
			roles.Wrong = append(roles.Wrong, fmt.Sprintf("a session of %s has external id %q and tags %v", s.Role, s.ExternalID, s.Tags))
		}
	}
	roles.Got = fmt.Sprintf("%d sessions", len(w.c.STS.Sessions()))
	w.add(roles)
}

// answered adds rows that say who answered how many calls of functions and tasks. What was asked for and never called
// is wrong.
func (w *world) answered() {
	calls := map[string]int{}
	for service := range w.Cloud.External {
		calls[service] = 0
	}
	for _, r := range w.c.AWS.Calls() {
		if r.Outcome == "ok" && strings.Contains(r.Caller.ARN, ":assumed-role/") {
			calls[r.Service]++
		}
	}
	for _, service := range slices.Sorted(maps.Keys(calls)) {
		at, external := w.Cloud.External[service]
		row := &Row{Workflow: "(all)", What: "calls of " + service + " answered by " + cmp.Or(at, "our fake"), Got: fmt.Sprint(calls[service])}
		if external {
			row.Expected = "at least 1"
		}
		if calls[service] == 0 {
			row.Wrong = []string{"it was asked for, and no function and no task called it"}
		}
		w.add(row)
	}
}

// skipped reports whether a story could not be told.
func (w *world) skipped() bool {
	return slices.ContainsFunc(w.rows, func(r *Row) bool { return r.Skipped != "" })
}

// excuse expects a problem that a story makes.
func (w *world) excuse(text, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused = append(w.excused, excuse{text, why})
}

// Failed are the rows that are not as they must be.
func Failed(rows []Row) error {
	var all []error
	for _, r := range rows {
		if len(r.Wrong) > 0 {
			all = append(all, fmt.Errorf("%s (%s): %s", r.Workflow, r.What, strings.Join(r.Wrong, "; ")))
		}
	}
	return errors.Join(all...)
}

// ended is how a workflow ended, in short.
func ended(w workflow.State, r workflow.Reason) string {
	if r == "" || string(r) == string(w) {
		return string(w)
	}
	return string(w) + ", " + string(r)
}
