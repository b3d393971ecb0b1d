package ecs

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// definitionIn is the input of RegisterTaskDefinition.
type definitionIn struct {
	Family                  string        `json:"family"`
	TaskRoleArn             string        `json:"taskRoleArn"`
	ExecutionRoleArn        string        `json:"executionRoleArn"`
	NetworkMode             string        `json:"networkMode"`
	RequiresCompatibilities []string      `json:"requiresCompatibilities"`
	CPU                     string        `json:"cpu"`
	Memory                  string        `json:"memory"`
	EphemeralStorage        *disk         `json:"ephemeralStorage"`
	ContainerDefinitions    []containerIn `json:"containerDefinitions"`
	Tags                    []tag         `json:"tags"`
	Volumes                 []struct {
		Name string `json:"name"`
		Host struct {
			SourcePath unsupported `json:"sourcePath"`
		} `json:"host"`
		DockerVolumeConfiguration unsupported `json:"dockerVolumeConfiguration"`
	} `json:"volumes"`
	RuntimePlatform struct {
		CPUArchitecture       string `json:"cpuArchitecture"`
		OperatingSystemFamily string `json:"operatingSystemFamily"`
	} `json:"runtimePlatform"`
	IPCMode               unsupported `json:"ipcMode"`
	PlacementConstraints  unsupported `json:"placementConstraints"`
	InferenceAccelerators unsupported `json:"inferenceAccelerators"`
}

type containerIn struct {
	Name                   string     `json:"name"`
	Image                  string     `json:"image"`
	Essential              *bool      `json:"essential"`
	Command                []string   `json:"command"`
	EntryPoint             []string   `json:"entryPoint"`
	Environment            []variable `json:"environment"`
	StopTimeout            *int       `json:"stopTimeout"`
	User                   string     `json:"user"`
	ReadonlyRootFilesystem bool       `json:"readonlyRootFilesystem"`
	MountPoints            []struct {
		SourceVolume  string `json:"sourceVolume"`
		ContainerPath string `json:"containerPath"`
		ReadOnly      bool   `json:"readOnly"`
	} `json:"mountPoints"`
	LinuxParameters struct {
		Capabilities struct {
			Add  []string `json:"add"`
			Drop []string `json:"drop"`
		} `json:"capabilities"`
		InitProcessEnabled wire.Ignored `json:"initProcessEnabled"`
		Devices            unsupported  `json:"devices"`
		MaxSwap            unsupported  `json:"maxSwap"`
		SharedMemorySize   unsupported  `json:"sharedMemorySize"`
		Swappiness         unsupported  `json:"swappiness"`
		Tmpfs              unsupported  `json:"tmpfs"`
	} `json:"linuxParameters"`
	LogConfiguration *struct {
		LogDriver string            `json:"logDriver"`
		Options   map[string]string `json:"options"`
	} `json:"logConfiguration"`
	Secrets               []struct{ Name, ValueFrom string } `json:"secrets"`
	DockerLabels          wire.Ignored                       `json:"dockerLabels"`
	DisableNetworking     unsupported                        `json:"disableNetworking"`
	DNSSearchDomains      unsupported                        `json:"dnsSearchDomains"`
	DNSServers            unsupported                        `json:"dnsServers"`
	DockerSecurityOptions unsupported                        `json:"dockerSecurityOptions"`
	ExtraHosts            unsupported                        `json:"extraHosts"`
	Hostname              unsupported                        `json:"hostname"`
	Links                 unsupported                        `json:"links"`
	Privileged            unsupported                        `json:"privileged"`
}

type disk struct {
	SizeInGiB int `json:"sizeInGiB"`
}

// size is in GiB; 0 where none is named.
func (d *disk) size() int {
	if d == nil {
		return 0
	}
	return d.SizeInGiB
}

func (d *disk) fits() bool { return d == nil || d.SizeInGiB >= 21 && d.SizeInGiB <= 200 }

// unsupported is a member that ECS has and Fargate does not: true where it asks for something. (ECS developer guide,
// "Amazon ECS task definition differences for Fargate".)
type unsupported bool

// UnmarshalJSON implements json.Unmarshaler.
func (u *unsupported) UnmarshalJSON(b []byte) error {
	*u = unsupported(!slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(bytes.TrimSpace(b))))
	return nil
}

// firstUnsupported is the JSON name of the first such member that is set below a value; "" means none.
func firstUnsupported(v reflect.Value) (name string) {
	if v.Kind() == reflect.Slice {
		for i := 0; i < v.Len() && name == ""; i++ {
			name = firstUnsupported(v.Index(i))
		}
	}
	if v.Kind() == reflect.Struct {
		for i := 0; i < v.NumField() && name == ""; i++ {
			if set, ok := v.Field(i).Interface().(unsupported); ok && bool(set) {
				return v.Type().Field(i).Tag.Get("json")
			}
			name = firstUnsupported(v.Field(i))
		}
	}
	return name
}

