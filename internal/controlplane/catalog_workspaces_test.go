package controlplane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestWorkspace_MistakesNameTheFieldAndChangeNothing(t *testing.T) {
	w := newWorld(t, memory.New())
	good := func() api.Workspace {
		return api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: "/src"}}}
	}
	git := func(g api.GitSource) func(*api.Workspace) {
		return func(ws *api.Workspace) { ws.Source = api.Source{Git: &g} }
	}
	archive := func(change func(*api.ArchiveSource)) func(*api.Workspace) {
		a := api.ArchiveSource{URL: "s3://code/net.tgz", SHA256: strings.Repeat("a", 64)}
		change(&a)
		return func(ws *api.Workspace) { ws.Source = api.Source{Archive: &a} }
	}
	for name, c := range map[string]struct {
		field  string
		change func(*api.Workspace)
	}{
		"name":               {"name", func(ws *api.Workspace) { ws.Name = "../x" }},
		"project":            {"project", func(ws *api.Workspace) { ws.Project = "team" }},
		"engine":             {"engine", func(ws *api.Workspace) { ws.Engine = "chef" }},
		"commands":           {"commands", func(ws *api.Workspace) { ws.Commands = map[string]string{"update": "x"} }},
		"image":              {"image", func(ws *api.Workspace) { ws.Image = "runner:v2" }},
		"image with a slash": {"image", func(ws *api.Workspace) { ws.Image = "a/b" }},
		"spot":               {"spot", func(ws *api.Workspace) { ws.Spot = "always" }},
		"disk below nothing": {"disk_gib", func(ws *api.Workspace) { ws.DiskGiB = -1 }},
		"disk above Fargate": {"disk_gib", func(ws *api.Workspace) { ws.DiskGiB = 201 }},
		"no command":         {"commands", func(ws *api.Workspace) { ws.Engine = api.EngineCommand }},
		"no source":          {"source", func(ws *api.Workspace) { ws.Source = api.Source{} }},
		"relative directory": {"source.directory", func(ws *api.Workspace) { ws.Source.Directory = "src" }},
		"traversal":          {"source.directory", func(ws *api.Workspace) { ws.Source.Directory = "/src/../etc" }},
		"path up":            {"source.path", func(ws *api.Workspace) { ws.Source.Path = "../x" }},
		"absolute path":      {"source.path", func(ws *api.Workspace) { ws.Source.Path = "/x" }},
		"path of git": {"source.path", func(ws *api.Workspace) {
			ws.Source = api.Source{Git: &api.GitSource{URL: "https://example.com/x"}, Path: "x"}
		}},
		"git file":           {"source.git.url", git(api.GitSource{URL: "file:///etc"})},
		"git http":           {"source.git.url", git(api.GitSource{URL: "http://example.com/x"})},
		"git credentials":    {"source.git.url", git(api.GitSource{URL: "https://me:pw@example.com/x"})},
		"git token in query": {"source.git.url", git(api.GitSource{URL: "https://example.com/x?access_token=pw"})},
		"git token behind #": {"source.git.url", git(api.GitSource{URL: "https://example.com/x#pw"})},
		"git path":           {"source.git.path", git(api.GitSource{URL: "https://example.com/x", Path: "../../x"})},
		"git ref":            {"source.git.ref", git(api.GitSource{URL: "https://example.com/x", Ref: "--upload-pack=x"})},
		"file outside":       {"files[0].path", func(ws *api.Workspace) { ws.Files = []api.File{{Path: "../x"}} }},
		"file of git":        {"files[0].path", func(ws *api.Workspace) { ws.Files = []api.File{{Path: ".git/config"}} }},
		"file in a file":     {"files[1].path", func(ws *api.Workspace) { ws.Files = []api.File{{Path: "a"}, {Path: "a/b"}} }},
		"large files":        {"files", func(ws *api.Workspace) { ws.Files = []api.File{{Path: "a", Content: strings.Repeat("x", 129<<10)}} }},
		"hook of no step":    {"hooks[0]", func(ws *api.Workspace) { ws.Hooks = []api.Hook{{Run: "true"}} }},
		"hook of two steps":  {"hooks[0]", func(ws *api.Workspace) { ws.Hooks = []api.Hook{{Before: "plan", After: "plan", Run: "true"}} }},
		"hook of run":        {"hooks[0].before", func(ws *api.Workspace) { ws.Hooks = []api.Hook{{Before: "run", Run: "true"}} }},
		"hook of nothing":    {"hooks[0].run", func(ws *api.Workspace) { ws.Hooks = []api.Hook{{After: "apply", Run: " "}} }},
		"step of a secret": {"secrets[0].steps[1]", func(ws *api.Workspace) {
			ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a", Steps: []string{"plan", "up"}}}
		}},
		"two sources":      {"source", func(ws *api.Workspace) { ws.Source.Git = &api.GitSource{URL: "https://example.com/x"} }},
		"archive ftp":      {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "ftp://example.com/x" })},
		"archive http":     {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "http://example.com/x" })},
		"archive signed":   {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "https://example.com/x?X-Amz-Signature=hunter2" })},
		"archive password": {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "https://me:hunter2@example.com/x" })},
		"archive bucket":   {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "s3://Code/x" })},
		"archive no key":   {"source.archive.url", archive(func(a *api.ArchiveSource) { a.URL = "s3://code/" })},
		"archive digest":   {"source.archive.sha256", archive(func(a *api.ArchiveSource) { a.SHA256 = "abc" })},
		"archive path":     {"source.archive.path", archive(func(a *api.ArchiveSource) { a.Path = "../x" })},
		"archive region":   {"source.archive.region", archive(func(a *api.ArchiveSource) { a.Region = "Europe" })},
		"region of https":  {"source.archive.region", archive(func(a *api.ArchiveSource) { a.URL, a.Region = "https://example.com/x", "eu-west-1" })},
		"token of s3":      {"source.archive.token_ref", archive(func(a *api.ArchiveSource) { a.TokenRef = "file:token" })},
		"ssh without key":  {"source.git.ssh_key_ref", git(api.GitSource{URL: "git@example.com:x/y"})},
		"ssh without host": {"source.git.known_hosts", git(api.GitSource{URL: "git@example.com:x/y", SSHKeyRef: "file:key"})},
		"state":            {"state.kind", func(ws *api.Workspace) { ws.State = &api.State{Kind: "ftp"} }},
		"s3":               {"state", func(ws *api.Workspace) { ws.State = &api.State{Kind: api.StateS3} }},
		"runtime":          {"max_runtime", func(ws *api.Workspace) { ws.MaxRuntime = "25h" }},
		"size":             {"size", func(ws *api.Workspace) { ws.Size = "huge" }},
		"explicit size":    {"size", func(ws *api.Workspace) { ws.Size = "2048/1024" }},
		"env":              {"environment", func(ws *api.Workspace) { ws.Environment = map[string]string{"A B": "x"} }},
		"env kept":         {"environment", func(ws *api.Workspace) { ws.Environment = map[string]string{"DAYFLY_TICKET": "x"} }},
		"env too long":     {"environment.A", func(ws *api.Workspace) { ws.Environment = map[string]string{"A": strings.Repeat("x", 128<<10)} }},
		"variable too long": {"variables.doc", func(ws *api.Workspace) {
			ws.Engine, ws.Commands = api.EngineCommand, map[string]string{"update": "true"}
			ws.Variables = api.Values{"doc": strings.Repeat("x", 128<<10)}
		}},
		"list too long": {"variables.doc", func(ws *api.Workspace) {
			ws.Engine, ws.Commands, ws.Variables = api.EngineTerragrunt, nil, api.Values{"doc": []any{strings.Repeat("x", 128<<10)}}
		}},
		"secret both":       {"secrets[0]", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "A", File: "b", Ref: "file:x"}} }},
		"secret path":       {"secrets[0].file", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{File: "../b", Ref: "file:x"}} }},
		"secret value":      {"secrets[0].ref", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "A", Ref: "hunter2-hunter2"}} }},
		"pool":              {"pool", func(ws *api.Workspace) { ws.Pool = "nosuch" }},
		"no version":        {"engine_version", func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.EngineVersion = api.EngineTofu, nil, "abc" }},
		"half a constraint": {"engine_version", func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.EngineVersion = api.EngineTofu, nil, ">= 1.10," }},
	} {
		t.Run(name, func(t *testing.T) {
			ws := good()
			c.change(&ws)
			_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
			e, ok := err.(*workflow.Error) //nolint:errorlint // a refusal is not wrapped
			if !ok || e.Field != c.field {
				t.Errorf("error = %v, want one about %s", err, c.field)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error("the error repeats a value that may be a secret")
			}
		})
	}
	page, err := w.plane.Workspaces(w.ctx(), w.admin, "", 0)
	w.must(err)
	if len(page.Items) != 0 {
		t.Errorf("mistakes left %d workspaces", len(page.Items))
	}
}

