package ecs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Spot says which runs may use Fargate's Spot capacity, which AWS takes back with two minutes' notice.
type Spot string

// The policies. The zero value means SpotNever.
const (
	SpotNever Spot = "never"
	SpotReads Spot = "reads" // previews, scans and evaluations, which change no state
	SpotAll   Spot = "all"   // also runs that change state; an interruption fails such a run for good
)

// Config describes the tasks and where they run. Validate it, or let New do so.
type Config struct {
	Cluster        string   // name or ARN
	TaskDefinition string   // family, family:revision or ARN, with or without a revision
	Container      string   // name of the runner's container in it
	Pool           string   // the pool of the tasks; unique among all that start tasks in the cluster
	Subnets        []string // at least one, in different zones where possible
	SecurityGroups []string // at most five; none means the VPC's default group
	AssignPublicIP bool     // tasks in a public subnet need it to reach anything
	Spot           Spot
	Images         map[string]string // further task definitions, by the names that workspaces ask for; nil means none
	MaxDisk        int               // limit of the GiB that a workspace may ask for; 0 means 20, as every task has
	Tags           map[string]string // further tags of each task, such as a cost center's; at most 45

	// CallTime bounds each call; 0 means 15 s. If a RunTask has no answer by then, the caller repeats it
	// under the same token.
	CallTime time.Duration
	Log      *slog.Logger // nil means none
}

// Bounds that ECS sets.
const (
	maxSubnets        = 16
	maxSecurityGroups = 5
	maxName           = 255
	maxTags           = 50 - 5 // beside those that name the job of the task
	maxTagKey         = 128
	freeDisk          = 20 // GiB that a task has without asking
	maxDisk           = 200
)

const defaultCallTime = 15 * time.Second

func (c Config) withDefaults() Config {
	c.Spot = cmp.Or(c.Spot, SpotNever)
	c.CallTime = cmp.Or(c.CallTime, defaultCallTime)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports every mistake, each as a workflow.ErrInvalid with the name of its field.
func (c Config) Validate() error {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, format, args...))
	}
	if name := last(c.Cluster); !isName(name) || !isARN(c.Cluster, "ecs", ":cluster/") && strings.ContainsAny(c.Cluster, ":/") {
		refuse("cluster", "%q is neither the name nor the ARN of an ECS cluster", c.Cluster)
	}
	if !validTaskDefinition(c.TaskDefinition) {
		refuse("task_definition", "%q is neither FAMILY, FAMILY:REVISION nor the ARN of a task definition", c.TaskDefinition)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		if !validTaskDefinition(c.Images[name]) {
			refuse("images", "%q, named %s, is neither FAMILY, FAMILY:REVISION nor the ARN of a task definition", c.Images[name], name)
		}
	}
	if c.MaxDisk < 0 || c.MaxDisk > maxDisk {
		refuse("max_disk", "max_disk lies between 0 and %d, not at %d", maxDisk, c.MaxDisk)
	}
	if !isName(c.Container) {
		refuse("container", "%q is not the name of a container: give the name of the runner's container in the task definition", c.Container)
	}
	if c.Pool == "" {
		refuse("pool", "the pool has no name; its tasks are known by it")
	}
	c.checkNetwork(refuse)
	if !slices.Contains([]Spot{"", SpotNever, SpotReads, SpotAll}, c.Spot) {
		refuse("spot", "spot is never, reads or all, not %q", c.Spot)
	}
	c.checkTags(refuse)
	if c.CallTime < 0 {
		refuse("call_time", "the time for a call is negative")
	}
	return errors.Join(errs...)
}

func (c Config) checkNetwork(refuse func(field, format string, args ...any)) {
	if n := len(c.Subnets); n == 0 || n > maxSubnets {
		refuse("subnets", "there are %d subnets; give 1 to %d", n, maxSubnets)
	}
	seen := map[string]bool{}
	for _, s := range c.Subnets {
		if !isID(s, "subnet-") {
			refuse("subnets", "%q is not the id of a subnet", s)
		}
		if seen[s] {
			refuse("subnets", "%q is listed twice", s)
		}
		seen[s] = true
	}
	if n := len(c.SecurityGroups); n > maxSecurityGroups {
		refuse("security_groups", "there are %d security groups; ECS takes %d", n, maxSecurityGroups)
	}
	for _, s := range c.SecurityGroups {
		if !isID(s, "sg-") {
			refuse("security_groups", "%q is not the id of a security group", s)
		}
	}
}

func validTaskDefinition(name string) bool {
	if strings.HasPrefix(name, "arn:") {
		if !isARN(name, "ecs", ":task-definition/") {
			return false
		}
		name = last(name)
	}
	family, revision, ok := strings.Cut(name, ":")
	return isName(family) && (!ok || revision != "" && strings.Trim(revision, "0123456789") == "")
}

// families are those of the task definitions, without their revisions.
func (c Config) families() (names []string) {
	for _, definition := range append(slices.Collect(maps.Values(c.Images)), c.TaskDefinition) {
		family, _, _ := strings.Cut(last(definition), ":")
		names = append(names, family)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// last returns the text after the last slash.
func last(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// isName reports whether s could be the name of a cluster, family or container: 1 to 255 letters,
// digits, - and _.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && strings.IndexFunc(s, func(r rune) bool { return !isWord(r) }) < 0
}

func isWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

func isID(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	return ok && isName(rest) && len(s) <= 64
}

// isARN reports whether s is an ARN of a service whose resource begins with kind, such as ":role/".
func isARN(s, service, kind string) bool {
	parts := strings.SplitN(s, ":", 6)
	return len(parts) == 6 && parts[0] == "arn" && parts[2] == service &&
		strings.HasPrefix(":"+parts[5], kind) && !strings.ContainsAny(s, " \t\n\"") && last(s) != ""
}

// startedBy is the pool's name in the characters that ECS accepts for startedBy: letters, digits, - / and _,
// at most 128. Names that must be changed stay different from each other.
func startedBy(pool string) string {
	name := strings.Map(func(r rune) rune {
		if isWord(r) || r == '/' {
			return r
		}
		return '-'
	}, pool)
	if name == pool && len(name) <= maxStartedBy {
		return name
	}
	sum := fmt.Sprintf("-%.12s", digest(pool))
	return name[:min(len(name), maxStartedBy-len(sum))] + sum
}

const maxStartedBy = 128

// checkTags refuses tags that ECS would not take, or that would hide those of the launcher.
func (c Config) checkTags(refuse func(field, format string, args ...any)) {
	if len(c.Tags) > maxTags {
		refuse("task_tags", "there are %d tags; a task has room for %d", len(c.Tags), maxTags)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		prefix, _, _ := strings.Cut(strings.ToLower(key), ":")
		switch value := c.Tags[key]; {
		case key == "" || utf8.RuneCountInString(key) > maxTagKey || tagText(key) != key:
			refuse("task_tags", "%q is not the key of a tag: use up to %d letters, digits, spaces and +-=._:/@", key, maxTagKey)
		case prefix == "aws" || prefix == "dayfly":
			refuse("task_tags", "the key %q begins with %s:, which is reserved; use another", key, prefix)
		case utf8.RuneCountInString(value) > maxTagValue || tagText(value) != value:
			refuse("task_tags", "the value of %s is not that of a tag: use up to %d letters, digits, spaces and +-=._:/@", key, maxTagValue)
		}
	}
}
