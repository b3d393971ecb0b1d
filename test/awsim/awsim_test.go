package awsim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sqs"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*testing.T
	table  *sigv4.Table
	server *awsim.Server
	url    string
}

func start(t *testing.T, allow func(wire.Call) error) *world {
	t.Helper()
	w := &world{T: t, table: sigv4.NewTable(nil)}
	w.server = awsim.New(awsim.Config{Credentials: w.table, Allow: allow, Services: map[string]awsim.Service{
		"sqs": &sqs.Service{}, "sts": &sts.Service{Credentials: w.table},
	}})
	server := httptest.NewServer(w.server)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *world) sqs(c sigv4.Credentials) *awssqs.Client {
	return awssqs.NewFromConfig(awsim.ClientConfig(w.url, c), func(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} })
}

func code(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

func (w *world) outcomes() []string {
	var out []string
	for _, c := range w.server.Calls() {
		out = append(out, c.Service+":"+c.Operation+" "+c.Outcome)
	}
	return out
}

func TestServer_RecordsWhoDidWhat(t *testing.T) {
	w := start(t, nil)
	ann := w.table.User("ann")
	if _, err := w.sqs(ann).CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("jobs")}); err != nil {
		t.Fatal(err)
	}
	_, err := w.sqs(ann).GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: aws.String("other")})
	if code(err) != "AWS.SimpleQueueService.NonExistentQueue" {
		t.Errorf("got %v", err)
	}
	if _, err := awssts.NewFromConfig(awsim.ClientConfig(w.url, ann)).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{}); err != nil {
		t.Fatal(err)
	}
	wrong := ann
	wrong.SecretAccessKey = "wrong"
	if _, err := w.sqs(wrong).ListQueues(t.Context(), &awssqs.ListQueuesInput{}); code(err) != "SignatureDoesNotMatch" {
		t.Errorf("wrong secret: got %v", err)
	}
	want := []string{"sqs:CreateQueue ok", "sqs:GetQueueUrl QueueDoesNotExist", "sts:GetCallerIdentity ok", "sqs:ListQueues InvalidSignatureException"}
	if d := cmp.Diff(want, w.outcomes()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	for i, c := range w.server.Calls() {
		if known := i < 3; known != (c.Caller == ann.Identity) || c.Time.IsZero() {
			t.Errorf("call %d: got %+v", i, c)
		}
	}
	if got := w.server.Calls()[0].Resource; got != "jobs" {
		t.Errorf("resource: got %q, want jobs", got)
	}
	w.server.ForgetCalls()
	if got := w.server.Calls(); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

func TestServer_FaultsStrikeBeforeOrAfterTheCall(t *testing.T) {
	w := start(t, nil)
	client := w.sqs(w.table.User("ann"))
	create := func(name string) error {
		_, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name})
		return err
	}
	exists := func(name string) bool {
		_, err := client.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name})
		return err == nil
	}
	throttle := &wire.Error{Code: "ThrottlingException", QueryCode: "RequestThrottled", Message: "Rate exceeded"}
	w.server.Inject(wire.Fault{Service: "sqs", Operation: "CreateQueue", Times: 2, Before: wire.Fail(throttle)})
	for range 2 {
		if err := create("before"); code(err) != "RequestThrottled" {
			t.Errorf("got %v, want a throttle", err)
		}
	}
	if exists("before") {
		t.Error("a call that failed before it was done was done")
	}
	if err := create("before"); err != nil {
		t.Errorf("the third: %v", err)
	}
	remove := w.server.Inject(wire.Fault{Operation: "CreateQueue", After: wire.Fail(wire.Drop)})
	if err := create("after"); err == nil || code(err) != "" {
		t.Errorf("got %v, want a broken connection", err)
	}
	if !exists("after") {
		t.Error("a call whose answer was lost was not done")
	}
	remove()
	if err := create("again"); err != nil {
		t.Errorf("once the fault was removed: %v", err)
	}
	w.server.Inject(wire.Fault{Service: "sts", Before: wire.Fail(throttle)})
	w.server.Inject(wire.Fault{Before: func(c wire.Call) error {
		if strings.Contains(string(c.Body), "unlucky") {
			return throttle
		}
		return nil
	}})
	if err := create("lucky"); err != nil {
		t.Errorf("a fault of another service, and one that looks at the input: %v", err)
	}
	if err := create("unlucky"); code(err) != "RequestThrottled" {
		t.Errorf("got %v, want a throttle", err)
	}
}

