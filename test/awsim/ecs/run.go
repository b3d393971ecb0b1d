package ecs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// runIn is the input of RunTask.
type runIn struct {
	Cluster                  string `json:"cluster"`
	TaskDefinition           string `json:"taskDefinition"`
	ClientToken              string `json:"clientToken"`
	Count                    *int   `json:"count"`
	LaunchType               string `json:"launchType"`
	CapacityProviderStrategy []struct {
		CapacityProvider string `json:"capacityProvider"`
		Base             int    `json:"base"`
		Weight           int    `json:"weight"`
	} `json:"capacityProviderStrategy"`
	StartedBy            string `json:"startedBy"`
	PropagateTags        string `json:"propagateTags"`
	EnableECSManagedTags bool   `json:"enableECSManagedTags"`
	EnableExecuteCommand bool   `json:"enableExecuteCommand"`
	Tags                 []tag  `json:"tags"`
	Overrides            over   `json:"overrides"`
	NetworkConfiguration struct {
		AwsvpcConfiguration struct {
			Subnets        []string `json:"subnets"`
			SecurityGroups []string `json:"securityGroups"`
			AssignPublicIP string   `json:"assignPublicIp"`
		} `json:"awsvpcConfiguration"`
	} `json:"networkConfiguration"`
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type over struct {
	ContainerOverrides []struct {
		Name        string     `json:"name"`
		Command     []string   `json:"command,omitempty"`
		Environment []variable `json:"environment,omitempty"`
	} `json:"containerOverrides,omitempty"`
	CPU              string `json:"cpu,omitempty"`
	Memory           string `json:"memory,omitempty"`
	TaskRoleArn      string `json:"taskRoleArn,omitempty"`
	ExecutionRoleArn string `json:"executionRoleArn,omitempty"`
	EphemeralStorage *disk  `json:"ephemeralStorage,omitempty"`
}

func (o over) document() any { return o }

func (in *runIn) subnet() string {
	if s := in.NetworkConfiguration.AwsvpcConfiguration.Subnets; len(s) > 0 {
		return s[0]
	}
	return ""
}

func (in *runIn) count() int {
	if in.Count == nil {
		return 1
	}
	return *in.Count
}

// provider is where the tasks run: with a strategy, on the provider of the greatest weight.
func (in *runIn) provider() string {
	best, weight := providerFargate, 0
	for _, s := range in.CapacityProviderStrategy {
		if s.Weight > weight {
			best, weight = s.CapacityProvider, s.Weight
		}
	}
	return best
}

var startedByPattern = regexp.MustCompile(`^[A-Za-z0-9/_-]{0,128}$`)

// check holds the input to what ECS says of it in the API reference of RunTask.
func (in *runIn) check(body []byte) error {
	switch {
	case len(in.ClientToken) > 64 || strings.ContainsFunc(in.ClientToken, func(r rune) bool { return r < 33 || r > 126 }):
		return invalid("clientToken must be at most 64 characters in the range of 33-126.")
	case in.count() < 1 || in.count() > 10:
		return invalid("count must be between 1 and 10.")
	case in.LaunchType != "" && len(in.CapacityProviderStrategy) > 0:
		return invalid("Specifying both a launch type and capacity provider strategy is not supported. Remove one and try again.")
	case in.LaunchType != "" && in.LaunchType != "FARGATE":
		return invalid("No Container Instances were found in your cluster.")
	case !startedByPattern.MatchString(in.StartedBy):
		return invalid("startedBy must be at most 128 letters, numbers, hyphens, forward slashes and underscores.")
	case in.PropagateTags != "" && in.PropagateTags != "TASK_DEFINITION" && in.PropagateTags != "NONE":
		return invalid("Invalid value for propagateTags: %s", in.PropagateTags)
	case len(in.NetworkConfiguration.AwsvpcConfiguration.Subnets) == 0:
		return invalid("Network Configuration must be provided when networkMode 'awsvpc' is specified.")
	case len(in.NetworkConfiguration.AwsvpcConfiguration.Subnets) > 16:
		return invalid("subnets can have at most 16 items.")
	case len(in.NetworkConfiguration.AwsvpcConfiguration.SecurityGroups) > 5:
		return invalid("securityGroups can have at most 5 items.")
	}
	all := 0
	for _, s := range in.CapacityProviderStrategy {
		if s.CapacityProvider != providerFargate && s.CapacityProvider != providerSpot {
			return invalid("The specified capacity provider strategy cannot contain a capacity provider that is not associated with the cluster.")
		}
		all += s.Weight
	}
	if len(in.CapacityProviderStrategy) > 0 && all == 0 {
		return invalid("At least one capacity provider must have a weight greater than zero.")
	}
	if err := checkTags(in.Tags); err != nil {
		return err
	}
	var raw struct {
		Overrides json.RawMessage `json:"overrides"`
	}
	var compact bytes.Buffer
	if json.Unmarshal(body, &raw) == nil && len(raw.Overrides) > 0 && json.Compact(&compact, raw.Overrides) == nil && characters(compact.Bytes()) > 8192 {
		return invalid("Container Overrides length must be at most 8192")
	}
	if !in.Overrides.EphemeralStorage.fits() {
		return invalid("EphemeralStorage size should be between 21 and 200 GiB.")
	}
	return nil
}

// characters counts those of a JSON text, each escape of one character as one.
func characters(text []byte) int {
	n := len([]rune(string(text)))
	for i := 0; i+5 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if text[i+1] == 'u' {
			n -= 5
		}
		i++
	}
	return n
}

