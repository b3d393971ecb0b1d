package isolation_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// attempt is a way to break out of a job, or to make Dayfly do it. It is made of several single attempts.
type attempt struct {
	name, what string                // as docs/security.md has them
	args       func(w *world) string // of the attack, which is testdata/attack with the attempt's name; nil: none
	try        func(w *world)        // what is done; nil: a job runs the attack, and succeeds
	only, not  string                // the one target where it can be tried, and why not in the other; empty: both
}

// attempts are all ways. Each ends with a look at the other job and at what lies outside.
var attempts = []attempt{
	{name: "environ", what: "read the runner's environment"},
	{name: "mem", what: "read and write the runner's memory"},
	{name: "fds", what: "read the runner's open files"},
	{name: "inherited", what: "read a secret file that was open when Dayfly was started"},
	{name: "ptrace", what: "attach to the runner"},
	{name: "core", what: "make the runner leave a core file"},
	{name: "userns", what: "the same as root of a user namespace"},
	{name: "signals", what: "kill or stop the runner"},
	{name: "prlimit", what: "starve the runner by its limits", try: (*world).prlimit},
	{name: "ticket", what: "find a ticket or a token", args: func(w *world) string {
		if w.target == config.TargetDocker {
			return "/dayfly /run/dayfly /tmp"
		}
		return w.Data
	}},
	{name: "relay", what: "call the relay and the API for another job", args: func(w *world) string { return w.victim + " wf_made_up" + w.ports("") }},
	{name: "connections", what: "hold 1000 connections to the relay", try: (*world).connections},
	{name: "others", what: "read and write other jobs' files, find their secrets", args: func(w *world) string {
		var dirs []string
		for _, dir := range []string{embedded.JobsDir, embedded.ContainersDir, embedded.RelayDir, embedded.SecretsDir} {
			dirs = append(dirs, filepath.Join(w.Data, dir))
		}
		return strings.Join(append(dirs, w.stateDir("victim")), " ")
	}},
	{name: "private", what: "open, list or link the database, keys, tokens and secrets", args: (*world).privateFiles},
	{name: "planted", what: "find credentials of git, states and linked files of others in the source", try: (*world).planted},
	{name: "setuid", what: "become root by a program of root", args: func(w *world) string { return w.rooted() + " ./rooted /bin/su /usr/bin/sudo" }},
	{name: "mounts", what: "mount, make devices, write to the system, load a program into the kernel"},
	{name: "outside", what: "see the machine: its files, network, processes, Docker engine", only: config.TargetDocker, not: "a process is on the machine",
		args: func(w *world) string {
			return w.Data + " " + w.precious.dir + " /work /root /home /dayfly/source /dayfly/work/given"
		}},
	{name: "symlinks", what: "put links where the launcher or the runner writes", try: (*world).symlinks},
	{name: "hardlink", what: "get a file of root by a hard link in the state directory", try: (*world).hardlink},
	{name: "tools", what: "replace an engine that was downloaded for all jobs", try: (*world).tools},
	{name: "poison", what: "poison the cache of providers: change it, or leave links, other contents and files without end for it", try: (*world).poison},
	{name: "files", what: "write a file of the workspace outside of its source: by its path, or by a link", try: (*world).files},
	{name: "hooks", what: "run a hook that is not allowed, replace the script of one, hide a failure, reach the runner from one", try: (*world).hooks},
	{name: "steps", what: "find secrets of another step or keep their files: by names, descriptors, processes", try: (*world).steps},
	{name: "leftovers", what: "leave files and shared memory for the next job", try: (*world).leftovers},
	{name: "escape", what: "outlive the job in a session of its own", try: (*world).escape},
	{name: "swarm", what: "start processes without end", try: (*world).swarm},
	{name: "masks", what: "print own secrets cut, coloured and encoded", try: (*world).masks},
	{name: "posing", what: "print lines as the runner does", try: (*world).posing},
	{name: "source", what: "name a data directory of Dayfly as the source, or one around or in it", try: (*world).source},
	{name: "references", what: "as an operator, name another pool, user name, host or secret", try: (*world).references},
	{name: "names", what: "get the state of another workspace by naming one's own after its id", try: (*world).names},
	{name: "deleted", what: "get the state of a deleted workspace of another project by its name", try: (*world).deleted},
	{name: "assigned", what: "get into a pool by the name of a deleted workspace that was assigned to it", try: (*world).assigned},
	{name: "artifacts", what: "leave artifacts that are links, pipes, endless or not its own, and reach those of others", try: (*world).artifacts},
	{name: "planswap", what: "swap the plan file before it is read, while it is shown and before it is applied", try: (*world).planswap},
	{name: "stackplan", what: "swap the update plan of Pulumi in the same ways, or have it allow more than its preview shows", try: (*world).stackplan, only: config.TargetProcess, not: oneEngine},
	{name: "treeplan", what: "swap the plan file of a unit of Terragrunt before it is read, and while it is shown", try: (*world).treeplan, only: config.TargetProcess, not: oneEngine},
	{name: "bundle", what: "apply another plan than the approved one, or apply it to another state or source", try: (*world).bundle},
	{name: "principals", what: "approve one's own plan as somebody else: by a second token, by the name of a person who has left", try: (*world).principals},
	{name: "rules", what: "have policies read more than the plan, or pass a plan that they deny: by links, builtins, processes left", try: (*world).rules, only: config.TargetProcess, not: noGit},
	{name: "input", what: "get the plan of another workspace, or leave one for it", try: (*world).input},
	{name: "fork", what: "run the code of a fork, or of a commit that was pushed after a release", try: (*world).fork, only: config.TargetProcess, not: noGit},
	{name: "forged", what: "have a plan applied by a webhook with a command that no member wrote", try: (*world).forgedComment, only: config.TargetProcess, not: noGit},
	{name: "moved", what: "push between the review and the comment that applies it", try: (*world).moved, only: config.TargetProcess, not: noGit},
	{name: "stranger", what: "as code of a pull request, get secrets that are not for previews, or the token of git", try: (*world).stranger, only: config.TargetProcess, not: noGit},
	{name: "pipeline", what: "do more than preview its own commit with the token of a pipeline without a protected ref", try: (*world).pipeline},
	{name: "webhooks", what: "send a webhook again, without end, or with another signature", try: (*world).webhooks},
	{name: "addresses", what: "have a delivery call a private address: by a name, in another form, by a redirect", try: (*world).addresses},
}

