// Package cloud is Dayfly deployed to an AWS that is made of fakes: the functions as they are built for
// Lambda, hosted as Lambda hosts them, with the environment, the roles, the time-outs, the concurrency, the
// queues, the schedules, the rules and the task definition of the very templates that an installation is made
// of. A name that is wrong in a template, or a permission that is missing, fails what runs in it.
package cloud

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssecrets "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakedynamodb "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	fakelambda "github.com/dayfly-dev/dayfly/test/awsim/lambda"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	fakes3 "github.com/dayfly-dev/dayfly/test/awsim/s3"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	fakests "github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Config says what to deploy, and how tasks run.
type Config struct {
	Root      string // of the repository
	Functions string // where the built functions are: NAME/bootstrap

	Runner ecs.Runner // runs tasks; required
	Image  string     // of the runner, as Runner knows it
	// TaskHost is the address at which tasks find this machine; empty means 127.0.0.1.
	TaskHost string
	// CredentialsEndpoint is where tasks find their credentials: http://169.254.170.2 as in AWS, which TaskHost
	// then is. Empty: at a port of TaskHost.
	CredentialsEndpoint string
	TaskEnv             map[string]string // further variables of the task definition, such as another AWS_ENDPOINT_URL_S3
	Times               ecs.Times
	Limits              ecs.Limits

	Pool       string            // 0 value means main
	Parameters map[string]string // of the pool's stack, over what it needs
	// Environment changes single variables of a function, by its name in the template. It is for what AWS has
	// and this machine has not; everything else comes from the template.
	Environment map[string]map[string]string
	Latency     lambdahost.Latency
	QueueDelay  time.Duration // between a receive and its invocation
	// External are services that another server answers (LocalStack, moto), by signing name with their address; see
	// Externals. Signatures and policies are checked all the same. Then the names of what is made end in a word of their
	// own, so that several deployments can share that server.
	External     map[string]string
	GatewayDelay time.Duration // of the control plane's API, before its function is invoked
	// CallDelay is how long a call of a service takes, by "service" or "service.Operation".
	CallDelay map[string]time.Duration

	Log     func(function, line string) // what functions write
	Observe func(lambdahost.Report)
	// Step is the host's. Meter wraps what functions call: every service of AWS, and the control plane's API, whose
	// name is "controlplane"; of a service, the name is that in the request's signature, and the given one is empty.
	// Both may be nil.
	Step  func(p lambdahost.Process, answered bool)
	Meter func(name string, h http.Handler) http.Handler
	// Answered is told of each request to the control plane's API, when it was answered. It may be called
	// concurrently; nil is not called.
	Answered func(Request)
}

// Cloud is a deployment that runs.
type Cloud struct {
	AWS *awsim.Server
	ECS *ecs.Service
	SQS *fakesqs.Service
	STS *fakests.Service
	// DynamoDB is not used where Config.External names another.
	DynamoDB *fakedynamodb.Service
	Host     *lambdahost.Host
	Control  *templates.Stack
	Pool     *templates.Stack
	// Client is an admin on the control plane; URL is its address, PrivateURL the one that a private API has.
	Client          *client.Client
	URL, PrivateURL string
	// AWSURL is where the fake AWS is, from this machine; TaskAWSURL where it is, and StatusURL where the status API
	// is, from tasks.
	AWSURL, TaskAWSURL, StatusURL string
	Admin                         aws.Config // of a user who may do everything
	Keyring                       *ticket.Keyring
	PoolToken                     string

	cfg       Config
	functions map[string]lambdahost.Function // as they were deployed
	table     *sigv4.Table
	judge     *judge
	network   *templates.Stack  // of the tasks
	token     string            // of the admin
	secrets   map[string]string // ARNs, by stack and logical name
	values    []string          // of secrets
	suffix    string            // of names
	made      []made            // what other servers may have been asked to make
	running   context.Context   // until Close
	cancel    context.CancelFunc
	work      sync.WaitGroup
	servers   []*http.Server
	problems  []string
	mu        sync.Mutex
}

type made struct{ service, name string }

// Account is where everything lies.
var Account = templates.Account{Partition: "aws", Region: wire.Region, ID: wire.Account}

