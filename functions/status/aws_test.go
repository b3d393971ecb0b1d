package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakes3 "github.com/dayfly-dev/dayfly/test/awsim/s3"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
)

// TestBuild_OverAWS holds what build wires together to the services' own protocols: the ticket keys from
// Secrets Manager, the control plane over HTTP, a result that waits in SQS, its delivery put off there.
func TestBuild_OverAWS(t *testing.T) {
	w := newWorld(t)
	var away atomic.Bool
	rules := httpapi.New(w.plane, httpapi.Config{})
	upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if away.Load() {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		rules.ServeHTTP(rw, r)
	}))
	defer upstream.Close()
	table := sigv4.NewTable(nil)
	var passed atomic.Int64 // on the queue's clock
	began := time.Now()
	clock := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{
		"sqs": &fakesqs.Service{Now: clock}, "secretsmanager": &fakesecrets.Service{}, "s3": &fakes3.Service{},
	}})
	listener := httptest.NewServer(server)
	defer listener.Close()

	deployer := awsim.ClientConfig(listener.URL, table.User("deployer"))
	key := ticket.GenerateKey()
	text, err := ticket.FormatKeys(key)
	w.must(err)
	w.ring, err = ticket.NewKeyring(key)
	w.must(err)
	secret, err := secretsmanager.NewFromConfig(deployer).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: aws.String("dayfly/keys"), SecretString: aws.String(string(text)), ClientRequestToken: aws.String(strings.Repeat("a", 32)),
	})
	w.must(err)
	queues := awssqs.NewFromConfig(deployer)
	reports, err := queues.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String("reports"), Attributes: map[string]string{"VisibilityTimeout": "360"}})
	w.must(err)

	session := table.Session("dayfly-status", "function", time.Hour)
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": session.AccessKeyID, "AWS_SECRET_ACCESS_KEY": session.SecretAccessKey,
		"AWS_SESSION_TOKEN": session.SessionToken, "AWS_ENDPOINT_URL": listener.URL,
		"DAYFLY_SERVICE_URL": upstream.URL, "DAYFLY_TICKET_KEYS_SECRET": *secret.ARN,
		"DAYFLY_TASK_ROLE_NAME": role, "DAYFLY_REPORTS_QUEUE_URL": *reports.QueueUrl, "DAYFLY_ARTIFACTS_BUCKET": "left",
	}
	w.f, err = build(func(name string) string { return env[name] }, &w.log)
	w.must(err)

	if got := w.call("start", "{}"); got.StatusCode != 200 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	leave(w, listener.URL, deployer)
	away.Store(true)
	if got := w.call("result", `{"outcome":"succeeded","log_end":0}`); got.StatusCode != 202 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	receive := func() (events.SQSEvent, int) {
		out, err := queues.ReceiveMessage(context.WithoutCancel(t.Context()), &awssqs.ReceiveMessageInput{
			QueueUrl: reports.QueueUrl, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		w.must(err)
		var e events.SQSEvent
		for _, m := range out.Messages {
			e.Records = append(e.Records, events.SQSMessage{
				MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes, EventSource: "aws:sqs",
			})
		}
		return e, len(out.Messages)
	}
	batch, n := receive()
	if n != 1 {
		t.Fatalf("%d messages", n)
	}
	if out := w.deliver(batch); len(out.BatchItemFailures) != 1 {
		t.Errorf("while it is away: %+v", out)
	}
	if _, n := receive(); n != 0 {
		t.Error("the message that could not be delivered came again at once")
	}
	// Its time is shorter than the queue's own: the function has said so.
	passed.Add(int64(relay.Later(1)) + int64(time.Second))
	if batch, n = receive(); n != 1 {
		t.Fatalf("%d messages when the first one is to be tried again", n)
	}
	away.Store(false)
	if out := w.deliver(batch); len(out.BatchItemFailures) != 0 {
		t.Errorf("%+v", out)
	}
	if wf := w.state(); wf.State != workflow.Succeeded {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
	for _, c := range server.Calls() {
		if c.Caller.ARN == session.Identity.ARN && !slices.Contains([]string{"GetSecretValue", "SendMessage", "ChangeMessageVisibility", "PutObject"}, c.Operation) {
			t.Errorf("the function called %s %s", c.Service, c.Operation)
		}
	}
	for _, shown := range append(w.shown, w.job.Token, session.SecretAccessKey, string(text)) {
		if strings.Contains(w.log.String(), shown) {
			t.Error("a secret is in the log")
		}
	}
}

// leave announces an artifact, sends its bytes to the address that the function signed, and says so.
func leave(w *world, url string, deployer aws.Config) {
	w.t.Helper()
	send := func(c *http.Client, method, to, body string, header map[string]string) int {
		w.t.Helper()
		r, err := http.NewRequestWithContext(w.t.Context(), method, to, strings.NewReader(body))
		w.must(err)
		for name, value := range header {
			r.Header.Set(name, value)
		}
		res, err := c.Do(r)
		w.must(err)
		w.must(res.Body.Close())
		return res.StatusCode
	}
	send(awsim.SignedClient(deployer, "s3"), http.MethodPut, url+"/left", "", nil)
	const body = "test"
	got := w.call("artifacts", `{"place":{"kind":"s3","bucket":"another"},"artifacts":[{"name":"files/a.txt","kind":"file","size":4,`+
		`"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]}`)
	var taken api.ArtifactsTaken
	w.must(json.Unmarshal([]byte(got.Body), &taken))
	if got.StatusCode != 200 || len(taken.Uploads) != 1 || len(taken.Artifacts) != 1 || taken.Artifacts[0].Place.Bucket != "left" {
		w.t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	up := taken.Uploads[0]
	for _, c := range []struct {
		body string
		want int
	}{{"tset", 400}, {body, 200}, {body, 412}} {
		if status := send(http.DefaultClient, up.Method, up.URL, c.body, up.Header); status != c.want {
			w.t.Errorf("%s: got %d, want %d", c.body, status, c.want)
		}
	}
	w.shown = append(w.shown, up.URL[strings.LastIndex(up.URL, "=")+1:]) // the signature
	if got := w.call("artifacts", `{"placed":["files/a.txt"]}`); got.StatusCode != 200 {
		w.t.Errorf("%d %s", got.StatusCode, got.Body)
	}
	all, err := w.plane.Artifacts(w.t.Context(), w.admin, w.job.ID, "", 10)
	w.must(err)
	if len(all.Items) != 1 || all.Items[0].PlacedAt == nil || all.Items[0].Place.Key == "" {
		w.t.Errorf("recorded %+v", all.Items)
	}
}
