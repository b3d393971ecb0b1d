package ecs

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// shown reports whether ECS shows a task by now. The lock is held.
func (s *Service) shown(t *task) bool {
	return s.config.Now().Sub(t.created) >= t.fate.Hidden
}

// taskID reads the id or the ARN of a task of a cluster.
func taskID(name string, c *cluster) (string, error) {
	id := name
	if strings.HasPrefix(name, "arn:") {
		rest, ok := strings.CutPrefix(name, arnOf("task", ""))
		if !ok {
			return "", invalid("Invalid identifier: %s", name)
		}
		owner, last, ok := strings.Cut(rest, "/")
		if !ok {
			return "", invalid("Invalid identifier: Unexpected number of segments")
		}
		if owner != c.name {
			return "", invalid("Invalid identifier: Identifier is for cluster %s. Your cluster is %s", owner, c.name)
		}
		id = last
	}
	if !isTaskID(id) {
		return "", invalid("taskId length should be one of [32,36]")
	}
	return id, nil
}

func (s *Service) describeTasks(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		Cluster string   `json:"cluster"`
		Tasks   []string `json:"tasks"`
		Include []string `json:"include"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.read) {
		return nil, throttled()
	}
	s.prune()
	if len(in.Tasks) == 0 || len(in.Tasks) > 100 {
		return nil, invalid("Tasks must have between 1 and 100 items.")
	}
	cluster, err := s.clusterOf(in.Cluster)
	if err != nil {
		return nil, err
	}
	tasks, failures := []any{}, []any{}
	for _, name := range in.Tasks {
		id, err := taskID(name, cluster)
		if err != nil {
			return nil, err
		}
		arn := arnOf("task", cluster.name+"/"+id)
		t, ok := s.tasks[arn]
		if !ok || !s.shown(t) {
			failures = append(failures, map[string]string{"arn": arn, "reason": "MISSING"})
			continue
		}
		tasks = append(tasks, t.document(apiTime, slices.Contains(in.Include, "TAGS")))
	}
	return map[string]any{"tasks": tasks, "failures": failures}, nil
}

type listIn struct {
	Cluster           string `json:"cluster"`
	ContainerInstance string `json:"containerInstance"`
	DesiredStatus     string `json:"desiredStatus"`
	Family            string `json:"family"`
	LaunchType        string `json:"launchType"`
	MaxResults        *int   `json:"maxResults"`
	NextToken         string `json:"nextToken"`
	ServiceName       string `json:"serviceName"`
	StartedBy         string `json:"startedBy"`
}

func (s *Service) listTasks(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[listIn](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.read) {
		return nil, throttled()
	}
	s.prune()
	cluster, err := s.clusterOf(in.Cluster)
	if err != nil {
		return nil, err
	}
	most := 100
	if in.MaxResults != nil {
		most = *in.MaxResults
	}
	switch {
	case in.StartedBy != "" && cmp.Or(in.DesiredStatus, in.Family, in.LaunchType, in.ServiceName, in.ContainerInstance) != "":
		return nil, invalid("Unable to use startedBy with other filters.")
	case in.DesiredStatus != "" && !slices.Contains([]string{"RUNNING", "PENDING", "STOPPED"}, in.DesiredStatus):
		return nil, invalid("Invalid value for desiredStatus: %s", in.DesiredStatus)
	case most < 1 || most > 100:
		return nil, invalid("maxResults must be between 1 and 100.")
	}
	var all []string
	for arn, t := range s.tasks {
		if t.cluster == cluster && s.shown(t) && in.takes(t) {
			all = append(all, arn)
		}
	}
	slices.Sort(all)
	// A token is the last ARN of its page, so that what comes and goes between two pages hides nothing else.
	after, err := base64.StdEncoding.DecodeString(in.NextToken)
	if err != nil || len(after) > 0 && !strings.HasPrefix(string(after), "arn:") {
		return nil, invalid("Invalid token")
	}
	start, found := slices.BinarySearch(all, string(after))
	if found {
		start++
	}
	page := all[start:min(len(all), start+most)]
	out := map[string]any{"taskArns": append([]string{}, page...)}
	if start+most < len(all) {
		out["nextToken"] = base64.StdEncoding.EncodeToString([]byte(page[len(page)-1]))
	}
	return out, nil
}

func (in listIn) takes(t *task) bool {
	return t.desired == cmp.Or(in.DesiredStatus, statusRunning) &&
		(in.Family == "" || in.Family == t.def.Family) &&
		(in.StartedBy == "" || in.StartedBy == t.in.StartedBy) &&
		(in.LaunchType == "" || in.LaunchType == "FARGATE") &&
		in.ServiceName == "" && in.ContainerInstance == ""
}

func (s *Service) stopTask(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		Cluster string `json:"cluster"`
		Task    string `json:"task"`
		Reason  string `json:"reason"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.modify) {
		return nil, throttled()
	}
	s.prune()
	cluster, err := s.clusterOf(in.Cluster)
	if err != nil {
		return nil, err
	}
	id, err := taskID(in.Task, cluster)
	if err != nil {
		return nil, err
	}
	if len([]rune(in.Reason)) > 255 {
		return nil, invalid("reason must be at most 255 characters.")
	}
	t, ok := s.tasks[arnOf("task", cluster.name+"/"+id)]
	if !ok {
		return nil, invalid("The referenced task was not found.")
	}
	t.tags = nil // StopTask deletes them
	s.stop(t, "UserInitiated", cmp.Or(in.Reason, "Task stopped by user"))
	return map[string]any{"task": t.document(apiTime, false)}, nil
}

func (s *Service) tagResource(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		ResourceArn string `json:"resourceArn"`
		Tags        []tag  `json:"tags"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.tag) {
		return nil, throttled()
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	t, ok := s.tasks[in.ResourceArn]
	if !ok {
		return nil, invalid("The specified task is not found.")
	}
	for _, g := range in.Tags {
		t.tags = append(slices.DeleteFunc(t.tags, func(was tag) bool { return was.Key == g.Key }), g)
	}
	return nil, nil //nolint:nilnil // it has no output
}

func (s *Service) describeClusters(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		Clusters []string `json:"clusters"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.read) {
		return nil, throttled()
	}
	if len(in.Clusters) == 0 {
		in.Clusters = []string{"default"}
	}
	clusters, failures := []any{}, []any{}
	for _, name := range in.Clusters {
		cluster, err := s.clusterOf(name)
		if err != nil {
			short, _ := shortName(name, "cluster")
			failures = append(failures, map[string]string{"arn": arnOf("cluster", short), "reason": "MISSING"})
			continue
		}
		running, pending := 0, 0
		for _, t := range s.tasks {
			switch {
			case t.cluster != cluster:
			case t.last == statusRunning:
				running++
			case t.last == statusProvisioning, t.last == statusPending, t.last == statusActivating:
				pending++
			}
		}
		clusters = append(clusters, map[string]any{
			"clusterArn": arnOf("cluster", cluster.name), "clusterName": cluster.name, "status": "ACTIVE",
			"runningTasksCount": running, "pendingTasksCount": pending, "capacityProviders": []string{providerFargate, providerSpot},
		})
	}
	return map[string]any{"clusters": clusters, "failures": failures}, nil
}