// Start deploys and runs. Close must be called.
func Start(ctx context.Context, cfg Config) (c *Cloud, err error) {
	c = &Cloud{cfg: cfg, table: sigv4.NewTable(nil), secrets: map[string]string{}, functions: map[string]lambdahost.Function{}}
	defer func() {
		if err != nil {
			c.Close()
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx)))
		}
	}()
	if c.cfg.TaskHost == "" {
		c.cfg.TaskHost = "127.0.0.1"
	}
	if c.cfg.Pool == "" {
		c.cfg.Pool = "main"
	}
	if len(c.cfg.External) > 0 {
		c.suffix = "-" + strings.ToLower(rand.Text()[:8])
		c.cfg.Pool += c.suffix
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.running, c.cancel = running, cancel
	if err := c.openServices(ctx); err != nil {
		return c, err
	}
	if err := c.deployControl(ctx); err != nil {
		return c, fmt.Errorf("deploy the control plane: %w", err)
	}
	if err := c.deployPool(ctx, running); err != nil {
		return c, fmt.Errorf("deploy the pool: %w", err)
	}
	return c, nil
}

// openServices starts the fakes. Nothing is deployed in them yet.
func (c *Cloud) openServices(ctx context.Context) error {
	// A start that is slow because this machine is busy has not failed.
	c.Host = lambdahost.New(lambdahost.Config{InitTimeout: 4 * time.Minute, Latency: c.cfg.Latency, Log: c.cfg.Log, Observe: c.cfg.Observe, Step: c.cfg.Step})
	c.SQS = &fakesqs.Service{}
	c.DynamoDB = &fakedynamodb.Service{}
	c.STS = &fakests.Service{Credentials: c.table}
	invoke := func(ctx context.Context, in fakelambda.Invocation) (fakelambda.Result, error) {
		if in.Async {
			id, err := c.Host.InvokeAsync(in.Name, in.Payload)
			return fakelambda.Result{RequestID: id}, refused(err)
		}
		out, err := c.Host.Invoke(ctx, in.Name, in.Payload)
		return fakelambda.Result{RequestID: out.RequestID, Payload: out.Payload, Error: out.FunctionError}, refused(err)
	}
	services := map[string]awsim.Service{
		"sqs": c.SQS, "sts": c.STS, "secretsmanager": &fakesecrets.Service{}, "lambda": &fakelambda.Service{Invoke: invoke},
		"dynamodb": c.DynamoDB, "s3": &fakes3.Service{},
	}
	c.judge = newJudge()
	grants := awsim.New(awsim.Config{Credentials: c.table}).Tasks() // which the service below needs, before there is a server
	credentials := c.cfg.CredentialsEndpoint
	listen := func(host string) (net.Listener, error) { return (&net.ListenConfig{}).Listen(ctx, "tcp", host) }
	tasks, err := listen(c.credentialsAddress())
	if err != nil {
		return err
	}
	if credentials == "" {
		credentials = "http://" + tasks.Addr().String()
	}
	c.ECS, err = ecs.New(ecs.Config{
		Runner: c.cfg.Runner, Clusters: []string{c.poolStack() + "-Cluster"}, Credentials: grants, Endpoint: credentials,
		Events: c.taskChanged, Times: c.cfg.Times, Limits: c.cfg.Limits,
	})
	if err != nil {
		return errors.Join(err, tasks.Close())
	}
	services["ecs"] = c.ECS
	if err := c.outside(services); err != nil {
		return errors.Join(err, tasks.Close())
	}
	c.AWS = awsim.New(awsim.Config{Credentials: c.table, Services: services, Allow: c.judge.allow})
	c.serve(tasks, c.ECS.TaskHandler(grants))
	local, err := listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	c.AWSURL = "http://" + local.Addr().String()
	c.serve(local, c.metered("", c.AWS))
	c.Admin = awsim.ClientConfig(c.AWSURL, c.table.User("admin"))
	for of, d := range c.cfg.CallDelay {
		service, operation, _ := strings.Cut(of, ".")
		c.AWS.Inject(wire.Fault{Service: service, Operation: operation, Delay: d})
	}
	return nil
}

func (c *Cloud) credentialsAddress() string {
	if host, ok := strings.CutPrefix(c.cfg.CredentialsEndpoint, "http://"); ok {
		return host + ":80"
	}
	return c.cfg.TaskHost + ":0"
}

// PoolName is the name of the pool.
func (c *Cloud) PoolName() string { return c.cfg.Pool }

func (c *Cloud) poolStack() string { return "dayfly-" + c.cfg.Pool }

// refused turns the host's refusals into those of the service.
func refused(err error) error {
	if e, ok := errors.AsType[*lambdahost.ServiceError](err); ok {
		return &wire.Error{Status: e.Status, Code: e.Code, Message: e.Message}
	}
	return err
}

// serve serves on a listener until Close.
func (c *Cloud) serve(l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connection{}, conn)
	}}
	c.servers = append(c.servers, s)
	c.work.Go(func() { _ = s.Serve(l) })
}

