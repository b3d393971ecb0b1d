package ecs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
)

const (
	maxOverrides = 8192 // characters of a task's overrides as JSON (API_RunTask)
	maxTagValue  = 256
)

// The tags of a task.
const (
	tagJob          = "dayfly:job"
	tagAttempt      = "dayfly:attempt"
	tagPool         = "dayfly:pool"
	tagWorkspace    = "dayfly:workspace"
	tagOrganization = "dayfly:organization"
)

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// clientToken is the token by which ECS recognises a launch: 64 characters made from the idempotency key.
func clientToken(r launcher.Request) string {
	return digest("dayfly", r.Workflow, strconv.Itoa(r.Attempt), r.Placement)
}

// overrides are the overrides of the task definition, in the form whose length ECS counts.
type overrides struct {
	ContainerOverrides []containerOverride `json:"containerOverrides"`
	CPU                string              `json:"cpu"`
	Memory             string              `json:"memory"`
	EphemeralStorage   *storage            `json:"ephemeralStorage,omitempty"` // nil: the task definition's
}

type storage struct {
	SizeInGiB int32 `json:"sizeInGiB"`
}

type containerOverride struct {
	Name        string     `json:"name"`
	Environment []variable `json:"environment"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// overridesOf depends only on the request and the configuration, so that the same request makes the same
// call to ECS. Everybody with the right to describe tasks or to read events can read the overrides.
func (c Config) overridesOf(r launcher.Request, size task.Size) overrides {
	// The runner learns its task's name from the metadata endpoint of ECS.
	env := task.Environment{Workflow: r.Workflow, Attempt: r.Attempt, Ticket: r.Ticket, Relay: r.Relay}.Variables()
	runner := containerOverride{Name: c.Container}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		runner.Environment = append(runner.Environment, variable{name, env[name]})
	}
	return overrides{
		ContainerOverrides: []containerOverride{runner}, CPU: strconv.Itoa(size.CPUUnits()), Memory: strconv.Itoa(size.MemoryMB),
	}
}

// length counts the characters as ECS does: all of the JSON text, with its punctuation.
func (o overrides) length() int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // & and < are one character on the wire
	if err := e.Encode(o); err != nil {
		return maxOverrides + 1 // it holds strings and numbers only
	}
	return len(bytes.TrimSpace(b.Bytes()))
}

func (o overrides) sdk() *types.TaskOverride {
	out := &types.TaskOverride{Cpu: &o.CPU, Memory: &o.Memory}
	if o.EphemeralStorage != nil {
		out.EphemeralStorage = &types.EphemeralStorage{SizeInGiB: o.EphemeralStorage.SizeInGiB}
	}
	for _, c := range o.ContainerOverrides {
		one := types.ContainerOverride{Name: &c.Name}
		for _, v := range c.Environment {
			one.Environment = append(one.Environment, types.KeyValuePair{Name: &v.Name, Value: &v.Value})
		}
		out.ContainerOverrides = append(out.ContainerOverrides, one)
	}
	return out
}

// input makes the call of a request. The refusal of a request that can never be launched is permanent.
func (c Config) input(r launcher.Request) (*ecs.RunTaskInput, error) {
	if why := unfit(r); why != "" {
		return nil, launcher.Never("%s", why)
	}
	where, err := c.parsePlacement(r.Placement)
	if err != nil {
		return nil, launcher.Never("%v", err)
	}
	size, err := task.SizeOf(r.Size)
	if err != nil {
		return nil, launcher.Never("%v", err)
	}
	definition, err := launcher.Image(r.Image, c.TaskDefinition, c.Images)
	if err != nil {
		return nil, err
	}
	disk, err := launcher.Disk(r.DiskGiB, freeDisk, max(c.MaxDisk, freeDisk))
	if err != nil {
		return nil, err
	}
	over := c.overridesOf(r, size)
	if disk > freeDisk {
		over.EphemeralStorage = &storage{int32(disk)} //nolint:gosec // at most 200
	}
	if n := over.length(); n > maxOverrides {
		return nil, launcher.Never("the overrides of the task would have %d characters; ECS accepts %d. The ticket has %d and the relay's address %d: shorten relay_url",
			n, maxOverrides, len(r.Ticket), len(r.Relay))
	}
	public := types.AssignPublicIpDisabled
	if c.AssignPublicIP {
		public = types.AssignPublicIpEnabled
	}
	in := &ecs.RunTaskInput{
		TaskDefinition:       &definition,
		Cluster:              &c.Cluster,
		ClientToken:          aws.String(clientToken(r)),
		Count:                aws.Int32(1),
		EnableECSManagedTags: true,
		EnableExecuteCommand: false, // nobody gets a shell beside the credentials
		StartedBy:            aws.String(startedBy(c.Pool)),
		NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{
			Subnets: []string{where.subnet}, SecurityGroups: c.SecurityGroups, AssignPublicIp: public,
		}},
		Overrides: over.sdk(),
		Tags:      c.tags(r),
	}
	if where.spot { // Spot needs a strategy, and a strategy excludes a launch type
		in.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{{CapacityProvider: aws.String("FARGATE_SPOT"), Weight: 1}}
	} else {
		in.LaunchType = types.LaunchTypeFargate
	}
	return in, nil
}

// unfit says why a request can never become an ECS task; "" if it can.
func unfit(r launcher.Request) string {
	switch {
	case r.Workflow == "" || r.Attempt < 1 || r.Ticket == "" || r.Relay == "":
		return "the request has no workflow, attempt, ticket or relay"
	case r.States.Required:
		return "a state in a directory of the machine would be lost with an ECS task: give the workspace the state kind s3, or a pool on a machine"
	case r.SourceDirectory != "":
		return "a directory source is on one machine, and an ECS task cannot read it: give the workspace a git source, or a pool on a machine"
	case ofMachine(r.SecretRefs) != "":
		return "the secret " + ofMachine(r.SecretRefs) + " is on one machine, and an ECS task cannot read it: keep it in Secrets Manager, or give the workspace a pool on a machine"
	}
	for _, s := range []string{r.Workflow, r.Placement, r.Ticket, r.Relay} {
		if strings.ContainsFunc(s, unicode.IsControl) {
			return "the request has a control character"
		}
	}
	return ""
}

// ofMachine returns a reference that only a machine of the operator's resolves; a task logs in to Vault itself.
func ofMachine(refs []string) string {
	for _, ref := range refs {
		if !strings.HasPrefix(ref, "vault:") {
			return ref
		}
	}
	return ""
}

// tags returns the tags that name the job of the task, and those of the configuration, sorted by key.
func (c Config) tags(r launcher.Request) []types.Tag {
	all := map[string]string{}
	maps.Copy(all, c.Tags)
	maps.Copy(all, map[string]string{
		tagJob: r.Workflow, tagAttempt: strconv.Itoa(r.Attempt), tagPool: r.Pool, tagWorkspace: r.Workspace, tagOrganization: r.Organization,
	})
	out := make([]types.Tag, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, types.Tag{Key: &key, Value: aws.String(tagText(all[key]))})
	}
	return out
}

// tagText replaces the characters that some AWS service does not accept in a tag by "_".
func tagText(s string) string {
	out := []rune(strings.ToValidUTF8(s, "_"))
	out = out[:min(len(out), maxTagValue)]
	for i, r := range out {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != ' ' && !strings.ContainsRune("+-=._:/@", r) {
			out[i] = '_'
		}
	}
	return string(out)
}
