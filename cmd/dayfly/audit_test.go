package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// minutes lets time pass for the control plane, and makes a pass.
func (w *world) minutes(n int) {
	w.t.Helper()
	w.shift.Add(int64(time.Duration(n) * time.Minute))
	if _, err := w.plane.Pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// audited writes an entry of the audit trail past the rules, as another process whose clock is ahead would, or
// behind.
func (w *world) audited(ahead time.Duration, actor string) store.Key {
	w.t.Helper()
	at := time.Now().Add(time.Duration(w.shift.Load()) + ahead).UTC()
	k := record.AuditKey("default", at)
	e := api.AuditEvent{At: at, Actor: actor, Action: "test", Outcome: "done"}
	if err := w.store.Commit(w.t.Context(), record.Random(18), store.Put(record.Encode(k, e), store.Absent)); err != nil {
		w.t.Fatal(err)
	}
	return k
}

// C15: the trail is narrowed by each of its columns and by time.
func TestAudit_ListsWhatAFilterLeaves(t *testing.T) {
	w := newWorld(t)
	w.ok("token", "create", "ci", "--role", "viewer")
	w.ok("pool", "create", "prod")
	w.env["DAYFLY_API_TOKEN"] = value[api.TokenValue](w, "token", "create", "op", "--role", "operator").Value
	if got := w.run("pool", "create", "other"); got.code != cli.ExitRefused {
		t.Fatalf("an operator made a pool: %+v", got)
	}
	if got := w.run("audit"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "audit.list needs the role admin") {
		t.Errorf("an operator reads the audit trail: %+v", got)
	}
	w.env["DAYFLY_API_TOKEN"] = w.admin
	for args, want := range map[string]int{
		"": 7, "--actor op": 2, "--action token.create": 2, "--action token.*": 2, "--action tok": 0, "--action principal.create": 2, "--action *": 7, "--target prod": 1, "--outcome refused": 2,
		"--since 1h": 7, "--until 1h": 0, "--since 2001-01-01T00:00:00Z": 7, "--since 2101-01-01T00:00:00Z": 0, "-n 2": 2, "--outcome done --action pool.* --target prod": 1,
	} {
		got := value[[]api.AuditEvent](w, append([]string{"audit"}, strings.Fields(args)...)...)
		if len(got) != want {
			t.Errorf("dayfly audit %s: %d entries, want %d: %+v", args, len(got), want, got)
		}
		for i := 1; i < len(got); i++ {
			if got[i].At.After(got[i-1].At) {
				t.Errorf("dayfly audit %s: the newest is not first", args)
			}
		}
	}
	has(t, "audit list", w.ok("audit", "list", "--target", "prod"), "AT", "OUTCOME", "pool.create", "prod", "done")
	for args, want := range map[string]string{"--since soon": "want a time such as", "--outcome maybe": "outcome", "-n 0": "want a number above 0", "-f --until 1h": "--until: cannot be used with --follow"} {
		if got := w.run(append([]string{"audit"}, strings.Fields(args)...)...); got.code == cli.ExitOK || !strings.Contains(got.stderr, want) {
			t.Errorf("dayfly audit %s: %+v, want %q", args, got, want)
		}
	}
}

// C15: a filter that leaves little of much still ends, page by page.
func TestAudit_ARareEntryIsFoundAmongMany(t *testing.T) {
	w := newWorld(t)
	w.audited(-time.Hour, "rare")
	var ops []store.Op
	at := time.Now()
	for i := range 4500 {
		k := record.AuditKey("default", at.Add(-time.Duration(i)*time.Millisecond))
		if ops = append(ops, store.Put(record.Encode(k, api.AuditEvent{At: at, Actor: "often"}), store.Absent)); len(ops) == 100 {
			if err := w.store.Commit(t.Context(), record.Random(18), ops...); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
	if got := value[[]api.AuditEvent](w, "audit", "--actor", "rare"); len(got) != 1 {
		t.Errorf("found %+v", got)
	}
	if got := value[[]api.AuditEvent](w, "audit", "-n", "4000", "--actor", "often"); len(got) != 4000 {
		t.Errorf("found %d, want 4000", len(got))
	}
}

// C15: --follow shows each entry once, also one that another process writes late.
func TestAudit_FollowShowsEachEntryOnce(t *testing.T) {
	w := newWorld(t)
	var stdout, stderr lockedBuffer
	stdout.written = make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		done <- command(ctx, []string{"audit", "-f", "--action", "test", "-o", "json"}, func(name string) string { return w.env[name] }, strings.NewReader(""), &stdout, &stderr)
	}()
	for i, ahead := range []time.Duration{0, 3 * time.Second, -time.Minute, -2 * time.Minute, -time.Second} {
		actor := string(rune('a' + i))
		w.audited(ahead, actor)
		for strings.Count(stdout.String(), `"actor":"`+actor+`"`) == 0 {
			select {
			case <-stdout.written:
			case code := <-done:
				t.Fatalf("ended with %d: %s", code, &stderr)
			}
		}
	}
	stop()
	if code := <-done; code != cli.ExitOK {
		t.Errorf("exit %d: %s", code, &stderr)
	}
	if lines := strings.Count(stdout.String(), "\n"); lines != 5 {
		t.Errorf("%d lines, want 5:\n%s", lines, &stdout)
	}
}

// C15: an export has the sealed entries, and the next one goes on after them.
func TestAudit_ExportGoesOnWhereItEnded(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	w.ok("pool", "create", "one")
	if got := w.run("audit", "export"); got.stdout != "" || !strings.Contains(got.stderr, "0 entries") {
		t.Errorf("before anything is sealed: %+v", got)
	}
	w.minutes(6)
	got := w.run("audit", "export", "--file", file, "--action", "pool.*")
	_, after, _ := strings.Cut(strings.TrimSpace(got.stderr), "1 entry; go on with --after ")
	w.ok("pool", "create", "two")
	w.minutes(6)
	w.ok("pool", "create", "three")
	w.ok("audit", "export", "--file", file, "--action", "pool.*", "--after", after)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for line := range strings.Lines(string(data)) {
		var e api.AuditEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		targets = append(targets, e.Target)
	}
	if strings.Join(targets, " ") != "one two" {
		t.Errorf("exported %v", targets)
	}
}

// O14: verify reports valid seals, unsealed entries and broken seals, also by its exit code.
func TestAudit_VerifyTellsWhatIsBroken(t *testing.T) {
	w := newWorld(t)
	has(t, "verify", w.ok("audit", "verify"), "nothing is sealed yet")
	w.ok("pool", "create", "one")
	has(t, "verify", w.ok("audit", "verify"), "nothing is sealed yet", "not sealed yet: 1 entry, since ")
	w.minutes(6)
	w.ok("pool", "create", "two")
	k := w.audited(0, "intruder")
	w.minutes(6)
	w.ok("pool", "create", "three")
	has(t, "verify", w.ok("audit", "verify"), "the audit trail holds: seals 1 to 2, 3 entries", "not sealed yet: 1 entry, since ")
	anchors := w.forwarded()
	has(t, "verify", w.ok("audit", "verify", "--anchors", anchors), "as they were forwarded: 2 seals")

	records, err := w.store.Get(t.Context(), k)
	if err == nil {
		err = w.store.Commit(t.Context(), "delete", store.Delete(k, records[0].Version))
	}
	if err != nil {
		t.Fatal(err)
	}
	got := w.run("audit", "verify")
	if got.code != cli.ExitFailed || got.stderr != "" {
		t.Errorf("exit %d: %s", got.code, got.stderr)
	}
	has(t, "verify", got.stdout, "BROKEN: seal 2 (", "it has 2 entries, and there are 1: the others were deleted", "before that, seals 1 to 1 hold")
	has(t, "verify", w.run("audit", "verify", "--anchors", anchors).stdout, "the entry "+k.Sort+" was deleted: intruder test")
	var r api.AuditReport
	if got := w.run("audit", "verify", "-o", "json"); got.code != cli.ExitFailed || json.Unmarshal([]byte(got.stdout), &r) != nil || r.Last != 1 || r.Broken == "" {
		t.Errorf("as JSON: %+v", got)
	}
	said, err := os.ReadFile(anchors)
	// Another reader could take the other one of two members.
	if err = errors.Join(err, os.WriteFile(anchors, bytes.Replace(said, []byte(`"seal":`), []byte(`"Seal":`), 1), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := w.run("audit", "verify", "--anchors", anchors); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "is not one of a forwarded audit trail") {
		t.Errorf("a seal in another case: got %+v", got)
	}
	if err := os.WriteFile(anchors, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run("audit", "verify", "--anchors", anchors); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "line 1 of") {
		t.Errorf("with another file: %+v", got)
	}
}

// forwarded writes the trail to a file, as it is forwarded.
func (w *world) forwarded() string {
	w.t.Helper()
	var b strings.Builder
	write := func(l api.AuditLine) {
		if err := cli.WriteLine(&b, l); err != nil {
			w.t.Fatal(err)
		}
	}
	who, err := w.plane.Authenticate(w.t.Context(), w.admin)
	if err != nil {
		w.t.Fatal(err)
	}
	seals, err := w.plane.Seals(w.t.Context(), who, "", 10)
	if err != nil {
		w.t.Fatal(err)
	}
	entries, err := w.plane.Audit(w.t.Context(), who, api.AuditFilter{Order: api.OldestFirst})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range seals.Items {
		for _, e := range entries.Items {
			if e.ID > s.After && e.ID <= s.To {
				write(api.AuditLine{Organization: "default", Entry: &e})
			}
		}
		write(api.AuditLine{Organization: "default", Seal: &s})
	}
	name := filepath.Join(w.t.TempDir(), "anchors.jsonl")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return name
}
