package source_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// vault is a resolver over a map.
type vault map[string]string

func (v vault) Resolve(_ context.Context, ref string) (redact.String, error) {
	if value, ok := v[ref]; ok {
		return redact.New(value), nil
	}
	return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no secret %s", ref)
}

var _ secrets.Resolver = vault{}

func file(name, content string) entry {
	return entry{name: name, mode: filemode.Regular, content: content}
}

func dir(name string, entries ...entry) entry {
	return entry{name: name, mode: filemode.Dir, entries: entries}
}

// history makes the repository of most tests.
type history struct{ first, second, dev, tagged plumbing.Hash }

func makeHistory(r *repository) history {
	var h history
	h.first = r.commit("main", file("main.tf", "first"))
	h.tagged = r.commit("main", file("main.tf", "tagged"))
	h.second = r.commit("main",
		dir("envs", dir("prod", file("main.tf", "prod"))),
		entry{name: "link.tf", mode: filemode.Symlink, content: "envs/prod/main.tf"},
		file("main.tf", "second"),
		entry{name: "run.sh", mode: filemode.Executable, content: "#!/bin/sh"},
		entry{name: "vendored", mode: filemode.Submodule, hash: h.first},
	)
	r.set(plumbing.NewHashReference("refs/heads/dev", h.first))
	h.dev = r.commit("dev", file("main.tf", "dev"))
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	r.tag("v1.0.0", h.tagged, true)
	r.tag("light", h.first, false)
	return h
}

var atSecond = map[string]string{
	"envs/": "", "envs/prod/": "", "envs/prod/main.tf": "prod", "link.tf": "->envs/prod/main.tf",
	"main.tf": "second", "run.sh": "#!/bin/sh", "vendored/": "",
}

// R2: git over https with a token, by branch, tag and commit.
func TestFetch_GitOverHTTPSWithToken(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "team/app.git"))
	h := makeHistory(r)
	const token = "ghp_planted-token"
	server := newHTTPServer(t, top, "x-access-token", token, true)

	for name, tc := range map[string]struct {
		ref  string
		want string // content of main.tf
	}{
		"default branch":        {"", "second"},
		"HEAD":                  {"HEAD", "second"},
		"branch":                {"dev", "dev"},
		"full name":             {"refs/heads/dev", "dev"},
		"annotated tag":         {"v1.0.0", "tagged"},
		"light tag":             {"light", "first"},
		"commit at a tip":       {h.dev.String(), "dev"},
		"commit in the history": {h.tagged.String(), "tagged"},
		"short commit":          {h.tagged.String()[:7], "tagged"},
		"short, odd length":     {h.tagged.String()[:9], "tagged"},
		"upper case":            {strings.ToUpper(h.first.String()), "first"},
	} {
		t.Run(name, func(t *testing.T) {
			temp, dest := t.TempDir(), filepath.Join(t.TempDir(), "work")
			var log, masked []string
			fetched, err := source.Fetch(t.Context(), source.WithCA(source.Request{
				Source:  api.Source{Git: &api.GitSource{URL: server.URL + "/team/app.git", Ref: tc.ref, TokenRef: "file:token"}},
				Dest:    dest,
				Secrets: vault{"file:token": token + "\n"},
				TempDir: temp,
				Log:     func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) },
				Mask:    func(values ...string) { masked = append(masked, values...) },
			}, server.ca()))
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, fetched.Root)
			if got["main.tf"] != tc.want {
				t.Errorf("main.tf: got %q, want %q", got["main.tf"], tc.want)
			}
			if tc.want == "second" {
				if diff := cmp.Diff(atSecond, got); diff != "" {
					t.Errorf("checkout (-want +got):\n%s", diff)
				}
				if info, err := os.Stat(filepath.Join(fetched.Root, "run.sh")); err != nil || info.Mode().Perm() != 0o755 {
					t.Errorf("run.sh: got %v, %v, want mode 0755", info, err)
				}
			}
			if diff := cmp.Diff([]string{token}, masked); diff != "" {
				t.Errorf("masked (-want +got):\n%s", diff)
			}
			if len(log) == 0 || !strings.HasPrefix(log[0], "commit ") || strings.Contains(strings.Join(log, "\n"), token) {
				t.Errorf("log: got %q, want the commit and no token", log)
			}
			if left, _ := os.ReadDir(temp); len(left) != 0 {
				t.Errorf("temporary files were left: %v", left)
			}
		})
	}
}

