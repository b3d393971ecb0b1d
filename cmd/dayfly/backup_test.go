package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// program starts this binary as dayfly, in a process of its own.
func (w *world) program(args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), os.Args[0], args...) //nolint:gosec // this test binary
	cmd.Env = []string{asProgram + "=1", noWait, "PATH=" + w.env["PATH"], "HOME=" + w.env["HOME"]}
	return cmd
}

// serve starts a real server over a data directory and returns a client of it, and a function that ends it.
func (w *world) serve(data string) (*client.Client, func()) {
	w.t.Helper()
	cmd := w.program("server", "--data", data, "--listen", "127.0.0.1:0")
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w.t.Cleanup(stop)
	url, lines, said := "", bufio.NewScanner(out), ""
	for lines.Scan() && !strings.Contains(lines.Text(), "admin token") {
		said += lines.Text() + "\n"
		if _, after, ok := strings.Cut(lines.Text(), "serves at "); ok {
			url = after
		}
	}
	go func() { // it must not stop at a full pipe
		for lines.Scan() {
			_ = lines.Text()
		}
	}()
	if url == "" {
		w.t.Fatalf("the server did not start: %s", said)
	}
	token, err := os.ReadFile(filepath.Join(data, embedded.AdminTokenFile))
	if err != nil {
		w.t.Fatal(err)
	}
	w.env["DAYFLY_URL"], w.env["DAYFLY_API_TOKEN"] = url, strings.TrimSpace(string(token))
	return w.dialed(url, strings.TrimSpace(string(token))), stop
}

func (w *world) dialed(url, token string) *client.Client {
	w.t.Helper()
	cl, err := client.New(client.Config{URL: url, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
}

// work submits and runs workflows until stop is closed, one half of them to their end.
func (w *world) work(cl, pool *client.Client, stop <-chan struct{}, group *sync.WaitGroup) {
	ctx := w.t.Context()
	going := func() bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	}
	for n := range 2 {
		group.Go(func() {
			for i := 0; going(); i++ {
				op := []workflow.Operation{workflow.Update, workflow.Preview}[i%2]
				if _, err := cl.Submit(ctx, api.Submit{Workspace: fmt.Sprint("ws-", (i+n)%5), Operation: op}); err != nil {
					w.t.Error("submit: ", err)
					return
				}
			}
		})
	}
	group.Go(func() {
		for i := 0; going(); i++ {
			got, err := pool.Claim(ctx, api.Claim{Instance: "test", Max: 4})
			if err != nil {
				w.t.Error("claim: ", err)
				return
			}
			for _, job := range got.Jobs {
				if i%3 > 0 {
					w.play(pool, job)
				}
			}
		}
	})
}

// play runs a claimed job to its end.
func (w *world) play(pool *client.Client, job api.Job) {
	ctx, task := w.t.Context(), "task-"+job.ID
	err := pool.Launch(ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task})
	if err != nil {
		w.t.Error("launch: ", err)
		return
	}
	runner, err := client.NewRunner(client.RunnerConfig{
		URL: w.env["DAYFLY_URL"], Credential: redact.New(job.Token),
		Run: api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat("ab", 16)},
	})
	if err == nil {
		_, err = runner.Start(ctx)
	}
	if err == nil {
		_, err = runner.Logs(ctx, api.Logs{Lines: []api.LogLine{{Text: "a line of " + job.ID}}})
	}
	if err == nil {
		_, err = runner.Result(ctx, api.Result{Outcome: workflow.Succeeded})
	}
	if err != nil {
		w.t.Error("run: ", err)
	}
}