func TestWorkspace_SecretReferencesAreAnAdminsField(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	w.workspace("net", func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}} })
	ws, err := w.plane.Workspace(w.ctx(), operator, "net")
	w.must(err)
	ws.MaxRuntime = "2h"
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	w.must(err)
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws) // that version is no longer current
	wantErr(t, err, workflow.ErrConflict)
	ws.Version = 0
	ws.Secrets[0].Ref = "file:somebody-elses"
	_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
	wantErr(t, err, workflow.ErrForbidden)
}

// R6: what decides where a secret is sent is as much an admin's as the secret.
func TestWorkspace_WhatASecretIsUsedWithIsAnAdminsField(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	https := api.GitSource{URL: "https://git.example.com/net.git", TokenRef: "file:token", Username: "ci"}
	ssh := api.GitSource{URL: "ssh://git@git.example.com/net.git", SSHKeyRef: "file:key", KnownHosts: "git.example.com ssh-ed25519 AAAA"}
	for name, tc := range map[string]struct {
		git    api.GitSource
		change func(*api.GitSource)
	}{
		"address":     {https, func(g *api.GitSource) { g.URL = "https://elsewhere.example.com/net.git" }},
		"submodules":  {https, func(g *api.GitSource) { g.Submodules = true }},
		"user":        {https, func(g *api.GitSource) { g.Username = "somebody" }},
		"known hosts": {ssh, func(g *api.GitSource) { g.KnownHosts = "git.example.com ssh-ed25519 BBBB" }},
	} {
		w.workspace("net", func(ws *api.Workspace) { ws.Source = api.Source{Git: &tc.git} })
		ws, err := w.plane.Workspace(w.ctx(), operator, "net")
		w.must(err)
		git := tc.git
		git.Ref = "main" // an operator chooses what is run
		ws.Source, ws.Version = api.Source{Git: &git}, 0
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		w.must(err)
		tc.change(&git)
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		if e, ok := errors.AsType[*workflow.Error](err); !errors.Is(err, workflow.ErrForbidden) || !ok || e.Field != "secrets" {
			t.Errorf("%s: got %v, want a refusal about secrets", name, err)
		}
	}
}

