package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// repositories makes a directory with the bare repository team/app.git, with two branches, a tag and a
// subdirectory. It skips a test where there is no git, whose own programs serve it.
func repositories(t *testing.T) (dir, programs string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Skip("no git on this machine: ", err)
	}
	dir = t.TempDir()
	work := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=Tester", "GIT_AUTHOR_EMAIL=tester@example.com", "GIT_COMMITTER_NAME=Tester", "GIT_COMMITTER_EMAIL=tester@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	commit := func(text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(work, "envs", "prod"), 0o755), os.WriteFile(filepath.Join(work, "envs", "prod", "which.txt"), []byte(text+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		git("add", ".")
		git("commit", "--quiet", "--message", text)
	}
	git("init", "--quiet", "--initial-branch=main")
	commit("tagged")
	git("tag", "v1.0.0")
	commit("main")
	git("checkout", "--quiet", "-b", "dev")
	commit("dev")
	git("checkout", "--quiet", "main")
	git("clone", "--quiet", "--bare", work, filepath.Join(dir, "team", "app.git"))
	return dir, strings.TrimSpace(string(out))
}

// gitOverHTTPS serves repositories to who shows the token, as hosts do. It returns its address and its
// certificate.
func gitOverHTTPS(t *testing.T, dir, programs, token string) (base string, ca []byte) {
	t.Helper()
	backend := &cgi.Handler{
		Path: filepath.Join(programs, "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, got, _ := r.BasicAuth(); user != "x-access-token" || got != token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "wrong token "+got, http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// key makes a key pair, the private half as ssh-keygen writes it.
func key(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// gitOverSSH serves repositories to who has the key. It returns its address and what known_hosts says of
// it.
func gitOverSSH(t *testing.T, dir string, allowed ssh.PublicKey) (addr, knownHosts string) {
	t.Helper()
	host, _ := key(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(k.Marshal(), allowed.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(host)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { uploadPack(t, conn, config, dir) })
		}
	})
	addr = l.Addr().String()
	return addr, knownhosts.Line([]string{knownhosts.Normalize(addr)}, host.PublicKey())
}

// uploadPack answers one connection with git's own program.
func uploadPack(t *testing.T, conn net.Conn, config *ssh.ServerConfig, dir string) {
	defer func() { _ = conn.Close() }()
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			var command struct{ Value string }
			_ = ssh.Unmarshal(r.Payload, &command)
			path, _ := strings.CutPrefix(command.Value, "git-upload-pack ")
			cmd := exec.CommandContext(t.Context(), "git", "upload-pack", filepath.Join(dir, strings.Trim(path, "'")))
			cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = channel, channel, channel.Stderr()
			status := uint32(0)
			if cmd.Run() != nil {
				status = 128
			}
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
			_ = channel.Close()
		}
	}
}

