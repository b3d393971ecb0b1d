package sts_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	taskRole = "arn:aws:iam::123456789012:role/dayfly/prod/task"
	netRole  = "arn:aws:iam::123456789012:role/dayfly/prod/net"
)

type world struct {
	*testing.T
	now     time.Time
	table   *sigv4.Table
	service *sts.Service
	url     string
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, now: time.Now()}
	clock := func() time.Time { return w.now }
	w.table = sigv4.NewTable(clock)
	w.service = &sts.Service{Credentials: w.table, Now: clock}
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: w.table, Services: map[string]awsim.Service{"sts": w.service}, Now: clock}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *world) as(c sigv4.Credentials) *awssts.Client {
	return awssts.NewFromConfig(awsim.ClientConfig(w.url, c), func(o *awssts.Options) { o.Retryer = aws.NopRetryer{} })
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func (w *world) assume(c sigv4.Credentials, change func(*awssts.AssumeRoleInput)) (*awssts.AssumeRoleOutput, error) {
	in := &awssts.AssumeRoleInput{
		RoleArn: aws.String(netRole), RoleSessionName: aws.String("wf_1-1"), ExternalId: aws.String("ws_1"),
		Tags: []types.Tag{{Key: aws.String("organization"), Value: aws.String("acme")}, {Key: aws.String("workspace"), Value: aws.String("net + more")}},
	}
	if change != nil {
		change(in)
	}
	return w.as(c).AssumeRole(w.Context(), in)
}

func TestAssumeRole_GivesCredentialsThatCount(t *testing.T) {
	w := start(t)
	task := w.table.Session(taskRole, "task-1", 6*time.Hour)
	w.service.Trusts(netRole, sts.Trust{Principals: []string{taskRole}, ExternalID: "ws_1", AllowTags: true, Tags: map[string]string{"organization": "acme"}})
	out, err := w.assume(task, func(in *awssts.AssumeRoleInput) { in.DurationSeconds = aws.Int32(1800) })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *out.AssumedRoleUser.Arn, "arn:aws:sts::123456789012:assumed-role/net/wf_1-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := *out.Credentials.Expiration, w.now.Add(30*time.Minute).UTC().Truncate(time.Second); !got.Equal(want) {
		t.Errorf("expires %s, want %s", got, want)
	}
	got := sigv4.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken}
	who, err := w.as(got).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	if err != nil || *who.Arn != *out.AssumedRoleUser.Arn || *who.Account != wire.Account || !strings.HasSuffix(*who.UserId, ":wf_1-1") {
		t.Errorf("got %+v, %v", who, err)
	}
	sessions := w.service.Sessions()
	want := []sts.Session{{
		Role: netRole, Name: "wf_1-1", ExternalID: "ws_1", Tags: map[string]string{"organization": "acme", "workspace": "net + more"},
		Duration: 30 * time.Minute, Caller: task.Identity, Time: w.now,
		Identity: wire.Identity{Account: wire.Account, ARN: *out.AssumedRoleUser.Arn, AccessKeyID: got.AccessKeyID, Role: netRole, RoleID: w.table.RoleID(netRole)},
	}}
	if d := cmp.Diff(want, sessions); d != "" {
		t.Errorf("recorded (-want +got):\n%s", d)
	}
	if one, ok := w.service.SessionOf(want[0].Identity); !ok || one.ExternalID != "ws_1" {
		t.Errorf("got %+v, %t", one, ok)
	}
	w.now = w.now.Add(30 * time.Minute)
	_, err = w.as(got).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	wantCode(t, "after the end", err, "ExpiredToken")
}