// A server that gives any commit of its history is asked for that one commit only.
func TestFetch_GitCommitIsFetchedAloneIfAllowed(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	h := makeHistory(r)
	r.option("uploadpack", "allowReachableSHA1InWant", "true")
	server := newHTTPServer(t, top, "", "", false)
	dest := filepath.Join(t.TempDir(), "work")
	fetched, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git", Ref: h.tagged.String()}}, Dest: dest, TempDir: t.TempDir(),
	})
	if err != nil || fetched.Commit != h.tagged.String() {
		t.Fatalf("got %+v, %v", fetched, err)
	}
	if got := read(t, dest)["main.tf"]; got != "tagged" {
		t.Errorf("main.tf: got %q, want tagged", got)
	}
	want := []string{"GET /app.git/info/refs", "POST /app.git/git-upload-pack"}
	if diff := cmp.Diff(want, server.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A branch may have the name of a commit, so whoever wants exactly that commit looks at what was fetched.
func TestFetch_GitNamesTheCommitThatItFetched(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	h := makeHistory(r)
	r.set(plumbing.NewHashReference(plumbing.NewBranchReferenceName(h.first.String()), h.second))
	server := newHTTPServer(t, top, "", "", false)
	for ref, want := range map[string]plumbing.Hash{"main": h.second, h.tagged.String(): h.tagged, h.first.String(): h.second} {
		fetched, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git", Ref: ref}}, Dest: filepath.Join(t.TempDir(), "work"), TempDir: t.TempDir(),
		})
		if err != nil || fetched.Commit != want.String() {
			t.Errorf("%s: got commit %q and %v, want %s", ref, fetched.Commit, err, want)
		}
	}
}

// R2: git over ssh with a key.
func TestFetch_GitOverSSHWithKey(t *testing.T) {
	top := t.TempDir()
	h := makeHistory(newRepository(t, filepath.Join(top, "team/app.git")))
	signer, key := newKey(t)
	server := newSSHServer(t, top, signer.PublicKey())
	for name, ref := range map[string]string{"branch": "main", "tag": "v1.0.0", "commit": h.first.String(), "short": h.first.String()[:8]} {
		t.Run(name, func(t *testing.T) {
			dest := filepath.Join(t.TempDir(), "work")
			fetched, err := source.Fetch(t.Context(), source.Request{
				Source: api.Source{Git: &api.GitSource{
					URL: "ssh://git@" + server.addr + "/team/app.git", Ref: ref, SSHKeyRef: "file:key", KnownHosts: server.knownHosts,
				}},
				Dest: dest, Secrets: vault{"file:key": strings.TrimSpace(key)}, TempDir: t.TempDir(),
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"branch": "second", "tag": "tagged", "commit": "first", "short": "first"}[name]
			if got := read(t, fetched.Root)["main.tf"]; got != want {
				t.Errorf("main.tf: got %q, want %q", got, want)
			}
		})
	}
}

func TestFetch_GitOverSSHIsRefused(t *testing.T) {
	top := t.TempDir()
	makeHistory(newRepository(t, filepath.Join(top, "app.git")))
	signer, key := newKey(t)
	_, otherKey := newKey(t)
	server := newSSHServer(t, top, signer.PublicKey())
	other := newSSHServer(t, top, signer.PublicKey())
	imposter := strings.Replace(other.knownHosts, knownHostsName(other.addr), knownHostsName(server.addr), 1)
	for name, tc := range map[string]struct {
		path, key, known string
		want             error
		says             string
	}{
		"another host's key": {"app.git", key, imposter, workflow.ErrForbidden, "another key"},
		"unknown host":       {"app.git", key, other.knownHosts, workflow.ErrInvalid, "no line for"},
		"broken known_hosts": {"app.git", key, "nonsense", workflow.ErrInvalid, "known_hosts"},
		"no known_hosts":     {"app.git", key, " \n", workflow.ErrInvalid, "ssh-keyscan"},
		"key not allowed":    {"app.git", otherKey, server.knownHosts, workflow.ErrForbidden, "does not accept the credentials"},
		"no key in secret":   {"app.git", "not a key", server.knownHosts, source.ErrCredential, "no private key"},
		"no repository":      {"other.git", key, server.knownHosts, workflow.ErrNotFound, "no repository"},
	} {
		_, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Git: &api.GitSource{URL: "ssh://git@" + server.addr + "/" + tc.path, SSHKeyRef: "file:key", KnownHosts: tc.known}},
			Dest:   filepath.Join(t.TempDir(), "work"), Secrets: vault{"file:key": tc.key}, TempDir: t.TempDir(),
		})
		if !errors.Is(err, tc.want) || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, tc.want, tc.says)
		}
		if err != nil && tc.key != "not a key" && strings.Contains(err.Error(), tc.key[40:80]) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
}