// prlimit may end the job where the runner has its user, and nothing else.
func (w *world) prlimit() {
	wf, _ := w.job("prlimit", "prlimit")
	w.tried("end more than the own job", wf.Attempt == 1 && (w.target == config.TargetDocker || wf.State == workflow.Succeeded), "%s (%s), attempt %d", wf.State, wf.Reason, wf.Attempt)
}

// connections go to the relay alone: the API is not theirs to fill.
func (w *world) connections() {
	const most = 200 // 16 for each of ten jobs, and some
	name := "connections"
	w.put(name, name+w.ports(w.api()))
	before, peak := descriptors(w.T, w.up), 0
	id := w.Update(name)
	uptest.Eventually(w.T, "the attack is over", func() bool {
		peak = max(peak, descriptors(w.T, w.up)-before)
		wf := w.Workflow(id) // it answers meanwhile
		return wf.State.Terminal() && !wf.SlotHeld
	})
	log := w.Log(id, 0)
	w.tried("take the descriptors of Dayfly", peak < most && strings.Contains(log, "connections to"), "%d more were open; %s", peak, strings.TrimSpace(log[strings.LastIndex(log[:max(0, len(log)-1)], "\n")+1:]))
}

// privateFiles are the files that only Dayfly may read.
func (w *world) privateFiles() string {
	paths := []string{filepath.Join(w.Data, "lock")}
	_ = filepath.WalkDir(filepath.Dir(filepath.Join(w.Data, embedded.DatabaseFile)), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if len(paths) < 5 {
		w.T.Fatalf("found only %v", paths)
	}
	return strings.Join(paths, " ")
}

// rooted makes the attack a file that makes the user who runs it root: one that a job can reach in either place.
func (w *world) rooted() string {
	path := filepath.Join(w.site.Source, "rooted")
	b, err := os.ReadFile(filepath.Join(w.site.Source, "attack"))
	if err := errors.Join(err, os.WriteFile(path, b, 0o755), os.Chmod(path, 0o755|os.ModeSetuid)); err != nil {
		w.T.Fatal(err)
	}
	if w.target == config.TargetDocker {
		return "/dayfly/work/given/rooted"
	}
	return path
}

// planted runs in a source of its own, which only root may read, so that what the job finds is in its copy.
func (w *world) planted() {
	source := filepath.Join(filepath.Dir(w.Data), "planted")
	other := filepath.Join(filepath.Dir(w.Data), "of-another-user")
	write := func(path, text string, mode os.FileMode) error {
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode))
	}
	b, err := os.ReadFile(filepath.Join(w.site.Source, "attack"))
	err = errors.Join(err, write(filepath.Join(source, "attack"), string(b), 0o755), write(filepath.Join(source, "code"), "code\n", 0o600))
	for _, name := range []string{".git/config", "modules/net/terraform.tfstate", "modules/net/.terraform/terraform.tfstate", "terraform.tfstate.backup"} {
		err = errors.Join(err, write(filepath.Join(source, name), "planted\n", 0o644))
	}
	if err = errors.Join(err, write(other, "planted\n", 0o600), os.Chmod(source, 0o700)); err != nil {
		w.T.Fatal(err)
	}
	in := func(in *api.Workspace) { in.Source.Directory = source }
	if linked := filepath.Join(source, "linked"); os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(other, 12345, 12345), os.Link(other, linked)); err != nil {
			w.T.Fatal(err)
		}
		w.put("planted", "say", in)
		_, err := w.Client.Submit(w.T.Context(), api.Submit{Workspace: "planted", Operation: workflow.Update})
		w.tried("run a source with a hard link to another user's file", errors.Is(err, workflow.ErrForbidden), "%v", err)
		if err := os.Remove(linked); err != nil {
			w.T.Fatal(err)
		}
	}
	where := "/dayfly"
	if w.target == config.TargetProcess {
		where = ". " + filepath.Join(w.Data, embedded.JobsDir) + " " + source
	}
	w.jobSucceeds("planted", "planted "+where, in)
}