func TestServer_DelayEndsWithTheClient(t *testing.T) {
	w := start(t, nil)
	w.server.Inject(wire.Fault{Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.sqs(w.table.User("ann")).ListQueues(ctx, &awssqs.ListQueuesInput{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

func TestServer_AllowDecidesLikeIAM(t *testing.T) {
	w := start(t, func(c wire.Call) error {
		if strings.HasSuffix(c.Caller.ARN, "/ann") && c.Operation != "ListQueues" {
			return awsim.Denied(c, "arn:aws:sqs:us-east-1:123456789012:jobs")
		}
		return nil
	})
	client := w.sqs(w.table.User("ann"))
	if _, err := client.ListQueues(t.Context(), &awssqs.ListQueuesInput{}); err != nil {
		t.Errorf("list: %v", err)
	}
	_, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("jobs")})
	if code(err) != "AccessDenied" || !strings.Contains(err.Error(), "user/ann is not authorized to perform: sqs:CreateQueue") {
		t.Errorf("create: got %v, want AccessDenied", err)
	}
	if got, err := w.sqs(w.table.User("bob")).ListQueues(t.Context(), &awssqs.ListQueuesInput{}); err != nil || len(got.QueueUrls) != 0 {
		t.Errorf("got %v, %v: what was denied was done", got, err)
	}
}

func TestServer_RefusesWhatIsForNobodyHere(t *testing.T) {
	w := start(t, nil)
	c := w.table.User("ann")
	for name, change := range map[string]struct {
		service, target, want string
	}{
		"unknown service":   {"s3", "S3.Get", "InvalidSignatureException"},
		"unknown operation": {"sqs", "AmazonSQS.Fly", "UnknownOperationException"},
		"no operation":      {"sqs", "", "UnknownOperationException"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if change.target != "" {
			r.Header.Set("X-Amz-Target", change.target)
		}
		const hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
		if err := v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey}, r, hash, change.service, "us-east-1", time.Now()); err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var got struct {
			Type string `json:"__type"`
		}
		if err != nil || json.Unmarshal(body, &got) != nil || got.Type != change.want || resp.StatusCode < 400 {
			t.Errorf("%s: got %d %s, %v; want %s", name, resp.StatusCode, body, err, change.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func refusal(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestTasks_GetCredentialsOfTheirRole(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	table := sigv4.NewTable(clock)
	server := awsim.New(awsim.Config{Credentials: table, Now: clock})
	listener := httptest.NewServer(server)
	defer listener.Close()
	path := server.Tasks().Grant("arn:aws:iam::123456789012:role/dayfly/task", "0123abcd", time.Hour)
	get := func() aws.Credentials {
		t.Helper()
		c, err := endpointcreds.New(listener.URL + path).Retrieve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	// On the clock of the table, which a client of the SDK does not have.
	who := func(c aws.Credentials) (string, error) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, listener.URL+"/", nil)
		const hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of nothing
		if err := v4.NewSigner().SignHTTP(t.Context(), c, r, hash, "execute-api", "us-east-1", now); err != nil {
			t.Fatal(err)
		}
		got, err := server.Authenticate(r, "execute-api")
		return got.ARN, err
	}
	first := get()
	if got, err := who(first); err != nil || got != "arn:aws:sts::123456789012:assumed-role/task/0123abcd" {
		t.Errorf("got %s, %v", got, err)
	}
	if again := get(); again.AccessKeyID != first.AccessKeyID || !again.CanExpire || !again.Expires.Equal(now.Add(time.Hour).UTC().Truncate(time.Second)) {
		t.Errorf("got %+v, want the same until they are about to expire", again)
	}
	now = now.Add(50 * time.Minute)
	second := get()
	if second.AccessKeyID == first.AccessKeyID {
		t.Error("credentials that end in ten minutes were not renewed")
	}
	for _, c := range []aws.Credentials{first, second} {
		if _, err := who(c); err != nil {
			t.Errorf("%v: both count until the first ones end", err)
		}
	}
	third := server.Tasks().Grant("arn:aws:iam::123456789012:role/dayfly/task", "4567ef01", time.Hour)
	now = now.Add(10 * time.Minute)
	if _, err := who(first); refusal(err) != "ExpiredTokenException" {
		t.Errorf("got %v, want ExpiredTokenException", err)
	}
	server.Tasks().End(path)
	if _, err := who(second); refusal(err) != "UnrecognizedClientException" {
		t.Errorf("after the task's end: got %v", err)
	}
	if _, err := endpointcreds.New(listener.URL+path, func(o *endpointcreds.Options) { o.Retryer = aws.NopRetryer{} }).Retrieve(t.Context()); err == nil {
		t.Error("its address still answers after the task's end")
	}
	// Another task of the same role goes on, and ends with everything that it was given.
	path = third
	older := get()
	now = now.Add(50 * time.Minute)
	newer := get()
	if _, err := who(older); err != nil || older.AccessKeyID == newer.AccessKeyID {
		t.Errorf("another task: got %v", err)
	}
	server.Tasks().End(third)
	for _, c := range []aws.Credentials{older, newer} {
		if _, err := who(c); refusal(err) != "UnrecognizedClientException" {
			t.Errorf("after its end: got %v", err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
