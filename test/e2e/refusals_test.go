package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// dump is what people see of everything that a refused call could have changed.
func (w *world) dump(workflows ...string) map[string]any {
	w.T.Helper()
	out := map[string]any{}
	paths := []string{"/v1/workflows?limit=200", "/v1/workspaces?limit=200", "/v1/pools?limit=200", "/v1/tokens?limit=200"}
	for _, id := range workflows {
		paths = append(paths, "/v1/workflows/"+id, "/v1/workflows/"+id+"/timeline?limit=200")
	}
	for _, path := range paths {
		status, body := w.call(http.MethodGet, path, w.Token, "")
		var v any
		if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK {
			w.T.Fatalf("GET %s: got %d %s, %v", path, status, body, err)
		}
		out[path] = withoutSightings(v)
	}
	return out
}

// withoutSightings leaves out when a pool polled last, and at which step a runner's heartbeat found its run: these go on.
func withoutSightings(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "last_seen")
		delete(v, "step")
		for _, inner := range v {
			withoutSightings(inner)
		}
	case []any:
		for _, inner := range v {
			withoutSightings(inner)
		}
	}
	return v
}

// asked is one call that is to be refused.
type asked struct {
	name   string
	at     string // base address; empty means the control plane
	method string
	path   string
	token  string
	body   string
	header []string

	status int
	code   string
	says   string // a piece of what the answer tells to do
}

// refused makes the calls and looks at each answer, then at what they changed: nothing.
func (w *world) refused(calls []asked, workflows ...string) {
	w.T.Helper()
	before := w.dump(workflows...)
	for _, c := range calls {
		w.T.Run(c.name, func(t *testing.T) {
			base := c.at
			if base == "" {
				base = w.URL
			}
			status, body := callAt(t, base, c.method, c.path, c.token, c.body, c.header...)
			var p api.Problem
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatalf("got %d %s, want a problem: %v", status, body, err)
			}
			if status != c.status || p.Status != c.status || p.Code != c.code {
				t.Errorf("got %d %s (%s), want %d %s", status, p.Code, p.Detail, c.status, c.code)
			}
			said := p.Detail
			for _, e := range p.Errors {
				said += "; " + e.Field + ": " + e.Message
			}
			if !strings.Contains(said, c.says) || p.Detail == "" {
				t.Errorf("got %q, want it to say %q", said, c.says)
			}
		})
	}
	if diff := cmp.Diff(before, w.dump(workflows...)); diff != "" {
		w.T.Errorf("refused calls changed something (-before +after):\n%s", diff)
	}
}

