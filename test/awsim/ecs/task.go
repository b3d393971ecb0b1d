package ecs

import (
	"cmp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

const (
	statusProvisioning   = "PROVISIONING"
	statusPending        = "PENDING"
	statusActivating     = "ACTIVATING"
	statusRunning        = "RUNNING"
	statusDeactivating   = "DEACTIVATING"
	statusStopping       = "STOPPING"
	statusDeprovisioning = "DEPROVISIONING"
	statusStopped        = "STOPPED"

	providerFargate = "FARGATE"
	providerSpot    = "FARGATE_SPOT"
)

// Task is a task as it stands.
type Task struct {
	ARN           string
	Cluster       string
	Family        string
	StartedBy     string
	ClientToken   string
	Subnet        string
	Provider      string            // FARGATE or FARGATE_SPOT
	CPU, Memory   string            // after overrides
	Role          string            // after overrides
	Env           map[string]string // of the first container's overrides
	Tags          map[string]string
	LastStatus    string
	DesiredStatus string
	StopCode      string
	StoppedReason string
	ExitCode      *int // of the first container
	CreatedAt     time.Time
	StartedAt     time.Time
	StoppedAt     time.Time
}

// task is one task, guarded by Service.mu.
type task struct {
	arn, id     string
	cluster     *cluster
	def         *definition
	in          *runIn
	role        string
	cpu, memory string
	provider    string
	tags        []tag
	fate        Fate

	last, desired string
	stopCode      string
	stoppedReason string
	containers    []*container
	version       int64
	lost          bool // with its host

	created, pullStarted, pullStopped, started, stoppingAt, executionStopped, stopped time.Time

	stopping    chan struct{} // closed when desired is STOPPED
	address     string        // of its metadata
	credentials string        // path of its credentials
}

// container is one of a task's.
type container struct {
	def    Container
	id     string
	status string
	exit   *int
	reason string

	process Process
	ended   chan struct{} // closed when exit is set
}

func (t *task) snapshot() Task {
	out := Task{
		ARN: t.arn, Cluster: t.cluster.name, Family: t.def.Family, StartedBy: t.in.StartedBy, ClientToken: t.in.ClientToken,
		Subnet: t.in.subnet(), Provider: t.provider, CPU: t.cpu, Memory: t.memory, Role: t.role, Env: map[string]string{}, Tags: map[string]string{},
		LastStatus: t.last, DesiredStatus: t.desired, StopCode: t.stopCode, StoppedReason: t.stoppedReason,
		CreatedAt: t.created, StartedAt: t.started, StoppedAt: t.stopped,
	}
	if len(t.containers) > 0 {
		out.ExitCode = t.containers[0].exit
	}
	if all := t.in.Overrides.ContainerOverrides; len(all) > 0 {
		for _, v := range all[0].Environment {
			out.Env[v.Name] = v.Value
		}
	}
	for _, g := range t.tags {
		out.Tags[g.Key] = g.Value
	}
	return out
}

// document is the task as DescribeTasks and events show it; at writes a time.
func (t *task) document(at func(time.Time) any, tags bool) map[string]any {
	out := map[string]any{
		"taskArn": t.arn, "clusterArn": arnOf("cluster", t.cluster.name), "taskDefinitionArn": t.def.arn(), "group": "family:" + t.def.Family,
		"launchType": "FARGATE", "capacityProviderName": t.provider, "cpu": t.cpu, "memory": t.memory,
		"lastStatus": t.last, "desiredStatus": t.desired, "version": t.version, "availabilityZone": wire.Region + "a",
		"platformVersion": "1.4.0", "platformFamily": "Linux", "enableExecuteCommand": t.in.EnableExecuteCommand,
		"overrides": t.in.Overrides.document(), "attachments": []any{}, "attributes": []any{},
		"ephemeralStorage": map[string]any{"sizeInGiB": cmp.Or(t.in.Overrides.EphemeralStorage.size(), t.def.Disk, 20)},
		"containers":       t.containerDocuments(),
	}
	for name, value := range map[string]string{"startedBy": t.in.StartedBy, "stopCode": t.stopCode, "stoppedReason": t.stoppedReason} {
		if value != "" {
			out[name] = value
		}
	}
	for name, value := range map[string]time.Time{
		"createdAt": t.created, "pullStartedAt": t.pullStarted, "pullStoppedAt": t.pullStopped, "startedAt": t.started,
		"stoppingAt": t.stoppingAt, "executionStoppedAt": t.executionStopped, "stoppedAt": t.stopped,
	} {
		if !value.IsZero() {
			out[name] = at(value)
		}
	}
	if t.started.IsZero() {
		delete(out, "connectivity")
	} else {
		out["connectivity"] = "CONNECTED"
	}
	if tags {
		out["tags"] = t.tags
	}
	return out
}

func (t *task) containerDocuments() []any {
	out := []any{}
	for _, c := range t.containers {
		one := map[string]any{
			"containerArn": arnOf("container", t.cluster.name+"/"+t.id+"/"+c.id), "taskArn": t.arn, "name": c.def.Name, "image": c.def.Image,
			"lastStatus": c.status, "runtimeId": t.id + "-" + c.id[:8], "cpu": "0", "networkInterfaces": []any{},
		}
		if c.exit != nil {
			one["exitCode"] = *c.exit
		}
		if c.reason != "" {
			one["reason"] = c.reason
		}
		out = append(out, one)
	}
	return out
}

func apiTime(t time.Time) any   { return wire.Time(t) }
func eventTime(t time.Time) any { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// set moves a task and tells of it. The lock is held.
func (s *Service) set(t *task, status string) {
	t.last = status
	s.tell(t)
}

// tell counts a change and sends its event. The lock is held.
func (s *Service) tell(t *task) {
	t.version++
	if s.config.Events == nil {
		return
	}
	now := s.config.Now()
	detail := t.document(eventTime, false)
	detail["updatedAt"] = eventTime(now)
	s.events.add(t.version, marshal(map[string]any{
		"version": "0", "id": wire.RequestID(), "detail-type": "ECS Task State Change", "source": "aws.ecs",
		"account": wire.Account, "region": wire.Region, "time": now.UTC().Format(time.RFC3339), "resources": []string{t.arn}, "detail": detail,
	}))
}

// stop sets the desired status, once. The lock is held.
func (s *Service) stop(t *task, code, reason string) {
	if t.desired == statusStopped {
		return
	}
	t.desired, t.stopCode, t.stoppedReason, t.stoppingAt = statusStopped, code, reason, s.config.Now()
	close(t.stopping)
	s.tell(t)
}

// live takes a task through its states.
func (s *Service) live(t *task) {
	times := s.config.Times
	up := s.step(t, times.Provisioning, statusProvisioning, statusPending) && s.step(t, times.Pending, statusPending, statusActivating) &&
		s.wait(times.Activating, t.stopping) && s.start(t)
	if up {
		select {
		case <-t.anyEnded(s):
			s.mu.Lock()
			s.stop(t, "EssentialContainerExited", "Essential container in task exited")
			s.mu.Unlock()
		case <-t.stopping:
		case <-s.closing:
		}
		s.bringDown(t)
	}
	s.finish(t, up)
}

// step waits in a state and goes to the next, unless the task's fate or a stop keeps it from that.
func (s *Service) step(t *task, d time.Duration, in, next string) bool {
	if t.fate.StuckIn == in {
		select {
		case <-t.stopping:
		case <-s.closing:
		}
		return false
	}
	if !s.wait(d, t.stopping) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in == statusPending && t.fate.FailToStart != "" {
		t.containers = nil
		s.stop(t, "TaskFailedToStart", t.fate.FailToStart)
		return false
	}
	if t.desired == statusStopped {
		return false
	}
	switch next {
	case statusPending:
		t.pullStarted = s.config.Now()
	case statusActivating:
		t.pullStopped = s.config.Now()
	}
	s.set(t, next)
	return true
}

// start runs the containers. The task shows as RUNNING from before the first of them does anything.
func (s *Service) start(t *task) bool {
	s.mu.Lock()
	if t.desired == statusStopped || s.closed {
		s.mu.Unlock()
		return false
	}
	t.last, t.started = statusRunning, s.config.Now()
	containers := t.containers
	s.mu.Unlock()
	for i, c := range containers {
		process, err := s.config.Runner.Start(s.context(), s.spec(t, c))
		if err != nil {
			for _, up := range containers[:i] {
				_ = up.process.Signal(s.context(), syscall.SIGKILL) // it is waited for below
				<-up.ended
			}
			s.mu.Lock()
			t.last, t.started = statusActivating, time.Time{}
			c.reason = err.Error()
			s.stop(t, "TaskFailedToStart", err.Error())
			s.mu.Unlock()
			return false
		}
		c.process = process
		s.running.Go(func() { s.await(t, c) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range containers {
		if c.exit == nil {
			c.status = statusRunning
		}
	}
	s.tell(t)
	return true
}

// await waits for the end of a container.
func (s *Service) await(t *task, c *container) {
	exit, err := c.process.Wait(s.context())
	s.mu.Lock()
	defer s.mu.Unlock()
	c.status = statusStopped
	switch {
	case err != nil:
		c.reason = "CannotInspectContainerError: " + err.Error()
	case !t.lost:
		c.exit, c.reason = &exit.Code, exit.Reason
	}
	close(c.ended)
}

// anyEnded is closed when one of the containers has ended.
func (t *task) anyEnded(s *Service) <-chan struct{} {
	if len(t.containers) == 1 {
		return t.containers[0].ended
	}
	first := make(chan struct{}, len(t.containers))
	for _, c := range t.containers {
		s.running.Go(func() { <-c.ended; first <- struct{}{} })
	}
	return first
}

// bringDown ends the containers: SIGTERM, and SIGKILL after their stopTimeout.
func (s *Service) bringDown(t *task) {
	s.mu.Lock()
	code, lost := t.stopCode, t.lost
	s.mu.Unlock()
	terminate := func() {
		for _, c := range t.containers {
			s.signal(c, syscall.SIGTERM)
		}
	}
	if code == "SpotInterruption" {
		terminate() // with the warning
	}
	s.moveOn(t, statusDeactivating)
	s.wait(s.config.Times.Deactivating, nil)
	s.moveOn(t, statusStopping)
	switch {
	case lost:
	case code != "SpotInterruption":
		terminate()
	}
	longest := time.Duration(0)
	if !lost {
		for _, c := range t.containers {
			longest = max(longest, stopTimeout(c.def, code))
		}
	}
	all := make(chan struct{})
	s.running.Go(func() {
		for _, c := range t.containers {
			<-c.ended
		}
		close(all)
	})
	if s.wait(longest, all) || s.isClosed() {
		for _, c := range t.containers {
			s.signal(c, syscall.SIGKILL)
		}
	}
	<-all
	s.mu.Lock()
	t.executionStopped = s.config.Now()
	s.mu.Unlock()
	s.wait(s.config.Times.Stopping, nil)
}

func stopTimeout(c Container, code string) time.Duration {
	d := c.StopTimeout
	if d == 0 {
		d = defaultStopTimeout
	}
	if code == "SpotInterruption" {
		d = min(d, 2*time.Minute)
	}
	return d
}

// signal tells a container, where it still runs.
func (s *Service) signal(c *container, sig syscall.Signal) {
	select {
	case <-c.ended:
	default:
		if err := c.process.Signal(s.context(), sig); err != nil {
			s.mu.Lock()
			c.reason = "CannotStopContainerError: " + err.Error()
			s.mu.Unlock()
		}
	}
}

func (s *Service) moveOn(t *task, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(t, status)
}

// finish takes a task to STOPPED.
func (s *Service) finish(t *task, ran bool) {
	s.moveOn(t, statusDeprovisioning)
	s.wait(s.config.Times.Deprovision, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.desired != statusStopped { // the service was closed
		s.stop(t, "UserInitiated", "The cluster is gone.")
	}
	for _, c := range t.containers {
		c.status = statusStopped
	}
	t.stopped = s.config.Now()
	if !ran && t.stopCode == "TaskFailedToStart" {
		t.pullStopped = time.Time{}
	}
	if t.credentials != "" {
		s.config.Credentials.End(t.credentials)
	}
	s.set(t, statusStopped)
}

func (s *Service) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// used is how many processors of a provider's tasks run. The lock is held.
func (s *Service) used(provider string) (units int) {
	for _, t := range s.tasks {
		if t.provider == provider && t.last != statusStopped {
			n, _ := strconv.Atoi(t.cpu)
			units += n
		}
	}
	return units
}

// prune forgets what ECS would. The lock is held.
func (s *Service) prune() {
	now := s.config.Now()
	if now.Sub(s.pruned) < time.Minute {
		return
	}
	s.pruned = now
	for arn, t := range s.tasks {
		if t.last == statusStopped && now.Sub(t.stopped) > time.Hour {
			delete(s.tasks, arn)
		}
	}
	for _, c := range s.clusters {
		for token, l := range c.tokens {
			if l.over(now) {
				delete(c.tokens, token)
			}
		}
	}
}

// over reports whether a client token is forgotten: after a day, or an hour after the last of its tasks.
// (ECS API reference, "Ensuring idempotency".)
func (l *launch) over(now time.Time) bool {
	if now.Sub(l.at) > 24*time.Hour {
		return true
	}
	for _, t := range l.tasks {
		if t.last != statusStopped || now.Sub(t.stopped) <= time.Hour {
			return false
		}
	}
	return true
}

func isTaskID(s string) bool { return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" }

func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}