// expose serves a handler where tasks find it, and returns its address there.
func (c *Cloud) expose(ctx context.Context, h http.Handler) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.cfg.TaskHost+":0")
	if err != nil {
		return "", err
	}
	c.serve(l, h)
	return "http://" + l.Addr().String(), nil
}

// taskChanged puts an event of ECS on the bus.
func (c *Cloud) taskChanged(event []byte) {
	var e struct {
		ID         string          `json:"id"`
		Time       time.Time       `json:"time"`
		Source     string          `json:"source"`
		DetailType string          `json:"detail-type"`
		Resources  []string        `json:"resources"`
		Detail     json.RawMessage `json:"detail"`
	}
	err := json.Unmarshal(event, &e)
	if err == nil {
		_, err = c.Host.PutEvent(lambdahost.Event{ID: e.ID, Time: e.Time, Source: e.Source, DetailType: e.DetailType, Resources: e.Resources, Detail: e.Detail})
	}
	if err != nil {
		c.problem("an event of ECS was not put: %v", err)
	}
}

func (c *Cloud) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// Problems are calls that no policy allows, and everything else that went wrong around the deployment.
func (c *Cloud) Problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(append([]string(nil), c.problems...), c.judge.denials()...)
}

// Unused are the actions that the roles of the stacks are given and that nothing asked for, as ROLE ACTION.
func (c *Cloud) Unused() []string {
	return append(c.Pool.Unused(c.judge.askedOf(c.Pool)), c.Control.Unused(c.judge.askedOf(c.Control))...)
}

func (c *Cloud) deployControl(ctx context.Context) error {
	stack, err := c.deploy("controlplane", "dayfly-control"+c.suffix, map[string]string{"Webhooks": "yes"})
	if err != nil {
		return err
	}
	c.Control = stack
	c.judge.add(stack)
	table := stack.Name + "-Table"
	c.made = append(c.made, made{"dynamodb", table})
	if err := dynamodbtest.Create(ctx, awsdynamodb.NewFromConfig(c.Admin), table, time.Minute); err != nil {
		return err
	}
	if err := c.makeBuckets(ctx, stack); err != nil {
		return err
	}
	c.token = rand.Text() + rand.Text()
	err = errors.Join(c.setSecret(ctx, stack, "AdminTokenSecret", c.token), c.setSecret(ctx, stack, "WebhookKeySecret", rand.Text()+rand.Text()))
	if err != nil {
		return err
	}
	if err := c.putFunctions(stack, nil); err != nil {
		return err
	}
	// The HTTP API is in the public Internet; here it is where tasks and functions find it.
	c.URL, err = c.expose(ctx, observed(c.cfg.Answered, c.metered("controlplane", delayed(c.cfg.GatewayDelay, &gateway.HTTP{
		Functions: c.Host, Function: c.functionName(stack, "ControlPlane"), Routes: stack.Routes(),
	}))))
	if err != nil {
		return err
	}
	// A private API is a REST API, of the stage api; its callers have tokens and no credentials of AWS. Here the same
	// function is behind both.
	c.PrivateURL, err = c.expose(ctx, &gateway.REST{
		Functions: c.Host, Function: c.functionName(stack, "ControlPlane"), Stage: "api",
		Authenticate: func(*http.Request, string) (wire.Identity, error) { return wire.Identity{}, nil },
	})
	if err != nil {
		return err
	}
	c.PrivateURL += "/api"
	c.Client, err = client.New(client.Config{URL: c.URL, Token: func() redact.String { return redact.New(c.token) }, HTTPClient: &http.Client{Timeout: time.Minute}})
	return err
}

func (c *Cloud) makeBuckets(ctx context.Context, s *templates.Stack) error {
	for _, bucket := range s.Of("AWS::S3::Bucket") {
		if err := c.MakeBucket(ctx, strings.ToLower(s.Name+"-"+bucket)); err != nil {
			return err
		}
	}
	return nil
}

// MakeBucket makes a bucket.
func (c *Cloud) MakeBucket(ctx context.Context, name string) error {
	c.made = append(c.made, made{"s3", name})
	return awsim.MakeBucket(ctx, c.Admin, name)
}