// wantWhole checks that every workflow of a data directory is there with all that belongs to it, and that the
// counters are right. It returns how many there are in each state.
func (w *world) wantWhole(data string) map[workflow.State]int {
	w.t.Helper()
	if text, err := os.ReadFile(filepath.Join(data, blob)); err != nil || string(text) != "lines" {
		w.t.Errorf("the file beside the records is %q, %v", text, err)
	}
	path := filepath.Join(data, embedded.DatabaseFile)
	if err := sqlite.Check(w.t.Context(), path); err != nil {
		w.t.Fatal(err)
	}
	st, err := sqlite.Open(w.t.Context(), path, sqlite.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	states, active := map[workflow.State]int{}, 0
	for scan := (store.Scan{Part: record.OrganizationRuns("default"), Limit: 500}); ; {
		page, err := st.Query(w.t.Context(), store.Index1, scan)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range page.Records {
			wf, err := record.Decode[record.Workflow](r)
			if err != nil {
				w.t.Fatal(err)
			}
			states[wf.State]++
			keys := []store.Key{record.SpecKey(wf.ID)}
			for n := range wf.Seq {
				keys = append(keys, record.EventKey(wf.ID, n+1))
			}
			if wf.Attempt > 0 {
				keys = append(keys, record.AttemptKey(wf.ID, wf.Attempt))
			}
			if wf.State == workflow.Succeeded {
				keys = append(keys, record.ResultKey(wf.ID, wf.Attempt), record.LogKey(wf.ID, wf.Attempt, 0))
			}
			if wf.Active {
				active++
				keys = append(keys, record.ActiveKey(wf.PoolID, wf.ID))
			}
			if found, err := st.Get(w.t.Context(), keys...); err != nil || len(found) != len(keys) {
				w.t.Errorf("%s is %s and has %d records of %d (%v)", wf.ID, wf.State, len(found), len(keys), err)
			}
		}
		if scan.After = page.Next; scan.After == "" {
			break
		}
	}
	found, err := st.Get(w.t.Context(), record.OrganizationLimitKey("default"))
	if err != nil || len(found) != 1 {
		w.t.Fatal(len(found), err)
	}
	freed := 0
	for _, part := range record.FreedParts(record.OrganizationLimitKey("default")) {
		page, err := st.Range(w.t.Context(), store.Scan{Part: part, Limit: 1000})
		if err != nil {
			w.t.Fatal(err)
		}
		freed += len(page.Records)
	}
	if limit, err := record.Decode[record.Limit](found[0]); err != nil || limit.Active-freed != active {
		w.t.Errorf("%d are counted as active, %d of them freed (%v), and %d are", limit.Active, freed, err, active)
	}
	return states
}

// worked waits until so many workflows have ended well.
func (w *world) worked(n int) {
	w.t.Helper()
	for len(value[[]api.Workflow](w, "workflow", "list", "--state", "succeeded", "--limit", fmt.Sprint(n))) < n {
		if w.t.Failed() {
			w.t.FailNow()
		}
	}
}

// blob lies beside the records, as the part of a log after the first MiB.
const blob = "private/blobs/logs/90/wf_x/0001/0f"

// loaded is a real server at work.
func (w *world) loaded() (data string, stop func()) {
	w.t.Helper()
	data = reachable(w.t)
	cl, kill := w.serve(data)
	err := os.MkdirAll(filepath.Dir(filepath.Join(data, blob)), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(data, blob), []byte("lines"), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range 5 {
		w.workspace(fmt.Sprint("ws-", i))
	}
	token := strings.TrimSpace(w.ok("pool", "rotate-token", "default", "--yes"))
	done, group := make(chan struct{}), &sync.WaitGroup{}
	w.work(cl, w.dialed(w.env["DAYFLY_URL"], token), done, group)
	return data, sync.OnceFunc(func() {
		close(done)
		group.Wait()
		kill()
	})
}

func TestBackup_OfAServerAtWorkIsWholeAndCanBeRestored(t *testing.T) {
	w := newWorld(t)
	data, stop := w.loaded()
	defer stop()
	last := ""
	for n := range 3 {
		w.worked(5 * (n + 1))
		last = filepath.Join(t.TempDir(), fmt.Sprint("backup-", n))
		w.ok("server", "backup", last, "--data", data)
		got := w.run("server", "backup", last, "--data", data)
		if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "already exists") {
			t.Errorf("over a backup: got %+v", got)
		}
		restored := filepath.Join(reachable(t), "data")
		if got := w.run("server", "restore", last, "--data", restored); got.code != cli.ExitOK || !strings.Contains(got.stderr, "workflows cancelled") {
			t.Errorf("restore: %+v", got)
		}
		states := w.wantWhole(restored)
		if states[workflow.Succeeded] == 0 || states[workflow.Cancelled] == 0 || states[workflow.Pending]+states[workflow.Claimed] > 0 {
			t.Errorf("restored are %v, want some that have ended, and none that could start", states)
		}
	}
	if got := w.run("server", "restore", last, "--data", data); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "uses the data directory") {
		t.Errorf("into a directory in use: got %+v", got)
	}
	stop()
	if got := w.run("server", "restore", last, "--data", data); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "--replace") {
		t.Errorf("over records: got %+v", got)
	}
	w.ok("server", "restore", last, "--data", data, "--replace")
	w.wantWhole(data)
	for _, name := range []string{embedded.DatabaseFile, filepath.Join("private", "blobs")} {
		if aside, err := filepath.Glob(filepath.Join(data, name+".replaced-*")); err != nil || len(aside) == 0 {
			t.Errorf("%s that was there is gone (%v)", name, err)
		}
	}
	cl, _ := w.serve(data)
	if _, err := cl.Submit(t.Context(), api.Submit{Workspace: "ws-0", Operation: workflow.Update}); err != nil {
		t.Errorf("after the restore: %v", err)
	}
}

