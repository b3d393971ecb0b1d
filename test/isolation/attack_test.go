package isolation_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/arch"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

const secret = "the-victims-secret"

var (
	printTable = flag.Bool("table", false, "print a table of the attempts at the end")
	printEach  = flag.Bool("each", false, "with -table: print each single attempt")
)

// S1, S4: what workflow code may try, each way against a victim that runs at the same time.
func TestAttack_FromAContainer(t *testing.T) { attack(t, config.TargetDocker) }

// The same of a job that is a process of a machine on which dayfly runs as root.
func TestAttack_FromAProcess(t *testing.T) { attack(t, config.TargetProcess) }

// The attempts of the documents are those that are made.
func TestAttempts_AreThoseOfTheDocuments(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, a := range attempts {
		where := map[string]string{config.TargetDocker: " (containers)", config.TargetProcess: " (processes)"}[a.only]
		want = append(want, "`"+a.name+"`"+where+": "+a.what)
		if !strings.Contains(string(short), "`"+a.name+"`") {
			t.Errorf("SECURITY.md does not name the attempt `%s`", a.name)
		}
	}
	for _, row := range arch.Table(string(page), "Attacks that are tried") {
		got = append(got, row[0]+": "+row[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the attempts of docs/security.md (-made +described):\n%s", diff)
	}
}

// result is what came of an attempt in a target.
type result struct {
	tried    []string // a line for each single attempt
	breaches int
	not      string // why it was not tried
}

// results are those of this run of the tests, by target and name of the attempt.
var results = map[[2]string]*result{}

// world is a dayfly of its own with a job that has a secret, which one attempt after the other is made on.
type world struct {
	*site
	*result
	target   string
	name     string // of the attempt
	engine   string // of workspaces whose plans are approved; empty: terraform
	victim   string
	up       *built.Up
	operator *client.Client
	precious precious

	operatorToken string
}

func attack(t *testing.T, target string) {
	not := missing(t, target)
	for _, a := range attempts {
		results[[2]string{target, a.name}] = &result{not: not}
	}
	if not != "" {
		t.Skip(not)
	}
	w := newWorld(t, target)
	for _, a := range attempts {
		r := results[[2]string{target, a.name}]
		if a.only != "" && a.only != target {
			r.not = a.not
			continue
		}
		if a.name == "swarm" && target == config.TargetProcess && !*printTable {
			r.not = "it takes the processors that tests beside it need: make attack tries it"
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			one, s := *w, *w.site
			s.World = s.As(t)
			one.site, one.result, one.name = &s, r, a.name
			one.make(a)
		})
	}
	if _, err := w.Client.Cancel(t.Context(), w.victim, ""); err != nil {
		t.Fatal(err)
	}
	uptest.Eventually(t, "the victim is cancelled", func() bool { wf := w.Workflow(w.victim); return wf.State == workflow.Cancelled && !wf.SlotHeld })
	if err := w.up.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	w.LeftNothing()
}

// newWorld starts a dayfly, with a file open that is none of its business, and the victim.
func newWorld(t *testing.T, target string) *world {
	t.Helper()
	s := newSite(t)
	dir := filepath.Join(s.Data, embedded.SecretsDir)
	err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(s.Data, 0o711))
	for name, value := range map[string]string{"victim": secret, "own": ownSecret, "doc": `{"password": "` + ownPart + `"}`} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(forwardedName, forwarded)
	open, err := os.Open(filepath.Join(dir, "victim"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	w := &world{site: s, target: target, precious: newPrecious(t, filepath.Dir(s.Data)), up: s.spawn(target, open, open, open)} // the first numbers are taken
	token, err := s.Client.CreateToken(t.Context(), api.NewToken{Name: "operator", Role: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	w.operator, w.operatorToken = uptest.Person(t, w.URL, token.Value), token.Value
	s.put("victim", "wait", func(in *api.Workspace) {
		in.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:victim"}, {File: "token", Ref: "file:victim"}}
	})
	w.victim = s.Update("victim")
	uptest.Eventually(t, "the victim runs", func() bool { return s.Workflow(w.victim).State == workflow.Running })
	return w
}

// make makes an attempt, and looks what it did to others.
func (w *world) make(a attempt) {
	if a.try != nil {
		a.try(w)
	} else {
		args := ""
		if a.args != nil {
			args = " " + a.args(w)
		}
		w.jobSucceeds(a.name, a.name+args)
	}
	if len(w.result.tried) == 0 {
		w.T.Error("nothing was tried")
	}
	if diff := w.precious.diff(w.T); diff != "" {
		w.tried("touch what lies outside", false, "%s", diff)
	}
	if got := w.Workflow(w.victim).State; got != workflow.Running {
		w.tried("end another job", false, "the victim is %s", got)
	}
}

// tried records what came of a single attempt.
func (w *world) tried(what string, held bool, format string, args ...any) {
	outcome := "held"
	if !held {
		outcome = "BREACH"
	}
	w.record(fmt.Sprintf("tried %s: %s: %s (%s)", w.name, what, outcome, fmt.Sprintf(format, args...)))
}

func (w *world) record(line string) {
	w.result.tried = append(w.result.tried, line)
	if strings.Contains(line, ": BREACH") {
		w.breaches++
		w.T.Error(line)
	}
}

// job runs the attack in a workspace, and takes over what it says of its single attempts.
func (w *world) job(name, command string, change ...func(*api.Workspace)) (api.Workflow, string) {
	w.T.Helper()
	w.put(name, command, change...)
	id := w.Update(name)
	return w.Over(id), w.attempted(id)
}

// attempted takes over what a run says of its single attempts, and returns all that it said.
func (w *world) attempted(id string) string {
	w.T.Helper()
	log := w.Log(id, 0)
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "tried ") {
			w.record(strings.TrimSpace(line))
		}
	}
	return log
}

// jobSucceeds is job for an attack that comes to its end.
func (w *world) jobSucceeds(name, command string, change ...func(*api.Workspace)) (api.Workflow, string) {
	w.T.Helper()
	wf, log := w.job(name, command, change...)
	if wf.State != workflow.Succeeded || !strings.Contains(log, "tried ") {
		w.T.Errorf("got %s (%s: %s), want that the attack ran to its end:\n%s", wf.State, wf.Reason, wf.Detail, log)
	}
	return wf, log
}

// report prints the table, and says aloud what was not tried. It prints nothing if no attack was to be made.
func report(out io.Writer, each bool) {
	if len(results) == 0 {
		return
	}
	targets := []string{config.TargetDocker, config.TargetProcess}
	total, breaches, not := 0, 0, map[string]int{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "attempt\twhat it tries\tcontainer\tprocess")
	for _, a := range attempts {
		fmt.Fprintf(table, "%s\t%s", a.name, a.what)
		for _, target := range targets {
			r := results[[2]string{target, a.name}]
			cell := "not tried"
			switch {
			case r == nil:
			case r.not != "" && r.not == a.not:
				cell += ": " + r.not
			case r.not != "":
				not[target+": "+r.not]++
			case r.breaches > 0:
				cell = fmt.Sprintf("BREACH (%d of %d)", r.breaches, len(r.tried))
			case len(r.tried) > 0:
				cell = fmt.Sprintf("held (%d)", len(r.tried))
			}
			fmt.Fprint(table, "\t", cell)
			if r != nil {
				total, breaches = total+len(r.tried), breaches+r.breaches
				for _, line := range r.tried {
					if each || strings.Contains(line, ": BREACH") {
						fmt.Fprintln(out, target+": "+line)
					}
				}
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
	for why, n := range not {
		fmt.Fprintf(out, "\n!!! %d WAYS NOT TRIED HERE: %s\n", n, why)
	}
	fmt.Fprintf(out, "\n%d single attempts: %d held, %d BREACHES\n", total, total-breaches, breaches)
}

var escapes = regexp.MustCompile(`\x1b(\][^\a\x1b]*(\a|\x1b\\)|\[[0-9;?]*[A-Za-z]|[()].)`)

// seen is what a reader sees of a line.
func seen(line string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, escapes.ReplaceAllString(line, ""))
}

// withArgument are the processes of this machine that have such an argument.
func withArgument(word string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && slices.Contains(strings.Split(string(b), "\x00"), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// free reports whether no launcher of this machine keeps a user from the others.
func free(t *testing.T, user string) bool {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join("/var/run/dayfly/engine-users", user), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// descriptors is how many a dayfly has open.
func descriptors(t *testing.T, up *built.Up) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", up.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// api is the port of the API.
func (w *world) api() string { return w.URL[strings.LastIndex(w.URL, ":")+1:] }

// ports are the TCP ports at which the dayfly listens, but for one: each as " port:NUMBER". A container sees none.
func (w *world) ports(without string) string {
	t := w.T
	t.Helper()
	if w.target == config.TargetDocker {
		return ""
	}
	own := fmt.Sprintf("/proc/%d/fd", w.up.PID())
	ours := map[string]bool{}
	fds, err := os.ReadDir(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name, _ := os.Readlink(filepath.Join(own, fd.Name()))
		if inode, ok := strings.CutPrefix(name, "socket:["); ok {
			ours[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var ports strings.Builder
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // there may be no IPv6
		for line := range strings.Lines(string(text)) {
			const address, state, listens, inode = 1, 3, "0A", 9
			f := strings.Fields(line)
			if len(f) <= inode || f[state] != listens || !ours[f[inode]] {
				continue
			}
			port, err := strconv.ParseUint(f[address][strings.LastIndex(f[address], ":")+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			if strconv.FormatUint(port, 10) != without {
				fmt.Fprintf(&ports, " port:%d", port)
			}
		}
	}
	if ports.Len() == 0 {
		t.Fatal("it listens at no port")
	}
	return ports.String()
}

// precious is a directory that must stay as it is.
type precious struct {
	dir  string
	want map[string]string
}

func newPrecious(t *testing.T, base string) precious {
	t.Helper()
	p := precious{dir: filepath.Join(base, "precious")}
	if err := errors.Join(
		os.Mkdir(p.dir, 0o755), os.Mkdir(filepath.Join(p.dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(p.dir, "precious"), []byte("as it was"), 0o644),
		os.WriteFile(filepath.Join(p.dir, "sub", "file"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	p.want = p.look(t)
	return p
}

// look describes all that is there, with owner and mode.
func (p precious) look(t *testing.T) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		}
		got[path] = info.Mode().String() + " " + owner(info) + " " + info.ModTime().Format(time.RFC3339Nano) + " " + text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (p precious) diff(t *testing.T) string {
	t.Helper()
	return cmp.Diff(p.want, p.look(t))
}