func (c *Cloud) deployPool(ctx, running context.Context) error {
	made, err := c.Client.CreatePool(ctx, api.PoolSettings{Name: &c.cfg.Pool})
	if err != nil {
		return fmt.Errorf("create the pool: %w", err)
	}
	c.PoolToken = made.Token
	parameters := map[string]string{"PoolName": c.cfg.Pool, "ServiceUrl": c.URL, "ImageUri": c.cfg.Image, "NetworkMode": "endpoints-only", "S3PrefixListId": "pl-63a5400a"}
	for k, v := range c.cfg.Parameters {
		parameters[k] = v
	}
	stack, err := c.deploy("pool", c.poolStack(), parameters)
	if err != nil {
		return err
	}
	c.Pool = stack
	c.judge.add(stack)
	key := ticket.GenerateKey()
	keys, err := ticket.FormatKeys(key)
	if err != nil {
		return err
	}
	if c.Keyring, err = ticket.NewKeyring(key); err != nil {
		return err
	}
	if err := errors.Join(c.setSecret(ctx, stack, "PoolTokenSecret", made.Token), c.setSecret(ctx, stack, "TicketKeysSecret", string(keys))); err != nil {
		return err
	}
	if err := errors.Join(c.makeBuckets(ctx, stack), c.makeQueues(ctx, stack)); err != nil {
		return err
	}
	if err := c.exposeStatus(ctx, stack); err != nil {
		return err
	}
	if err := c.defineTasks(ctx, stack); err != nil {
		return err
	}
	// What a template can only say in the terms of AWS, as it is here.
	status := ".execute-api." + wire.Region + ".amazonaws.com/status"
	rewrite := strings.NewReplacer("https://restapi001"+status, c.StatusURL,
		"https://restapi001-"+c.network.Outputs["ExecuteApiEndpointId"]+status, c.StatusURL,
		"https://sqs."+wire.Region+".amazonaws.com", c.AWSURL)
	if err := c.putFunctions(stack, rewrite); err != nil {
		return err
	}
	if err := c.mapQueues(ctx, running, stack); err != nil {
		return err
	}
	wake := c.Host.ARN(c.functionName(stack, "Poller"))
	path := "/dayfly/" + c.cfg.Pool + "/"
	_, err = c.Client.UpdatePool(ctx, c.cfg.Pool, api.PoolSettings{WakeTarget: &wake, RolePath: &path})
	return err
}

// deploy decides a template. Secrets are made as they are named, because their ARNs have a random end.
func (c *Cloud) deploy(template, stack string, parameters map[string]string) (*templates.Stack, error) {
	t, err := templates.Load(c.cfg.Root + "/infra/transformed/" + template + ".json")
	if err != nil {
		return nil, err
	}
	var failed error
	s, err := t.Deploy(stack, Account, parameters, func(logical, attribute string) any {
		if output, ok := strings.CutPrefix(attribute, "Outputs."); ok {
			v, err := c.networkOutput(output, stack, parameters)
			failed = errors.Join(failed, err)
			return v
		}
		if t.Resources[logical].Type != "AWS::SecretsManager::Secret" || attribute != "" {
			return nil
		}
		arn, err := c.makeSecret(stack + "-" + logical)
		failed = errors.Join(failed, err)
		return arn
	})
	return s, errors.Join(err, failed)
}

// networkOutput is what the network's stack returns, which is made once, with those of the pool's parameters that it
// has.
func (c *Cloud) networkOutput(output, stack string, parameters map[string]string) (string, error) {
	if c.network == nil {
		t, err := templates.Load(c.cfg.Root + "/infra/transformed/network.json")
		if err != nil {
			return "", err
		}
		given := map[string]string{}
		for name, v := range parameters {
			if _, ok := t.Parameters[name]; ok {
				given[name] = v
			}
		}
		s, err := t.Deploy(stack+"-Network", Account, given, nil)
		if err != nil {
			return "", err
		}
		c.network = s
		c.ECS.AddNetwork(ecs.Network{VPC: s.Outputs["TaskVpcId"], Subnets: strings.Split(s.Outputs["TaskSubnetIds"], ",")})
		c.ECS.AddNetwork(ecs.Network{
			VPC: str(s.Resources["TaskSecurityGroup"].Properties["VpcId"]), SecurityGroups: []string{s.Outputs["TaskSecurityGroupId"]},
		})
		// Endpoints that the VPC has from elsewhere are not known.
		c.judge.enclose(s, given["NetworkMode"] == "endpoints-only" && given["VpcHasEndpoints"] != "true")
	}
	v, ok := c.network.Outputs[output]
	if !ok {
		return "", fmt.Errorf("the network's stack has no output %s", output)
	}
	return v, nil
}

func (c *Cloud) makeSecret(name string) (string, error) {
	if arn, ok := c.secrets[name]; ok {
		return arn, nil
	}
	out, err := awssecrets.NewFromConfig(c.Admin).CreateSecret(context.Background(), &awssecrets.CreateSecretInput{Name: &name})
	if err != nil {
		return "", err
	}
	c.secrets[name] = aws.ToString(out.ARN)
	c.made = append(c.made, made{"secretsmanager", c.secrets[name]})
	return c.secrets[name], nil
}