// killWhen starts a program and kills it as soon as something is the case, if it lives so long.
func (w *world) killWhen(is func() bool, args ...string) {
	w.t.Helper()
	cmd := w.program(args...)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	for !is() {
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
	_ = cmd.Process.Kill()
	<-done
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

func TestBackup_ThatIsKilledIsNeverTakenForAWholeOne(t *testing.T) {
	w := newWorld(t)
	data, stop := w.loaded()
	w.worked(5)
	stop()
	to := filepath.Join(t.TempDir(), "backup")
	for name, is := range map[string]func() bool{
		"at its beginning":    func() bool { return exists(to + ".partial") },
		"with records":        func() bool { return exists(to + ".partial/dayfly.db") },
		"with its list":       func() bool { return exists(to + ".partial/manifest.json") },
		"with its whole name": func() bool { return exists(to) },
	} {
		t.Run(name, func(t *testing.T) {
			w.killWhen(is, "server", "backup", to, "--data", data)
			target := filepath.Join(reachable(t), "data")
			t.Logf("a part is there: %v, the whole: %v", exists(to+".partial"), exists(to))
			got := w.run("server", "restore", to, "--data", target)
			if whole := exists(to); whole != (got.code == cli.ExitOK) {
				t.Errorf("the backup has its name: %v, and its restore ends with %+v", whole, got)
			}
			if got.code == cli.ExitOK {
				w.wantWhole(target)
			}
			if got := w.run("server", "restore", to+".partial", "--data", reachable(t)); exists(to+".partial/dayfly.db") && !exists(to+".partial/manifest.json") && got.code != cli.ExitRefused {
				t.Errorf("the part: got %+v", got)
			}
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			w.ok("server", "backup", to, "--data", data) // it ignores the files that remained
			w.ok("server", "restore", to, "--data", filepath.Join(reachable(t), "data"))
			if err := os.RemoveAll(to); err != nil || exists(to+".partial") {
				t.Error("a partial file remained", err)
			}
		})
	}
}

// One that is killed before it has its lock leaves an empty directory. Anything else in the way stays.
func TestBackup_TakesOnlyItsOwnPartsAway(t *testing.T) {
	w := newWorld(t)
	data, stop := w.loaded()
	stop()
	to := filepath.Join(t.TempDir(), "backup")
	if err := os.Mkdir(to+".partial", 0o700); err != nil {
		t.Fatal(err)
	}
	w.ok("server", "backup", to, "--data", data)
	other := filepath.Join(t.TempDir(), "backup")
	if err := os.MkdirAll(other+".partial/notes", 0o700); err != nil {
		t.Fatal(err)
	}
	got := w.run("server", "backup", other, "--data", data)
	if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "is not an unfinished backup") || !exists(other+".partial/notes") {
		t.Errorf("got %+v", got)
	}
}

func TestBackup_ThatFindsNoRoomLeavesNothing(t *testing.T) {
	w := newWorld(t)
	data, stop := w.loaded()
	defer stop()
	to := filepath.Join(t.TempDir(), "backup")
	cmd := w.program()
	cmd.Args = []string{"sh", "-c", `ulimit -f 20 && exec "$@"`, "sh", os.Args[0], "server", "backup", to, "--data", data}
	cmd.Path = "/bin/sh"
	if out, err := cmd.CombinedOutput(); err == nil || exists(to) || exists(to+".partial") {
		t.Errorf("ended with %v, and left %v and %v: %s", err, exists(to), exists(to+".partial"), out)
	}
	w.ok("server", "backup", to, "--data", data)
}

func TestRestore_TheNextFinishesAKilledOne(t *testing.T) {
	w := newWorld(t)
	data, stop := w.loaded()
	w.worked(5)
	backup := filepath.Join(t.TempDir(), "backup")
	w.ok("server", "backup", backup, "--data", data)
	stop()
	var want map[workflow.State]int
	db := filepath.Join(data, embedded.DatabaseFile)
	marker := filepath.Join(data, "private", "restoring")
	for round, is := range []func() bool{
		func() bool { return false }, // not killed, and then as if it had been before its first change
		func() bool { return exists(db + ".restoring") },
		func() bool { return exists(db + ".restoring-wal") },
		func() bool { return exists(marker) },
		func() bool { return exists(marker) && !exists(db) },
		func() bool { return exists(marker) && !exists(db+".restoring") },
	} {
		w.killWhen(is, "server", "restore", backup, "--data", data, "--replace")
		if round == 0 {
			if err := os.WriteFile(marker, []byte(".before-round-0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("round %d: cut short is %v, records are there is %v", round, exists(marker), exists(db))
		if exists(marker) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // one that is not refused serves until it is stopped
			got := w.in(ctx, "", "server", "--data", data, "--listen", "127.0.0.1:0")
			cancel()
			if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "cut short") {
				t.Fatalf("round %d: a server over half a restore: %+v", round, got)
			}
		} else if !exists(db) {
			t.Fatalf("round %d: nothing says that the restore was cut short", round)
		}
		w.ok("server", "restore", backup, "--data", data, "--replace")
		got := w.wantWhole(data)
		if want == nil {
			want = got
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("round %d: restored %v, want %v", round, got, want)
		}
		if exists(marker) || exists(db+".restoring") {
			t.Errorf("round %d: files of the restore remained", round)
		}
		_, stop := w.serve(data)
		stop()
	}
}

// A restore refuses files that were changed since the backup.
func TestRestore_RefusesABackupThatWasChanged(t *testing.T) {
	w := newWorld(t)
	data := reachable(t)
	_, stop := w.serve(data)
	w.workspace("net")
	stop()
	backup := filepath.Join(t.TempDir(), "backup")
	w.ok("server", "backup", backup, "--data", data) // of a directory that nobody uses
	db := filepath.Join(backup, "dayfly.db")
	good, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"cut":     func() error { return os.WriteFile(db, good[:len(good)/2], 0o600) },
		"changed": func() error { return os.WriteFile(db, append(good[:len(good)-1:len(good)-1], 'x'), 0o600) },
		"missing": func() error { return os.Remove(db) },
	} {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(reachable(t), "data")
			if err := change(); err != nil {
				t.Fatal(err)
			}
			got := w.run("server", "restore", backup, "--data", target)
			if got.code != cli.ExitUsage && got.code != cli.ExitRefused || !strings.Contains(got.stderr, "is not a whole backup") || exists(filepath.Join(target, embedded.DatabaseFile)) {
				t.Errorf("got %+v", got)
			}
			if err := os.WriteFile(db, good, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	list := filepath.Join(backup, "manifest.json")
	for _, path := range []string{backup, db, list} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v), want none for others", path, info.Mode(), err)
		}
	}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, bytes.Replace(text, []byte(`"schema": 2`), []byte(`"schema": 1`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run("server", "restore", backup, "--data", data, "--replace"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "restore it with that program") {
		t.Errorf("of an older version: got %+v", got)
	}
}