// R2: private repositories over https with a token and over ssh with a key, each a secret by reference.
// Runners trust a certificate authority of the house where SSL_CERT_FILE is among the variables that
// are forwarded to them.
func TestSources_PrivateGit(t *testing.T) {
	t.Parallel()
	dir, programs := repositories(t)
	token := chance("ghp")
	base, ca := gitOverHTTPS(t, dir, programs, token)
	signer, private := key(t)
	_, wrong := key(t)
	addr, knownHosts := gitOverSSH(t, dir, signer.PublicKey())

	trusted := filepath.Join(uptest.Directory(t), "ca.pem")
	if err := os.WriteFile(trusted, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(c *embedded.UpConfig) {
		c.Agent.Settings.EnvForwardAllowlist = []string{"SSL_CERT_FILE", "GIT_TOKEN"}
		c.Agent.LookupEnv = func(name string) (string, bool) {
			v, ok := map[string]string{"SSL_CERT_FILE": trusted, "GIT_TOKEN": token}[name]
			return v, ok
		}
	})
	for name, value := range map[string]string{"token": token + "\n", "wrong-token": "wrong", "key": private, "wrong-key": wrong} {
		w.keep(name, value)
	}
	https, overSSH := base+"/team/app.git", "ssh://git@"+addr+"/team/app.git"
	for name, tc := range map[string]struct {
		git  api.GitSource
		want string // what the code says; empty means that it does not get so far
		says string
	}{
		"https-default-branch": {api.GitSource{URL: https, TokenRef: "file:token"}, "main", ""},
		"https-branch":         {api.GitSource{URL: https, TokenRef: "env:GIT_TOKEN", Ref: "dev"}, "dev", ""},
		"https-tag":            {api.GitSource{URL: https, TokenRef: "file:token", Ref: "v1.0.0"}, "tagged", ""},
		"https-wrong-token":    {api.GitSource{URL: https, TokenRef: "file:wrong-token"}, "", "does not accept the credentials"},
		"https-no-token":       {api.GitSource{URL: https}, "", "name a secret in token_ref"},
		"https-no-branch":      {api.GitSource{URL: https, TokenRef: "file:token", Ref: "absent"}, "", `no branch, tag or commit "absent"`},
		"https-no-path":        {api.GitSource{URL: https, TokenRef: "file:token", Path: "envs/absent"}, "", `no directory "envs/absent"`},
		"ssh-default-branch":   {api.GitSource{URL: overSSH, SSHKeyRef: "file:key", KnownHosts: knownHosts}, "main", ""},
		"ssh-branch":           {api.GitSource{URL: overSSH, SSHKeyRef: "file:key", KnownHosts: knownHosts, Ref: "dev"}, "dev", ""},
		"ssh-wrong-key":        {api.GitSource{URL: overSSH, SSHKeyRef: "file:wrong-key", KnownHosts: knownHosts}, "", "does not accept the credentials"},
		"ssh-unknown-host":     {api.GitSource{URL: overSSH, SSHKeyRef: "file:key", KnownHosts: strings.Replace(knownHosts, "127.0.0.1", "127.0.0.2", 1)}, "", "known_hosts has no line for"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.git.Path == "" {
				tc.git.Path = "envs/prod"
			}
			w.put(name, map[string]string{"update": `echo "this is $(cat which.txt)"; test "$(basename "$PWD")" = prod`}, func(ws *api.Workspace) {
				ws.Source = api.Source{Git: &tc.git}
			})
			got := w.Over(w.Update(name))
			text := w.Log(got.ID, 0)
			if strings.Contains(text+got.Detail, token) || strings.Contains(text, "PRIVATE KEY") {
				t.Errorf("a credential is in the log:\n%s", text)
			}
			if tc.want == "" {
				w.wants(got, workflow.Failed, workflow.ReasonSourceFailed)
				if !strings.Contains(got.Detail, tc.says) {
					t.Errorf("got the detail %q, want it to say %q", got.Detail, tc.says)
				}
				return
			}
			w.wants(got, workflow.Succeeded, "")
			if !strings.Contains(text, "this is "+tc.want+"\n") {
				t.Errorf("got the log\n%s\nwant it to say: this is %s", text, tc.want)
			}
		})
	}
}

// keptCode makes one thing, whose id is new each time that it is made.
const keptCode = `
resource "terraform_data" "one" {
  input = "one"
}
output "id" {
  value = terraform_data.one.id
}
`

func (w *world) workspaceID(name string) string {
	w.T.Helper()
	ws, err := w.Client.Workspace(w.T.Context(), name)
	if err != nil {
		w.T.Fatal(err)
	}
	return ws.ID
}

// terraform registers a workspace with a source of its own.
func (w *world) terraform(name, code string, changes ...func(*api.Workspace)) {
	w.T.Helper()
	w.write(filepath.Join(name, "main.tf"), code)
	in := api.Workspace{Name: name, RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: filepath.Join(w.Source, name)}}}
	for _, change := range changes {
		change(&in)
	}
	w.Register(in)
}

// runs runs an operation that must succeed and returns its id output and what it changed.
func (w *world) runs(name string, op workflow.Operation) (id string, changes api.Changes) {
	w.T.Helper()
	got := w.Over(w.Submit(api.Submit{Workspace: name, Operation: op}))
	w.wants(got, workflow.Succeeded, "")
	if got.Result == nil {
		w.T.Fatalf("%s of %s has no result; log:\n%s", op, name, w.Log(got.ID, 0))
	}
	for _, o := range got.Result.Outputs {
		if o.Name == "id" {
			id, _ = o.Value.(string)
		}
	}
	if got.Result.Changes != nil {
		changes = *got.Result.Changes
		changes.Resources = nil
	}
	return id, changes
}

