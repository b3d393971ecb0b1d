package source_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func submodule(name string, commit plumbing.Hash) entry {
	return entry{name: name, mode: filemode.Submodule, hash: commit}
}

// gitmodules is such a file, of pairs of a path and an address.
func gitmodules(pairs ...string) entry {
	var b strings.Builder
	for pair := range slices.Chunk(pairs, 2) {
		fmt.Fprintf(&b, "[submodule %q]\n\tpath = %s\n\turl = %s\n", pair[0], pair[0], pair[1])
	}
	return file(".gitmodules", b.String())
}

// headed makes a repository of one commit, whose default branch is main.
func headed(t *testing.T, path string, entries ...entry) plumbing.Hash {
	t.Helper()
	r := newRepository(t, path)
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	return r.commit("main", entries...)
}

// R2: submodules are fetched without their history, with the credentials on the source's host and without on others.
func TestFetch_GitSubmodules(t *testing.T) {
	const token = "ghp_planted-token"
	top, elsewhere := t.TempDir(), t.TempDir()
	public := newHTTPServer(t, elsewhere, "", "", true)
	open := headed(t, filepath.Join(elsewhere, "open.git"), file("open.tf", "open"))
	deep := headed(t, filepath.Join(top, "team/deep.git"), file("deep.tf", "deep"))
	lib := newRepository(t, filepath.Join(top, "team/lib.git"))
	old := lib.commit("main", gitmodules("deep", "../deep.git"), submodule("deep", deep), file("lib.tf", "lib"))
	lib.commit("main", file("lib.tf", "newer"))
	server := newHTTPServer(t, top, "x-access-token", token, true)
	headed(t, filepath.Join(top, "team/app.git"),
		gitmodules("modules/lib", "../lib.git", "open", public.URL+"/open.git"),
		file("main.tf", "main"), dir("modules", submodule("lib", old)), submodule("open", open))

	fetch := func(submodules bool) (map[string]string, string) {
		t.Helper()
		var said string
		temp, dest := t.TempDir(), filepath.Join(t.TempDir(), "work")
		_, err := source.Fetch(t.Context(), source.WithCA(source.Request{
			Source: api.Source{Git: &api.GitSource{URL: server.URL + "/team/app.git", TokenRef: "file:token", Submodules: submodules}},
			Dest:   dest, Secrets: vault{"file:token": token}, TempDir: temp,
			Log: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" },
		}, append(server.ca(), public.ca()...)))
		if err != nil {
			t.Fatal(err)
		}
		if left := read(t, temp); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		got := read(t, dest)
		for name := range got {
			if strings.HasSuffix(name, ".gitmodules") {
				delete(got, name)
			}
		}
		return got, said
	}
	got, said := fetch(false)
	want := map[string]string{"main.tf": "main", "modules/": "", "modules/lib/": "", "open/": ""}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(said, `"modules/lib" stays empty: source.git.submodules is not set`) {
		t.Errorf("without submodules (-want +got):\n%s\n%s", diff, said)
	}
	got, said = fetch(true)
	want["modules/lib/lib.tf"], want["modules/lib/deep/"], want["modules/lib/deep/deep.tf"], want["open/open.tf"] = "lib", "", "deep", "open"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with submodules (-want +got):\n%s\n%s", diff, said)
	}
	if len(public.tokens) == 0 || strings.Join(public.tokens, "") != "" {
		t.Errorf("the other host was sent %q", public.tokens)
	}
	// git's own server gives a commit that no branch is at only with its history, unless it is told otherwise.
	for i, asked := range slices.Concat(server.asked, public.asked) {
		if whole := !strings.Contains(asked, "deepen 1"); whole != strings.Contains(asked, "want "+lib.head("main")) {
			t.Errorf("request %d was for a whole history (%t): %s", i, whole, asked)
		}
	}
}

// A submodule over ssh has the source's key and known hosts.
func TestFetch_GitSubmoduleOverSSH(t *testing.T) {
	top := t.TempDir()
	lib := headed(t, filepath.Join(top, "lib.git"), file("lib.tf", "lib"))
	headed(t, filepath.Join(top, "app.git"), gitmodules("lib", "../lib.git"), submodule("lib", lib))
	signer, key := newKey(t)
	server := newSSHServer(t, top, signer.PublicKey())
	dest := filepath.Join(t.TempDir(), "work")
	_, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: "ssh://git@" + server.addr + "/app.git", SSHKeyRef: "file:key", KnownHosts: server.knownHosts, Submodules: true}},
		Dest:   dest, Secrets: vault{"file:key": key}, TempDir: t.TempDir(),
	})
	if err != nil || read(t, dest)["lib/lib.tf"] != "lib" {
		t.Errorf("got %v, %v", read(t, dest), err)
	}
}