// check refuses what cannot be a task definition of Fargate, as RegisterTaskDefinition does where it is asked for
// FARGATE, and here also where it is asked for nothing. Texts are those that users of AWS report, where they do.
func (in definitionIn) check() error {
	for _, c := range in.RequiresCompatibilities {
		if c != "FARGATE" {
			return client("This fake knows the launch type FARGATE only, not %s.", c)
		}
	}
	platform := in.RuntimePlatform
	switch name := firstUnsupported(reflect.ValueOf(in)); {
	case !namePattern.MatchString(in.Family):
		return client("Invalid 'family' setting: %q", in.Family)
	case in.NetworkMode != "awsvpc":
		return client("Fargate only supports network mode ‘awsvpc’.")
	case in.CPU == "":
		return client("Fargate requires that 'cpu' be defined at the task level.")
	case in.Memory == "":
		return client("Fargate requires that 'memory' be defined at the task level.")
	case !fargateHas(in.CPU, in.Memory):
		return client("No Fargate configuration exists for given values: %s CPU, %s memory.", in.CPU, in.Memory)
	case !in.EphemeralStorage.fits():
		return client("EphemeralStorage size should be between 21 and 200 GiB.")
	case name != "":
		return client("Fargate compatible task definitions do not support %s", name)
	case !slices.Contains([]string{"", "X86_64", "ARM64"}, platform.CPUArchitecture):
		return client("Invalid value for runtimePlatform.cpuArchitecture: %s", platform.CPUArchitecture)
	case platform.OperatingSystemFamily != "" && platform.OperatingSystemFamily != "LINUX":
		return client("This fake knows the operating system family LINUX only, not %s.", platform.OperatingSystemFamily)
	case len(in.ContainerDefinitions) == 0:
		return client("Container list cannot be empty.")
	}
	volumes := map[string]bool{}
	for _, v := range in.Volumes {
		if !namePattern.MatchString(v.Name) || volumes[v.Name] {
			return client("Invalid volume name %q: it has 1 to 255 letters, numbers, hyphens and underscores, and is used once.", v.Name)
		}
		volumes[v.Name] = true
	}
	for _, c := range in.ContainerDefinitions {
		if err := c.check(in.ExecutionRoleArn, volumes); err != nil {
			return err
		}
	}
	return checkTags(in.Tags)
}

func (c containerIn) check(executionRole string, volumes map[string]bool) error {
	switch {
	case !namePattern.MatchString(c.Name) || c.Image == "":
		return client("Container.name and Container.image should not be null or empty.")
	case c.Essential != nil && !*c.Essential:
		return client("This fake knows essential containers only; %s is not one.", c.Name)
	case c.StopTimeout != nil && (*c.StopTimeout < 2 || *c.StopTimeout > 120):
		return client("stopTimeout must be between 2 and 120 seconds on Fargate.")
	case strings.Contains(c.Image, ".dkr.ecr.") && executionRole == "":
		return client("Fargate requires task definition to have execution role ARN to support ECR images.")
	case len(c.Secrets) > 0 && executionRole == "":
		return client("When you are specifying container secrets, you must also specify a value for 'executionRoleArn'.")
	case len(c.Secrets) > 0:
		return client("This fake does not implement secrets of containers; %s has some.", c.Name)
	case slices.ContainsFunc(c.LinuxParameters.Capabilities.Add, func(name string) bool { return name != "SYS_PTRACE" }):
		return client("Fargate compatible task definitions do not support adding capabilities other than SYS_PTRACE")
	}
	for _, m := range c.MountPoints {
		switch {
		case !volumes[m.SourceVolume]:
			return client("Unknown volume '%s'.", m.SourceVolume)
		case m.ContainerPath == "":
			return client("Container path should not be null or empty in the mount points of %s.", c.Name)
		}
	}
	if c.LogConfiguration == nil {
		return nil
	}
	var missing []string
	for _, name := range []string{"awslogs-region", "awslogs-group"} {
		if c.LogConfiguration.Options[name] == "" {
			missing = append(missing, name)
		}
	}
	switch driver := c.LogConfiguration.LogDriver; {
	case driver == "splunk" || driver == "awsfirelens":
		return client("This fake does not implement the log driver %s.", driver)
	case driver != "awslogs":
		return client("Log driver %s must be one of [awslogs, splunk, awsfirelens]", driver)
	case len(missing) > 0:
		return client("Log driver awslogs requires options: %s", strings.Join(missing, ", "))
	case executionRole == "":
		return client("Fargate requires task definition to have execution role ARN to support log driver awslogs.")
	}
	return nil
}

// fargateHas knows the task sizes by their first and last memory in GB and the step between.
func fargateHas(cpu, memory string) bool {
	c, errC := strconv.Atoi(cpu)
	m, errM := strconv.Atoi(memory)
	if errC != nil || errM != nil {
		return false
	}
	const gb = 1024
	switch c {
	case 256:
		return m == gb/2 || m == gb || m == 2*gb
	case 32768:
		return m == 60*gb || m == 120*gb || m == 244*gb
	}
	row, ok := map[int][3]int{512: {1, 4, 1}, 1024: {2, 8, 1}, 2048: {4, 16, 1}, 4096: {8, 30, 1}, 8192: {16, 60, 4}, 16384: {32, 120, 8}}[c]
	return ok && m >= row[0]*gb && m <= row[1]*gb && (m-row[0]*gb)%(row[2]*gb) == 0
}
