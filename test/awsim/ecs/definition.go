package ecs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Definition is a task definition, as far as a task depends on it.
type Definition struct {
	Family     string
	CPU        string // units; empty means 1024
	Memory     string // MiB; empty means 2048
	Disk       int    // GiB; 0 means 20
	TaskRole   string // ARN; empty: tasks get no credentials
	Containers []Container
}

// Container is one container of a definition. All are essential.
type Container struct {
	Name        string
	Image       string
	Command     []string
	EntryPoint  []string
	Env         map[string]string
	StopTimeout time.Duration // from SIGTERM to SIGKILL; 0 means 30 s. Define takes any, the API 2 to 120 s
	User        string
	ReadOnly    bool
	Volumes     []string
	DropAll     bool
}

const defaultStopTimeout = 30 * time.Second

// definition is a revision of one.
type definition struct {
	Definition
	revision int
	document map[string]any // as the API shows it
}

func (d *definition) arn() string {
	return arnOf("task-definition", d.Family+":"+strconv.Itoa(d.revision))
}

// Define registers a definition and returns its ARN.
func (s *Service) Define(d Definition) string {
	document := map[string]any{"family": d.Family, "networkMode": "awsvpc", "requiresCompatibilities": []string{"FARGATE"}}
	var containers []any
	for _, c := range d.Containers {
		containers = append(containers, map[string]any{"name": c.Name, "image": c.Image, "essential": true})
	}
	document["containerDefinitions"] = containers
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.define(d, document).arn()
}

// define adds a revision. The lock is held.
func (s *Service) define(d Definition, document map[string]any) *definition {
	if d.CPU == "" {
		d.CPU = "1024"
	}
	if d.Memory == "" {
		d.Memory = "2048"
	}
	one := &definition{Definition: d, revision: len(s.families[d.Family]) + 1, document: document}
	document["cpu"], document["memory"] = d.CPU, d.Memory
	document["taskDefinitionArn"], document["revision"], document["status"] = one.arn(), one.revision, "ACTIVE"
	document["compatibilities"] = []string{"EC2", "FARGATE"}
	s.families[d.Family] = append(s.families[d.Family], one)
	return one
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)

// definition is what was asked for, once it was checked.
func (in definitionIn) definition() Definition {
	d := Definition{Family: in.Family, CPU: in.CPU, Memory: in.Memory, Disk: in.EphemeralStorage.size(), TaskRole: in.TaskRoleArn}
	for _, c := range in.ContainerDefinitions {
		one := Container{
			Name: c.Name, Image: c.Image, Command: c.Command, EntryPoint: c.EntryPoint, Env: map[string]string{}, User: c.User,
			ReadOnly: c.ReadonlyRootFilesystem, DropAll: slices.Contains(c.LinuxParameters.Capabilities.Drop, "ALL"),
		}
		for _, v := range c.Environment {
			one.Env[v.Name] = v.Value
		}
		if c.StopTimeout != nil {
			one.StopTimeout = time.Duration(*c.StopTimeout) * time.Second
		}
		for _, m := range c.MountPoints {
			if !m.ReadOnly {
				one.Volumes = append(one.Volumes, m.ContainerPath)
			}
		}
		d.Containers = append(d.Containers, one)
	}
	return d
}

func (s *Service) registerTaskDefinition(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[definitionIn](c)
	if err != nil {
		return nil, err
	}
	document, err := wire.Decode[map[string]any](c)
	if err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buckets.take(1, s.buckets.register) {
		return nil, throttled()
	}
	tags := document["tags"]
	delete(document, "tags")
	return map[string]any{"taskDefinition": s.define(in.definition(), document).document, "tags": tags}, nil
}

func (s *Service) describeTaskDefinition(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		TaskDefinition string `json:"taskDefinition"`
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.definitionOf(in.TaskDefinition)
	if err != nil {
		return nil, client("Unable to describe task definition.")
	}
	return map[string]any{"taskDefinition": maps.Clone(d.document)}, nil
}

// definitionOf finds family, family:revision or an ARN. The lock is held.
func (s *Service) definitionOf(name string) (*definition, error) {
	short, err := shortName(name, "task-definition")
	if err != nil {
		return nil, client("TaskDefinition not found.")
	}
	family, revision, ok := strings.Cut(short, ":")
	all := s.families[family]
	n := len(all)
	if ok {
		if n, err = strconv.Atoi(revision); err != nil {
			return nil, invalid("Invalid revision number. Number: %s", revision)
		}
	}
	if n < 1 || n > len(all) {
		return nil, client("TaskDefinition not found.")
	}
	return all[n-1], nil
}

// shortName is what follows KIND/ in an ARN of ECS, or the name itself.
func shortName(name, kind string) (string, error) {
	if !strings.HasPrefix(name, "arn:") {
		return name, nil
	}
	prefix := arnOf(kind, "")
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", fmt.Errorf("%s is not of %s", name, prefix)
	}
	return rest, nil
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings, numbers and times
	}
	return b
}