// symlinks: a swap of what the run itself needs may fail that run, in words.
func (w *world) symlinks() {
	wf, _ := w.job("symlinks", "symlinks "+w.precious.dir)
	w.tried("make the runner or its launcher write there", wf.State.Terminal() && wf.Detail+string(wf.State) != string(workflow.Failed), "%s", cmp.Or(wf.Detail, string(wf.State)))
}

func withState(in *api.Workspace) { in.State = &api.State{Kind: api.StateDirectory} }

// hardlink: whether the system lets a user link files of others or not, Dayfly must not give them away.
func (w *world) hardlink() {
	w.job("hardlink", "once 0s", withState)
	state := w.stateDir("hardlink")
	if err := os.Remove(filepath.Join(state, "effects")); err != nil {
		w.T.Fatal(err)
	}
	file := filepath.Join(w.precious.dir, "precious")
	if err := os.Link(file, filepath.Join(state, "put-there")); err != nil {
		w.T.Fatal(err)
	}
	w.jobSucceeds("hardlink", "hardlink "+file, withState)
	diff := w.precious.diff(w.T)
	w.tried("change its owner, mode or text", diff == "", "%s", cmp.Or(diff, "they are as before"))
}

// leftovers: what a job leaves goes before another one may get its user. Its run may be over sooner.
func (w *world) leftovers() {
	key := fmt.Sprint(os.Getpid() + 1_000_000)
	_, log := w.job("leftovers", "leave "+key)
	_, user, _ := strings.Cut(log, "uid ")
	if user, _, _ = strings.Cut(user, " "); user == "" || !strings.Contains(log, "leave in /tmp <nil>") {
		w.T.Fatalf("it left nothing:\n%s", log)
	}
	if w.target == config.TargetProcess {
		uptest.Eventually(w.T, "its user may be another's", func() bool { return free(w.T, user) })
	}
	w.jobSucceeds("leftovers", "leftovers "+key)
}

