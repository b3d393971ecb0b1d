package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	ecstypes "github.com/aws/aws-sdk-go-v2/service/ecs/types"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/sqssource"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

var allCounts = []types.QueueAttributeName{
	types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
}

func str(v any) string { return templates.Text(v) }

func seconds(v any) time.Duration {
	n, _ := strconv.Atoi(str(v))
	return time.Duration(n) * time.Second
}

// makeQueues makes the queues of a stack with their attributes, dead letters first.
func (c *Cloud) makeQueues(ctx context.Context, s *templates.Stack) error {
	sqs := awssqs.NewFromConfig(c.Admin)
	names := s.Of("AWS::SQS::Queue")
	slices.SortStableFunc(names, func(a, b string) int {
		return boolInt(s.Resources[a].Properties["RedrivePolicy"] != nil) - boolInt(s.Resources[b].Properties["RedrivePolicy"] != nil)
	})
	for _, logical := range names {
		p := s.Resources[logical].Properties
		attributes := map[string]string{}
		for _, name := range []string{"VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds", "SqsManagedSseEnabled", "KmsMasterKeyId"} {
			if p[name] != nil {
				attributes[name] = str(p[name])
			}
		}
		if p["RedrivePolicy"] != nil {
			redrive, err := json.Marshal(map[string]any{
				"deadLetterTargetArn": templates.At(p, "RedrivePolicy", "deadLetterTargetArn"), "maxReceiveCount": templates.At(p, "RedrivePolicy", "maxReceiveCount"),
			})
			if err != nil {
				return err
			}
			attributes["RedrivePolicy"] = string(redrive)
		}
		name := s.Name + "-" + logical
		c.made = append(c.made, made{"sqs", name})
		if _, err := sqs.CreateQueue(ctx, &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes}); err != nil {
			return fmt.Errorf("create queue %s: %w", name, err)
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// functionName is the name of a function of a stack.
func (c *Cloud) functionName(s *templates.Stack, logical string) string {
	if name := str(s.Resources[logical].Properties["FunctionName"]); name != "" {
		return name
	}
	return s.Name + "-" + logical
}

// sources says which built function is which of a template, as the Makefile tells sam.
var sources = map[string]string{
	"Poller": "poller", "Dispatcher": "dispatcher", "DeadLetters": "dispatcher", "Status": "status", "Reaper": "reaper", "Deliverer": "deliverer", "ControlPlane": "controlplane",
	"LongPolls": "controlplane",
}

// putFunctions deploys the functions of a stack, with its schedules and rules.
func (c *Cloud) putFunctions(s *templates.Stack, rewrite *strings.Replacer) error {
	async := map[string]lambdahost.AsyncConfig{}
	for _, name := range s.Of("AWS::Lambda::EventInvokeConfig") {
		p := s.Resources[name].Properties
		retries, _ := strconv.Atoi(str(p["MaximumRetryAttempts"]))
		async[str(p["FunctionName"])] = lambdahost.AsyncConfig{
			MaximumRetryAttempts: &retries, MaximumEventAge: seconds(p["MaximumEventAgeInSeconds"]),
			OnFailure: func(f lambdahost.Failure) {
				if f.Condition != "EventAgeExceeded" {
					c.problem("an event of %s was given up: %s: %s", f.ARN, f.Condition, f.Response)
				}
			},
		}
	}
	for _, logical := range s.Of("AWS::Lambda::Function") {
		p := s.Resources[logical].Properties
		env := map[string]string{"AWS_ENDPOINT_URL": c.AWSURL}
		if c.TaskAWSURL != "" { // a pool's functions call no S3: they sign addresses there for tasks
			env["AWS_ENDPOINT_URL_S3"] = c.TaskAWSURL
		}
		variables, _ := templates.At(p, "Environment", "Variables").(map[string]any)
		for name, v := range variables {
			env[name] = str(v)
			if rewrite != nil {
				env[name] = rewrite.Replace(env[name])
			}
		}
		maps.Copy(env, c.cfg.Environment[logical])
		name := c.functionName(s, logical)
		role := c.table.Session(str(p["Role"]), name, 12*time.Hour)
		memory, _ := strconv.Atoi(str(p["MemorySize"]))
		f := lambdahost.Function{
			Name: name, Bootstrap: c.cfg.Functions + "/" + sources[logical] + "/bootstrap", Timeout: seconds(p["Timeout"]), MemoryMB: memory,
			Environment: env, Async: async[name],
			Credentials: lambdahost.Credentials{AccessKeyID: role.AccessKeyID, SecretAccessKey: role.SecretAccessKey, SessionToken: role.SessionToken},
		}
		if v := str(p["ReservedConcurrentExecutions"]); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return fmt.Errorf("reserved concurrency of %s: %w", logical, err)
			}
			f.ReservedConcurrency = &n
		}
		if err := c.Host.Put(f); err != nil {
			return fmt.Errorf("deploy function %s: %w", name, err)
		}
		c.functions[name] = f
	}
	return c.putTriggers(s)
}

