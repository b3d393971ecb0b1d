// Package ecs is a fake Amazon ECS with Fargate: clusters, task definitions and tasks that go through
// the states of the real ones, on a clock that a test may set, and that really run wherever a Runner
// runs them. It has the properties that a launcher must live with: client tokens with their conflicts,
// failures with status 200, rates, quotas, missing capacity, tasks that are not shown at first, and
// events that come late, twice or in another order.
package ecs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Config says what a service is like. Zero fields mean what their comment says.
type Config struct {
	Runner   Runner   // runs the containers of tasks; required
	Clusters []string // names of clusters that are there; none means "default"
	// Credentials opens the endpoint at which a task gets the credentials of its role; nil: tasks get none.
	Credentials Credentials
	// Endpoint is the address at which tasks find TaskHandler: http://169.254.170.2 as in AWS, or an
	// address on loopback for processes. Empty: tasks are told of none.
	Endpoint string
	// Events is given each "ECS Task State Change", one at a time; nil: nobody is.
	Events func(event []byte)
	Times  Times
	Limits Limits
	// Now is the clock, and After waits on it; both or none. None means the machine's.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Times are the delays of a task. Zero means at once.
type Times struct {
	Hidden       time.Duration // for how long DescribeTasks and ListTasks do not show a task that RunTask made
	Provisioning time.Duration // before PENDING
	Pending      time.Duration // before ACTIVATING; the image is pulled in it
	Activating   time.Duration // before RUNNING
	Deactivating time.Duration // before STOPPING; SIGTERM is sent after it
	Stopping     time.Duration // after the containers have ended
	Deprovision  time.Duration // before STOPPED
}

// Credentials opens and closes the endpoint of a task, as awsim.TaskCredentials does.
type Credentials interface {
	Grant(role, task string, life time.Duration) (path string)
	End(path string)
}

// Fate is what becomes of a task that would otherwise run.
type Fate struct {
	Hidden      time.Duration // in place of Times.Hidden, where it is longer
	StuckIn     string        // PROVISIONING or PENDING: it stays there until it is stopped
	FailToStart string        // it stops with TaskFailedToStart and this reason, and shows no containers
}

// Delivery is how one event is delivered.
type Delivery struct {
	Copies int           // how often; 0 means that it is lost, which EventBridge does not do
	Delay  time.Duration // before the first copy: later events pass it
}

// Service is the fake. Its methods may be called concurrently.
type Service struct {
	config  Config
	closing chan struct{}
	running sync.WaitGroup
	events  outbox

	mu       sync.Mutex
	closed   bool
	buckets  buckets
	clusters map[string]*cluster
	families map[string][]*definition // by family, in the order of revisions
	tasks    map[string]*task         // by ARN
	subnets  map[string]string        // VPCs by id
	groups   map[string]string
	fate     func(Task) Fate
	missing  []Capacity
	next     int // of the tasks' addresses
	pruned   time.Time
}

type cluster struct {
	name   string
	tokens map[string]*launch
}

// launch is what a client token stands for.
type launch struct {
	digest string
	at     time.Time
	tasks  []*task
}

// New returns a service. Close must be called.
func New(c Config) (*Service, error) {
	if c.Runner == nil {
		return nil, fmt.Errorf("an ECS without a runner runs nothing")
	}
	if (c.Now == nil) != (c.After == nil) {
		return nil, fmt.Errorf("a clock has both Now and After")
	}
	if c.Now == nil {
		c.Now, c.After = time.Now, time.After
	}
	if len(c.Clusters) == 0 {
		c.Clusters = []string{"default"}
	}
	s := &Service{
		config: c, closing: make(chan struct{}), clusters: map[string]*cluster{}, families: map[string][]*definition{}, tasks: map[string]*task{},
		subnets: map[string]string{}, groups: map[string]string{},
		fate: func(Task) Fate { return Fate{} }, buckets: newBuckets(c.Limits, c.Now),
	}
	s.events = outbox{service: s, deliver: c.Events, how: func(int64, []byte) Delivery { return Delivery{Copies: 1} }}
	for _, name := range c.Clusters {
		s.clusters[name] = &cluster{name: name, tokens: map[string]*launch{}}
	}
	return s, nil
}

// Close kills what runs and returns when nothing of the service is left. Events that wait are lost.
func (s *Service) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{
		"RunTask":                s.runTask,
		"StopTask":               s.stopTask,
		"DescribeTasks":          s.describeTasks,
		"ListTasks":              s.listTasks,
		"DescribeClusters":       s.describeClusters,
		"RegisterTaskDefinition": s.registerTaskDefinition,
		"DescribeTaskDefinition": s.describeTaskDefinition,
		"TagResource":            s.tagResource,
	}
}

