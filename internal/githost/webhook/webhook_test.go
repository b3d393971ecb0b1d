package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/githost/webhook"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var now = time.Date(2026, 5, 15, 12, 0, 0, 0, time.UTC)

const (
	head   = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
	merge  = "c4295bd74fb0f4fda03689c3df3f2803b658fd85"
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the examples of Standard Webhooks
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// standard signs as Standard Webhooks says, written a second time.
func standard(secret, id string, at time.Time, body string) string {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	return "v1," + base64.StdEncoding.EncodeToString(mac(key, id+"."+strconv.FormatInt(at.Unix(), 10)+"."+body))
}

func TestVerify_GitHubsDocumentedExample(t *testing.T) {
	h := headers("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	if err := webhook.Verify("github", "It's a Secret to Everybody", h, []byte("Hello, World!"), now); err != nil {
		t.Error(err)
	}
}

// The example of the specification of Standard Webhooks: id, time, body and signature.
func TestVerify_StandardWebhooksDocumentedExample(t *testing.T) {
	h := headers("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp", "1614265330", "webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	if err := webhook.Verify("gitlab", secret, h, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)); err != nil {
		t.Error(err)
	}
}

func TestVerify_RefusesWhatIsNotSigned(t *testing.T) {
	const body = `{"a":1}`
	gitlab := func(id string, at time.Time, signature string) http.Header {
		return headers("webhook-id", id, "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature", signature)
	}
	good := standard(secret, "m1", now, body)
	hub := "sha256=" + hex.EncodeToString(mac([]byte(secret), body))
	both := gitlab("m1", now, "v1,AAAA")
	both.Set("X-Gitlab-Token", secret)
	for name, c := range map[string]struct {
		kind, secret string
		header       http.Header
		body         string
		ok           bool
	}{
		"github":                       {"github", secret, headers("X-Hub-Signature-256", hub), body, true},
		"github: other body":           {"github", secret, headers("X-Hub-Signature-256", hub), body + " ", false},
		"github: other secret":         {"github", secret + "x", headers("X-Hub-Signature-256", hub), body, false},
		"github: SHA-1":                {"github", secret, headers("X-Hub-Signature", "sha1=82474c4fdedd8c2d2e6802db3e49f4afd96b3eab"), body, false},
		"github: not hexadecimal":      {"github", secret, headers("X-Hub-Signature-256", "sha256=zz"), body, false},
		"github: no prefix":            {"github", secret, headers("X-Hub-Signature-256", hub[7:]), body, false},
		"github: empty":                {"github", secret, headers("X-Hub-Signature-256", "sha256="), body, false},
		"github: two":                  {"github", secret, headers("X-Hub-Signature-256", hub, "X-Hub-Signature-256", hub), body, false},
		"github: none":                 {"github", secret, headers(), body, false},
		"github: GitLab's token":       {"github", secret, headers("X-Gitlab-Token", secret), body, false},
		"no secret":                    {"github", "", headers("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac(nil, body))), body, false},
		"another kind":                 {"gitea", secret, headers("X-Hub-Signature-256", hub), body, false},
		"gitlab":                       {"gitlab", secret, gitlab("m1", now, good), body, true},
		"gitlab: one of several":       {"gitlab", secret, gitlab("m1", now, "v1,AAAA v1a,x "+good), body, true},
		"gitlab: at most ten":          {"gitlab", secret, gitlab("m1", now, strings.Repeat("v1,AAAA ", 10)+good), body, false},
		"gitlab: other body":           {"gitlab", secret, gitlab("m1", now, good), body + " ", false},
		"gitlab: other id":             {"gitlab", secret, gitlab("m2", now, good), body, false},
		"gitlab: other time":           {"gitlab", secret, gitlab("m1", now.Add(time.Second), good), body, false},
		"gitlab: five minutes old":     {"gitlab", secret, gitlab("m1", now.Add(-5*time.Minute), standard(secret, "m1", now.Add(-5*time.Minute), body)), body, true},
		"gitlab: older":                {"gitlab", secret, gitlab("m1", now.Add(-301*time.Second), standard(secret, "m1", now.Add(-301*time.Second), body)), body, false},
		"gitlab: from the future":      {"gitlab", secret, gitlab("m1", now.Add(301*time.Second), standard(secret, "m1", now.Add(301*time.Second), body)), body, false},
		"gitlab: no id":                {"gitlab", secret, gitlab("", now, standard(secret, "", now, body)), body, false},
		"gitlab: long id":              {"gitlab", secret, gitlab(strings.Repeat("x", 257), now, standard(secret, strings.Repeat("x", 257), now, body)), body, false},
		"gitlab: other version":        {"gitlab", secret, gitlab("m1", now, "v2"+good[2:]), body, false},
		"gitlab: secret without key":   {"gitlab", "whsec_", gitlab("m1", now, good), body, false},
		"gitlab: secret of no form":    {"gitlab", "It's a Secret to Everybody", gitlab("m1", now, good), body, false},
		"gitlab: token":                {"gitlab", secret, headers("X-Gitlab-Token", secret), body, true},
		"gitlab: other token":          {"gitlab", secret, headers("X-Gitlab-Token", secret+"x"), body, false},
		"gitlab: two tokens":           {"gitlab", secret, headers("X-Gitlab-Token", secret, "X-Gitlab-Token", "x"), body, false},
		"gitlab: no token":             {"gitlab", secret, headers(), body, false},
		"gitlab: signature goes first": {"gitlab", secret, both, body, false},
		"gitlab: GitHub's signature":   {"gitlab", secret, headers("X-Hub-Signature-256", hub), body, false},
	} {
		err := webhook.Verify(c.kind, c.secret, c.header, []byte(c.body), now)
		if c.ok != (err == nil) || err != nil && (!errors.Is(err, workflow.ErrUnauthenticated) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// event reads a recorded shape, and the name of its event from the name of its file.
func event(t testing.TB, file string) (kind string, header http.Header, body []byte) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	kind, rest, _ := strings.Cut(file, "-")
	name, _, _ := strings.Cut(rest, "-")
	if kind == "github" {
		return kind, headers("X-GitHub-Event", name), body
	}
	return kind, headers("X-Gitlab-Event", map[string]string{"merge_request": "Merge Request Hook", "note": "Note Hook", "push": "Push Hook"}[name]), body
}

func TestParse_RecordedShapes(t *testing.T) {
	hub := webhook.Event{Repository: "Example/Infra", RepositoryID: 186853002, Number: 2, Head: head, BaseRef: "main", AuthorID: 21031067, Author: "ada"}
	lab := webhook.Event{Repository: "example/team/infra", RepositoryID: 14, Number: 1, Head: head, BaseRef: "main", AuthorID: 51, Author: "ada"}
	is := func(e webhook.Event, kind webhook.Kind, change func(*webhook.Event)) webhook.Event {
		e.Kind = kind
		if change != nil {
			change(&e)
		}
		return e
	}
	merged := func(e *webhook.Event) { e.Merged, e.MergeCommit = true, merge }
	nameless := func(e *webhook.Event) { e.Author = "" }
	for file, want := range map[string]webhook.Event{
		"github-pull_request-opened":       is(hub, webhook.Opened, nil),
		"github-pull_request-synchronize":  is(hub, webhook.Updated, nil),
		"github-pull_request-edited-base":  is(hub, webhook.Updated, nil),
		"github-pull_request-fork":         is(hub, webhook.Opened, func(e *webhook.Event) { e.Fork, e.AuthorID, e.Author = true, 666, "mallory" }),
		"github-pull_request-fork-gone":    is(hub, webhook.Opened, func(e *webhook.Event) { e.Fork, e.AuthorID, e.Author = true, 666, "mallory" }),
		"github-pull_request-merged":       is(hub, webhook.Closed, merged),
		"github-pull_request-closed":       is(hub, webhook.Closed, nil),
		"github-pull_request-edited-title": {Kind: webhook.Ignored, Why: `no use is made of pull requests that are "edited"`},
		"github-pull_request-labeled":      {Kind: webhook.Ignored, Why: `no use is made of pull requests that are "labeled"`},
		"github-issue_comment-created": is(hub, webhook.Commented, func(e *webhook.Event) {
			e.Head, e.BaseRef, e.CommentID, e.Text, e.At = "", "", 492700400, "dayfly apply network\n\nreviewed with the team", time.Date(2026, 5, 15, 15, 20, 21, 0, time.UTC)
		}),
		"github-issue_comment-edited":  {Kind: webhook.Ignored, Why: "a comment counts as it was written first"},
		"github-issue_comment-deleted": {Kind: webhook.Ignored, Why: "a comment counts as it was written first"},
		"github-issue_comment-issue":   {Kind: webhook.Ignored, Why: "the comment is on an issue"},
		"github-push": {
			Kind: webhook.Pushed, Repository: "Example/Infra", RepositoryID: 186853002, AuthorID: 21031067, Author: "ada", Ref: "refs/heads/main", After: merge,
		},
		"github-push-tag":                    {Kind: webhook.Ignored, Why: `"refs/tags/v1" is not a branch`},
		"github-push-deleted":                {Kind: webhook.Ignored, Why: `the branch "subnet" was deleted`},
		"github-ping":                        {Kind: webhook.Ignored, Why: "the webhook works"},
		"gitlab-merge_request-open":          is(lab, webhook.Opened, nil),
		"gitlab-merge_request-update-head":   is(lab, webhook.Updated, nil),
		"gitlab-merge_request-update-target": is(lab, webhook.Updated, nameless),
		"gitlab-merge_request-fork":          is(lab, webhook.Opened, func(e *webhook.Event) { e.Fork, e.AuthorID, e.Author = true, 666, "mallory" }),
		"gitlab-merge_request-fork-gone":     is(lab, webhook.Opened, func(e *webhook.Event) { e.Fork, e.Author = true, "" }),
		"gitlab-merge_request-merge":         is(lab, webhook.Closed, func(e *webhook.Event) { merged(e); nameless(e) }),
		"gitlab-merge_request-merge-ff":      is(lab, webhook.Closed, func(e *webhook.Event) { e.Merged, e.MergeCommit, e.Author = true, head, "" }),
		"gitlab-merge_request-close":         is(lab, webhook.Closed, nameless),
		"gitlab-merge_request-update-labels": {Kind: webhook.Ignored, Why: `no use is made of a merge request's "update" without another commit`},
		"gitlab-merge_request-approved":      {Kind: webhook.Ignored, Why: `no use is made of a merge request's "approved" without another commit`},
		"gitlab-note-create": is(lab, webhook.Commented, func(e *webhook.Event) {
			e.CommentID, e.Text, e.At = 1244, "dayfly preview\n", time.Date(2026, 5, 17, 18, 21, 36, 0, time.UTC)
		}),
		"gitlab-note-update":  {Kind: webhook.Ignored, Why: "a comment counts as it was written first"},
		"gitlab-note-system":  {Kind: webhook.Ignored, Why: "the comment was written by GitLab itself"},
		"gitlab-note-issue":   {Kind: webhook.Ignored, Why: "the comment is not on a merge request"},
		"gitlab-push":         {Kind: webhook.Pushed, Repository: "example/team/infra", RepositoryID: 14, AuthorID: 51, Author: "ada", Ref: "refs/heads/main", After: merge},
		"gitlab-push-deleted": {Kind: webhook.Ignored, Why: `the branch "subnet" was deleted`},
	} {
		kind, header, body := event(t, file)
		got, err := webhook.Parse(kind, header, body)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", file, err, diff)
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != 33 {
		t.Errorf("%d recorded shapes, %v: each belongs into the table", len(files), err)
	}
}

// with returns an event with one field of it changed; a nil value takes the field away.
func with(t *testing.T, body []byte, field string, value any) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	at := all
	names := strings.Split(field, ".")
	for _, n := range names[:len(names)-1] {
		at = at[n].(map[string]any)
	}
	at[names[len(names)-1]] = value
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestParse_NamesTheFieldThatIsWrong(t *testing.T) {
	for _, c := range []struct {
		file, field string
		value       any
	}{
		{"github-pull_request-opened", "pull_request.head.sha", "main"},
		{"github-pull_request-opened", "pull_request.head.sha", strings.Repeat("0", 40)},
		{"github-pull_request-opened", "pull_request.head.sha", head[:39]},
		{"github-pull_request-opened", "pull_request.number", -1},
		{"github-pull_request-opened", "pull_request.number", 1 << 31},
		{"github-pull_request-opened", "pull_request.user.id", nil},
		{"github-pull_request-opened", "pull_request.base.ref", "a b"},
		{"github-pull_request-opened", "pull_request.base.ref", strings.Repeat("a", 256)},
		{"github-pull_request-opened", "repository.full_name", "infra"},
		{"github-pull_request-opened", "repository.full_name", "example/../infra"},
		{"github-pull_request-opened", "repository.full_name", "example/in fra"},
		{"github-pull_request-opened", "repository.id", 0},
		{"github-pull_request-merged", "pull_request.merge_commit_sha", nil},
		{"github-issue_comment-created", "comment.id", 0},
		{"github-issue_comment-created", "comment.user.id", 0},
		{"github-issue_comment-created", "comment.created_at", "soon"},
		{"github-issue_comment-created", "issue.number", 0},
		{"github-push", "after", ""},
		{"github-push", "ref", "refs/heads/"},
		{"github-push", "sender.id", 0},
		{"gitlab-merge_request-open", "object_attributes.last_commit.id", nil},
		{"gitlab-merge_request-open", "object_attributes.iid", 0},
		{"gitlab-merge_request-open", "object_attributes.author_id", 0},
		{"gitlab-merge_request-open", "object_attributes.target_branch", ""},
		{"gitlab-merge_request-open", "project.id", 0},
		{"gitlab-merge_request-open", "project.path_with_namespace", "/x"},
		{"gitlab-merge_request-merge", "object_attributes.merge_commit_sha", "x"},
		{"gitlab-note-create", "object_attributes.id", 0},
		{"gitlab-note-create", "object_attributes.author_id", 0},
		{"gitlab-note-create", "object_attributes.created_at", ""},
		{"gitlab-note-create", "merge_request", nil},
		{"gitlab-note-create", "merge_request.iid", 0},
		{"gitlab-push", "user_id", 0},
		{"gitlab-push", "after", head[:7]},
	} {
		kind, header, body := event(t, c.file)
		e, err := webhook.Parse(kind, header, with(t, body, c.field, c.value))
		var refused *workflow.Error
		if !errors.As(err, &refused) || !errors.Is(err, workflow.ErrInvalid) || refused.Field != c.field || e.Kind != "" {
			t.Errorf("%s with %s %v: got %+v, %v", c.file, c.field, c.value, e, err)
		}
	}
}

func TestParse_BoundsAndOtherEvents(t *testing.T) {
	kind, header, body := event(t, "github-issue_comment-created")
	e, err := webhook.Parse(kind, header, with(t, body, "comment.body", strings.Repeat("é", 5000)))
	if err != nil || len(e.Text) != webhook.MaxText || !utf8.ValidString(e.Text) {
		t.Errorf("%d bytes of text are kept: %v", len(e.Text), err)
	}
	for name, c := range map[string]struct {
		kind   string
		header http.Header
		body   string
		why    string // of an event that is ignored
		field  string // of one that is refused
	}{
		"another event":             {"github", headers("X-GitHub-Event", "workflow_run"), `{}`, `no use is made of events of the kind "workflow_run"`, ""},
		"no event":                  {"gitlab", headers(), `{}`, `no use is made of events of the kind ""`, ""},
		"event of the other":        {"gitlab", headers("X-GitHub-Event", "push"), `{}`, `no use is made of events of the kind ""`, ""},
		"a form":                    {"github", headers("X-GitHub-Event", "push"), "payload=%7B%7D", "", "body"},
		"no object":                 {"github", headers("X-GitHub-Event", "push"), "[]", "", "body"},
		"a field that stands twice": {"github", headers("X-GitHub-Event", "push"), `{"ref": "refs/heads/a", "ref": "refs/heads/b"}`, "", "body"},
		"a field in another case":   {"gitlab", headers("X-Gitlab-Event", "Push Hook"), `{"ref": "refs/heads/a", "Ref": "refs/heads/b"}`, "", "body"},
		"a field of a field, twice": {"github", headers("X-GitHub-Event", "issue_comment"), `{"comment": {"user": {"id": 1, "id": 2}}}`, "", "body"},
		"a field of another type":   {"github", headers("X-GitHub-Event", "push"), `{"ref": 1}`, "", "body"},
		"another kind":              {"gitea", headers(), `{}`, "", "kind"},
	} {
		e, err := webhook.Parse(c.kind, c.header, []byte(c.body))
		var refused *workflow.Error
		if c.why != "" && (err != nil || e != webhook.Event{Kind: webhook.Ignored, Why: c.why}) {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
		if c.field != "" && (!errors.As(err, &refused) || refused.Field != c.field) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func FuzzParse_KeepsItsBounds(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		kind, header, body := event(f, strings.TrimSuffix(filepath.Base(file), ".json"))
		f.Add(kind == "github", header.Get("X-GitHub-Event")+header.Get("X-Gitlab-Event"), body)
	}
	f.Fuzz(func(t *testing.T, github bool, name string, body []byte) {
		kind, header := "gitlab", http.Header{"X-Gitlab-Event": {name}}
		if github {
			kind, header = "github", http.Header{"X-Github-Event": {name}}
		}
		e, err := webhook.Parse(kind, header, body)
		var refused *workflow.Error
		if err != nil {
			if !errors.As(err, &refused) || refused.Field == "" || len(err.Error()) > 500 || !utf8.ValidString(err.Error()) || e != (webhook.Event{}) {
				t.Errorf("got %+v, %v", e, err)
			}
			return
		}
		if e.Kind == webhook.Ignored {
			if e.Why == "" || len(e.Why) > 500 || e != (webhook.Event{Kind: webhook.Ignored, Why: e.Why}) {
				t.Errorf("got %+v", e)
			}
			return
		}
		isCommit := func(s string) bool {
			raw, err := hex.DecodeString(s)
			return err == nil && (len(raw) == 20 || len(raw) == 32) && strings.ToLower(s) == s
		}
		pull := e.Kind == webhook.Opened || e.Kind == webhook.Updated || e.Kind == webhook.Closed
		switch {
		case e.RepositoryID <= 0, e.AuthorID <= 0, !strings.Contains(e.Repository, "/"), len(e.Repository) > 500, len(e.Author) > 255, !utf8.ValidString(e.Author + e.Text),
			len(e.Text) > webhook.MaxText, e.Head != "" && !isCommit(e.Head), pull && (e.Head == "" || e.Number <= 0 || e.BaseRef == ""),
			e.Merged != isCommit(e.MergeCommit), e.Kind == webhook.Commented && (e.CommentID <= 0 || e.At.IsZero() || e.Number <= 0),
			e.Kind == webhook.Pushed && (!isCommit(e.After) || !strings.HasPrefix(e.Ref, "refs/heads/")), e.Why != "":
			t.Errorf("got %+v", e)
		}
	})
}

func FuzzVerify_LetsOnlyTheSignedBodyPass(f *testing.F) {
	f.Add("m1", now.Unix(), []byte("{}"), standard(secret, "m1", now, "{}"), "sha256="+hex.EncodeToString(mac([]byte(secret), "{}")))
	f.Add("", int64(-1<<63), []byte{}, "v1, v1,", "sha256=")
	f.Add("m", int64(1<<63-1), []byte(" "), "v1,AAAA", secret)
	f.Fuzz(func(t *testing.T, id string, at int64, body []byte, signature, other string) {
		h := headers("webhook-id", id, "webhook-timestamp", strconv.FormatInt(at, 10), "webhook-signature", signature)
		if webhook.Verify("gitlab", secret, h, body, now) == nil {
			if !strings.Contains(signature, standard(secret, id, time.Unix(at, 0), string(body))) || at < now.Unix()-300 || at > now.Unix()+300 {
				t.Errorf("%q of %d passes with %q", id, at, signature)
			}
		}
		if webhook.Verify("github", secret, headers("X-Hub-Signature-256", other), body, now) == nil && !strings.EqualFold(other, "sha256="+hex.EncodeToString(mac([]byte(secret), string(body)))) {
			t.Errorf("%q passes", other)
		}
		if webhook.Verify("gitlab", secret, headers("X-Gitlab-Token", other), body, now) == nil && other != secret {
			t.Errorf("%q passes", other)
		}
	})
}