// FunctionName is the name of a function of a stack, by its name in the template.
func (c *Cloud) FunctionName(s *templates.Stack, logical string) string {
	return c.functionName(s, logical)
}

// SwitchOff deploys a function of a stack again with no concurrency at all, so that every invocation of it is
// refused, until the function that it returns puts it back.
func (c *Cloud) SwitchOff(s *templates.Stack, logical string) (on func() error, err error) {
	f, ok := c.functions[c.functionName(s, logical)]
	if !ok {
		return nil, fmt.Errorf("stack %s has no function %s", s.Name, logical)
	}
	off := f
	off.ReservedConcurrency = new(int)
	return func() error { return c.Host.Put(f) }, c.Host.Put(off)
}

// putTriggers adds the schedules and rules of a stack.
func (c *Cloud) putTriggers(s *templates.Stack) error {
	for _, logical := range s.Of("AWS::Scheduler::Schedule") {
		p := s.Resources[logical].Properties
		every, err := rate(str(p["ScheduleExpression"]))
		if err != nil {
			return err
		}
		function := str(templates.At(p, "Target", "Arn"))
		role := str(templates.At(p, "Target", "RoleArn"))
		asks := templates.Request{Action: "lambda:InvokeFunction", Resource: function}
		if err := c.judge.may(role, asks); err != nil {
			return fmt.Errorf("schedule %s: %w", logical, err)
		}
		if err := c.Host.AddSchedule(lambdahost.Schedule{Name: s.Name + "-" + logical, Function: last(function, ":"), Every: every}); err != nil {
			return err
		}
	}
	for _, logical := range s.Of("AWS::Events::Rule") {
		p := s.Resources[logical].Properties
		pattern, err := json.Marshal(p["EventPattern"])
		if err != nil {
			return err
		}
		targets, _ := p["Targets"].([]any)
		for _, t := range targets {
			if err := c.Host.AddRule(lambdahost.Rule{Name: s.Name + "-" + logical, Function: last(str(templates.At(t, "Arn")), ":"), Pattern: pattern}); err != nil {
				return err
			}
		}
	}
	return nil
}

// RunSchedules lets the schedules fire by themselves until the cloud is closed; before, only Tick fires them.
func (c *Cloud) RunSchedules(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.running, cancel)
	c.work.Go(func() {
		defer cancel()
		defer stop()
		_ = c.Host.RunSchedules(ctx)
	})
}

// Tick fires a schedule of a stack now, by its name in the template.
func (c *Cloud) Tick(s *templates.Stack, logical string) error {
	return c.Host.Tick(s.Name+"-"+logical, 1)
}

// rate reads "rate(1 minute)".
func rate(expression string) (time.Duration, error) {
	var n int
	var unit string
	if _, err := fmt.Sscanf(strings.TrimSuffix(expression, ")"), "rate(%d %s", &n, &unit); err != nil {
		return 0, fmt.Errorf("schedule expression %q is not a rate", expression)
	}
	switch strings.TrimSuffix(unit, "s") {
	case "minute":
		return time.Duration(n) * time.Minute, nil
	case "hour":
		return time.Duration(n) * time.Hour, nil
	}
	return 0, fmt.Errorf("schedule expression %q has another unit than minutes and hours", expression)
}

func last(s, separator string) string { return s[strings.LastIndex(s, separator)+1:] }