// lives takes a workspace from its first update to its end, and holds each run to what the one before
// left behind.
func (w *world) lives(name string) {
	w.T.Helper()
	first, changes := w.runs(name, workflow.Update)
	if first == "" || changes.Add != 1 {
		w.T.Errorf("first update: got id %q and %+v, want one thing made", first, changes)
	}
	if again, changes := w.runs(name, workflow.Update); again != first || changes.Add+changes.Change+changes.Destroy != 0 {
		w.T.Errorf("second update: got id %q and %+v, want id %q and nothing done", again, changes, first)
	}
	if _, changes := w.runs(name, workflow.Destroy); changes.Destroy != 1 || changes.Add != 0 {
		w.T.Errorf("destroy: got %+v, want one thing gone", changes)
	}
}

// R16: code that ran before Dayfly is never planned on an empty state. Its state is taken over on the user's word,
// known from then on, and not adopted by a later workspace of the same name.
func TestState_OfCodeThatRanBeforeIsTakenOver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("terraform is run many times: left out of the short tests")
	}
	needTerraform(t)
	w := start(t)
	w.terraform("ran", keptCode)
	for _, args := range [][]string{{"init"}, {"apply", "-auto-approve"}} {
		cmd := exec.CommandContext(t.Context(), "terraform", args...)
		cmd.Dir = filepath.Join(w.Source, "ran")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("terraform %v: %v\n%s", args, err, out)
		}
	}
	refused := func(name, says string) {
		t.Helper()
		for _, in := range []api.Submit{{Operation: workflow.Preview}, {Operation: workflow.Update}, {Type: workflow.InsightsScan}} {
			in.Workspace = name
			got := w.Over(w.Submit(in))
			w.wants(got, workflow.Failed, workflow.ReasonStateElsewhere)
			if !strings.Contains(got.Detail, says) {
				t.Errorf("it says %q, not %q", got.Detail, says)
			}
		}
	}
	changes := func(in api.Submit) api.Changes {
		t.Helper()
		got := w.Over(w.Submit(in))
		w.wants(got, workflow.Succeeded, "")
		if got.Result == nil || got.Result.Changes == nil {
			t.Fatalf("no changes; log:\n%s", w.Log(got.ID, 0))
		}
		return *got.Result.Changes
	}

	refused("ran", "terraform.tfstate beside the code")
	taken := changes(api.Submit{Workspace: "ran", Operation: workflow.Update, TakeOver: true})
	if taken.Add+taken.Change+taken.Destroy != 0 {
		t.Errorf("the takeover changed %+v", taken)
	}
	first, again := w.runs("ran", workflow.Update)
	if first == "" || again.Add+again.Change+again.Destroy != 0 {
		t.Errorf("the update after it: id %q, changes %+v", first, again)
	}

	// Another workspace does not get the same state, until somebody says that it is a copy.
	w.terraform("twin", keptCode, func(ws *api.Workspace) { ws.Source.Directory = filepath.Join(w.Source, "ran") })
	twin := w.Over(w.Submit(api.Submit{Workspace: "twin", Operation: workflow.Update, TakeOver: true}))
	w.wants(twin, workflow.Failed, workflow.ReasonStateOwned)
	if !strings.Contains(twin.Detail, "is that of workspace ran") {
		t.Errorf("it says %q", twin.Detail)
	}
	if _, err := w.Client.Own(t.Context(), twin.ID, api.Own{IsCopy: true}); err != nil {
		t.Fatal(err)
	}
	if copied := changes(api.Submit{Workspace: "twin", Operation: workflow.Update, TakeOver: true}); copied.Add+copied.Change+copied.Destroy != 0 {
		t.Errorf("the takeover of the copy changed %+v", copied)
	}

	old := w.workspaceID("ran")
	if err := w.Client.DeleteWorkspace(t.Context(), "ran"); err != nil {
		t.Fatal(err)
	}
	page, err := w.Client.DeletedWorkspaces(t.Context(), "", 0)
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != old || page.Items[0].Found == nil || page.Items[0].Found.Lineage == "" {
		t.Fatalf("deleted workspaces: %+v, %v", page.Items, err)
	}
	w.write("elsewhere/main.tf", keptCode)
	w.terraform("ran", keptCode, func(ws *api.Workspace) { ws.Source.Directory = filepath.Join(w.Source, "elsewhere") })
	refused("ran", "of an earlier workspace of this name")
	adopted := changes(api.Submit{Workspace: "ran", Operation: workflow.Update, TakeOver: true})
	if adopted.Add+adopted.Change+adopted.Destroy != 0 {
		t.Errorf("the takeover of the deleted one's state changed %+v", adopted)
	}
	if id, _ := w.runs("ran", workflow.Update); id != first {
		t.Errorf("got id %q, want %q", id, first)
	}
}