func (w *world) escape() {
	mark := fmt.Sprintf("mark-%d-%s", os.Getpid(), w.target)
	_, log := w.job("escape", "escape "+mark)
	alive := withArgument(mark)
	w.tried("be alive after the end of the job", len(alive) == 0 && strings.Contains(log, "got out of the session: true"), "processes %v", alive)
	for _, pid := range alive {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// swarm takes all processes that the job may have, the runner's threads too. The runner lives, ends the job and says why.
func (w *world) swarm() {
	mark := fmt.Sprintf("swarm-%d", os.Getpid())
	if w.target == config.TargetProcess {
		// Nobody counts its processes where the kernel does not: a person cancels it.
		w.put("swarm", "swarm "+mark)
		id := w.Update("swarm")
		uptest.Eventually(w.T, "the swarm is there", func() bool { return len(withArgument(mark)) >= 100 || w.Workflow(id).State.Terminal() })
		if _, err := w.Client.Cancel(w.T.Context(), id, ""); err != nil && !w.Workflow(id).State.Terminal() {
			w.T.Fatal(err)
		}
		wf := w.Over(id)
		left := withArgument(mark)
		w.tried("go on after a cancel", wf.Attempt == 1 && len(left) == 0, "%s (%s: %s), attempt %d, %d are left", wf.State, wf.Reason, wf.Detail, wf.Attempt, len(left))
		return
	}
	wf, _ := w.job("swarm", "swarm "+mark)
	w.tried("take all processes", wf.State == workflow.Failed && wf.Reason == workflow.ReasonStepFailed && wf.Attempt == 1 &&
		strings.Contains(wf.Detail, "more processes than its size allows (1024)"), "%s (%s: %s), attempt %d", wf.State, wf.Reason, wf.Detail, wf.Attempt)
	left := withArgument(mark)
	w.tried("leave one of them", len(left) == 0, "%d are left", len(left))
}

const (
	ownSecret = "own-secret-of-this-job-7351"
	ownPart   = "part-of-a-document-8462"
	forwarded = "a-forwarded-value-9573"
)

func (w *world) masks() {
	_, log := w.job("masks", "masks", func(in *api.Workspace) {
		in.Secrets = []api.Secret{{Env: "OWN", Ref: "file:own"}, {Env: "DOC", Ref: "file:doc"}}
	})
	forms := 0
	for line := range strings.Lines(log) {
		of, text, ok := strings.Cut(strings.TrimPrefix(line, "form "), ": ")
		if !ok || !strings.HasPrefix(line, "form ") {
			continue
		}
		forms++
		w.tried("print a "+of, seen(text) == "***", "the log has %q", strings.TrimSpace(text))
	}
	if forms < 30 {
		w.T.Errorf("the attack printed %d forms:\n%s", forms, log)
	}
}

func (w *world) posing() {
	_, log := w.job("posing", "posing")
	lines := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, "(posed)") {
			lines++
			w.tried(fmt.Sprintf("print %q", strings.TrimSpace(strings.ReplaceAll(line, "|| ", ""))), strings.Contains(seen(line), "|| "), "the log has a mark")
		}
	}
	if lines < 14 {
		w.T.Errorf("the attack printed %d lines:\n%s", lines, log)
	}
}

// source is an operator's: whoever may write a workspace may not read the secrets of the machine with it.
func (w *world) source() {
	base := filepath.Dir(w.Data)
	made := func(err error) {
		if err != nil {
			w.T.Fatal(err)
		}
	}
	other, link, bound := filepath.Join(base, "around", "other-data"), filepath.Join(base, "a-link"), filepath.Join(base, "bound")
	made(errors.Join(os.MkdirAll(filepath.Join(other, "state"), 0o755), os.WriteFile(filepath.Join(other, runner.DataMarker), nil, 0o600)))
	made(errors.Join(os.Mkdir(bound, 0o755), os.Symlink(w.Data, link)))
	dirs := map[string]string{
		"the data directory": w.Data, "its states": filepath.Join(w.Data, embedded.StateDir), "the directory around it": base, "a link to it": link,
		"its secrets": filepath.Join(w.Data, embedded.SecretsDir), "another's data directory": other, "another's states": filepath.Join(other, "state"),
		"the directory around another's": filepath.Dir(other),
	}
	if os.Geteuid() == 0 {
		if err := syscall.Mount(w.Data, bound, "", syscall.MS_BIND, ""); err != nil {
			w.T.Logf("a bind mount was not tried: %v", err)
		} else {
			w.T.Cleanup(func() { _ = syscall.Unmount(bound, syscall.MNT_DETACH) })
			dirs["a bind mount of it"] = bound
		}
	}
	for what, dir := range dirs {
		in := api.Workspace{Name: "as-source", RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: dir},
			Commands: map[string]string{"update": filepath.Join(w.site.Source, "attack") + " say"},
		}}
		_, _, err := w.operator.PutWorkspace(w.T.Context(), in)
		made(err)
		wf, err := w.operator.Submit(w.T.Context(), api.Submit{Workspace: in.Name, Operation: workflow.Update})
		if err == nil {
			wf = w.Over(wf.ID)
			w.tried("run "+what, wf.State == workflow.Failed && !strings.Contains(w.Log(wf.ID, 0), "the engine ran"), "%s (%s)", wf.State, wf.Detail)
			continue
		}
		w.tried("run "+what, errors.Is(err, workflow.ErrForbidden), "%v", err)
	}
}

