package ecs_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

func serve(t *testing.T) (*ecs.Service, string, sigv4.Credentials) {
	t.Helper()
	s, err := ecs.New(ecs.Config{Runner: ecs.Func(obedient), Clusters: []string{"default", "dayfly"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	table := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"ecs": s}}))
	t.Cleanup(server.Close)
	return s, server.URL, table.Session("arn:aws:iam::123456789012:role/tester", "session", time.Hour)
}

// TestGoSDK_ReadsEveryAnswer: what moto cannot do.
func TestGoSDK_ReadsEveryAnswer(t *testing.T) {
	_, url, credentials := serve(t)
	c := awsecs.NewFromConfig(awsim.ClientConfig(url, credentials))
	def, err := c.RegisterTaskDefinition(t.Context(), &awsecs.RegisterTaskDefinitionInput{
		Family: aws.String("job"), NetworkMode: types.NetworkModeAwsvpc, RequiresCompatibilities: []types.Compatibility{types.CompatibilityFargate},
		Cpu: aws.String("256"), Memory: aws.String("512"), ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("main"), Image: aws.String("i")}},
	})
	if err != nil || def.TaskDefinition.Revision != 1 || len(def.TaskDefinition.ContainerDefinitions) != 1 {
		t.Fatalf("register: got %+v, %v", def, err)
	}
	in := &awsecs.RunTaskInput{
		TaskDefinition: def.TaskDefinition.TaskDefinitionArn, Cluster: aws.String("dayfly"), ClientToken: aws.String("t"), StartedBy: aws.String("me"),
		LaunchType: types.LaunchTypeFargate, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
		NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{Subnets: []string{"subnet-a"}}},
	}
	ran, err := c.RunTask(t.Context(), in)
	if err != nil || len(ran.Tasks) != 1 || ran.Tasks[0].CreatedAt == nil || aws.ToString(ran.Tasks[0].Tags[0].Value) != "b" {
		t.Fatalf("run: got %+v, %v", ran, err)
	}
	arn := aws.ToString(ran.Tasks[0].TaskArn)
	in.StartedBy = aws.String("you")
	_, err = c.RunTask(t.Context(), in)
	if conflict, ok := errors.AsType[*types.ConflictException](err); !ok || len(conflict.ResourceIds) != 1 || conflict.ResourceIds[0] != arn {
		t.Errorf("conflict: got %v", err)
	}
	if out, err := c.ListTasks(t.Context(), &awsecs.ListTasksInput{Cluster: in.Cluster, StartedBy: aws.String("me")}); err != nil || len(out.TaskArns) != 1 {
		t.Errorf("list: got %+v, %v", out, err)
	}
	if _, err := c.TagResource(t.Context(), &awsecs.TagResourceInput{ResourceArn: &arn, Tags: []types.Tag{{Key: aws.String("c"), Value: aws.String("d")}}}); err != nil {
		t.Errorf("tag: %v", err)
	}
	if out, err := c.StopTask(t.Context(), &awsecs.StopTaskInput{Cluster: in.Cluster, Task: &arn}); err != nil || aws.ToString(out.Task.TaskArn) != arn {
		t.Errorf("stop: got %+v, %v", out, err)
	}
	waiter := awsecs.NewTasksStoppedWaiter(c, func(o *awsecs.TasksStoppedWaiterOptions) { o.MinDelay = 10 * time.Millisecond })
	out, err := waiter.WaitForOutput(t.Context(), &awsecs.DescribeTasksInput{Cluster: in.Cluster, Tasks: []string{arn, strings.Repeat("0", 32)}}, time.Minute)
	if err != nil || len(out.Tasks) != 1 || len(out.Failures) != 1 || aws.ToInt32(out.Tasks[0].Containers[0].ExitCode) != 143 || out.Tasks[0].StoppedAt == nil {
		t.Errorf("describe: got %+v, %v", out, err)
	}
	if out, err := c.DescribeClusters(t.Context(), &awsecs.DescribeClustersInput{Clusters: []string{"dayfly", "nowhere"}}); err != nil || len(out.Clusters) != 1 || len(out.Failures) != 1 {
		t.Errorf("clusters: got %+v, %v", out, err)
	}
	if out, err := c.DescribeTaskDefinition(t.Context(), &awsecs.DescribeTaskDefinitionInput{TaskDefinition: aws.String("job")}); err != nil || aws.ToString(out.TaskDefinition.Family) != "job" {
		t.Errorf("definition: got %+v, %v", out, err)
	}
}