func checkTags(tags []tag) error {
	if len(tags) > 50 {
		return invalid("The maximum number of tags is 50.")
	}
	seen := map[string]bool{}
	for _, g := range tags {
		if g.Key == "" || len([]rune(g.Key)) > 128 || len([]rune(g.Value)) > 256 || strings.HasPrefix(strings.ToLower(g.Key), "aws:") || seen[g.Key] ||
			!tagPattern.MatchString(g.Key) || !tagPattern.MatchString(g.Value) {
			return invalid("The tag %q is invalid.", g.Key)
		}
		seen[g.Key] = true
	}
	return nil
}

var tagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

func (s *Service) runTask(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[*runIn](c)
	if err != nil {
		return nil, err
	}
	if in == nil || in.TaskDefinition == "" {
		return nil, invalid("TaskDefinition can not be blank.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, wire.Drop
	}
	if !s.buckets.take(1, s.buckets.runCalls, s.buckets.modify) {
		return nil, throttled()
	}
	s.prune()
	if err := in.check(c.Body); err != nil {
		return nil, err
	}
	cluster, err := s.clusterOf(in.Cluster)
	if err != nil {
		return nil, err
	}
	digest := digestOf(c.Body)
	if in.ClientToken != "" {
		if before, ok := cluster.tokens[in.ClientToken]; ok && !before.over(s.config.Now()) {
			return before.again(digest)
		}
	}
	def, err := s.definitionOf(in.TaskDefinition)
	if err != nil {
		return nil, err
	}
	if err := in.fits(def); err != nil {
		return nil, err
	}
	if err := s.reach(in); err != nil {
		return nil, err
	}
	if out, err := s.room(in, def); out != nil || err != nil {
		return out, err
	}
	launch := &launch{digest: digest, at: s.config.Now()}
	tasks := []any{}
	for range in.count() {
		t := s.launch(in, cluster, def)
		launch.tasks = append(launch.tasks, t)
		tasks = append(tasks, t.document(apiTime, true))
	}
	if in.ClientToken != "" {
		cluster.tokens[in.ClientToken] = launch
	}
	return map[string]any{"tasks": tasks, "failures": []any{}}, nil
}

// again answers a call whose token is known.
func (l *launch) again(digest string) (any, error) {
	var arns []string
	tasks := []any{}
	for _, t := range l.tasks {
		arns = append(arns, t.arn)
		if t.last == statusStopped {
			tasks = append(tasks, map[string]any{"taskArn": t.arn, "lastStatus": t.last, "desiredStatus": t.desired})
			continue
		}
		tasks = append(tasks, t.document(apiTime, true))
	}
	if digest != l.digest {
		return nil, &wire.Error{
			Code: "ConflictException", Message: "The clientToken is already in use with a different RunTask request.",
			Fields: map[string]any{"resourceIds": arns},
		}
	}
	return map[string]any{"tasks": tasks, "failures": []any{}}, nil
}

// digestOf is the same for calls with the same parameters, in whatever order they are written.
func digestOf(body []byte) string {
	var all map[string]any
	if json.Unmarshal(body, &all) != nil {
		return ""
	}
	delete(all, "clientToken")
	sum := sha256.Sum256(marshal(all))
	return hex.EncodeToString(sum[:])
}

// fits checks the overrides against the definition.
func (in *runIn) fits(def *definition) error {
	for _, o := range in.Overrides.ContainerOverrides {
		if !slices.ContainsFunc(def.Containers, func(c Container) bool { return c.Name == o.Name }) {
			return invalid("Override for container named %s is not a container in the TaskDefinition.", o.Name)
		}
	}
	cpu, memory := cmp.Or(in.Overrides.CPU, def.CPU), cmp.Or(in.Overrides.Memory, def.Memory)
	if !fargateHas(cpu, memory) {
		return invalid("No Fargate configuration exists for given values: %s CPU, %s memory.", cpu, memory)
	}
	return nil
}

// room refuses a launch for which something is missing: capacity, quota, or rate, in this order.
func (s *Service) room(in *runIn, def *definition) (any, error) {
	const noCapacity = "Capacity is unavailable at this time. Please try again later or in a different availability zone"
	provider := in.provider()
	for _, m := range s.missing {
		if m.Provider != "" && m.Provider != provider || m.Subnet != "" && m.Subnet != in.subnet() {
			continue
		}
		if m.AsFailure {
			return map[string]any{"tasks": []any{}, "failures": []any{map[string]string{"reason": noCapacity}}}, nil
		}
		return nil, client("%s", noCapacity)
	}
	if most := s.buckets.limits.VCPU; most > 0 {
		units, _ := strconv.Atoi(cmp.Or(in.Overrides.CPU, def.CPU))
		if s.used(provider)+units*in.count() > most*1024 {
			return nil, client("You've reached the limit on the number of vCPUs you can run concurrently")
		}
	}
	if !s.buckets.take(float64(in.count()), s.buckets.launches[provider]) {
		return nil, s.buckets.throttledLaunch()
	}
	return nil, nil //nolint:nilnil // there is room
}

// launch makes a task. The lock is held.
func (s *Service) launch(in *runIn, c *cluster, def *definition) *task {
	id := newID()
	s.next++
	t := &task{
		arn: arnOf("task", c.name+"/"+id), id: id, cluster: c, def: def, in: in, provider: in.provider(),
		role: cmp.Or(in.Overrides.TaskRoleArn, def.TaskRole), cpu: cmp.Or(in.Overrides.CPU, def.CPU), memory: cmp.Or(in.Overrides.Memory, def.Memory),
		tags: slices.Clone(in.Tags), last: statusProvisioning, desired: statusRunning, created: s.config.Now(),
		stopping: make(chan struct{}), address: fmt.Sprintf("%s-%d", id, s.next),
	}
	if in.EnableECSManagedTags {
		t.tags = append(t.tags, tag{"aws:ecs:clusterName", c.name})
	}
	for _, d := range def.Containers {
		t.containers = append(t.containers, &container{def: d, id: uuid(), status: statusPending, ended: make(chan struct{})})
	}
	if s.config.Credentials != nil && t.role != "" {
		t.credentials = s.config.Credentials.Grant(t.role, id, 0)
	}
	t.fate = s.fate(t.snapshot())
	t.fate.Hidden = max(t.fate.Hidden, s.config.Times.Hidden)
	s.tasks[t.arn] = t
	s.tell(t)
	s.running.Go(func() { s.live(t) })
	return t
}

// spec is a container of a task as it is to run.
func (s *Service) spec(t *task, c *container) Spec {
	env := maps.Clone(c.def.Env)
	if env == nil {
		env = map[string]string{}
	}
	spec := Spec{
		Task: t.arn, Name: c.def.Name, Image: c.def.Image, Command: c.def.Command, EntryPoint: c.def.EntryPoint,
		User: c.def.User, ReadOnly: c.def.ReadOnly, Volumes: c.def.Volumes, DropAll: c.def.DropAll,
	}
	spec.CPUUnits, _ = strconv.Atoi(t.cpu)
	spec.MemoryMB, _ = strconv.Atoi(t.memory)
	for _, o := range t.in.Overrides.ContainerOverrides {
		if o.Name != c.def.Name {
			continue
		}
		if len(o.Command) > 0 {
			spec.Command = o.Command
		}
		for _, v := range o.Environment {
			env[v.Name] = v.Value
		}
	}
	maps.Copy(env, s.endpoints(t))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		spec.Env = append(spec.Env, name+"="+env[name])
	}
	return spec
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func uuid() string {
	h := newID()
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