func (w *world) references() {
	admin := func(in api.Workspace) api.Workspace {
		out, _, err := w.Client.PutWorkspace(w.T.Context(), in)
		if err != nil {
			w.T.Fatal(err)
		}
		return out
	}
	pool := "another"
	if _, err := w.Client.CreatePool(w.T.Context(), api.PoolSettings{Name: &pool}); err != nil {
		w.T.Fatal(err)
	}
	https := admin(api.Workspace{Name: "refs-https", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git", TokenRef: "file:victim", Username: "deploy"}}}})
	ssh := admin(api.Workspace{Name: "refs-ssh", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Git: &api.GitSource{URL: "ssh://git@git.example.com/a.git", SSHKeyRef: "file:victim", KnownHosts: "git.example.com ssh-ed25519 AAAA"}}}})
	for _, one := range []struct {
		what   string
		of     api.Workspace
		change func(*api.Workspace)
	}{
		{"another pool", https, func(in *api.Workspace) { in.Pool = pool }},
		{"another user name for the token", https, func(in *api.Workspace) { in.Source.Git.Username = "other" }},
		{"another host for the token", https, func(in *api.Workspace) { in.Source.Git.URL = "https://other.example.com/a.git" }},
		{"other known_hosts for the key", ssh, func(in *api.Workspace) { in.Source.Git.KnownHosts = "git.example.com ssh-ed25519 BBBB" }},
		{"a secret", ssh, func(in *api.Workspace) { in.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:victim"}} }},
	} {
		in, git := one.of, *one.of.Source.Git
		in.Source.Git = &git
		one.change(&in)
		_, _, err := w.operator.PutWorkspace(w.T.Context(), in)
		events, aerr := w.Client.Audit(w.T.Context(), api.AuditFilter{Limit: 1})
		audited := aerr == nil && len(events.Items) == 1 && events.Items[0].Outcome == "refused" && events.Items[0].Target == in.Name
		w.tried("name "+one.what, errors.Is(err, workflow.ErrForbidden) && audited, "audited: %t; %v", audited, err)
	}
}

// member is an operator in a project of its own, which is made.
func (w *world) member(project string) *client.Client {
	w.T.Helper()
	_, err := w.Client.CreateProject(w.T.Context(), api.ProjectSettings{Name: &project})
	w.must(err)
	token, err := w.Client.CreateToken(w.T.Context(), api.NewToken{Name: project, Grants: map[string]string{project: api.RoleOperator}})
	w.must(err)
	return uptest.Person(w.T, w.URL, token.Value)
}

// withState is a workspace that has a state, and its id.
func (w *world) withState(name string) (id string) {
	w.T.Helper()
	if wf := w.applied(w.preview(name, "thing.precious", "none")); wf.State != workflow.Succeeded {
		w.T.Fatalf("got %s (%s)", wf.State, wf.Detail)
	}
	ws, err := w.Client.Workspace(w.T.Context(), name)
	w.must(err)
	return ws.ID
}

func (w *world) names() {
	ctx, id := w.T.Context(), w.withState("named")
	eve := w.member("names")
	in := api.Workspace{
		Name: id, Project: "names", RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: filepath.Join(filepath.Dir(w.Data), "plans", "named")}},
		State: &api.State{Kind: api.StateDirectory},
	}
	_, _, err := eve.PutWorkspace(ctx, in)
	w.tried("make a workspace of that name", errors.Is(err, workflow.ErrInvalid), "%v", err)
	_, err = eve.Submit(ctx, api.Submit{Workspace: id, Operation: workflow.Preview, TakeOver: true, Register: &in})
	w.tried("register one with its first run", errors.Is(err, workflow.ErrInvalid), "%v", err)
	_, err = w.Client.CreateProject(ctx, api.ProjectSettings{Name: &id})
	w.tried("make a project of that name, as an admin", errors.Is(err, workflow.ErrInvalid), "%v", err)
	_, err = w.Client.CreatePool(ctx, api.PoolSettings{Name: &id})
	w.tried("make a pool of that name, as an admin", errors.Is(err, workflow.ErrInvalid), "%v", err)
	in.Name, in.State.Key = "named-so", id
	_, _, err = eve.PutWorkspace(ctx, in)
	w.tried("name the place of the state", errors.Is(err, workflow.ErrInvalid), "%v", err)
}