// R3: the state of kind directory is kept across runs, also across a restart of `up`; previews see it
// and leave it alone.
func TestState_DirectoryIsKept(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("terraform is run many times: left out of the short tests")
	}
	needTerraform(t)
	w := start(t)
	w.terraform("kept", keptCode)
	id, _ := w.runs("kept", workflow.Update)
	file := filepath.Join(w.Data, embedded.StateDir, "default", w.workspaceID("kept"), "terraform.tfstate")
	state, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(state, []byte(id)) {
		t.Fatalf("the state: got %d bytes, %v, want it to know %q", len(state), err, id)
	}
	w.Stop()
	w.open()
	if _, changes := w.runs("kept", workflow.Preview); changes.Add+changes.Change+changes.Destroy != 0 {
		t.Errorf("preview: got %+v, want no changes", changes)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, state) {
		t.Errorf("a preview changed the state: %v", err)
	}
	w.write("kept/more.tf", `resource "terraform_data" "two" {}`)
	again, changes := w.runs("kept", workflow.Update)
	if again != id || changes.Add != 1 || changes.Change+changes.Destroy != 0 {
		t.Errorf("second update: got id %q and %+v, want id %q and one thing added", again, changes, id)
	}
	if _, changes := w.runs("kept", workflow.Destroy); changes.Destroy != 2 {
		t.Errorf("destroy: got %+v, want two things gone", changes)
	}
}

// R3, R4: what would lose a state, and an engine that is not there, are refused before a plan is made.
func TestState_WhatCannotBeKeptIsRefusedBeforeThePlan(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("terraform is run several times: left out of the short tests")
	}
	needTerraform(t)
	w := start(t)
	source := func(ws *api.Workspace) { ws.State = &api.State{Kind: api.StateSource} }
	directory := func(ws *api.Workspace) { ws.State = &api.State{Kind: api.StateDirectory} }
	for name, tc := range map[string]struct {
		code   string
		change func(*api.Workspace)
		reason workflow.Reason
		says   string
	}{
		"no-backend":    {keptCode, source, workflow.ReasonStateNotKept, "set the workspace's state to kind directory or s3"},
		"local-backend": {keptCode + "terraform {\n  backend \"local\" {}\n}\n", source, workflow.ReasonStateNotKept, "lies on the task's own disk"},
		"cloud":         {keptCode + "terraform {\n  cloud {\n    organization = \"x\"\n  }\n}\n", directory, workflow.ReasonStateElsewhere, "a cloud block"},
		"remote":        {keptCode + "terraform {\n  backend \"s3\" {}\n}\n", directory, workflow.ReasonStateElsewhere, "--take-over"},
		"too-old":       {keptCode, func(ws *api.Workspace) { ws.EngineVersion = "< 1.0" }, workflow.ReasonEngineNotFound, "change the workspace's engine_version"},
		"too-new":       {keptCode, func(ws *api.Workspace) { ws.EngineVersion = "~> 99.1" }, workflow.ReasonEngineNotFound, "terraform ~> 99.1"},
	} {
		t.Run(name, func(t *testing.T) {
			w.terraform(name, tc.code, tc.change)
			got := w.Over(w.Update(name))
			w.wants(got, workflow.Failed, tc.reason)
			if !strings.Contains(got.Detail, tc.says) {
				t.Errorf("got the detail %q, want it to say %q", got.Detail, tc.says)
			}
			var steps []string
			for _, s := range got.Steps {
				steps = append(steps, s.Name+" "+string(s.Status))
			}
			if want := []string{"source succeeded", "init failed"}; !slices.Equal(steps, want) {
				t.Errorf("steps: got %q, want %q", steps, want)
			}
		})
	}
}