func knownHostsName(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return "[" + host + "]:" + port
}

func TestFetch_SubdirectoryIsTheRootModule(t *testing.T) {
	top := t.TempDir()
	makeHistory(newRepository(t, filepath.Join(top, "app.git")))
	server := newHTTPServer(t, top, "", "", false)
	for path, want := range map[string]error{
		"envs/prod":     nil,
		"envs/prod/":    nil,
		"./envs":        nil,
		"envs/none":     workflow.ErrNotFound,
		"main.tf":       workflow.ErrNotFound,
		"../other":      workflow.ErrInvalid,
		"envs/../../up": workflow.ErrInvalid,
		"/etc":          workflow.ErrInvalid,
	} {
		dest := filepath.Join(t.TempDir(), "work")
		fetched, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git", Path: path}}, Dest: dest, TempDir: t.TempDir(),
		})
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
			continue
		}
		if want != nil {
			continue
		}
		if got, want := fetched.Root, filepath.Join(dest, path); got != want {
			t.Errorf("%s: root module is %s, want %s", path, got, want)
		}
		// The modules beside it are there too.
		if diff := cmp.Diff(atSecond, read(t, dest)); diff != "" {
			t.Errorf("%s: checkout (-want +got):\n%s", path, diff)
		}
	}
}

func TestFetch_GitRefusals(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	h := makeHistory(r)
	r.tag("main", h.first, false)
	newRepository(t, filepath.Join(top, "empty.git"))
	const token = "ghp_planted-token"
	server := newHTTPServer(t, top, "ci", token, true)
	for name, tc := range map[string]struct {
		git  api.GitSource
		want error
		says string
	}{
		"no such ref":           {api.GitSource{URL: server.URL + "/app.git", Ref: "nothing"}, workflow.ErrNotFound, "no branch, tag or commit"},
		"no such commit":        {api.GitSource{URL: server.URL + "/app.git", Ref: strings.Repeat("ab", 20)}, workflow.ErrNotFound, "no branch, tag or commit"},
		"no such short commit":  {api.GitSource{URL: server.URL + "/app.git", Ref: "abababa"}, workflow.ErrNotFound, "no branch, tag or commit"},
		"branch and tag":        {api.GitSource{URL: server.URL + "/app.git", Ref: "main"}, workflow.ErrInvalid, "refs/heads/main"},
		"ref like an option":    {api.GitSource{URL: server.URL + "/app.git", Ref: "--upload-pack=x"}, workflow.ErrInvalid, "ref"},
		"no such repository":    {api.GitSource{URL: server.URL + "/none.git"}, workflow.ErrNotFound, "no repository"},
		"empty repository":      {api.GitSource{URL: server.URL + "/empty.git"}, workflow.ErrNotFound, "empty"},
		"wrong user":            {api.GitSource{URL: server.URL + "/app.git", Username: "someone"}, workflow.ErrForbidden, "does not accept the credentials"},
		"token not found":       {api.GitSource{URL: server.URL + "/app.git", TokenRef: "file:none"}, source.ErrCredential, "token_ref"},
		"token of many lines":   {api.GitSource{URL: server.URL + "/app.git", TokenRef: "file:lines"}, source.ErrCredential, "more than one line"},
		"token over ssh":        {api.GitSource{URL: "git@example.com:app.git", TokenRef: "file:token"}, workflow.ErrInvalid, "ssh_key_ref"},
		"key over https":        {api.GitSource{URL: server.URL + "/app.git", SSHKeyRef: "file:token"}, workflow.ErrInvalid, "token_ref"},
		"ssh without known":     {api.GitSource{URL: "git@example.com:app.git", SSHKeyRef: "file:token"}, workflow.ErrInvalid, "ssh-keyscan example.com"},
		"ssh without key":       {api.GitSource{URL: "git@example.com:app.git", KnownHosts: "x"}, workflow.ErrInvalid, "ssh_key_ref"},
		"nobody listens":        {api.GitSource{URL: "https://127.0.0.1:1/app.git"}, nil, "https://127.0.0.1:1/app.git"},
		"wrong protocol behind": {api.GitSource{URL: "http" + strings.TrimPrefix(server.URL, "https") + "/app.git"}, nil, "/app.git"},
	} {
		if tc.git.TokenRef == "" && tc.git.SSHKeyRef == "" && !strings.HasPrefix(tc.git.URL, "git@") {
			tc.git.TokenRef = "file:token"
		}
		if tc.git.Username == "" {
			tc.git.Username = "ci"
		}
		dest := filepath.Join(t.TempDir(), "work")
		_, err := source.Fetch(t.Context(), source.WithCA(source.Request{
			Source: api.Source{Git: &tc.git}, Dest: dest, TempDir: t.TempDir(),
			Secrets: vault{"file:token": token, "file:lines": "one\ntwo"},
		}, server.ca()))
		if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, tc.want, tc.says)
			continue
		}
		if text := err.Error(); strings.Contains(text, token) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("ci:"+token))) {
			t.Errorf("%s: the error holds the token: %s", name, text)
		}
	}
}

