package controlplane_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// sinceV0 are the fields that the first version's functions do not know, with what happens if such a function writes
// the record again: it drops the field. That can happen in the minutes in which both versions run, or after the
// control plane was rolled back. Each new field needs a line here, or the test fails. A field whose loss would do
// real harm belongs in a record of its own, which an older function leaves alone.
var sinceV0 = map[string]string{
	"wf.held.placement": "the next launch may begin with another placement than the one whose answer was lost: at worst a second task, " +
		"which the start fence turns away",
	"pool.role_path": "dropped only by a change of the pool's settings; the pool then leaves its roles to the policies of the account, " +
		"which allow its tasks no others: name the path again",
	"secret.deployed": "written again only when the token is revoked or given an end, which stand: a deployment that shows it again is " +
		"refused and puts a new value, as it would be with the field",
	"secret.grants": "written again only when the token is revoked or given an end: it then has no role in any project, and an older function " +
		"knows no roles in projects",
	"pool.projects":   "dropped only by a change of the pool's settings; the pool then serves fewer workspaces, and their runs wait: assign it again",
	"runner.boot":     "the next call of the process writes it again; for that long a second one of the instance is not told apart",
	"pool.stacks":     "as its projects",
	"pool.namespaces": "as its projects",
	"pool.labels":     "as its projects",
	"entry.wsid":      "it is found in the workflow's record",
	"lane.placed":     "what the lane counts and does not list is searched for where the workspace is routed to another key",
	"lane.route":      "the workspace is out of date: the next claim that sees one of its runs routes it again",
	"project":         "a record of its own: left alone",
	"tree":            "a record of its own: left alone; an older function knows no projects",
	"routes":          "a record of its own: left alone",
	"rerouting":       "a record of its own: left alone; the passes of this version go on from there",
	"org.default_pool": "an older function writes an organization's record only with its retention; it then has no default pool, and the " +
		"built-in one serves: set it again",
	"org.limit": "as its default_pool; the limit of the process holds then",

	"schedule":       "a record of its own: left alone, and nothing is submitted by it meanwhile",
	"planned":        "as a schedule",
	"cycle":          "as a schedule",
	"schedule-place": "as a schedule",

	"session": "a record of its own: left alone; an older function has no pages, and takes no session for a token",

	"secret.principal.id":   "an older function ends such a token and writes nothing else of it",
	"secret.principal.name": "as its id",
	"wf.by_id":              "an older function knows no principals: a plan of a run that it moved may be approved by whoever submitted it",
	"workspace.by_id":       "as a run's by_id",
	"audit.actor_id":        "an entry is written once",
	"principal":             "a record of its own: left alone",
	"wf.unsaved":            "an older function takes no artifact of such a run's kind, so there is none",
	"lane.unsaved":          "a run that an older function ends or submits then changes the state before that one is pushed, as all did before",
	"entry.push":            "as the lane's unsaved",

	"secret.kind": "written again only when the token is revoked, which stands",
	"secret.source": "as its kind. An older function does not ask whether what gave the token is still there: the token then lives for the rest " +
		"of its hours",
	"workspace.w.labels":    "an older function refuses a caller that sends it; who sends none takes it away, as with any version",
	"workspace.w.namespace": "as its labels",
	"workspace.w.runner":    "as its labels",
	"workspace.w.stack":     "as its labels",
	"workspace.w.id":        "it is never written: the id lies beside the settings",
	"workspace.w.applied":   "it is never written: it lies beside the settings",
	"workspace.w.role": "an older function keeps no workspace but as its caller sends it, and refuses a caller that sends a role; who sends " +
		"none takes the role away, as with any version, and its runs have no rights in the cloud until an admin names it again",
	"workspace.w.state.key": "an older function keeps a workspace as its caller sends it, and refuses a caller that sends what it does not know; " +
		"one that it keeps in the old form is of the old place, and the next run says so before it plans",
	"workspace.w.state.default":        "as its key",
	"workspace.w.state.backend_config": "as its key",
	"workspace.w.state.workspace":      "as its key",
	"workspace.w.source.archive": "an older function keeps a workspace as its caller sends it, and refuses a caller that sends an archive; who sends " +
		"another source takes the archive away, as with any version. A run of it is refused to a runner that does not know archives",
	"workspace.w.source.path": "as its archive, but a run that an older control plane submits has the top of the directory as its root module: its " +
		"plan says so",
	"workspace.w.after":                  "as its archive; the graph then names a dependency that is gone, until the workspace is changed again",
	"workspace.w.inputs":                 "as its after; a run of the workspace then has no value for these variables but the code's default",
	"attempt.used":                       "it is written once, with the start, and not again",
	"graph":                              "a record of its own: left alone; an older function deletes a workspace that others depend on, whose runs then end as input_missing",
	"produced":                           "a record of its own: left alone; a success that an older function takes does not count for other workspaces",
	"given":                              "a record of its own, which is written once",
	"workspace.w.disk_gib":               "as its archive",
	"workspace.w.files.content":          "as its archive",
	"workspace.w.files.path":             "as its archive",
	"workspace.w.flags":                  "as its archive",
	"workspace.w.hooks.after":            "as its archive",
	"workspace.w.hooks.before":           "as its archive",
	"workspace.w.hooks.name":             "as its archive",
	"workspace.w.hooks.run":              "as its archive",
	"workspace.w.image":                  "as its archive",
	"workspace.w.modules.host":           "as its archive",
	"workspace.w.modules.known_hosts":    "as its archive",
	"workspace.w.modules.preview":        "as its preview_role; a run of a pull request then lacks the credential",
	"workspace.w.modules.ssh_key_ref":    "as its archive",
	"workspace.w.modules.token_ref":      "as its archive",
	"workspace.w.modules.username":       "as its archive",
	"workspace.w.secrets.steps":          "as its archive; the secret then reaches every step",
	"workspace.w.source.git.submodules":  "as its archive",
	"workspace.w.source.git.version":     "as its archive",
	"workspace.w.spot":                   "as its archive",
	"workspace.w.state.secrets_provider": "as its key",
	"workspace.w.var_files":              "as its archive",
	"entry.pin":                          "a pool that does not have the plan may then claim its run, whose runner does not find the plan: it fails, and applies nothing",
	"wf.trigger":                         "the run then counts as a person's, as it does for the older function",
	"workspace.w.preview_role": "an older function refuses a caller that sends it; who sends none takes it away, as with any version. A preview of an " +
		"older function has role, and it makes no run of a pull request",
	"workspace.w.secrets.preview": "as its preview_role; a run of a pull request then lacks the secret",
	"secret.pipeline": "an older function gives its holder the whole role of its rule: name pipelines of an issuer when no function of an older " +
		"version is left",
	"wf.stuck":   "it may then be told once more that the run is stuck, unless another of its pool was told of within the hour",
	"wf.look":    "the next look at whether the run is stuck comes at once; it decides nothing about the run",
	"wf.changes": "the lists do not count the changes of a run then; its result has them",
	"wf.options": "its options are not shown then; the spec has them, and its runner goes by that",
	"wf.for":     "the spec has it as well; the plan of such a preview is not offered for approval: run it again",
	"wf.then":    "as its for",
	"wf.pin":     "as entry.pin",
	"review":     "a record of its own: left alone",
	"applied":    "as a review",
	"wf.plan_of": "the spec has the plan as well, so nothing else is applied; a start that an older function does not grant is refused as " +
		"not approved",
	"workspace.by": "who changed the workspace last is then not known as a submitter, until somebody changes it through this version",
	"workspace.w.approval": "an older function refuses a caller that sends it; who sends none takes it away, as with any version. What the " +
		"organization and the projects require lies in records of its own",
	"workspace.w.approval.after_merge":      "as its approval",
	"workspace.w.approval.expires":          "as its approval",
	"workspace.w.approval.not_by_submitter": "as its approval",
	"workspace.w.approval.required":         "as its approval",
	"workspace.w.approval.rules":            "as its approval",
	"workspace.w.pull_requests.is_disabled": "as its approval",
	"workspace.w.pull_requests.on_merge":    "as its approval",
	"workspace.w.pull_requests.paths":       "as its approval",
	"wf.needs":                              "a runner that is too old is then granted the start, and refuses the run itself, because it does not know the kind of its state",

	"org.retention": "an older function writes an organization's record once, when it makes it",
	"audit.id":      "it is never written: it is the key",
	"seal":          "a record of its own: left alone, and nothing is sealed meanwhile",
	"sealed":        "as a seal",
	"forwarded":     "a record of its own: left alone, and nothing is forwarded meanwhile",
	"purged":        "a record of its own: left alone; this version goes on from there",

	"spec":   "written once, with its workflow, and never again",
	"result": "written once, with the end of its run, and never again",
	"found":  "a record of its own: left alone",
	"gone":   "a record of its own: left alone; what an older function deletes has none, and its state is found under its name",

	"spec.log_quota": "it is never written: it is added to a spec that is given out",

	"step.log_end": "a step's end is written once; who follows the run shows it some seconds later",
	"attempt.task": "a record is written by a claim and by its start, once each: whoever wrote the start is asked no more",
	"attempt.boot": "as its task",
	"logend.full":  "lines are taken again, and the next call that goes beyond the quota says so once more",
	"reader.until": "a record of its own: left alone, and it ends by its time",

	"pool.closed":  "dropped only by a change of the pool's settings: the pool is open again; delete it again",
	"cursor.types": "an older function begins at the start again, as it does when it has seen all",
	"sole":         "a record of its own: left alone; an older function looks at the list of instances instead",
	"wf.own_max":   "an older function keeps the run's max as it is; a retry then takes the workspace's",
	"wf.svc": "its times of the wall clock serve, and the next pass that looks at it gives it stamps again; until then what an older function wrote " +
		"is found late, never early. Its timer is left over, and that pass deletes it",
	"beat.svc": "as of its workflow",
	"beat.lag": "as its svc",
	"clock":    "a record of its own: left alone, and it stands still meanwhile; what only it times is found when this version is back",
	"heard":    "a record of its own: left alone",

	"wf.due": "an older function sets a timer of the old kind, which this version serves; the one that the field named is left over, and the pass " +
		"that finds it deletes it",
	"cut":    "a record of its own: left alone; what an older function frees wakes only whom an older function cut short, the others poll",
	"listed": "a record of its own: left alone; what an older function claims is not in the index, and the next pass of this version says so",
	"places": "a record of its own: left alone",

	"news":         "a record of its own: left alone, and told by the passes of this version",
	"delivery":     "a record of its own: left alone",
	"git-host":     "a record of its own: left alone; an older function takes no webhooks, and the hosts' events of that time are lost: comment dayfly preview",
	"pull":         "as a git host; the next event, or the end of one of its runs, shows it anew",
	"deliveries":   "a record of its own: left alone; an older function answers no claim of deliveries",
	"stuck":        "a record of its own: left alone",
	"notification": "a record of its own: left alone",

	"policy-group": "a record of its own: left alone; runs that an older function starts meanwhile are held to no policies",
	"waiver":       "a record of its own: left alone",
	"policies":     "as a policy group",
	"held-to":      "written once, with the start of an attempt, and never again",

	"hold.reason":        "a record of its own: left alone, and it ends by its time",
	"hold.until":         "as its reason",
	"wake-target.target": "a record of its own: left alone; what it names is not woken meanwhile and finds its work by its schedule",
}