// SetFate says what becomes of tasks that are launched from now on.
func (s *Service) SetFate(fate func(Task) Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = fate
}

// SetDelivery says how events are delivered from now on. version is the event's detail.version.
func (s *Service) SetDelivery(how func(version int64, event []byte) Delivery) { s.events.set(how) }

// Capacity is what a launch needs: a provider (FARGATE or FARGATE_SPOT) in a subnet. An empty field means any.
type Capacity struct {
	Provider, Subnet string
	// AsFailure makes a launch without it answer status 200 with failures, else it is an error.
	AsFailure bool
}

// SetMissing says which capacity is missing from now on.
func (s *Service) SetMissing(missing ...Capacity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = missing
}

// Tasks returns all tasks that ECS would still know, the oldest first.
func (s *Service) Tasks() []Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	out := make([]Task, 0, len(s.tasks))
	for _, t := range s.tasks {
		out = append(out, t.snapshot())
	}
	slices.SortFunc(out, func(a, b Task) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ARN, b.ARN)) })
	return out
}

// Task returns one task.
func (s *Service) Task(arn string) (Task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[arn]
	if !ok {
		return Task{}, false
	}
	return t.snapshot(), true
}

// InterruptSpot takes the capacity of a task back, as Fargate Spot does: a warning, SIGTERM at once, and SIGKILL
// after the task's stopTimeout, two minutes at most.
func (s *Service) InterruptSpot(arn string) bool {
	return s.end(arn, "SpotInterruption", "Your Spot Task was interrupted.")
}

// Retire stops a task for maintenance.
func (s *Service) Retire(arn string) bool {
	return s.end(arn, "TerminationNotice", "ECS is performing maintenance on the underlying infrastructure hosting the task.")
}

// LoseHost ends a task with the machine below it: its containers get no signal, and have no exit code.
func (s *Service) LoseHost(arn string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[arn]
	if !ok || t.last == statusStopped {
		return false
	}
	t.lost = true
	s.stop(t, "InfrastructureHealth", "The underlying host of the task is unhealthy.")
	return true
}

// Backdate makes a task older, for those who spare the young.
func (s *Service) Backdate(arn string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tasks[arn]; ok {
		t.created = t.created.Add(-by)
	}
}

func (s *Service) end(arn, code, reason string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[arn]
	if !ok || t.last == statusStopped {
		return false
	}
	s.stop(t, code, reason)
	return true
}

// wait waits on the clock, and reports whether it was not broken off by until or by the service's end.
func (s *Service) wait(d time.Duration, until <-chan struct{}) bool {
	if d <= 0 {
		select {
		case <-until:
			return false
		case <-s.closing:
			return false
		default:
			return true
		}
	}
	select {
	case <-s.config.After(d):
		return true
	case <-until:
		return false
	case <-s.closing:
		return false
	}
}

func invalid(format string, args ...any) error {
	return &wire.Error{Code: "InvalidParameterException", Message: fmt.Sprintf(format, args...)}
}

func client(format string, args ...any) error {
	return &wire.Error{Code: "ClientException", Message: fmt.Sprintf(format, args...)}
}

// clusterOf finds a cluster by its name or ARN. The lock is held.
func (s *Service) clusterOf(name string) (*cluster, error) {
	short, err := shortName(cmp.Or(name, "default"), "cluster")
	if err != nil {
		return nil, invalid("Identifier is for an invalid cluster: %s", name)
	}
	c, ok := s.clusters[short]
	if !ok {
		return nil, &wire.Error{Code: "ClusterNotFoundException", Message: "Cluster not found."}
	}
	return c, nil
}

func arnOf(kind, rest string) string {
	return "arn:aws:ecs:" + wire.Region + ":" + wire.Account + ":" + kind + "/" + rest
}

// context is that of work which outlives the call that caused it; runners are told to end by a signal.
func (s *Service) context() context.Context { return context.Background() }