func TestAssumeRole_TrustIsKept(t *testing.T) {
	w := start(t)
	task, user := w.table.Session(taskRole, "task-1", time.Hour), w.table.User("ann")
	w.service.Trusts(netRole, sts.Trust{Principals: []string{taskRole}, ExternalID: "ws_1", AllowTags: true, Tags: map[string]string{"organization": "acme"}, MaxSession: 2 * time.Hour})
	const other = "arn:aws:iam::123456789012:role/dayfly/prod/other"
	w.service.Trusts(other, sts.Trust{Principals: []string{"arn:aws:iam::123456789012:root"}, MaxSession: 2 * time.Hour})
	for name, c := range map[string]struct {
		who    sigv4.Credentials
		change func(*awssts.AssumeRoleInput)
		want   string // a code; "" means that it is granted
	}{
		"as it should be":      {task, nil, ""},
		"somebody else":        {user, nil, "AccessDenied"},
		"no external id":       {task, func(in *awssts.AssumeRoleInput) { in.ExternalId = nil }, "AccessDenied"},
		"another external id":  {task, func(in *awssts.AssumeRoleInput) { in.ExternalId = aws.String("ws_2") }, "AccessDenied"},
		"no tags":              {task, func(in *awssts.AssumeRoleInput) { in.Tags = nil }, "AccessDenied"},
		"another tag's value":  {task, func(in *awssts.AssumeRoleInput) { in.Tags[0].Value = aws.String("evil") }, "AccessDenied"},
		"no such role":         {task, func(in *awssts.AssumeRoleInput) { in.RoleArn = aws.String(netRole + "x") }, "AccessDenied"},
		"tags are not allowed": {user, func(in *awssts.AssumeRoleInput) { in.RoleArn = aws.String(other) }, "AccessDenied"},
		"a user, for longer": {user, func(in *awssts.AssumeRoleInput) {
			in.RoleArn, in.Tags, in.DurationSeconds = aws.String(other), nil, aws.Int32(7200)
		}, ""},
		"longer than the role's sessions": {user, func(in *awssts.AssumeRoleInput) {
			in.RoleArn, in.Tags, in.DurationSeconds = aws.String(other), nil, aws.Int32(7201)
		}, "ValidationError"},
		"a chain of two hours": {task, func(in *awssts.AssumeRoleInput) { in.DurationSeconds = aws.Int32(7200) }, "ValidationError"},
		"too short":            {task, func(in *awssts.AssumeRoleInput) { in.DurationSeconds = aws.Int32(899) }, "ValidationError"},
		"bad session name":     {task, func(in *awssts.AssumeRoleInput) { in.RoleSessionName = aws.String("a b") }, "ValidationError"},
		"long session name":    {task, func(in *awssts.AssumeRoleInput) { in.RoleSessionName = aws.String(strings.Repeat("a", 65)) }, "ValidationError"},
		"long external id":     {task, func(in *awssts.AssumeRoleInput) { in.ExternalId = aws.String(strings.Repeat("a", 1225)) }, "ValidationError"},
		"bad tag":              {task, func(in *awssts.AssumeRoleInput) { in.Tags[0].Value = aws.String("a;b") }, "ValidationError"},
		"a tag twice":          {task, func(in *awssts.AssumeRoleInput) { in.Tags[1].Key = aws.String("Organization") }, "InvalidParameterValue"},
		"no role":              {task, func(in *awssts.AssumeRoleInput) { in.RoleArn = aws.String("arn:aws:iam::123456789012:user/ann") }, "ValidationError"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(w.service.Sessions())
			_, err := w.assume(c.who, c.change)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, name, err, c.want)
			if len(w.service.Sessions()) != before {
				t.Error("a session was begun")
			}
		})
	}
}