func (c *Cloud) setSecret(ctx context.Context, s *templates.Stack, logical, value string) error {
	arn := c.secrets[s.Name+"-"+logical]
	c.values = append(c.values, value)
	_, err := awssecrets.NewFromConfig(c.Admin).PutSecretValue(ctx, &awssecrets.PutSecretValueInput{SecretId: &arn, SecretString: &value})
	return err
}

// SecretValues are the values of all secrets: of the stacks, and of those that Secret made. Only Secrets
// Manager and its callers may ever have them.
func (c *Cloud) SecretValues() []string { return append([]string(nil), c.values...) }

// Secret makes a secret that no stack has, and returns its ARN.
func (c *Cloud) Secret(ctx context.Context, name, value string) (string, error) {
	name += c.suffix
	c.values = append(c.values, value)
	out, err := awssecrets.NewFromConfig(c.Admin).CreateSecret(ctx, &awssecrets.CreateSecretInput{Name: &name, SecretString: &value})
	if err != nil {
		return "", err
	}
	c.made = append(c.made, made{"secretsmanager", aws.ToString(out.ARN)})
	return aws.ToString(out.ARN), nil
}

// WorkspaceRole makes a role under the pool's path that its tasks may assume for a workspace, with the workspace's
// id as external id and its session tags, and returns its ARN. What it may do is not limited.
func (c *Cloud) WorkspaceRole(name, externalID string) string {
	c.judge.mu.Lock()
	c.judge.open = append(c.judge.open, name)
	c.judge.mu.Unlock()
	arn := "arn:aws:iam::" + wire.Account + ":role/dayfly/" + c.cfg.Pool + "/" + name
	c.STS.Trusts(arn, fakests.Trust{Principals: []string{c.taskRole()}, ExternalID: externalID, AllowTags: true})
	return arn
}

// PreviewRole makes the role of a workspace's previews as infra/workspace-role.yaml does, and returns its ARN. Its
// policies hold, and every secret has the tags that they ask for.
func (c *Cloud) PreviewRole(w api.Workspace, bucket string) (string, error) {
	s, err := c.deploy("workspace-role", w.Name, map[string]string{
		"RoleName": w.Name + "-Role", "PoolName": c.cfg.Pool, "TaskRoleArn": c.taskRole(), "WorkspaceId": w.ID, "StateBucket": bucket, "Previews": "yes",
	})
	if err != nil {
		return "", err
	}
	c.judge.add(s)
	c.judge.mu.Lock()
	c.judge.contexts[w.Name+"-Role"] = map[string]string{
		"aws:principaltag/" + api.TagOrganization: "default", "aws:principaltag/" + api.TagWorkspace: w.Name,
		"aws:principaltag/" + api.TagWorkspaceID:         w.ID,
		"secretsmanager:resourcetag/dayfly:workspace_id": w.ID, "secretsmanager:resourcetag/dayfly:preview": "true",
	}
	c.judge.mu.Unlock()
	trust, err := templates.Trust(s.Resources["Role"].Properties["AssumeRolePolicyDocument"])
	if err != nil {
		return "", err
	}
	c.STS.Trusts(s.RoleARN("Role"), fakests.Trust{Policy: trust})
	return s.RoleARN("Role"), nil
}

func (c *Cloud) taskRole() string {
	return templates.Text(c.Pool.Resources["TaskDefinition"].Properties["TaskRoleArn"])
}

// QueueURL is the URL of a queue of the pool's stack, by its name in the template.
func (c *Cloud) QueueURL(logical string) string {
	return c.AWSURL + "/" + wire.Account + "/" + c.Pool.Name + "-" + logical
}

// Messages is how many messages a queue holds: waiting, hidden, or delayed.
func (c *Cloud) Messages(ctx context.Context, logical string) (int, error) {
	url := c.QueueURL(logical)
	out, err := awssqs.NewFromConfig(c.Admin).GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: allCounts})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, v := range out.Attributes {
		var one int
		if _, err := fmt.Sscan(v, &one); err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}

// Close ends everything: tasks, functions, servers.
func (c *Cloud) Close() {
	if c.cancel != nil {
		c.cancel()
	}
	if c.ECS != nil {
		c.ECS.Close()
	}
	if c.Host != nil {
		c.Host.Close()
	}
	for _, s := range c.servers {
		_ = s.Close()
	}
	c.work.Wait()
}
