package ecs_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
)

// definition is one that Fargate takes, with all that this fake knows.
func definition() object {
	return object{
		"family": "runner", "networkMode": "awsvpc", "requiresCompatibilities": []string{"FARGATE"}, "cpu": "512", "memory": "1024",
		"taskRoleArn": "arn:aws:iam::123456789012:role/runner", "executionRoleArn": "arn:aws:iam::123456789012:role/begin",
		"runtimePlatform":  object{"cpuArchitecture": "ARM64", "operatingSystemFamily": "LINUX"},
		"ephemeralStorage": object{"sizeInGiB": 21}, "volumes": []object{{"name": "work", "host": object{}}}, "tags": []object{{"key": "a", "value": "b"}},
		"containerDefinitions": []object{{
			"name": "main", "image": "runner:1", "essential": true, "stopTimeout": 120, "user": "65532", "readonlyRootFilesystem": true,
			"privileged": false, "links": []string{}, "mountPoints": []object{{"sourceVolume": "work", "containerPath": "/work"}},
			"linuxParameters": object{"capabilities": object{"add": []string{"SYS_PTRACE"}, "drop": []string{"ALL"}}, "initProcessEnabled": true},
			"environment":     []object{{"name": "A", "value": "1"}, {"name": "JOB", "value": "none"}}, "command": []string{"runner"},
			"logConfiguration": object{"logDriver": "awslogs", "options": object{"awslogs-group": "tasks", "awslogs-region": "us-east-1"}},
		}},
	}
}

func TestTaskDefinitions(t *testing.T) {
	th := newTheatre(t, ecs.Config{})
	defer th.Close()
	out, code := th.do("RegisterTaskDefinition", definition())
	if code != "" || out["taskDefinition"].(object)["revision"] != float64(1) {
		t.Fatalf("got %s %v", code, out)
	}
	th.do("RegisterTaskDefinition", definition())
	out, _ = th.do("DescribeTaskDefinition", object{"taskDefinition": "runner"})
	if arn := out["taskDefinition"].(object)["taskDefinitionArn"]; arn != "arn:aws:ecs:us-east-1:123456789012:task-definition/runner:2" {
		t.Errorf("got %v, want the latest revision", arn)
	}

	specs := make(chan ecs.Spec, 1)
	other := newTheatre(t, ecs.Config{Runner: ecs.Func(func(_ context.Context, s ecs.Spec, _ <-chan struct{}) int { specs <- s; return 0 })})
	defer other.Close()
	other.do("RegisterTaskDefinition", definition())
	arn := other.launch(with(run("j"), object{"taskDefinition": "runner:1"}))
	want := ecs.Spec{
		Task: arn, Name: "main", Image: "runner:1", Command: []string{"runner"}, Env: []string{"A=1", "JOB=j"}, User: "65532", ReadOnly: true,
		Volumes: []string{"/work"}, DropAll: true, CPUUnits: 512, MemoryMB: 1024,
	}
	if diff := cmp.Diff(want, <-specs); diff != "" {
		t.Errorf("what is run differs (-want +got):\n%s", diff)
	}
	out, _ = other.do("DescribeTasks", object{"tasks": []string{arn}})
	if size := out["tasks"].([]any)[0].(object)["ephemeralStorage"].(object)["sizeInGiB"]; size != float64(21) {
		t.Errorf("the task has %v GiB of storage, want those of its definition", size)
	}
}