// leftAlone are fields of the first version in a record that this version does not write: an older function that
// finds that its last pass was long ago sets them again.
var leftAlone = map[string]bool{"pass.up_since": true}

func TestRecords_FieldsSinceV0AreAccountedForAndNoneIsGone(t *testing.T) {
	text, err := os.ReadFile("testdata/fields-v0.txt")
	if err != nil {
		t.Fatal(err)
	}
	before, now := strings.Fields(string(text)), recordFields()
	for _, f := range now {
		if !slices.Contains(before, f) && !accounted(f) {
			t.Errorf("%s is new: say in sinceV0 what becomes of it where a function of an older version writes its record again", f)
		}
	}
	for _, f := range before {
		if !slices.Contains(now, f) && !leftAlone[f] {
			t.Errorf("%s is gone: the records of the first version have it, and its functions read it", f)
		}
	}
	for f := range sinceV0 {
		if !slices.ContainsFunc(now, func(n string) bool { return (n == f || strings.HasPrefix(n, f+".")) && !slices.Contains(before, n) }) {
			t.Errorf("%s is accounted for and has no new field", f)
		}
	}
}

// accounted says whether a field, or the field that it is part of, has a line.
func accounted(field string) bool {
	for i, c := range field + "." {
		if c == '.' && sinceV0[field[:i]] != "" {
			return true
		}
	}
	return false
}