// assigned: the pool has no agent, so a run that gets there waits for it.
func (w *world) assigned() {
	ctx, name, pool := w.T.Context(), "assigned", "trusted"
	in := func(project string) api.Workspace {
		return api.Workspace{Name: name, Project: project, RunSettings: api.RunSettings{Engine: api.EngineCommand, Commands: map[string]string{"preview": "true"}, Source: api.Source{Directory: w.precious.dir}}}
	}
	_, _, err := w.Client.PutWorkspace(ctx, in(""))
	w.must(err)
	_, err = w.Client.CreatePool(ctx, api.PoolSettings{Name: &pool, AssignedWorkspaces: &[]string{name}})
	w.must(err)
	w.must(w.Client.DeleteWorkspace(ctx, name))
	eve := w.member("assigned")
	_, _, err = eve.PutWorkspace(ctx, in("assigned"))
	w.must(err)
	verdicts, err := eve.ExplainPools(ctx, api.ExplainPools{Workspace: name})
	w.must(err)
	for _, v := range verdicts.Items {
		if v.Pool == pool {
			w.tried("have its runs served there", !v.Gets, "%s", v.Why)
		}
	}
	named := in("assigned")
	named.Pool = pool
	_, _, err = eve.PutWorkspace(ctx, named)
	w.tried("name the pool", errors.Is(err, workflow.ErrForbidden), "%v", err)
	got, err := w.Client.Pool(ctx, pool)
	w.must(err)
	w.tried("stay on its list", len(got.AssignedWorkspaces) == 0, "%v", got.AssignedWorkspaces)
}

func (w *world) deleted() {
	ctx, name := w.T.Context(), "deleted"
	id := w.withState(name)
	was := w.read(w.stateFile(name))
	file := w.stateFile(name)
	w.must(w.Client.DeleteWorkspace(ctx, name))
	eve := w.member("deleters")
	_, _, err := eve.PutWorkspace(ctx, api.Workspace{
		Name: name, Project: "deleters", RunSettings: api.RunSettings{Engine: api.EngineTerraform, Source: api.Source{Directory: filepath.Join(filepath.Dir(w.Data), "plans", name)}, Secrets: []api.Secret{}},
		State: &api.State{Kind: api.StateDirectory},
	})
	w.must(err)
	run := func(in api.Submit) (api.Workflow, string) {
		in.Workspace = name
		wf, err := eve.Submit(ctx, in)
		w.must(err)
		return w.Over(wf.ID), w.Log(wf.ID, 0)
	}
	for what, in := range map[string]api.Submit{
		"preview":                        {Operation: workflow.Preview},
		"preview, and take it over":      {Operation: workflow.Preview, TakeOver: true},
		"take it over under its id":      {Operation: workflow.Update, TakeOver: true, TakeOverFrom: id},
		"destroy what it manages":        {Operation: workflow.Destroy, TakeOver: true},
		"preview, and say where it came": {Operation: workflow.Preview, TakeOver: true, TakeOverFrom: "default/" + id},
	} {
		wf, log := run(in)
		told := log + wf.Detail
		for _, word := range []string{id, "lineage", "serial", "precious"} {
			told = strings.ReplaceAll(told, in.TakeOverFrom, "")
			if strings.Contains(told, word) {
				w.tried("learn of it: "+what, false, "the run says %s", word)
			}
		}
		w.tried(what, wf.State == workflow.Failed && wf.Reason == workflow.ReasonStateElsewhere && w.read(file) == was, "%s: %s", wf.Reason, wf.Detail)
	}
	wf, log := run(api.Submit{Operation: workflow.Update, BeginAnew: true})
	w.tried("begin anew", wf.State == workflow.Succeeded && w.read(file) == was, "%s: %s", wf.State, cmp.Or(wf.Detail, log))
}
