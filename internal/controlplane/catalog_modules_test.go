package controlplane_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R2: a version or a ref; and credentials for modules are references, each for one host.
func TestWorkspace_VersionsAndCredentialsForModules(t *testing.T) {
	w := newWorld(t, memory.New())
	token := api.ModuleCredential{Host: "modules.example.com", TokenRef: "file:token"}
	key := api.ModuleCredential{Host: "git.example.com", SSHKeyRef: "file:key", KnownHosts: "git.example.com ssh-ed25519 AAAA"}
	with := func(all ...api.ModuleCredential) api.Workspace {
		return api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}, Modules: all}}
	}
	of := func(m api.ModuleCredential, change func(*api.ModuleCredential)) api.Workspace {
		change(&m)
		return with(m)
	}
	host := func(name string) api.Workspace {
		return of(token, func(m *api.ModuleCredential) { m.Host = name })
	}
	git := func(g api.GitSource) api.Workspace {
		g.URL = "https://git.example.com/net.git"
		return api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Git: &g}}}
	}
	other := func(m api.ModuleCredential, name string) api.ModuleCredential {
		m.Host = name
		return m
	}
	many := make([]api.ModuleCredential, 21)
	for i := range many {
		many[i] = other(token, string(rune('a'+i))+".example.com")
	}
	for name, c := range map[string]struct {
		field string // empty: it is taken
		ws    api.Workspace
	}{
		"a version":       {"", git(api.GitSource{Version: ">= 1.2, < 2"})},
		"with a ref":      {"source.git.version", git(api.GitSource{Version: "1.2.0", Ref: "main"})},
		"not a version":   {"source.git.version", git(api.GitSource{Version: "latest"})},
		"both":            {"", with(token, key, other(token, "git.example.com"))},
		"with a port":     {"", with(token, other(token, "modules.example.com:8443"))},
		"punycode":        {"", host("xn--bcher-kva.example")},
		"twice":           {"modules[1].host", with(token, other(token, "Modules.example.com:443"))},
		"two keys":        {"modules[1].host", with(key, other(key, "git.example.com:2222"))},
		"no host":         {"modules[0].host", host("")},
		"an address":      {"modules[0].host", host("https://modules.example.com")},
		"other letters":   {"modules[0].host", host("bücher.example")},
		"a pattern":       {"modules[0].host", host("*.example.com")},
		"two lines":       {"modules[0].host", host("a.example.com\nHost *")},
		"port 0":          {"modules[0].host", host("a.example.com:0")},
		"no reference":    {"modules[0]", of(token, func(m *api.ModuleCredential) { m.TokenRef = "" })},
		"two references":  {"modules[0]", of(key, func(m *api.ModuleCredential) { m.TokenRef = "file:token" })},
		"a value":         {"modules[0].token_ref", of(token, func(m *api.ModuleCredential) { m.TokenRef = "hunter2" })},
		"value of a key":  {"modules[0].ssh_key_ref", of(key, func(m *api.ModuleCredential) { m.SSHKeyRef = "hunter2" })},
		"any host":        {"modules[0].known_hosts", of(key, func(m *api.ModuleCredential) { m.KnownHosts = " " })},
		"hosts of https":  {"modules[0].known_hosts", of(token, func(m *api.ModuleCredential) { m.KnownHosts = "x" })},
		"a user of ssh":   {"modules[0].username", of(key, func(m *api.ModuleCredential) { m.Username = "x" })},
		"a user of lines": {"modules[0].username", of(token, func(m *api.ModuleCredential) { m.Username = "x\npassword=y" })},
		"too many":        {"modules", with(many...)},
	} {
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, c.ws)
		refusal, refused := errors.AsType[*workflow.Error](err)
		if refused != (c.field != "") || refused && refusal.Field != c.field || !refused && err != nil {
			t.Errorf("%s: got %v, want one about %q", name, err, c.field)
		}
	}
}

// R6: which credentials a workspace has for modules, and for which hosts, is an admin's to say.
func TestWorkspace_OnlyAdminsChangeModuleCredentials(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	token := api.ModuleCredential{Host: "modules.example.com", TokenRef: "file:token"}
	w.workspace("net", tofu(nil), func(ws *api.Workspace) { ws.Modules = []api.ModuleCredential{token} })
	for name, change := range map[string]func(*api.ModuleCredential){
		"host":      func(m *api.ModuleCredential) { m.Host = "elsewhere.example.com" },
		"reference": func(m *api.ModuleCredential) { m.TokenRef = "file:other" },
		"user":      func(m *api.ModuleCredential) { m.Username = "somebody" },
		"preview":   func(m *api.ModuleCredential) { m.Preview = true },
		"nothing":   func(*api.ModuleCredential) {},
	} {
		ws, err := w.plane.Workspace(w.ctx(), operator, "net")
		w.must(err)
		changed := token
		change(&changed)
		ws.Version, ws.Modules = 0, []api.ModuleCredential{changed}
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		if e, ok := errors.AsType[*workflow.Error](err); ok != (name != "nothing") || ok && (e.Kind != workflow.ErrForbidden || e.Field != "secrets") { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A launcher hands the values of these over too, and a runner that would pass them over does not get the run.
func TestStart_CredentialsForModulesAreHandedOver(t *testing.T) {
	for _, word := range []string{"", "git_version", "git_submodules", "modules"} {
		w := newWorld(t, memory.New())
		w.workspace("net", tofu(nil), func(ws *api.Workspace) {
			ws.Source = api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git", TokenRef: "file:git", Version: "~> 1.0", Submodules: true}}
			ws.Modules = []api.ModuleCredential{{Host: "a.example.com", TokenRef: "file:a"}, {Host: "b.example.com", SSHKeyRef: "file:b", KnownHosts: "x"}}
		})
		wf := w.submit("net", workflow.Preview)
		job := w.claimOne()
		if !slices.Equal(job.SecretRefs, []string{"file:git", "file:a", "file:b"}) {
			t.Errorf("got %q", job.SecretRefs)
		}
		w.launch(job, "task")
		knows := slices.DeleteFunc(api.RunnerKnows(), func(known string) bool { return known == word })
		_, err := w.plane.Start(w.ctx(), job.Token, run(job, "task", 'a'), api.Start{Knows: knows})
		if word == "" {
			w.must(err)
			continue
		}
		wantErr(t, err, workflow.ErrOver)
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerTooOld)
	}
}