// A certificate that the machine does not trust ends it, whatever the token.
func TestFetch_UntrustedServerIsRefused(t *testing.T) {
	top := t.TempDir()
	makeHistory(newRepository(t, filepath.Join(top, "app.git")))
	server := newHTTPServer(t, top, "", "", true)
	_, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git"}}, Dest: filepath.Join(t.TempDir(), "work"), TempDir: t.TempDir(),
	})
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an error about the certificate", err)
	}
	if len(server.requests) != 0 {
		t.Errorf("requests were sent: %v", server.requests)
	}
}

func TestFetch_HostileTreesAreRefused(t *testing.T) {
	top := t.TempDir()
	server := newHTTPServer(t, top, "", "", false)
	link := func(name, target string) entry {
		return entry{name: name, mode: filemode.Symlink, content: target}
	}
	for name, entries := range map[string][]entry{
		"absolute-link":    {link("bad", "/etc/passwd")},
		"link-upwards":     {link("bad", "../bad")},
		"link-of-links":    {dir("a", dir("b", link("c", "../.."))), link("bad", "a/b/c/../etc")},
		"git-directory":    {dir(".git", file("config", "x"))},
		"git-in-capitals":  {dir(".GIT", file("config", "x"))},
		"parent":           {dir("..", file("evil", "x"))},
		"slash":            {file("a/../../evil", "x")},
		"through-own-link": {link("bad", "sub"), dir("bad", file("evil", "x")), dir("sub")},
		"same-name-twice":  {file("a", "1"), file("a", "2")},
	} {
		r := newRepository(t, filepath.Join(top, name+".git"))
		r.commit("main", entries...)
		r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
		above := t.TempDir()
		_, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Git: &api.GitSource{URL: server.URL + "/" + name + ".git"}}, Dest: filepath.Join(above, "work"), TempDir: t.TempDir(),
		})
		if err == nil {
			t.Errorf("%s: was checked out: %v", name, read(t, above))
		}
		for path := range read(t, above) {
			if strings.Contains(path, "evil") {
				t.Errorf("%s: %s was written", name, path)
			}
		}
	}
}

func TestFetch_GitBoundsAreKept(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	// A tree that names itself over and over: few objects, very many files.
	entries := []entry{file("f", "12345")}
	for range 12 {
		entries = []entry{dir("a", entries...), dir("b", entries...)}
	}
	r.commit("main", entries...)
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	server := newHTTPServer(t, top, "", "", false)
	for name, req := range map[string]source.Request{
		"entries": source.WithLimits(source.Request{}, 100, 0),
		"bytes":   source.WithLimits(source.Request{}, 0, 100),
	} {
		req.Source = api.Source{Git: &api.GitSource{URL: server.URL + "/app.git"}}
		req.Dest, req.TempDir = filepath.Join(t.TempDir(), "work"), t.TempDir()
		if _, err := source.Fetch(t.Context(), req); !errors.Is(err, workflow.ErrTooLarge) {
			t.Errorf("%s: got %v, want %v", name, err, workflow.ErrTooLarge)
		}
	}
}

func TestFetch_CancelEndsASilentServer(t *testing.T) {
	why := errors.New("cancelled by a person")
	_, key := newKey(t)
	for _, url := range []string{"http://%s/app.git", "ssh://git@%s/app.git"} {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listener.Accept() // and never say a word
			if err != nil {
				return
			}
			cancel(why)
			_, _ = conn.Read(make([]byte, 1<<16))
			_ = conn.Close()
		}()
		addr := listener.Addr().String()
		g := api.GitSource{URL: fmt.Sprintf(url, addr)}
		if strings.HasPrefix(url, "ssh") {
			signer, _ := newKey(t)
			g.SSHKeyRef, g.KnownHosts = "file:key", knownHostsName(addr)+" "+publicLine(signer)
		}
		_, err = source.Fetch(ctx, source.Request{Source: api.Source{Git: &g}, Dest: filepath.Join(t.TempDir(), "work"), TempDir: t.TempDir(), Secrets: vault{"file:key": key}})
		if !errors.Is(err, why) {
			t.Errorf("%s: got %v, want %v", url, err, why)
		}
		_ = listener.Close()
		<-done
	}
}

func TestGitURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://github.com/a/b.git":     "https://github.com/a/b.git",
		"https://git.example.com:8443/b": "https://git.example.com:8443/b",
		"ssh://git.example.com/b":        "ssh://git@git.example.com/b",
		"ssh://me@git.example.com:22/b":  "ssh://me@git.example.com:22/b",
		"git@github.com:a/b.git":         "ssh://git@github.com/a/b.git",
		"http://localhost:3000/b":        "http://localhost:3000/b",
		"http://127.0.0.1/b":             "http://127.0.0.1/b",
		"http://[::1]:80/b":              "http://[::1]:80/b",

		"http://github.com/a/b.git":               "",
		"http://localhost.example.com/b":          "",
		"https://user:secret@github.com/a/b":      "",
		"https://secret@github.com/a/b":           "",
		"ssh://git:secret@github.com/a/b":         "",
		"https://github.com/a/b?token=secret":     "",
		"https://github.com/a/b#secret":           "",
		"file:///etc":                             "",
		"git://github.com/a/b":                    "",
		"ext::sh -c id":                           "",
		"/etc":                                    "",
		"../up":                                   "",
		"":                                        "",
		"https://":                                "",
		"https://github.com":                      "",
		"https://github.com/":                     "",
		"git@github.com:-oProxyCommand=id":        "",
		"git@-oProxyCommand=id:x":                 "",
		"https://github.com/a\nb":                 "",
		"git@github.com::x":                       "",
		"https://user:sec ret@github.com/%zz/a/b": "",
	} {
		got, err := source.CheckURL(raw)
		if want == "" {
			if !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("%q: got %q, %v, want a refusal", raw, got, err)
			} else if strings.Contains(err.Error(), "secret") && !strings.Contains(err.Error(), "name a secret") || strings.Contains(err.Error(), "sec ret") {
				t.Errorf("%q: the refusal repeats the credential: %v", raw, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", raw, got, err, want)
		}
	}
}

// What is taken is shown without credentials and has a host and a path.
func FuzzGitURL(f *testing.F) {
	for _, seed := range []string{"https://github.com/a/b.git", "git@github.com:a/b", "ssh://x@y:22/z", "https://a:b@c/d", "file:///x", "http://127.0.0.1/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		shown, err := source.CheckURL(raw)
		if err != nil {
			return
		}
		if !strings.HasPrefix(shown, "https://") && !strings.HasPrefix(shown, "ssh://") && !strings.HasPrefix(shown, "http://") {
			t.Errorf("%q was taken as %q", raw, shown)
		}
		if rest, ok := strings.CutPrefix(shown, "https://"); ok && strings.Contains(strings.SplitN(rest, "/", 2)[0], "@") {
			t.Errorf("%q was taken with a user: %q", raw, shown)
		}
	})
}

// State that was committed beside the root module does not belong to a run; elsewhere in the repository it may be data.
func TestFetch_GitSetsStateBesideTheRootModuleAside(t *testing.T) {
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	r.commit("main",
		dir("live",
			dir(".terraform", file("environment", "prod")),
			file("main.tf", "live"), file("terraform.tfstate", "of default"),
			dir("terraform.tfstate.d", dir("prod", file("terraform.tfstate", "of prod"))),
		),
		dir("other", file("terraform.tfstate", "data")),
	)
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	server := newHTTPServer(t, top, "", "", false)
	dest, aside := filepath.Join(t.TempDir(), "work"), t.TempDir()
	fetched, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git", Path: "live"}}, Dest: dest, TempDir: t.TempDir(), Aside: aside,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"live/": "", "live/main.tf": "live", "live/.terraform/": "", "live/.terraform/environment": "prod", "other/": "", "other/terraform.tfstate": "data"}
	if diff := cmp.Diff(want, read(t, dest)); diff != "" {
		t.Errorf("checkout (-want +got):\n%s", diff)
	}
	want = map[string]string{"terraform.tfstate": "of default", "terraform.tfstate.d/": "", "terraform.tfstate.d/prod/": "", "terraform.tfstate.d/prod/terraform.tfstate": "of prod"}
	if diff := cmp.Diff(want, read(t, fetched.Aside)); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	if fetched.Root != filepath.Join(dest, "live") || fetched.Digest != "" {
		t.Errorf("got %+v", fetched)
	}
}