const boto = `
import boto3, botocore, sys
c = boto3.client("ecs", endpoint_url=sys.argv[1], region_name="us-east-1")
net = {"awsvpcConfiguration": {"subnets": ["subnet-a"]}}
d = c.register_task_definition(family="job", networkMode="awsvpc", requiresCompatibilities=["FARGATE"], cpu="256", memory="512",
    containerDefinitions=[{"name": "main", "image": "i"}])["taskDefinition"]["taskDefinitionArn"]
run = lambda **more: c.run_task(cluster="dayfly", taskDefinition=d, launchType="FARGATE", networkConfiguration=net, clientToken="t", startedBy="me", **more)
a = run()["tasks"][0]["taskArn"]
assert run()["tasks"][0]["taskArn"] == a
try:
    run(count=2)
    assert False, "no conflict"
except c.exceptions.ConflictException as e:
    assert e.response["resourceIds"] == [a], e.response
assert c.list_tasks(cluster="dayfly", startedBy="me")["taskArns"] == [a]
try:
    c.list_tasks(cluster="dayfly", startedBy="me", family="job")
    assert False, "two filters"
except c.exceptions.InvalidParameterException:
    pass
c.stop_task(cluster="dayfly", task=a, reason="enough")
c.get_waiter("tasks_stopped").wait(cluster="dayfly", tasks=[a], WaiterConfig={"Delay": 1, "MaxAttempts": 60})
t = c.describe_tasks(cluster="dayfly", tasks=[a])["tasks"][0]
assert (t["stopCode"], t["stoppedReason"], t["containers"][0]["exitCode"]) == ("UserInitiated", "enough", 143), t
print("ok", a)
`

func environment(c sigv4.Credentials) []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+c.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+c.SecretAccessKey, "AWS_SESSION_TOKEN="+c.SessionToken,
		"AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=")
}

func TestForeignClient_boto3(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import boto3").Run(); err != nil {
		t.Skip("python3 has no boto3 here")
	}
	_, url, credentials := serve(t)
	cmd := exec.CommandContext(t.Context(), "python3", "-c", boto, url)
	cmd.Env = environment(credentials)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.HasPrefix(out, []byte("ok arn:aws:ecs:")) {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestForeignClient_CLI(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python")
	}
	if err := exec.CommandContext(t.Context(), "aws", "--version").Run(); err != nil {
		t.Skip("there is no AWS CLI here")
	}
	s, url, credentials := serve(t)
	s.Define(ecs.Definition{Family: "job", Containers: []ecs.Container{{Name: "main", Image: "i"}}})
	cli := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "aws", append([]string{"--endpoint-url", url, "--output", "text", "ecs"}, args...)...) //nolint:gosec // a test's own words
		cmd.Env = environment(credentials)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	arn := cli("run-task", "--cluster", "dayfly", "--task-definition", "job", "--launch-type", "FARGATE", "--started-by", "me",
		"--network-configuration", "awsvpcConfiguration={subnets=[subnet-a]}", "--query", "tasks[0].taskArn")
	if got := cli("list-tasks", "--cluster", "dayfly", "--started-by", "me", "--query", "taskArns[0]"); got != arn {
		t.Errorf("list: got %q, want %q", got, arn)
	}
	if got := cli("stop-task", "--cluster", "dayfly", "--task", arn, "--query", "task.desiredStatus"); got != "STOPPED" {
		t.Errorf("stop: got %q", got)
	}
	if got := cli("describe-tasks", "--cluster", "dayfly", "--tasks", arn, "--query", "tasks[0].stopCode"); got != "UserInitiated" {
		t.Errorf("describe: got %q", got)
	}
}

func TestSignature_IsChecked(t *testing.T) {
	_, url, credentials := serve(t)
	credentials.SecretAccessKey += "x"
	c := awsecs.NewFromConfig(awsim.ClientConfig(url, credentials))
	if _, err := c.ListTasks(t.Context(), &awsecs.ListTasksInput{}); err == nil {
		t.Error("a wrong signature was taken")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode < 400 {
		t.Errorf("no signature at all: got %d %s", resp.StatusCode, body)
	}
}
