package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// gram is the length of the pieces of a planted value that are looked for: a piece that gets away is
// a leak too.
const gram = 12

// planted is what must not appear: every piece of every form of the values that were planted.
type planted map[string]string // piece to the name of the value

// add plants a value with its encodings.
func (p planted) add(name, value string) {
	p.pieces(name, value)
	for _, s := range spellings(value) {
		p.pieces(name+" as "+s.name, s.inner)
	}
}

func (p planted) pieces(name, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "-----") {
			continue // everybody knows these
		}
		for i := 0; i+gram <= len(line); i++ {
			p[line[i:i+gram]] = name
		}
	}
}

// in says which values appear in a text.
func (p planted) in(text []byte) (found []string) {
	for i := 0; i+gram <= len(text); i++ {
		if name, ok := p[string(text[i:i+gram])]; ok && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// without is all but the named values.
func (p planted) without(names ...string) planted {
	out := planted{}
	for piece, name := range p {
		value, _, _ := strings.Cut(name, " ")
		if !slices.Contains(names, value) {
			out[piece] = name
		}
	}
	return out
}

// spelling is one way to write a value. inner is the part of it that stands for nothing but the
// value.
type spelling struct{ name, text, inner string }

// spellings writes a value in the ways in which programs do.
func spellings(value string) (all []spelling) {
	for name, enc := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.URLEncoding, "raw base64": base64.RawStdEncoding, "raw base64url": base64.RawURLEncoding} {
		for _, before := range []string{"", "a", "ab", "abc", "user:"} {
			for _, after := range []string{"", "z"} {
				text := enc.EncodeToString([]byte(before + value + after))
				// The characters at the edges have bits of what is next to the value.
				from, to := (len(before)*8+5)/6, (len(before)+len(value))*8/6
				all = append(all, spelling{fmt.Sprintf("%s after %q", name, before), text, text[from:to]})
			}
		}
	}
	quoted, _ := json.Marshal(value)
	twice, _ := json.Marshal(string(quoted))
	for name, text := range map[string]string{
		"hexadecimal": hex.EncodeToString([]byte(value)), "HEXADECIMAL": strings.ToUpper(hex.EncodeToString([]byte(value))),
		"query": url.QueryEscape(value), "path": url.PathEscape(value), "query twice": url.QueryEscape(url.QueryEscape(value)),
		"JSON": string(quoted), "JSON twice": string(twice), "Go": strconv.Quote(value),
	} {
		all = append(all, spelling{name, text, text})
	}
	slices.SortFunc(all, func(a, b spelling) int { return strings.Compare(a.name+a.text, b.name+b.text) })
	return all
}

// chance is a value that is not used elsewhere.
func chance(name string) string { return name + "-" + rand.Text() }

// odd is a value of which encoders change many characters. What is the same in each of them is short, so
// that no piece of it stands anywhere by chance.
func odd() string {
	var b strings.Builder
	for _, c := range []string{" ", "/", "+", `"`, "&", "<", "é", ">", `\`, "%", "'", "=", "?"} {
		b.WriteString(rand.Text()[:7] + c)
	}
	return b.String() + rand.Text()
}

// tokens matches the tokens of Dayfly itself.
var tokens = regexp.MustCompile(`df[jpu]_[A-Za-z0-9_-]{43}`)

// capture keeps what passes by.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(p)
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.buf.Bytes())
}

// heardQueue keeps the messages.
type heardQueue struct {
	queue.Queue
	heard *capture
}

func (q heardQueue) SendBatch(ctx context.Context, messages []queue.Outgoing) []error {
	for _, m := range messages {
		_, _ = fmt.Fprintf(q.heard, "%s %s\n", m.Group, m.Body)
	}
	return q.Queue.SendBatch(ctx, messages)
}

// heardLauncher keeps the requests.
type heardLauncher struct {
	watched
	heard *capture
}

func (l heardLauncher) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	_, _ = fmt.Fprintf(l.heard, "%+v\n", r)
	return l.watched.Launch(ctx, r)
}

// ears hear everything that a world sends and writes down.
type ears struct{ logs, queue, launches capture }

// listening opens a world that is listened to. vars are the variables of the user who runs it; those in
// allow are forwarded.
func listening(t *testing.T, vars map[string]string, allow ...string) (*world, *ears) {
	t.Helper()
	e := &ears{}
	return start(t, func(c *embedded.UpConfig) {
		c.Server.Log = slog.New(slog.NewJSONHandler(&e.logs, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
		c.Agent.Settings.EnvForwardAllowlist = allow
		c.Agent.LookupEnv = func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
		c.Agent.WrapQueue = func(q queue.Queue) queue.Queue { return heardQueue{q, &e.queue} }
		c.Agent.WrapLauncher = func(l launcher.Launcher) launcher.Launcher {
			inner, ok := l.(watched)
			if !ok {
				t.Error("the launcher does not watch, or keeps no logs")
			}
			return heardLauncher{inner, &e.launches}
		}
	}), e
}

// keep puts a secret into the local store, as `dayfly secret set` does.
func (w *world) keep(name, value string) {
	w.T.Helper()
	if err := local.New(filepath.Join(w.Data, embedded.SecretsDir)).Set(w.T.Context(), name, redact.New(value)); err != nil {
		w.T.Fatal(err)
	}
}

// clean reports what of the planted values, and which tokens, appear in a text.
func clean(t *testing.T, where string, text []byte, p planted) {
	t.Helper()
	without(t, where, text, p)
	if token := tokens.Find(text); token != nil {
		t.Errorf("%s shows a token: %s...", where, token[:6])
	}
}

// without reports what of the planted values appears in a text.
func without(t *testing.T, where string, text []byte, p planted) {
	t.Helper()
	for _, name := range p.in(text) {
		t.Errorf("%s shows %s", where, name)
	}
}

// answersAreClean looks at all that the API tells about workflows.
func (w *world) answersAreClean(p planted, ids ...string) {
	w.T.Helper()
	paths := []string{"/v1/workflows", "/v1/workspaces", "/v1/pools", "/v1/pools/default/runners", "/v1/tokens"}
	for _, id := range ids {
		paths = append(paths, "/v1/workflows/"+id, "/v1/workflows/"+id+"/timeline?limit=200", "/v1/workflows/"+id+"/why")
		for offset := int64(0); ; {
			path := fmt.Sprintf("/v1/workflows/%s/logs?offset=%d&limit=200", id, offset)
			page, err := w.Client.Logs(w.T.Context(), id, 0, offset, 200, 0)
			if err != nil {
				w.T.Fatal(err)
			}
			if paths = append(paths, path); len(page.Lines) == 0 {
				break
			}
			offset = page.Next
		}
	}
	cursor := ""
	for {
		path := "/v1/audit?limit=200&cursor=" + url.QueryEscape(cursor)
		paths = append(paths, path)
		page, err := w.Client.Audit(w.T.Context(), api.AuditFilter{Cursor: cursor, Limit: 200})
		if err != nil {
			w.T.Fatal(err)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for _, path := range paths {
		status, body := w.call(http.MethodGet, path, w.Token, "")
		if status != http.StatusOK {
			w.T.Errorf("GET %s: got %d %s", path, status, body)
		}
		clean(w.T, "GET "+path, body, p)
	}
}

// earsAreClean looks at logs, messages and launches.
func earsAreClean(t *testing.T, e *ears, p planted) {
	t.Helper()
	for where, c := range map[string]*capture{"the log of server and agent": &e.logs, "a message of the queue": &e.queue, "a launch": &e.launches} {
		text := c.bytes()
		if len(text) == 0 {
			t.Errorf("%s: nothing was heard", where)
		}
		clean(t, where, text, p)
	}
}

// filesAreClean looks at every byte below the data directory. Left out are the secret store, the admin
// token's own file, and the state files in which the engine itself keeps sensitive values.
func (w *world) filesAreClean(p planted) {
	w.T.Helper()
	seen := 0
	err := filepath.WalkDir(w.Data, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			if err == nil && path == filepath.Join(w.Data, embedded.SecretsDir) {
				return fs.SkipDir
			}
			return err
		}
		if e.Name() == filepath.Base(embedded.AdminTokenFile) || strings.HasPrefix(e.Name(), "terraform.tfstate") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if strings.HasPrefix(e.Name(), filepath.Base(embedded.DatabaseFile)) {
			seen += len(raw)
		}
		clean(w.T, path, raw, p)
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	if seen < 10<<10 {
		w.T.Errorf("only %d bytes of the database were looked at", seen)
	}
}

// processesAreClean looks at the arguments of every process of the machine, and at the first
// environment of each that is not the engine's: that holds the secrets which its workspace asks
// for. The runner's holds what the operator chose to forward, and no other. Tokens may be in those of a dayfly
// that is not this test's: an operator gives them to an agent so.
func (w *world) processesAreClean(runner int, p planted, forwarded ...string) {
	w.T.Helper()
	if runtime.GOOS != "linux" {
		w.T.Logf("arguments and environments of processes were not looked at: %s has no /proc", runtime.GOOS)
		return
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.T.Fatal(err)
	}
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if _, rest, ok := bytes.Cut(stat, []byte(") ")); ok && len(bytes.Fields(rest)) > 1 {
			parents[pid], _ = strconv.Atoi(string(bytes.Fields(rest)[1]))
		}
	}
	engines := 0
	below := func(pid, of int) bool {
		for pid = parents[pid]; pid > 1 && pid != of; pid = parents[pid] {
		}
		return pid == of
	}
	for pid := range parents {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		look := without
		if pid == os.Getpid() || below(pid, os.Getpid()) {
			look = clean
		}
		if args, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil {
			look(w.T, fmt.Sprintf("the arguments of process %d", pid), args, p)
		}
		engine := below(pid, runner)
		if engine {
			engines++
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		switch {
		case pid == runner && err != nil && !(errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0): // it is closed to its own user
			w.T.Errorf("environment of the runner: %v", err)
		case pid == runner:
			if err == nil && !bytes.Contains(env, []byte("DAYFLY_TICKET=")) {
				w.T.Errorf("process %d is not a runner", pid)
			}
			clean(w.T, "the environment of the runner", env, p.without(forwarded...))
		case err == nil:
			look(w.T, fmt.Sprintf("the environment of process %d", pid), env, p)
		}
	}
	if engines == 0 {
		w.T.Error("no engine was running")
	}
}

// leakScript tells its secrets in many ways, then waits to be looked at.
const leakScript = `
printf 'as it is: [%s] [%s] [%s] [%s]\n' "$PLAIN" "$ODD" "$ALLOWED" "$FORWARDED_TOKEN"
echo "$DOCUMENT"
printf '%b\n' "$DOCUMENT"
printf 'in two writes: %s' "${PLAIN%????????????}"; sleep 0.2; printf '%s end\n' "${PLAIN#${PLAIN%????????????}}"
cat "$DAYFLY_SECRETS_DIR/tls/key.pem"
while read -r line; do echo "line: <$line>"; done <"$DAYFLY_SECRETS_DIR/tls/key.pem"
cat leaks.txt
cat long.txt
printf '{"plain":"%s","deep":{"list":["before %s after"]},"marked":{"value":"%s","sensitive":true}}' "$PLAIN" "$PLAIN" "$(cat marked.txt)" >"$DAYFLY_OUTPUTS"
echo "$DAYFLY_SECRETS_DIR" >"$SHARED/dir.tmp"; mv "$SHARED/dir.tmp" "$SHARED/dir"
while ! [ -e "$SHARED/go" ]; do sleep 0.05; done
echo "the end"
`

// R6: planted secrets leave the runner in no form and by no way: not in logs, answers, messages,
// arguments, environments, or on disk.
func TestSecrets_NeverLeaveTheRunner(t *testing.T) {
	t.Parallel()
	key := make([]byte, 200)
	_, _ = rand.Read(key)
	inDocument := make([]byte, 48*4) // four lines of 64 characters
	_, _ = rand.Read(inDocument)
	values := map[string]string{
		"plain":   chance("plain"),
		"odd":     odd(),
		"key":     string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		"allowed": chance("allowed"), "forwarded": chance("forwarded"),
		"document": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: inDocument})),
		"git":      chance("ghp"), "mistake": chance("mistake"),
	}
	marked := chance("marked")
	p := planted{}
	for name, v := range values {
		p.add(name, v)
	}
	p.add("marked", marked)

	w, e := listening(t, map[string]string{"ALLOWED": values["allowed"], "FORWARDED_TOKEN": values["forwarded"]}, "ALLOWED", "FORWARDED_TOKEN")
	for _, name := range []string{"plain", "odd", "key", "git"} {
		w.keep(name, values[name])
	}
	// A key inside of a document, which programs print line by line.
	document, err := json.Marshal(map[string]string{"type": "service_account", "private_key": values["document"]})
	if err != nil {
		t.Fatal(err)
	}
	w.keep("document", string(document))
	w.write("leaks.txt", leaks(values["plain"], values["odd"], values["key"], values["allowed"]))
	w.write("long.txt", longLines(values["plain"], values["odd"]))
	w.write("marked.txt", marked)
	secret := func(ws *api.Workspace) {
		ws.Secrets = []api.Secret{
			{Env: "PLAIN", Ref: "file:plain"}, {Env: "ODD", Ref: "file:odd"}, {File: "tls/key.pem", Ref: "file:key"}, {Env: "ALLOWED", Ref: "env:ALLOWED"}, {Env: "DOCUMENT", Ref: "file:document"},
		}
	}
	w.put("leaky", map[string]string{
		"update":  leakScript,
		"destroy": `echo "cannot log in with $PLAIN" >&2; printf '%s\n' "$ODD"; exit 3`,
		"refresh": `printf '{"%s":1,"%s":2}' "$PLAIN" "$PLAIN" >"$DAYFLY_OUTPUTS"`,
	}, secret)

	id := w.Update("leaky")
	dir := w.shows("dir")
	file := filepath.Join(strings.TrimSpace(dir), "tls", "key.pem")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of a secret: got %v, %v; want mode 0600", info, err)
	}
	w.processesAreClean(w.runnerPID(w.Workflow(id).Task), p, "allowed", "forwarded")
	w.answersAreClean(p, id)
	w.signal("go")
	got := w.Until(id, "the end", func(wf api.Workflow) bool { return wf.State.Terminal() })
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a secret outlived its run: %v", err)
	}
	w.Over(id)
	w.wants(got, workflow.Succeeded, "")
	log := w.Log(id, 0)
	for _, want := range []string{"as it is: [***] [***] [***] [***]\n", "in two writes: *** end\n", "line: <***>\n", "end of leaks\n", "end of long lines\n", "the end\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("log:\n%.4000s", log)
	}
	outputs := map[string]api.Output{}
	if got.Result != nil {
		for _, o := range got.Result.Outputs {
			outputs[o.Name] = o
		}
	}
	if o := outputs["plain"]; o.Value != "***" {
		t.Errorf("output plain: got %+v, want it masked", o)
	}
	if o, ok := outputs["marked"]; !ok || !o.Sensitive || o.Value != nil {
		t.Errorf("output marked: got %+v, want its name alone", o)
	}

	failing := w.Over(w.Submit(api.Submit{Workspace: "leaky", Operation: workflow.Destroy}))
	w.wants(failing, workflow.Failed, workflow.ReasonStepFailed)
	broken := w.Over(w.Submit(api.Submit{Workspace: "leaky", Operation: workflow.Refresh}))
	w.wants(broken, workflow.Failed, workflow.ReasonStepFailed)
	if !strings.Contains(broken.Detail, `the output "***" twice`) {
		t.Errorf("got the detail %q, want it with the name masked", broken.Detail)
	}

	// A git server that repeats the token that it was shown.
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, token, _ := r.BasicAuth()
		status := http.StatusUnauthorized
		if strings.HasPrefix(r.URL.Path, "/broken") {
			status = http.StatusInternalServerError
		}
		http.Error(rw, "wrong token "+token+" of "+r.Header.Get("Authorization"), status)
	}))
	defer server.Close()
	ids := []string{id, failing.ID, broken.ID}
	for _, path := range []string{"refusing", "broken"} {
		w.put(path, map[string]string{"update": "true"}, func(ws *api.Workspace) {
			ws.Source = api.Source{Git: &api.GitSource{URL: server.URL + "/" + path + "/repo.git", TokenRef: "file:git"}}
		})
		got := w.Over(w.Update(path))
		w.wants(got, workflow.Failed, workflow.ReasonSourceFailed)
		ids = append(ids, got.ID)
	}

	// Values in the wrong places are refused and not repeated.
	for name, in := range map[string]string{
		"credentials in a URL": `{"name":"m","engine":"tofu","source":{"git":{"url":"https://user:%s@example.com/x"}}}`,
		"token as user":        `{"name":"m","engine":"tofu","source":{"git":{"url":"https://%s@example.com/x"}}}`,
		"token in a query":     `{"name":"m","engine":"tofu","source":{"git":{"url":"https://example.com/x?access_token=%s"}}}`,
		"value as reference":   `{"name":"m","engine":"tofu","source":{"directory":"/tmp"},"secrets":[{"env":"A","ref":"%s"}]}`,
		"value as token_ref":   `{"name":"m","engine":"tofu","source":{"git":{"url":"https://example.com/x","token_ref":"%s"}}}`,
		"value as a type":      `{"name":"m","engine":"%s","source":{"directory":"/tmp"}}`,
		"value beside fields":  `{"name":"m","engine":"tofu","source":{"directory":"/tmp"},"password":"%s"}`,
	} {
		status, body := w.call(http.MethodPut, "/v1/workspaces/m", w.Token, fmt.Sprintf(in, values["mistake"]))
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d %s, want 422", name, status, body)
		}
		clean(t, "the refusal of "+name, body, p)
	}

	w.answersAreClean(p, ids...)
	w.filesAreClean(p) // with the write-ahead log of the database
	w.Stop()
	w.filesAreClean(p)
	earsAreClean(t, e, p)
}

// leaks are values in all their spellings.
func leaks(values ...string) string {
	var b strings.Builder
	for _, v := range values {
		for _, s := range spellings(v) {
			_, _ = fmt.Fprintf(&b, "%s: %s.\n", s.name, s.text)
		}
		for _, width := range []int{64, 76} {
			for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(v))), width) {
				_, _ = fmt.Fprintf(&b, "%s\n", line)
			}
		}
	}
	return b.String() + "end of leaks\n"
}

// longLines are lines that are cut on their way, with values across the cuts.
func longLines(values ...string) string {
	const most = 64 << 10
	var b strings.Builder
	for _, v := range values {
		forms := []string{v, base64.StdEncoding.EncodeToString([]byte(v)), url.QueryEscape(v)}
		for i, form := range forms {
			for _, before := range []int{1, len(form) / 2, len(form) - 1} {
				// Twice: across the first cut and about the second.
				b.WriteString(strings.Repeat("x", most-before) + form)
				b.WriteString(strings.Repeat("y", most-len(form)) + form + strings.Repeat("z", most/2+i) + "\n")
			}
		}
	}
	return b.String() + "end of long lines\n"
}

// R6: a runner that is killed leaves no secret on disk.
func TestSecrets_FilesDoNotOutliveAKilledRunner(t *testing.T) {
	t.Parallel()
	value := chance("file")
	p := planted{}
	p.add("file", value)
	w, e := listening(t, nil)
	w.keep("one", value)
	w.put("held", map[string]string{"update": `echo "$DAYFLY_SECRETS_DIR" >"$SHARED/dir.tmp"; mv "$SHARED/dir.tmp" "$SHARED/dir"; while :; do sleep 0.1; done`},
		func(ws *api.Workspace) { ws.Secrets = []api.Secret{{File: "one", Ref: "file:one"}} })
	id := w.Update("held")
	file := filepath.Join(strings.TrimSpace(w.shows("dir")), "one")
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.runnerPID(w.Workflow(id).Task), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.wants(w.Over(id), workflow.Failed, workflow.ReasonTaskStopped)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a secret outlived its run: %v", err)
	}
	w.Stop()
	w.filesAreClean(p)
	earsAreClean(t, e, p)
}

// sensitiveCode has a value from outside, and one of its own that is not known before the plan is read.
const sensitiveCode = `
variable "token" {
  type      = string
  sensitive = true
}
variable "fail" {
  type    = string
  default = ""
}
locals {
  made = sensitive(file("made.txt"))
}
resource "terraform_data" "holder" {
  input = { token = var.token, made = local.made, number = 1 }
}
resource "terraform_data" "telling" {
  triggers_replace = timestamp()
  provisioner "local-exec" {
    command     = "echo \"told: $TOLD\""
    environment = { TOLD = "${nonsensitive(var.token)} and ${nonsensitive(local.made)}" }
  }
  depends_on = [terraform_data.holder]
}
resource "terraform_data" "picky" {
  input = "picky"
  lifecycle {
    precondition {
      condition     = var.fail != "plan"
      error_message = "The plan does not like ${nonsensitive(var.token)}."
    }
    postcondition {
      condition     = var.fail != "apply" || self.id == "never"
      error_message = "The apply does not like ${nonsensitive(var.token)} and ${nonsensitive(local.made)}."
    }
  }
}
output "token" {
  value     = var.token
  sensitive = true
}
output "made" {
  value     = { list = [local.made] }
  sensitive = true
}
output "harmless" {
  value = "nothing to hide"
}
`

// R6: sensitive variables, attributes and outputs of terraform.
func TestSecrets_SensitiveValuesOfTerraformStayInside(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("terraform is run three times: left out of the short tests")
	}
	needTerraform(t)
	token, made := chance("token"), chance("made")
	p := planted{}
	p.add("token", token)
	p.add("made", made)
	w, e := listening(t, nil)
	w.keep("token", token)
	w.write("main.tf", sensitiveCode)
	w.write("made.txt", made)
	run := func(name, fail string) api.Workflow {
		t.Helper()
		in := api.Workspace{
			Name: name, RunSettings: api.RunSettings{
				Engine: api.EngineTerraform, Source: api.Source{Directory: w.Source}, Variables: map[string]any{"fail": fail},
				Secrets: []api.Secret{{Env: "TF_VAR_token", Ref: "file:token"}},
			},
		}
		w.Register(in)
		return w.Over(w.Update(name))
	}

	good := run("good", "")
	w.wants(good, workflow.Succeeded, "")
	var names []string
	if good.Result != nil {
		for _, o := range good.Result.Outputs {
			names = append(names, fmt.Sprintf("%s %v %v", o.Name, o.Sensitive, o.Value))
		}
	}
	if want := []string{"harmless false nothing to hide", "made true <nil>", "token true <nil>"}; !slices.Equal(names, want) {
		t.Errorf("outputs: got %q, want %q", names, want)
	}
	if log := w.Log(good.ID, 0); !strings.Contains(log, "told: *** and ***\n") {
		t.Errorf("the log has no masked line of the provisioner:\n%s", log)
	}

	inPlan := run("in-plan", "plan")
	w.wants(inPlan, workflow.Failed, workflow.ReasonStepFailed)
	inApply := run("in-apply", "apply")
	w.wants(inApply, workflow.Failed, workflow.ReasonStepFailed)
	for _, got := range []api.Workflow{inPlan, inApply} {
		if !strings.Contains(got.Detail, "does not like ***") {
			t.Errorf("%s: got the detail %q, want the engine's words without the value", got.Workspace, got.Detail)
		}
	}

	w.answersAreClean(p, good.ID, inPlan.ID, inApply.ID)
	w.filesAreClean(p)
	w.Stop()
	w.filesAreClean(p)
	earsAreClean(t, e, p)
}

// needTerraform skips a test where runners have no terraform.
func needTerraform(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if _, err := exec.LookPath(filepath.Join(dir, "terraform")); err == nil {
			return
		}
	}
	t.Skip("no terraform in the directories in which runners look for it")
}

// write puts a file into the world's source.
func (w *world) write(name, text string) {
	w.T.Helper()
	path := filepath.Join(w.Source, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		w.T.Fatal(err)
	}
}

// shows waits for a file that an engine puts into the shared directory, and reads it.
func (w *world) shows(name string) (text string) {
	w.T.Helper()
	uptest.Eventually(w.T, "file "+name+" of an engine", func() bool {
		b, err := os.ReadFile(filepath.Join(w.shared, name))
		text = string(b)
		return err == nil
	})
	return text
}

// signal puts an empty file there.
func (w *world) signal(name string) {
	w.T.Helper()
	if err := os.WriteFile(filepath.Join(w.shared, name), nil, 0o644); err != nil {
		w.T.Fatal(err)
	}
}

// call makes a call of the API byte by byte.
func (w *world) call(method, path, token, body string, header ...string) (status int, answer []byte) {
	w.T.Helper()
	return callAt(w.T, w.URL, method, path, token, body, header...)
}

func callAt(t *testing.T, base, method, path, token, body string, header ...string) (status int, answer []byte) {
	t.Helper()
	return callWith(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, base, method, path, token, body, header...)
}

// callWith is callAt with a client of its own.
func callWith(t *testing.T, c *http.Client, base, method, path, token, body string, header ...string) (status int, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}