// C9: bad input of people is refused with a status, a stable code and what to do, and changes
// nothing.
func TestRefusals_OfPeople(t *testing.T) {
	t.Parallel()
	o := &overheard{}
	w := start(t, o.listen)
	w.put("good", map[string]string{"update": "true"})
	w.Over(w.Update("good"))
	run := heldRun(w, o, "held")

	admin := w.Token
	viewer, err := w.Client.CreateToken(t.Context(), api.NewToken{Name: "viewer", Role: api.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := w.Client.CreateToken(t.Context(), api.NewToken{Name: "operator", Role: api.RoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := w.Client.CreateToken(t.Context(), api.NewToken{Name: "revoked", Role: api.RoleAdmin})
	if err == nil {
		err = w.Client.RevokeToken(t.Context(), revoked.Token.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	pool, err := w.Client.CreatePool(t.Context(), api.PoolSettings{Name: ptr("other")})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := w.call(http.MethodPost, "/v1/workflows", admin, `{"workspace":"good","operation":"update"}`, "Idempotency-Key", "used"); status != http.StatusCreated {
		t.Fatalf("submit: got %d %s", status, body)
	} else {
		var made api.Workflow
		if err := json.Unmarshal(body, &made); err != nil {
			t.Fatal(err)
		}
		w.Over(made.ID)
	}

	submit := func(name, body string, status int, code, says string) asked {
		return asked{name: "submit: " + name, method: http.MethodPost, path: "/v1/workflows", token: admin, body: body, status: status, code: code, says: says}
	}
	apply := func(name, fields string, status int, code, says string) asked {
		return asked{name: "workspace: " + name, method: http.MethodPut, path: "/v1/workspaces/new", token: admin, body: `{"name":"new","engine":"command","commands":{"update":"true"}` + fields + `}`, status: status, code: code, says: says}
	}
	source := `,"source":{"directory":"/srv/code"}`
	makePool := func(name, body string, status int, code, says string) asked {
		return asked{name: "pool: " + name, method: http.MethodPost, path: "/v1/pools", token: admin, body: body, status: status, code: code, says: says}
	}
	as := func(name, token, method, path, body string, status int, code, says string) asked {
		return asked{name: "token: " + name, method: method, path: path, token: token, body: body, status: status, code: code, says: says}
	}
	w.refused([]asked{
		submit("no JSON", `{`, 400, "invalid", "body"),
		submit("unknown field", `{"workspace":"good","operation":"update","force":true}`, 422, "invalid", "force: there is no field of this name"),
		submit("wrong type", `{"workspace":"good","operation":"update","priority":"high"}`, 422, "invalid", "priority: expected integer"),
		submit("out of range", `{"workspace":"good","operation":"update","priority":101}`, 422, "invalid", "priority"),
		submit("unknown operation", `{"workspace":"good","operation":"explode"}`, 422, "invalid", "update"),
		submit("no operation", `{"workspace":"good"}`, 422, "invalid", "operation"),
		submit("a state that policies cannot read", `{"workspace":"good","type":"policy_evaluation"}`, 422, "invalid", "only those of terraform and tofu"),
		submit("long message", `{"workspace":"good","operation":"update","message":"`+strings.Repeat("m", 201)+`"}`, 422, "invalid", "message"),
		submit("a message that drives a terminal", `{"workspace":"good","operation":"update","message":"all is \u001b[2Jwell"}`, 422, "invalid", "message: it has the control character U+001B at byte 7"),
		makePool("NUL in the description", `{"name":"mute","description":"a\u0000b"}`, 422, "invalid", "description: it has the control character U+0000 at byte 1"),
		apply("a description that drives a terminal", source+`,"description":"\u009b31m"`, 422, "invalid", "description: it has the control character U+009B"),
		submit("no such workspace", `{"workspace":"absent","operation":"update"}`, 404, "not_found", `there is no workspace "absent"`),
		submit("name outside the rule", `{"workspace":"../good","operation":"update"}`, 404, "not_found", "there is no workspace"),
		submit("no command", `{"workspace":"good","operation":"destroy"}`, 422, "invalid", "destroy"),
		submit("oversize", `{"workspace":"good","operation":"update","message":"`+strings.Repeat("m", 1<<20)+`"}`, 413, "too_large", "most"),
		{name: "submit: key used for something else", method: http.MethodPost, path: "/v1/workflows", token: admin, body: `{"workspace":"good","operation":"update","priority":3}`, header: []string{"Idempotency-Key", "used"}, status: 422, code: "idempotency_key_reused", says: "key"},
		{name: "submit: as text", method: http.MethodPost, path: "/v1/workflows", token: admin, body: `workspace: good`, header: []string{"Content-Type", "text/yaml"}, status: 415, code: "invalid_media_type", says: "application/json"},

		apply("unknown field", source+`,"hook":{"before":"rm"}`, 422, "invalid", "hook: there is no field of this name"),
		apply("no source", ``, 422, "invalid", "source"),
		apply("two sources", `,"source":{"directory":"/srv","git":{"url":"https://example.com/x"}}`, 422, "invalid", "set one of directory, git and archive"),
		apply("relative directory", `,"source":{"directory":"code"}`, 422, "invalid", "absolute path"),
		apply("directory upwards", `,"source":{"directory":"/srv/code/../../etc"}`, 422, "invalid", "without . and .."),
		apply("git file", `,"source":{"git":{"url":"file:///etc"}}`, 422, "invalid", "source.git.url"),
		apply("git program", `,"source":{"git":{"url":"ext::sh -c id"}}`, 422, "invalid", "https://"),
		apply("git option", `,"source":{"git":{"url":"https://example.com/x","ref":"--upload-pack=id"}}`, 422, "invalid", "source.git.ref"),
		apply("git path upwards", `,"source":{"git":{"url":"https://example.com/x","path":"a/../../b"}}`, 422, "invalid", "relative path"),
		apply("git in clear", `,"source":{"git":{"url":"http://example.com/x"}}`, 422, "invalid", "use https"),
		apply("secret file upwards", source+`,"secrets":[{"file":"../x","ref":"file:a"}]`, 422, "invalid", "relative path"),
		apply("secret file absolute", source+`,"secrets":[{"file":"/etc/cron.d/x","ref":"file:a"}]`, 422, "invalid", "relative path"),
		apply("secret nowhere", source+`,"secrets":[{"ref":"file:a"}]`, 422, "invalid", "not both"),
		apply("secret of another kind", source+`,"secrets":[{"env":"A","ref":"gcp:a"}]`, 422, "invalid", "file:NAME, env:NAME, vault:PATH#KEY"),
		apply("loader", source+`,"environment":{"LD_PRELOAD":"/tmp/x.so"}`, 422, "invalid", "LD_"),
		apply("kept name", source+`,"secrets":[{"env":"DAYFLY_TICKET","ref":"file:a"}]`, 422, "invalid", "DAYFLY_"),
		apply("unknown state", source+`,"state":{"kind":"floppy"}`, 422, "invalid", "state.kind"),
		apply("unknown pool", source+`,"pool":"absent"`, 404, "not_found", "absent"),
		apply("max_runtime", source+`,"max_runtime":"forever"`, 422, "invalid", "90m"),
		apply("stale version", source+`,"version":7`, 409, "conflict", "read it again"),
		apply("large settings", source+`,"description":"x","environment":{"A":"`+strings.Repeat("a", 105<<10)+`","B":"`+strings.Repeat("b", 105<<10)+`"}`, 413, "too_large", "the limit"),
		apply("oversize", source+`,"environment":{"A":"`+strings.Repeat("a", 1<<20)+`"}`, 413, "too_large", "most"),
		{name: "workspace: name outside the rule", method: http.MethodPut, path: "/v1/workspaces/a%20b", token: admin, body: `{"name":"a b","engine":"command","commands":{"update":"true"}` + source + `}`, status: 422, code: "invalid", says: "A-Z"},
		{name: "workspace: another name", method: http.MethodPut, path: "/v1/workspaces/one", token: admin, body: `{"name":"two","engine":"command","commands":{"update":"true"}` + source + `}`, status: 422, code: "invalid", says: "the one in the address"},
		{name: "workspace: in use", method: http.MethodDelete, path: "/v1/workspaces/held", token: admin, status: 409, code: "in_use", says: "cancel them"},
		{name: "workspace: not there", method: http.MethodGet, path: "/v1/workspaces/..%2F..%2Fetc", token: admin, status: 404, code: "not_found", says: "there is no workspace"},

		makePool("short name", `{"name":"ab"}`, 422, "invalid", "3"),
		makePool("name with a slash", `{"name":"a/b/c"}`, 422, "invalid", "3"),
		makePool("taken", `{"name":"other"}`, 409, "already_exists", "other"),
		makePool("wrong type", `{"name":"more","concurrency":"ten"}`, 422, "invalid", "concurrency: expected integer"),
		{name: "pool: delete the built-in one", method: http.MethodDelete, path: "/v1/pools/default", token: admin, status: 422, code: "invalid", says: "can be disabled"},

		{name: "workflow: not there", method: http.MethodPost, path: "/v1/workflows/wf_absent/cancel", token: admin, status: 404, code: "not_found", says: "wf_absent"},
		{name: "workflow: retry of a running one", method: http.MethodPost, path: "/v1/workflows/" + run.id + "/retry", token: admin, status: 409, code: "conflict", says: "ended"},
		{name: "list: unknown state", method: http.MethodGet, path: "/v1/workflows?state=done", token: admin, status: 422, code: "invalid", says: "pending"},
		{name: "list: made-up cursor", method: http.MethodGet, path: "/v1/workflows?cursor=" + strings.Repeat("c", 2000), token: admin, status: 422, code: "invalid", says: "cursor"},
		{name: "log: from no line", method: http.MethodGet, path: "/v1/workflows/" + run.id + "/logs?offset=first", token: admin, status: 422, code: "invalid", says: "offset"},
		{name: "route: none", method: http.MethodGet, path: "/v1/../etc/passwd", token: admin, status: 404, code: "no_route", says: "openapi.json"},
		{name: "route: other method", method: http.MethodDelete, path: "/v1/workflows", token: admin, status: 405, code: "method_not_allowed", says: "GET"},

		as("none", "", http.MethodGet, "/v1/workflows", "", 401, "unauthenticated", "Authorization: Bearer"),
		as("unknown", "dfu_"+strings.Repeat("a", 43), http.MethodGet, "/v1/workflows", "", 401, "unauthenticated", "log in again"),
		as("long", strings.Repeat("a", 10<<10), http.MethodGet, "/v1/workflows", "", 401, "unauthenticated", "too long"),
		as("revoked", revoked.Value, http.MethodGet, "/v1/workflows", "", 401, "token_revoked", "revoked"),
		as("viewer submits", viewer.Value, http.MethodPost, "/v1/workflows", `{"workspace":"good","operation":"update"}`, 403, "forbidden", "operator"),
		as("viewer cancels", viewer.Value, http.MethodPost, "/v1/workflows/"+run.id+"/cancel", "", 403, "forbidden", "operator"),
		as("operator makes tokens", operator.Value, http.MethodPost, "/v1/tokens", `{"name":"mine","role":"admin"}`, 403, "forbidden", "admin"),
		as("operator names secrets", operator.Value, http.MethodPut, "/v1/workspaces/good", `{"name":"good","engine":"command","commands":{"update":"true"}`+source+`,"secrets":[{"env":"A","ref":"file:a"}]}`, 403, "forbidden", "admin"),
		as("operator deletes", operator.Value, http.MethodDelete, "/v1/workspaces/good", "", 403, "forbidden", "admin"),
		as("pool token of people's call", pool.Token, http.MethodPost, "/v1/workflows", `{"workspace":"good","operation":"update"}`, 403, "forbidden", "user token"),
		as("user token of a stack's call", admin, http.MethodPost, "/v1/claims", `{"instance":"me","max":1}`, 403, "forbidden", "pool token"),
		as("user token of a runner's call", admin, http.MethodPost, "/v1/jobs/"+run.id+"/start", "", 401, "unauthenticated", "job token"),
		as("pool token of a runner's call", pool.Token, http.MethodPost, "/v1/jobs/"+run.id+"/start", "", 401, "unauthenticated", "job token"),
		as("job token of people's call", run.token, http.MethodGet, "/v1/workflows", "", 401, "unauthenticated", "user"),
		as("job token of a stack's call", run.token, http.MethodPost, "/v1/claims", `{"instance":"me","max":1}`, 401, "unauthenticated", "pool"),
		as("ticket at the control plane", run.ticket, http.MethodGet, "/v1/workflows", "", 401, "unauthenticated", "token"),
		as("another pool's job", pool.Token, http.MethodPost, "/v1/jobs/"+run.id+"/release", `{"attempt":1,"text":"none"}`, 404, "not_found", run.id),
		as("another pool's loss", pool.Token, http.MethodPost, "/v1/jobs/"+run.id+"/lost", `{"attempt":1,"task":"`+run.task+`","text":"gone"}`, 404, "not_found", run.id),
	}, run.id)
	w.signal("release")
	w.wants(w.Over(run.id), workflow.Succeeded, "")
}

func ptr[T any](v T) *T { return &v }

// overheard keeps the requests of launches: the tickets are in them.
type overheard struct {
	mu       sync.Mutex
	requests []launcher.Request
}

func (o *overheard) listen(c *embedded.UpConfig) {
	c.Agent.WrapLauncher = func(l launcher.Launcher) launcher.Launcher {
		inner, _ := l.(watched)
		return overhearing{inner, o}
	}
}

// of is the request of an attempt.
func (o *overheard) of(t *testing.T, id string, attempt int) launcher.Request {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.requests, func(r launcher.Request) bool { return r.Workflow == id && r.Attempt == attempt })
	if i < 0 {
		t.Fatalf("attempt %d of %s was not launched", attempt, id)
	}
	return o.requests[i]
}

type overhearing struct {
	watched
	to *overheard
}

func (l overhearing) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	l.to.mu.Lock()
	l.to.requests = append(l.to.requests, r)
	l.to.mu.Unlock()
	return l.watched.Launch(ctx, r)
}

// heldJob is a run whose engine waits, with what its runner knows.
type heldJob struct {
	id, task string
	ticket   string // sealed
	relay    string
	token    string // of the job
	keys     *ticket.Keyring
}

// heldRun runs an engine of a workspace of its own, which waits until release.
func heldRun(w *world, o *overheard, name string) heldJob {
	w.T.Helper()
	w.put(name, map[string]string{"update": `echo held; touch "$SHARED/` + name + `"; until [ -e "$SHARED/release" ]; do sleep 0.05; done`})
	h := heldJob{id: w.Update(name)}
	w.shows(name)
	h.task = w.Workflow(h.id).Task
	request := o.of(w.T, h.id, 1)
	h.ticket, h.relay = request.Ticket, request.Relay
	var err error
	if h.keys, err = ticket.EnsureFile(filepath.Join(w.Data, embedded.TicketKeysFile)); err != nil {
		w.T.Fatal(err)
	}
	claims, err := h.keys.Open(h.ticket, time.Now())
	if err != nil {
		w.T.Fatal(err)
	}
	h.token = claims.Token.Reveal()
	w.Until(h.id, "both steps", func(wf api.Workflow) bool { return len(wf.Steps) == 2 }) // as they stay until release
	return h
}

// run are the headers that name a run.
func (h heldJob) run(attempt int, task string, boot byte) []string {
	return []string{api.HeaderAttempt, strconv.Itoa(attempt), api.HeaderTask, task, api.HeaderBoot, strings.Repeat(string(boot), 32)}
}

// C9, R1: a runner's calls with what is not its own are refused, at the control plane and at the relay,
// and the run that they name goes on.
func TestRefusals_OfRunners(t *testing.T) {
	t.Parallel()
	o := &overheard{}
	w := start(t, o.listen)
	one, two := heldRun(w, o, "one"), heldRun(w, o, "two")

	// An attempt that is over, with another after it: its engine's runner was killed.
	w.put("scanned", map[string]string{"insights_scan": `touch "$SHARED/scan$DAYFLY_ATTEMPT"; until [ -e "$SHARED/release" ]; do sleep 0.05; done`})
	scan := w.scan("scanned")
	w.shows("scan1")
	first := w.Workflow(scan)
	if err := syscall.Kill(w.runnerPID(first.Task), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.shows("scan2")
	second := w.Until(scan, "its second attempt", func(wf api.Workflow) bool {
		return wf.Attempt == 2 && wf.State == workflow.Running && len(wf.Steps) == 2
	})
	past := o.of(t, scan, 1)
	claims, err := one.keys.Open(past.Ticket, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pastToken := claims.Token.Reveal()

	seal := func(keys *ticket.Keyring, c ticket.Claims) string {
		t.Helper()
		sealed, err := keys.Seal(c)
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	mine := ticket.Claims{Job: one.id, Attempt: 1, Token: redact.New(one.token), Expires: time.Now().Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: "ws_1"}
	expired := mine
	expired.Expires = time.Now().Add(-time.Minute)
	strangers, err := ticket.NewKeyring(ticket.Key{ID: "stranger", Secret: redact.New(strings.Repeat("k", ticket.KeySize))})
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(one.ticket)
	if at := len(changed) - 30; changed[at] == 'A' {
		changed[at] = 'B'
	} else {
		changed[at] = 'A'
	}

	logs, result := `{"first":0,"lines":[{"at":"2026-01-01T00:00:00Z","text":"forged"}]}`, `{"outcome":"succeeded","log_end":0}`
	plane := func(name, job, call, token, body string, header []string, status int, code, says string) asked {
		return asked{name: "control plane: " + name, method: http.MethodPost, path: "/v1/jobs/" + job + "/" + call, token: token, body: body, header: header, status: status, code: code, says: says}
	}
	relay := func(name, path, token, body string, header []string, status int, code, says string) asked {
		return asked{name: "relay: " + name, at: one.relay, method: http.MethodPost, path: path, token: token, body: body, header: header, status: status, code: code, says: says}
	}
	path := "/v1/jobs/" + one.id + "/"
	right := one.run(1, one.task, 'a')
	calls := []asked{
		plane("another job's token", one.id, "logs", two.token, logs, right, 401, "unauthenticated", "not the token of attempt 1"),
		plane("unknown token", one.id, "result", "dfj_"+strings.Repeat("x", 43), result, right, 401, "unauthenticated", "not the token"),
		plane("job that is not there", "wf_absent", "result", one.token, result, right, 401, "unauthenticated", "not the token"),
		plane("attempt that is not yet", one.id, "result", one.token, result, one.run(2, one.task, 'a'), 401, "unauthenticated", "attempt 2"),
		plane("attempt that is over", scan, "result", pastToken, result, one.run(1, first.Task, 'a'), 410, "run_over", "exit"),
		plane("start of an attempt that is over", scan, "start", pastToken, "", one.run(1, first.Task, 'a'), 410, "run_over", "exit"),
		plane("old token for a new attempt", scan, "logs", pastToken, logs, one.run(2, second.Task, 'a'), 401, "unauthenticated", "attempt 2"),
		plane("attempt 0", one.id, "start", one.token, "", one.run(0, one.task, 'a'), 422, "invalid", "Attempt"),
		plane("boot of another form", one.id, "start", one.token, "", []string{api.HeaderAttempt, "1", api.HeaderTask, one.task, api.HeaderBoot, "boot"}, 422, "invalid", "hexadecimal"),
		plane("outcome of no run", one.id, "result", one.token, `{"outcome":"running","log_end":0}`, right, 422, "invalid", "succeeded"),
		plane("steps of a wrong type", one.id, "steps", one.token, `{"steps":[{"seq":"1","name":"x","status":"running","started_at":"2026-01-01T00:00:00Z"}]}`, right, 422, "invalid", "seq: expected integer"),
		plane("oversize log", one.id, "logs", one.token, `{"first":0,"lines":[{"at":"2026-01-01T00:00:00Z","text":"`+strings.Repeat("l", 2<<20)+`"}]}`, right, 413, "too_large", "most"),
		plane("oversize heartbeat", one.id, "heartbeat", one.token, `{"step":"`+strings.Repeat("s", 70<<10)+`"}`, right, 413, "too_large", "most"),

		relay("no ticket", path+"start", "", "", right, 401, "unauthenticated", "send Authorization: Bearer TICKET"),
		relay("no ticket at all", path+"start", "ticket", "", right, 401, "unauthenticated", "five parts"),
		relay("job token in its place", path+"start", one.token, "", right, 401, "unauthenticated", "broken"),
		relay("cut ticket", path+"start", one.ticket[:len(one.ticket)-4], "", right, 401, "unauthenticated", "broken"),
		relay("changed ticket", path+"start", string(changed), "", right, 401, "unauthenticated", "seal does not hold"),
		relay("long ticket", path+"start", strings.Repeat("a", ticket.MaxLength+1), "", right, 401, "unauthenticated", "characters"),
		relay("expired ticket", path+"start", seal(one.keys, expired), "", right, 401, "unauthenticated", "expired at"),
		relay("stranger's ticket", path+"start", seal(strangers, mine), "", right, 401, "unauthenticated", "not known here"),
		relay("another job's ticket", path+"result", two.ticket, result, right, 401, "unauthenticated", "for another job"),
		relay("another attempt", path+"result", one.ticket, result, one.run(2, one.task, 'a'), 401, "unauthenticated", "for attempt 1"),
		relay("ticket of an attempt that is over", "/v1/jobs/"+scan+"/result", past.Ticket, result, one.run(1, first.Task, 'a'), 410, "run_over", "exit"),
		relay("path upwards", "/v1/jobs/"+one.id+"/../../claims", one.ticket, "", right, 404, "not_found", "/v1/jobs/ID/CALL"),
		relay("path in escapes", "/v1/jobs/"+one.id+"%2Fstart", one.ticket, "", right, 404, "not_found", "/v1/jobs/ID/CALL"),
		relay("call of people", "/v1/workflows", one.ticket, "", right, 404, "not_found", "/v1/jobs/ID/CALL"),
		relay("call of a stack", path+"release", one.ticket, `{"attempt":1}`, right, 404, "not_found", "/v1/jobs/ID/CALL"),
		relay("query", path+"start?attempt=2", one.ticket, "", right, 404, "not_found", "/v1/jobs/ID/CALL"),
		relay("oversize", path+"logs", one.ticket, strings.Repeat("l", 4<<20), right, 413, "too_large", "bytes"),
		{name: "relay: other method", at: one.relay, method: http.MethodGet, path: path + "start", token: one.ticket, header: right, status: 422, code: "invalid", says: "POST"},
	}
	// The right ticket and token, and still not the boot that was granted the run.
	for name, header := range map[string][]string{"another boot": right, "another task": one.run(1, two.task, 'a')} {
		for call, body := range map[string]string{"start": "", "heartbeat": "{}", "logs": logs, "result": result, "steps": `{"steps":[{"seq":1,"name":"x","status":"failed","started_at":"2026-01-01T00:00:00Z"}]}`} {
			calls = append(calls,
				plane(call+" of "+name, one.id, call, one.token, body, header, 409, "already_started", "exit"),
				relay(call+" of "+name, path+call, one.ticket, body, header, 409, "already_started", "exit"))
		}
	}
	w.refused(calls, one.id, two.id, scan)

	w.signal("release")
	for _, id := range []string{one.id, two.id, scan} {
		w.wants(w.Over(id), workflow.Succeeded, "")
	}
	for _, id := range []string{one.id, two.id, scan} {
		if log := w.Log(id, 0); strings.Contains(log, "forged") || id != scan && !strings.Contains(log, "held\n") {
			t.Errorf("the log is not what the engine said:\n%s", log)
		}
	}
}

// R2: what a runner itself refuses: sources outside of its roots, by any way, and secrets that it was not
// given. Nothing of the workspace's code runs.
func TestRefusals_OfSourcesAndSecrets(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *embedded.UpConfig) {
		c.Agent.Settings.EnvForwardAllowlist = []string{"ALLOWED"}
		c.Agent.LookupEnv = func(name string) (string, bool) { return "value of " + name, true }
	})
	outside := filepath.Join(filepath.Dir(w.Source), "outside")
	for _, err := range []error{
		os.Mkdir(outside, 0o755),
		os.WriteFile(filepath.Join(outside, "private.txt"), []byte("private"), 0o644),
		os.Symlink(outside, filepath.Join(w.Source, "way-out")),
		os.Mkdir(filepath.Join(w.Source, "linked"), 0o755),
		os.Symlink(filepath.Join(outside, "private.txt"), filepath.Join(w.Source, "linked", "absolute.txt")),
		os.Mkdir(filepath.Join(w.Source, "upwards"), 0o755),
		os.Symlink("../../outside/private.txt", filepath.Join(w.Source, "upwards", "relative.txt")),
		os.Mkdir(filepath.Join(w.Source, "clean"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refs := func(refs ...string) func(*api.Workspace) {
		return func(ws *api.Workspace) {
			for i, ref := range refs {
				ws.Secrets = append(ws.Secrets, api.Secret{Env: "SECRET" + strconv.Itoa(i), Ref: ref})
			}
		}
	}
	before := w.lines()
	for name, tc := range map[string]struct {
		directory string
		change    func(*api.Workspace)
		reason    workflow.Reason
		says      string
	}{
		"beside-the-root":      {outside, refs(), workflow.ReasonNone, "source_roots"},
		"above-the-root":       {filepath.Dir(w.Source), refs(), workflow.ReasonNone, "source_roots"},
		"system":               {"/etc", refs(), workflow.ReasonNone, "source_roots"},
		"name-like-the-root":   {w.Source + "-not", refs(), workflow.ReasonNone, "source_roots"},
		"not-there":            {filepath.Join(w.Source, "absent"), refs(), workflow.ReasonNone, "there is no directory"},
		"linked-directory":     {filepath.Join(w.Source, "way-out"), refs(), workflow.ReasonNone, "source_roots"},
		"linked-file-absolute": {filepath.Join(w.Source, "linked"), refs(), workflow.ReasonNone, "name a directory above both"},
		"linked-file-upwards":  {filepath.Join(w.Source, "upwards"), refs(), workflow.ReasonNone, "name a directory above both"},
		"secret-upwards":       {filepath.Join(w.Source, "clean"), refs("file:../admin-token"), workflow.ReasonSecretUnavailable, "SECRET0"},
		"secret-absolute":      {filepath.Join(w.Source, "clean"), refs("file:/etc/hostname"), workflow.ReasonSecretUnavailable, "SECRET0"},
		"secret-absent":        {filepath.Join(w.Source, "clean"), refs("env:ALLOWED", "file:absent"), workflow.ReasonSecretUnavailable, "dayfly secret set"},
		"secret-not-allowed":   {filepath.Join(w.Source, "clean"), refs("env:ALLOWED", "env:HOME"), workflow.ReasonSecretUnavailable, "env_forward_allowlist"},
	} {
		t.Run(name, func(t *testing.T) {
			w.put(name, map[string]string{"update": `echo ran >>"$EFFECTS"`}, func(ws *api.Workspace) {
				ws.Source.Directory = tc.directory
				tc.change(ws)
			})
			if tc.reason == workflow.ReasonNone { // it is refused when it is submitted: the control plane is of this machine
				_, err := w.Client.Submit(t.Context(), api.Submit{Workspace: name, Operation: workflow.Update})
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want it refused with %q", err, tc.says)
				}
				return
			}
			got := w.Over(w.Update(name))
			w.wants(got, workflow.Failed, tc.reason)
			if !strings.Contains(got.Detail, tc.says) {
				t.Errorf("got the detail %q, want it to say %q", got.Detail, tc.says)
			}
			if log := w.Log(got.ID, 0); strings.Contains(log+got.Detail, "private"+"\n") || strings.Contains(log, "dfu_") {
				t.Errorf("the log shows what is outside:\n%s", log)
			}
		})
	}
	if diff := cmp.Diff(before, w.lines()); diff != "" {
		t.Errorf("code of a refused source ran:\n%s", diff)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "private.txt")); err != nil || string(b) != "private" {
		t.Errorf("what is outside: got %q, %v", b, err)
	}
}