// recordFields lists the fields of every record as they are stored: the record's name, a dot and the path of names in
// its JSON. A function of an older version that writes a record again drops the fields that it does not know.
func recordFields() []string {
	var out []string
	for name, v := range map[string]any{
		"wf": record.Workflow{}, "beat": record.Beat{}, "attempt": record.Attempt{}, "reader": record.Reader{}, "entry": record.Entry{}, "lane": record.Queue{}, "routes": record.Routes{}, "rerouting": record.Rerouting{}, "project": record.Project{}, "tree": record.Tree{}, "active": record.Active{},
		"limit": record.Limit{}, "cut": record.Cut{}, "listed": record.Listed{}, "places": record.Places{}, "org": record.Organization{}, "purged": record.Purged{}, "pool": record.Pool{}, "name": record.Name{}, "workspace": record.Workspace{}, "secret": record.Token{},
		"runner": record.Runner{}, "pass": record.Pass{}, "clock": record.Clock{}, "heard": record.Heard{}, "wake": record.Wake{}, "wake-target": record.WakeTarget{}, "hold": record.Hold{}, "cursor": record.Cursor{}, "sole": record.Sole{}, "idem": record.Idempotency{}, "logend": record.LogEnd{},
		"spec": api.Spec{}, "step": api.Step{}, "line": api.LogLine{}, "result": api.Result{}, "found": api.StateFound{}, "gone": record.Deleted{}, "review": record.Review{}, "graph": record.Graph{}, "produced": record.Produced{}, "given": record.Given{}, "applied": record.Applied{}, "event": api.Event{}, "audit": api.AuditEvent{},
		"seal": api.Seal{}, "sealed": record.Sealed{}, "forwarded": record.Forwarded{}, "session": record.Session{}, "principal": record.Principal{},
		"news": record.News{}, "delivery": record.Delivery{}, "deliveries": record.Deliveries{}, "stuck": record.Stuck{}, "notification": record.Settings[api.Notification]{},
		"policy-group": record.Settings[api.PolicyGroup]{}, "waiver": record.Settings[api.Waiver]{}, "policies": record.Policies{}, "held-to": record.HeldTo{},
		"git-host": record.Settings[api.GitHost]{}, "pull": record.Pull{},
		"schedule": record.Settings[api.Schedule]{}, "planned": record.Planned{}, "cycle": record.Cycle{}, "schedule-place": record.SchedulePlace{},
	} {
		out = append(out, fieldsOf(name, reflect.TypeOf(v))...)
	}
	slices.Sort(out)
	return out
}

func fieldsOf(at string, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return []string{at}
	}
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, fieldsOf(at+"."+name, f.Type)...)
	}
	return out
}
