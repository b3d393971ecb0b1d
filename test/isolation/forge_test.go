package isolation_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

const (
	// listed is the one private address that the dayfly of tests may call. The usual one of this machine is not.
	listed     = "127.0.0.77"
	repository = "acme/infra"
	gitToken   = "the-token-for-the-clone-6284"
)

// forge stands in for a git host: its repositories, served by git itself, and its API.
type forge struct {
	*githosttest.Server
	w       *world
	name    string // in Dayfly
	address string
	bare    string // the repository
	tree    string // where commits are made
	hook    api.WebhookSecret
	ahead   atomic.Int64
}

// listen serves a handler at an address of this machine until the test ends.
func (w *world) listen(address string, handler http.Handler) (url string) {
	w.T.Helper()
	l, err := (&net.ListenConfig{}).Listen(w.T.Context(), "tcp", address+":0")
	w.must(err)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	server.Start()
	w.T.Cleanup(server.Close)
	return server.URL
}

// forge starts a git host and lets Dayfly take its webhooks. carol and bob are members; carol may push.
func (w *world) forge() *forge {
	w.T.Helper()
	f := &forge{Server: githosttest.New(githosttest.GitHub), w: w, name: w.name}
	w.T.Cleanup(f.Stop)
	dir := w.T.TempDir()
	f.bare, f.tree = filepath.Join(dir, "served", repository+".git"), filepath.Join(dir, "tree")
	git, err := gitserver.Handler(w.T.Context(), filepath.Join(dir, "served"))
	if errors.Is(err, gitserver.ErrNone) {
		w.not = err.Error()
		w.T.Skip(w.not)
	}
	w.must(err)
	w.must(os.MkdirAll(f.tree, 0o755))
	f.git("init", "-q", "--bare", f.bare)
	f.git("-C", f.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
	f.git("init", "-q", f.tree)
	f.commit("refs/heads/main", "thing.merged")
	behind, err := url.Parse(f.URL)
	w.must(err)
	mux := http.NewServeMux()
	mux.Handle("/", git)
	mux.Handle("/api/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	f.address = w.listen(listed, mux)
	f.URL = f.address
	f.Clock(func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) })
	f.Member(repository, "carol", githosttest.Writes)
	w.secret("forge-token", f.Token().Reveal())
	w.secret("git-token", gitToken)
	f.known(api.GitHost{URL: f.address})
	return f
}

// known makes the git host known to Dayfly, and its webhook.
func (f *forge) known(in api.GitHost) {
	f.w.T.Helper()
	in.Name, in.Kind, in.TokenRef = f.name, api.HostGitHub, "file:forge-token"
	for _, name := range []string{"bob", "carol"} {
		_, err := f.w.Client.CreatePrincipal(f.w.T.Context(), api.NewPrincipal{Name: name})
		if !errors.Is(err, workflow.ErrExists) {
			f.w.must(err)
		}
	}
	in.Members = []api.Member{{ID: f.User("bob"), Principal: "bob", Role: api.RoleOperator}, {ID: f.User("carol"), Principal: "carol", Role: api.RoleOperator}}
	_, _, err := f.w.Client.PutSetting(f.w.T.Context(), in)
	f.w.must(err)
	f.hook, err = f.w.Client.RotateWebhookSecret(f.w.T.Context(), f.name)
	f.w.must(err)
}

func (w *world) secret(name, value string) {
	w.T.Helper()
	w.must(os.WriteFile(filepath.Join(w.Data, embedded.SecretsDir, name), []byte(value), 0o600))
}