// IAM keeps the id of a role that is a principal: one that is made again under the same ARN is another one. An account and a
// condition on the ARN let it in.
func TestAssumeRole_ARoleMadeAnewIsAnotherPrincipal(t *testing.T) {
	w := start(t)
	w.service.Trusts(netRole, sts.Trust{Principals: []string{taskRole}, AllowTags: true})
	earlier := w.table.Session(taskRole, "task-1", time.Hour)
	if _, err := w.assume(earlier, nil); err != nil {
		t.Fatal(err)
	}
	w.table.Replace(taskRole)
	later, other := w.table.Session(taskRole, "task-2", time.Hour), w.table.Session(taskRole+"2", "task-1", time.Hour)
	_, err := w.assume(later, nil)
	wantCode(t, "by the id of the earlier one", err, "AccessDenied")
	trust, err := templates.Trust(map[string]any{"Statement": []any{map[string]any{
		"Effect": "Allow", "Action": []any{"sts:AssumeRole", "sts:TagSession"}, "Principal": map[string]any{"AWS": "arn:aws:iam::123456789012:root"},
		"Condition": map[string]any{
			"StringEquals": map[string]any{"sts:ExternalId": "ws_1", "aws:RequestTag/organization": "acme"}, "ArnLike": map[string]any{"aws:PrincipalArn": taskRole},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	w.service.Trusts(netRole, sts.Trust{Policy: trust})
	if _, err := w.assume(later, nil); err != nil {
		t.Errorf("by its ARN: %v", err)
	}
	for name, change := range map[string]func(*awssts.AssumeRoleInput){
		"another external id": func(in *awssts.AssumeRoleInput) { in.ExternalId = aws.String("ws_2") },
		"no external id":      func(in *awssts.AssumeRoleInput) { in.ExternalId = nil },
		"another tag's value": func(in *awssts.AssumeRoleInput) { in.Tags[0].Value = aws.String("evil") },
		"no tags":             func(in *awssts.AssumeRoleInput) { in.Tags = nil },
	} {
		_, err := w.assume(later, change)
		wantCode(t, name, err, "AccessDenied")
	}
	for name, who := range map[string]sigv4.Credentials{"another role": other, "a user": w.table.User("task")} {
		_, err := w.assume(who, nil)
		wantCode(t, name, err, "AccessDenied")
	}
}

func TestAssumeRole_TransitiveTagsArePassedOn(t *testing.T) {
	w := start(t)
	const other = "arn:aws:iam::123456789012:role/dayfly/prod/other"
	task := w.table.Session(taskRole, "task-1", time.Hour)
	w.service.Trusts(netRole, sts.Trust{Principals: []string{taskRole}, AllowTags: true})
	w.service.Trusts(other, sts.Trust{Principals: []string{netRole}, AllowTags: true, Tags: map[string]string{"organization": "acme"}})
	out, err := w.assume(task, func(in *awssts.AssumeRoleInput) { in.TransitiveTagKeys = []string{"organization"} })
	if err != nil {
		t.Fatal(err)
	}
	net := sigv4.Credentials{AccessKeyID: *out.Credentials.AccessKeyId, SecretAccessKey: *out.Credentials.SecretAccessKey, SessionToken: *out.Credentials.SessionToken}
	_, err = w.assume(net, func(in *awssts.AssumeRoleInput) { in.RoleArn = aws.String(other) })
	wantCode(t, "set again", err, "InvalidParameterValue")
	if _, err := w.assume(net, func(in *awssts.AssumeRoleInput) { in.RoleArn, in.Tags = aws.String(other), nil }); err != nil {
		t.Fatal(err)
	}
	if got := w.service.Sessions()[1].Tags; got["organization"] != "acme" || got["workspace"] != "" {
		t.Errorf("got %v, want what was passed on and no more", got)
	}
}

func TestGetCallerIdentity_OfAUser(t *testing.T) {
	w := start(t)
	got, err := w.as(w.table.User("ann")).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	if err != nil || *got.Arn != "arn:aws:iam::123456789012:user/ann" {
		t.Errorf("got %+v, %v", got, err)
	}
	bad := w.table.User("bob")
	bad.SecretAccessKey = "wrong"
	_, err = w.as(bad).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	wantCode(t, "wrong secret", err, "SignatureDoesNotMatch")
	w.table.Revoke(bad.AccessKeyID)
	_, err = w.as(bad).GetCallerIdentity(t.Context(), &awssts.GetCallerIdentityInput{})
	wantCode(t, "unknown", err, "InvalidClientTokenId")
}

func TestGetWebIdentityToken_NamesRoleAndAudience(t *testing.T) {
	w := start(t)
	task := w.table.Session(taskRole, "task-1", 6*time.Hour)
	in := &awssts.GetWebIdentityTokenInput{Audience: []string{"urn:x"}, SigningAlgorithm: aws.String("RS256"), DurationSeconds: aws.Int32(60)}
	var disabled *types.OutboundWebIdentityFederationDisabledException
	if _, err := w.as(task).GetWebIdentityToken(t.Context(), in); !errors.As(err, &disabled) {
		t.Errorf("in a new account: got %v", err)
	}
	var got map[string]any
	w.service.Sign = func(claims map[string]any) string { got = claims; return "a.b.c" }
	out, err := w.as(task).GetWebIdentityToken(t.Context(), in)
	if err != nil || *out.WebIdentityToken != "a.b.c" || !out.Expiration.Equal(w.now.Add(time.Minute).UTC().Truncate(time.Second)) {
		t.Fatalf("got %+v, %v", out, err)
	}
	if sub, _ := got["sub"].(string); !strings.HasPrefix(sub, "arn:aws:iam::"+wire.Account+":role/") || got["exp"] != w.now.Add(time.Minute).Unix() {
		t.Errorf("got claims %v", got)
	}
	in.DurationSeconds = aws.Int32(59)
	if _, err := w.as(task).GetWebIdentityToken(t.Context(), in); err == nil {
		t.Error("a token of less than a minute was given")
	}
}