// mapQueues runs the event source mappings of a stack.
func (c *Cloud) mapQueues(ctx, running context.Context, s *templates.Stack) error {
	for _, logical := range s.Of("AWS::Lambda::EventSourceMapping") {
		p := s.Resources[logical].Properties
		batch, _ := strconv.Atoi(str(p["BatchSize"]))
		most, _ := strconv.Atoi(str(templates.At(p, "ScalingConfig", "MaximumConcurrency")))
		function := str(p["FunctionName"])
		queue := last(str(p["EventSourceArn"]), ":")
		role := ""
		var timeout time.Duration
		for _, f := range s.Of("AWS::Lambda::Function") {
			if c.functionName(s, f) == function {
				role, timeout = str(s.Resources[f].Properties["Role"]), seconds(s.Resources[f].Properties["Timeout"])
			}
		}
		// The service polls with the role of the function.
		session := c.table.Session(role, "mapping", 12*time.Hour)
		client := awssqs.NewFromConfig(c.config(session))
		source, err := sqssource.New(ctx, client, c.Host, sqssource.Config{
			QueueURL: c.AWSURL + "/" + wire.Account + "/" + queue, Function: function, FunctionTimeout: timeout, BatchSize: batch, MaximumConcurrency: most,
			ReportBatchItemFailures: slices.Contains(list(p["FunctionResponseTypes"]), "ReportBatchItemFailures"), Latency: c.cfg.QueueDelay,
			Observe: func(b sqssource.Batch) {
				if b.Err != nil && running.Err() == nil && !strings.Contains(b.Err.Error(), "TooManyRequests") {
					c.problem("a batch of %s failed as a whole: %v", queue, b.Err)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("map queue %s: %w", queue, err)
		}
		c.work.Go(func() { _ = source.Run(running) })
	}
	return nil
}

func list(v any) []string {
	of, _ := v.([]any)
	out := make([]string, len(of))
	for i, e := range of {
		out[i] = str(e)
	}
	return out
}

// exposeStatus opens the status API where tasks find it: with the stage, the authorization and the policies of
// the templates.
func (c *Cloud) exposeStatus(ctx context.Context, s *templates.Stack) error {
	stage := str(s.Resources[s.Of("AWS::ApiGateway::Stage")[0]].Properties["StageName"])
	url, err := c.expose(ctx, &gateway.REST{
		Functions: c.Host, Function: c.functionName(s, "Status"), Authenticate: c.AWS.Authenticate, Stage: stage, ID: "restapi001",
		Allow: func(caller wire.Identity, resource string) bool {
			r := templates.Request{
				Action:   "execute-api:Invoke",
				Resource: "arn:aws:execute-api:" + wire.Region + ":" + wire.Account + ":restapi001/" + stage + "/" + strings.TrimPrefix(resource, "/"),
			}
			return c.judge.pass("execute-api", caller, r) == nil && c.judge.may(roleOf(caller), r) == nil
		},
	})
	c.StatusURL = url + "/" + stage
	return err
}

// asNumber finds what a parameter gives as text and the API wants as a number; CloudFormation turns one into the other.
var asNumber = regexp.MustCompile(`"(SizeInGiB|StopTimeout)":"([0-9]+)"`)

// defineTasks registers the task definition of a stack.
func (c *Cloud) defineTasks(ctx context.Context, s *templates.Stack) error {
	var err error
	if c.TaskAWSURL, err = c.expose(ctx, inside(c.AWS)); err != nil {
		return err
	}
	for _, logical := range s.Of("AWS::ECS::TaskDefinition") {
		properties, err := json.Marshal(s.Resources[logical].Properties)
		if err != nil {
			return err
		}
		// The properties have the names of the API's members, whose case does not matter here.
		var in awsecs.RegisterTaskDefinitionInput
		d := json.NewDecoder(bytes.NewReader(asNumber.ReplaceAll(properties, []byte(`"$1":$2`))))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			return fmt.Errorf("task definition %s: %w", logical, err)
		}
		env := map[string]string{"AWS_ENDPOINT_URL": c.TaskAWSURL}
		maps.Copy(env, c.cfg.TaskEnv)
		for i := range in.ContainerDefinitions {
			of := &in.ContainerDefinitions[i]
			of.Environment = slices.DeleteFunc(of.Environment, func(v ecstypes.KeyValuePair) bool { _, over := env[*v.Name]; return over })
			for name, value := range env {
				of.Environment = append(of.Environment, ecstypes.KeyValuePair{Name: &name, Value: &value})
			}
		}
		out, err := awsecs.NewFromConfig(c.Admin).RegisterTaskDefinition(ctx, &in)
		if err != nil {
			return fmt.Errorf("task definition %s: %w", logical, err)
		}
		told := str(templates.At(s.Resources["Dispatcher"].Properties, "Environment", "Variables", "DAYFLY_TASK_DEFINITION"))
		if arn := *out.TaskDefinition.TaskDefinitionArn; arn != told {
			return fmt.Errorf("the task definition is %s, and the dispatcher is told of %s", arn, told)
		}
	}
	return nil
}