func TestFetch_GitSubmoduleRefusals(t *testing.T) {
	const token = "ghp_planted-token"
	top, elsewhere := t.TempDir(), t.TempDir()
	closed := newHTTPServer(t, elsewhere, "x-access-token", token, true)
	commit := headed(t, filepath.Join(elsewhere, "lib.git"), file("lib.tf", "lib"))
	headed(t, filepath.Join(top, "lib.git"), file("lib.tf", "lib"))
	server := newHTTPServer(t, top, "x-access-token", token, true)
	nested := newRepository(t, filepath.Join(top, "nested.git"))
	inner := nested.commit("main", file("f", "x"))
	for range 6 {
		inner = nested.commit("main", gitmodules("n", "../nested.git"), submodule("n", inner))
	}
	many := []entry{gitmodules()}
	for i := range 51 {
		name := fmt.Sprintf("m%02d", i)
		many[0].content += gitmodules(name, "../lib.git").content
		many = append(many, submodule(name, commit))
	}
	for name, c := range map[string]struct {
		entries []entry
		want    error
		says    string
	}{
		"file":            {[]entry{gitmodules("m", "file:///etc"), submodule("m", commit)}, workflow.ErrInvalid, "a git URL is written"},
		"local":           {[]entry{gitmodules("m", "/srv/git/m"), submodule("m", commit)}, workflow.ErrInvalid, "a git URL is written"},
		"program":         {[]entry{gitmodules("m", "ext::sh -c id"), submodule("m", commit)}, workflow.ErrInvalid, "a git URL is written"},
		"above":           {[]entry{gitmodules("m", "../../m.git"), submodule("m", commit)}, workflow.ErrInvalid, "does not lead to a repository"},
		"plain http":      {[]entry{gitmodules("m", "http://127.0.0.1:1/m.git"), submodule("m", commit)}, workflow.ErrInvalid, "needs others"},
		"ssh":             {[]entry{gitmodules("m", "git@example.com:a/m.git"), submodule("m", commit)}, workflow.ErrInvalid, "../NAME.git"},
		"with a password": {[]entry{gitmodules("m", "https://me:hunter22@example.com/m.git"), submodule("m", commit)}, workflow.ErrInvalid, "holds no credentials"},
		"not named":       {[]entry{gitmodules("other", "../lib.git"), submodule("m", commit)}, workflow.ErrInvalid, "no address"},
		"no file":         {[]entry{submodule("m", commit)}, workflow.ErrInvalid, "no file .gitmodules"},
		"linked file":     {[]entry{{name: ".gitmodules", mode: filemode.Symlink, content: "f"}, file("f", gitmodules("m", "../lib.git").content), submodule("m", commit)}, workflow.ErrInvalid, "no file .gitmodules"},
		"no such commit":  {[]entry{gitmodules("m", "../nested.git"), submodule("m", commit)}, workflow.ErrNotFound, commit.String()},
		"another's token": {[]entry{gitmodules("m", closed.URL+"/lib.git"), submodule("m", commit)}, workflow.ErrForbidden, "those of the source are for"},
		"too deep":        {[]entry{gitmodules("m", "../nested.git"), submodule("m", inner)}, workflow.ErrTooLarge, "5 deep"},
		"too many":        {many, workflow.ErrTooLarge, "at most 50"},
	} {
		t.Run(name, func(t *testing.T) {
			headed(t, filepath.Join(top, "app-"+name+".git"), c.entries...)
			_, err := source.Fetch(t.Context(), source.WithCA(source.Request{
				Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app-" + name + ".git", TokenRef: "file:token", Submodules: true}},
				Dest:   filepath.Join(t.TempDir(), "work"), Secrets: vault{"file:token": token}, TempDir: t.TempDir(),
			}, append(server.ca(), closed.ca()...)))
			refusal, ok := errors.AsType[*workflow.Error](err)
			if !ok || !errors.Is(err, c.want) || refusal.Field != "source.git.submodules" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter22") {
				t.Errorf("got %v, want %v that says %q", err, c.want, c.says)
			}
		})
	}
	if strings.Join(closed.tokens, "") != "" {
		t.Errorf("the other host was sent %q", closed.tokens)
	}
}

func TestSubmoduleURL(t *testing.T) {
	const https, scp = "https://git.example.com/team/app.git", "git@git.example.com:team/app.git"
	for _, c := range [][3]string{
		{https, "../lib.git", "https://git.example.com/team/lib.git"},
		{https, "../../other/lib.git", "https://git.example.com/other/lib.git"},
		{https, "./lib", "https://git.example.com/team/app.git/lib"},
		{https, "https://example.org/lib.git", "https://example.org/lib.git"},
		{https, "../../../lib.git", ""},
		{https, "../..", ""},
		{https, "../lib.git?a=b", ""},
		{https, "ssh://git@git.example.com/lib.git", ""},
		{scp, "../lib.git", "ssh://git@git.example.com/team/lib.git"},
		{scp, "git@git.example.com:other/lib.git", "ssh://git@git.example.com/other/lib.git"},
		{scp, "git@other.example.com:lib.git", ""},
		{scp, "../../-x", ""},
	} {
		_, got, err := source.SubmoduleURL(c[0], c[1])
		if (c[2] == "") != (err != nil) || err == nil && got != c[2] {
			t.Errorf("%s of %s: got %s, %v, want %s", c[1], c[0], got, err, c[2])
		}
	}
}

// What is relative stays on its host, and all else has TLS.
func FuzzSubmoduleURL(f *testing.F) {
	for _, seed := range []string{"../a.git", "./b", "https://h/x", "git@h:x", "../../..", "file:///x", "../\x00", "http://127.0.0.1/x"} {
		f.Add("https://git.example.com/team/app.git", seed)
		f.Add("git@git.example.com:team/app.git", seed)
	}
	f.Fuzz(func(t *testing.T, of, raw string) {
		base, got, err := source.SubmoduleURL(of, raw)
		if err != nil {
			return
		}
		if relative := strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../"); relative && !strings.HasPrefix(strings.Replace(got, "@", "", 1), strings.SplitAfter(base, "://")[0]) {
			t.Errorf("%q of %q is %q", raw, of, got)
		}
		if _, err := source.CheckURL(got); err != nil {
			t.Errorf("%q of %q is %q: %v", raw, of, got, err)
		}
	})
}

func FuzzParseModules(f *testing.F) {
	f.Add([]byte(gitmodules("a/b", "../c.git").content))
	f.Add([]byte("[submodule \"x\"]\n\tpath = ../x\n\turl = \"a\\\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		urls, err := source.ParseModules(data)
		if err != nil && len(urls) > 0 {
			t.Errorf("got %v with %v", urls, err)
		}
	})
}