func TestTaskDefinitions_RefusesWhatFargateDoes(t *testing.T) {
	th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true}})
	defer th.Close()
	type change = func(task, container object)
	set := func(name string, value any) change { return func(task, _ object) { task[name] = value } }
	inContainer := func(name string, value any) change { return func(_, c object) { c[name] = value } }
	logs := func(driver string, options object) change {
		return inContainer("logConfiguration", object{"logDriver": driver, "options": options})
	}
	for _, one := range []struct {
		change change
		want   string // in the message
	}{
		{set("family", "a b"), "Invalid 'family' setting"},
		{set("networkMode", "host"), "Fargate only supports network mode ‘awsvpc’."},
		{set("requiresCompatibilities", []string{"EC2"}), "FARGATE only"},
		{set("cpu", ""), "Fargate requires that 'cpu' be defined at the task level."},
		{set("memory", ""), "Fargate requires that 'memory' be defined at the task level."},
		{set("memory", "8192"), "No Fargate configuration exists for given values"},
		{set("ephemeralStorage", object{"sizeInGiB": 20}), "between 21 and 200 GiB"},
		{set("ephemeralStorage", object{"sizeInGiB": 201}), "between 21 and 200 GiB"},
		{set("runtimePlatform", object{"cpuArchitecture": "arm64"}), "runtimePlatform.cpuArchitecture"},
		{set("runtimePlatform", object{"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}), "LINUX only"},
		{set("ipcMode", "host"), "Fargate compatible task definitions do not support ipcMode"},
		{set("volumes", []object{{"name": "work", "host": object{"sourcePath": "/var"}}}), "Fargate compatible task definitions do not support sourcePath"},
		{set("volumes", []object{{"name": "work", "dockerVolumeConfiguration": object{"scope": "task"}}}), "do not support dockerVolumeConfiguration"},
		{set("volumes", []object{{"name": "a b"}}), "Invalid volume name"},
		{set("volumes", []object{{"name": "other"}}), "Unknown volume 'work'."},
		{set("containerDefinitions", []object{}), "Container list cannot be empty."},
		{inContainer("name", "a.b"), "Container.name"},
		{inContainer("image", ""), "Container.image"},
		{inContainer("essential", false), "essential containers only"},
		{inContainer("stopTimeout", 121), "stopTimeout"},
		{inContainer("privileged", true), "Fargate compatible task definitions do not support privileged"},
		{inContainer("extraHosts", []object{{"hostname": "a"}}), "do not support extraHosts"},
		{inContainer("linuxParameters", object{"devices": []object{{"hostPath": "/dev/kvm"}}}), "do not support devices"},
		{inContainer("linuxParameters", object{"tmpfs": []object{{"containerPath": "/tmp"}}}), "do not support tmpfs"},
		{inContainer("linuxParameters", object{"sharedMemorySize": 64}), "do not support sharedMemorySize"},
		{inContainer("linuxParameters", object{"capabilities": object{"add": []string{"SYS_ADMIN"}}}), "other than SYS_PTRACE"},
		{inContainer("mountPoints", []object{{"sourceVolume": "work"}}), "Container path"},
		{inContainer("secrets", []object{{"name": "A", "valueFrom": "arn"}}), "does not implement secrets"},
		{logs("json-file", nil), "must be one of [awslogs, splunk, awsfirelens]"},
		{logs("splunk", nil), "does not implement the log driver splunk"},
		{logs("awslogs", object{"awslogs-region": "us-east-1"}), "Log driver awslogs requires options: awslogs-group"},
		{set("executionRoleArn", ""), "execution role ARN to support log driver awslogs."},
		{func(task, c object) {
			task["executionRoleArn"], c["image"] = "", "123456789012.dkr.ecr.us-east-1.amazonaws.com/runner:1"
		}, "execution role ARN to support ECR images."},
		{func(task, c object) {
			task["executionRoleArn"], c["secrets"] = "", []object{{"name": "A", "valueFrom": "arn"}}
		}, "you must also specify a value for 'executionRoleArn'."},
	} {
		in := definition()
		one.change(in, in["containerDefinitions"].([]object)[0])
		out, code := th.do("RegisterTaskDefinition", in)
		message, _ := out["message"].(string)
		if code != "ClientException" || !strings.Contains(message, one.want) {
			t.Errorf("got %q %s, want ClientException with %q", code, message, one.want)
		}
	}
	for _, name := range []string{"healthCheck", "portMappings"} {
		in := definition()
		in["containerDefinitions"].([]object)[0][name] = object{}
		if out, code := th.do("RegisterTaskDefinition", in); code != "SerializationException" {
			t.Errorf("%s: got %q %v, want it refused: the fake does not implement it", name, code, out)
		}
	}
}

func TestRunTask_Network(t *testing.T) {
	th := newTheatre(t, ecs.Config{Limits: ecs.Limits{NoRates: true}})
	defer th.Close()
	of := func(subnets, groups []string) object {
		in := run("")
		delete(in, "clientToken")
		in["networkConfiguration"] = object{"awsvpcConfiguration": object{"subnets": subnets, "securityGroups": groups}}
		return in
	}
	if out, code := th.do("RunTask", of([]string{"subnet-x"}, []string{"sg-x"})); code != "" {
		t.Errorf("without networks: got %s %v", code, out)
	}
	th.AddNetwork(ecs.Network{VPC: "vpc-a", Subnets: []string{"subnet-a", "subnet-b"}, SecurityGroups: []string{"sg-a"}})
	th.AddNetwork(ecs.Network{VPC: "vpc-c", Subnets: []string{"subnet-c"}, SecurityGroups: []string{"sg-c"}})
	if out, code := th.do("RunTask", of([]string{"subnet-a", "subnet-b"}, []string{"sg-a"})); code != "" {
		t.Errorf("one network: got %s %v", code, out)
	}
	for want, in := range map[string]object{
		"InvalidSubnetID.NotFound":                                  of([]string{"subnet-x"}, nil),
		"InvalidGroup.NotFound":                                     of([]string{"subnet-a"}, []string{"sg-x"}),
		"Subnet subnet-c does not appear to belong to the same VPC": of([]string{"subnet-a", "subnet-c"}, nil),
		"Security Group sg-c does not appear to belong to the same": of([]string{"subnet-a"}, []string{"sg-c"}),
		"subnets can have at most 16 items.":                        of(slices.Repeat([]string{"subnet-a"}, 17), nil),
		"securityGroups can have at most 5 items.":                  of([]string{"subnet-a"}, slices.Repeat([]string{"sg-a"}, 6)),
	} {
		out, code := th.do("RunTask", in)
		if message, _ := out["message"].(string); code != "InvalidParameterException" || !strings.Contains(message, want) {
			t.Errorf("got %q %v, want InvalidParameterException with %q", code, out, want)
		}
	}
}