// C16: a pool is a boundary of trust, so an operator uses only the one that every organization starts with, or one
// to which an admin assigned the workspace by its name.
func TestWorkspace_APoolIsAnAdminsField(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("prod")})
	w.must(err)
	put := func(who controlplane.Principal, pool string) error {
		_, _, err := w.plane.PutWorkspace(w.ctx(), who, api.Workspace{
			Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Pool: pool,
		})
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*workflow.Error](err); !errors.Is(err, workflow.ErrForbidden) || !ok || e.Field != "pool" {
			t.Errorf("%s: got %v, want a refusal about the pool", what, err)
		}
	}
	refused("a new workspace in a pool", put(operator, "prod"))
	w.must(put(operator, ""))
	w.must(put(operator, "default"))
	refused("another pool", put(operator, "prod"))
	_, err = w.plane.Submit(w.ctx(), operator, "", api.Submit{Workspace: "net", Operation: workflow.Preview, Register: &api.Workspace{
		Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Pool: "prod",
	}})
	refused("another pool with a run", err)
	w.must(put(w.admin, "prod"))
	w.must(put(operator, "prod"))
	refused("out of the pool that an admin chose", put(operator, ""))

	_, err = w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{AssignedToAll: ptr(false), AssignedWorkspaces: &[]string{"net"}})
	w.must(err)
	w.must(put(operator, ""))
	_, err = w.plane.UpdatePool(w.ctx(), w.admin, "prod", api.PoolSettings{AssignedToAll: ptr(false), AssignedWorkspaces: &[]string{"net"}})
	w.must(err)
	w.must(put(operator, "prod"))
}

func TestWorkspace_TakesAnExplicitSizeToItsJob(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.Size = "2048/8192" })
	w.submit("net", workflow.Update)
	job, _ := w.started()
	if job.Size != "2048/8192" {
		t.Errorf("the job has size %q", job.Size)
	}
}