func (f *forge) git(args ...string) string {
	f.w.T.Helper()
	cmd := exec.CommandContext(f.w.T.Context(), "git", args...)
	cmd.Env = append(os.Environ(), "HOME="+f.tree, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.w.T.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit pushes a commit whose plan has a resource.
func (f *forge) commit(ref, address string) (sha string) {
	f.w.T.Helper()
	f.w.must(os.WriteFile(filepath.Join(f.tree, "address"), []byte(address), 0o644))
	f.git("-C", f.tree, "add", ".")
	f.git("-C", f.tree, "commit", "-q", "-m", address)
	f.git("-C", f.tree, "push", "-q", "-f", f.bare, "HEAD:"+ref)
	return f.git("-C", f.tree, "rev-parse", "HEAD")
}

// workspace makes the one whose code is in the repository. Its engine is the attack, in a mode.
func (f *forge) workspace(mode string, change ...func(*api.Workspace)) {
	f.w.T.Helper()
	f.w.secret("mode", "mode:"+mode)
	in := api.Workspace{
		Name: f.name, RunSettings: api.RunSettings{
			Engine:  api.EngineTerraform,
			Source:  api.Source{Git: &api.GitSource{URL: f.address + "/" + repository + ".git", Ref: "main", TokenRef: "file:git-token"}},
			Secrets: []api.Secret{{Env: "MODE", Ref: "file:mode", Preview: true}},
		},
		State: &api.State{Kind: api.StateDirectory},
	}
	for _, c := range change {
		c(&in)
	}
	_, _, err := f.w.Client.PutWorkspace(f.w.T.Context(), in)
	f.w.must(err)
}

// pull opens a pull request whose head is a commit, and returns its number.
func (f *forge) pull(author, from, head string) (number int) {
	return f.Open(githosttest.Pull{Repository: repository, HeadRepository: from, Author: author, Head: head, Files: []githosttest.File{{Path: "address"}}})
}

// send sends a body to a path, and returns the answer.
func (f *forge) send(path, event, signature string, body []byte) (status int, taken api.WebhookTaken) {
	f.w.T.Helper()
	header := http.Header{"X-Github-Event": {event}}
	if signature != "" {
		header.Set("X-Hub-Signature-256", signature)
	}
	return f.w.ask(http.MethodPost, path, header, body, &taken), taken
}

// tell sends an event as the host does, and waits until all that follows from it was done.
func (f *forge) tell(event string, body []byte) {
	f.w.T.Helper()
	status, taken := f.send("/v1/webhooks/default/"+f.name, event, githosttest.Sign(f.hook.Secret, body), body)
	if status != http.StatusOK || !taken.IsTaken {
		f.w.T.Fatalf("an event of the host: got %d, %+v", status, taken)
	}
	f.settle()
}

// settle waits until no delivery is left to do, and fails if one was given up.
func (f *forge) settle() {
	f.w.T.Helper()
	uptest.Eventually(f.w.T, "the deliveries are done", func() bool {
		for _, d := range f.w.deliveries(f.name) {
			if d.State == api.DeliveryFailed {
				f.w.T.Fatalf("a delivery has failed: %+v", d)
			}
			if d.State != api.DeliveryDone {
				return false
			}
		}
		return true
	})
}

// say writes a comment at the host as somebody, some seconds after all that happened there before.
func (f *forge) say(number int, login, text string) (id int64) {
	f.ahead.Add(int64(5 * time.Second))
	id = f.Comment(repository, number, login, text)
	f.ahead.Add(int64(5 * time.Second))
	return id
}

// comments says it, and lets the host tell Dayfly.
func (f *forge) comments(number int, login, text string) {
	f.w.T.Helper()
	f.tell("issue_comment", f.CommentEvent(repository, number, f.say(number, login, text), login, text))
}

// answer is what Dayfly shows at the host.
func (f *forge) answer(number int) (text string) {
	for _, c := range f.Comments(repository, number) {
		if c.Author == githosttest.Bot {
			text = c.Text
		}
	}
	return text
}

// runs are those of the workspace, the newest first.
func (f *forge) runs() []api.Workflow {
	f.w.T.Helper()
	page, err := f.w.Client.Workflows(f.w.T.Context(), client.Filter{Workspace: f.name, Limit: 100})
	f.w.must(err)
	return page.Items
}

// previewed waits until the plan of a commit is shown at the host, and returns its preview.
func (f *forge) previewed(number int, commit string) (preview api.Workflow) {
	f.w.T.Helper()
	f.settle()
	for _, one := range f.runs() {
		if one.Trigger != nil && one.Trigger.Commit == commit && one.Operation == workflow.Preview {
			preview = one
		}
	}
	if preview.ID == "" {
		f.w.T.Fatalf("no preview of %s: %s", commit, f.answer(number))
	}
	if preview = f.w.Over(preview.ID); preview.State != workflow.Succeeded || preview.Review == nil {
		f.w.T.Fatalf("the preview is %s (%s: %s):\n%s", preview.State, preview.Reason, preview.Detail, f.w.Log(preview.ID, 0))
	}
	uptest.Eventually(f.w.T, "its plan is shown", func() bool { return strings.Contains(f.answer(number), "waiting for approval") })
	f.settle()
	return preview
}

// ask makes a call that no client makes, and returns the status of the answer.
func (w *world) ask(method, path string, header http.Header, body []byte, out any) (status int) {
	w.T.Helper()
	req, err := http.NewRequestWithContext(w.T.Context(), method, w.URL+path, bytes.NewReader(body))
	w.must(err)
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	text, err := io.ReadAll(resp.Body)
	w.must(errors.Join(err, resp.Body.Close()))
	if resp.StatusCode >= http.StatusMultipleChoices {
		w.T.Logf("%s %s: %s", method, path, text)
	} else if out != nil {
		w.must(json.Unmarshal(text, out))
	}
	return resp.StatusCode
}

// admin makes such a call with the first admin's token, which must be answered.
func (w *world) admin(method, path string, in, out any) {
	w.T.Helper()
	body, err := json.Marshal(in)
	w.must(err)
	if status := w.ask(method, path, http.Header{"Authorization": {"Bearer " + w.Token}}, body, out); status >= http.StatusMultipleChoices {
		w.T.Fatalf("%s %s: %d", method, path, status)
	}
}

// deliveries are those that something wants.
func (w *world) deliveries(name string) []api.Delivery {
	w.T.Helper()
	var page api.Page[api.Delivery]
	w.admin(http.MethodGet, "/v1/deliveries?limit=200&for="+name, nil, &page)
	return page.Items
}

// names are looked up by the dayfly of tests: what a name of this zone begins with is its address.
var names = map[string][]string{"loopback": {"127.0.0.1"}, "metadata": {"169.254.169.254"}, "mapped": {"::ffff:127.0.0.1"}, "listed": {listed}}

const zone = ".attack.test."

// resolver is a resolver that knows these names alone, beside those in the files of the machine.
func resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			for answerName(theirs) == nil {
			}
		}()
		return ours, nil
	}}
}

// answerName answers one question as DNS over TCP does (RFC 1035, 4.2.2).
func answerName(c io.ReadWriter) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, question); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return err
	}
	m.Header.Response, m.Header.RCode = true, dnsmessage.RCodeNameError
	m.Additionals = nil
	for _, q := range m.Questions {
		name, ours := strings.CutSuffix(q.Name.String(), zone)
		if ours {
			m.Header.RCode = dnsmessage.RCodeSuccess
		}
		for _, one := range names[name] {
			h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
			switch ip := net.ParseIP(one); {
			case q.Type == dnsmessage.TypeAAAA && strings.Contains(one, ":"):
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(ip.To16())}})
			case q.Type == dnsmessage.TypeA && !strings.Contains(one, ":"):
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: [4]byte(ip.To4())}})
			}
		}
	}
	out, err := m.Pack()
	if err != nil {
		return err
	}
	if _, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil { //nolint:gosec // a few bytes
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