// R3: the state of kind s3, against a server that speaks S3 and checks signatures, with its lock file and with
// credentials that are secrets.
func TestState_S3(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("terraform is run several times: left out of the short tests")
	}
	needTerraform(t)
	keys := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: keys, Services: map[string]awsim.Service{"s3": &s3.Service{}}}))
	t.Cleanup(server.Close)
	admin := awsim.SignedClient(awsim.ClientConfig(server.URL, keys.User("admin")), "s3")
	bucket := func(method, path, body string) (int, []byte) {
		t.Helper()
		return callWith(t, admin, server.URL, method, path, "", body)
	}
	if status, body := bucket(http.MethodPut, "/states", ""); status != http.StatusOK {
		t.Fatalf("make bucket: got %d %s", status, body)
	}
	w := start(t)
	user := keys.User("engine")
	w.keep("aws-id", user.AccessKeyID)
	w.keep("aws-secret", user.SecretAccessKey)
	w.terraform("in-s3", keptCode, func(ws *api.Workspace) {
		ws.State = &api.State{Kind: api.StateS3, Bucket: "states", Region: "us-east-1", Endpoint: server.URL}
		ws.Secrets = []api.Secret{{Env: "AWS_ACCESS_KEY_ID", Ref: "file:aws-id"}, {Env: "AWS_SECRET_ACCESS_KEY", Ref: "file:aws-secret"}}
	})
	w.lives("in-s3")
	key := "default/" + w.workspaceID("in-s3") + "/terraform.tfstate"
	if status, body := bucket(http.MethodGet, "/states/"+key, ""); status != http.StatusOK || !bytes.Contains(body, []byte(`"terraform_version"`)) {
		t.Errorf("the state in the bucket: got %d %.200s", status, body)
	}
	if _, err := os.Stat(filepath.Join(w.Data, embedded.StateDir, "default", w.workspaceID("in-s3"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state directory was made beside the bucket: %v", err)
	}

	// A lock that somebody else holds: the run fails, says who, and takes nothing away.
	lock := `{"ID":"11111111-2222-3333-4444-555555555555","Operation":"OperationTypeApply","Info":"","Who":"somebody@elsewhere","Version":"1.11.4","Created":"2026-01-01T00:00:00Z","Path":"states/` + key + `"}`
	if status, body := bucket(http.MethodPut, "/states/"+key+".tflock", lock); status != http.StatusOK {
		t.Fatalf("put lock: got %d %s", status, body)
	}
	got := w.Over(w.Update("in-s3"))
	w.wants(got, workflow.Failed, workflow.ReasonStepFailed)
	if got.Result == nil || got.Result.Lock == nil || got.Result.Lock.Who != "somebody@elsewhere" || !strings.Contains(got.Detail, "dayfly state unlock in-s3 11111111") {
		t.Errorf("got %q and %+v, want who holds the lock and what to do", got.Detail, got.Result)
	}
	if status, body := bucket(http.MethodGet, "/states/"+key+".tflock", ""); status != http.StatusOK || string(body) != lock {
		t.Errorf("the lock: got %d %s, want it as it was", status, body)
	}
	if text := w.Log(got.ID, 0); strings.Contains(text, user.SecretAccessKey) || strings.Contains(text, user.AccessKeyID) {
		t.Errorf("credentials are in the log:\n%s", text)
	}
}

// R2: what waits is run on the files that it was submitted with, or not at all.
func TestSources_FilesChangedWhileWaitingAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.write("moving/main.txt", "as submitted")
	w.put("moving", map[string]string{"update": engine}, func(ws *api.Workspace) { ws.Source.Directory = filepath.Join(w.Source, "moving") })
	first := w.Update("moving")
	w.said("start " + first)
	second := w.Update("moving") // waits for the slot
	w.write("moving/main.txt", "as edited since")
	w.letGo(first)
	w.wants(w.Over(first), workflow.Succeeded, "")
	w.wants(w.Until(second, "the end of "+second, func(wf api.Workflow) bool {
		if w.has("start " + second) {
			t.Fatal("the run has started with files that were not submitted")
		}
		return wf.State.Terminal() && !wf.SlotHeld
	}), workflow.Failed, workflow.ReasonSourceMoved)
	third := w.Update("moving")
	w.letGo(third)
	w.wants(w.Over(third), workflow.Succeeded, "")
	w.order("start "+first, "end "+first, "start "+third, "end "+third)
}
