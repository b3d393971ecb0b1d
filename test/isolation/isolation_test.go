package isolation_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const secret = "the-victims-secret"

// S1, S4: what workflow code may try, each way against a victim that runs at the same time.
func TestAttack_FromAContainer(t *testing.T) { attacks(t, config.TargetDocker) }

// The same of a job that is a process of a machine on which dayfly runs as root.
func TestAttack_FromAProcess(t *testing.T) { attacks(t, config.TargetProcess) }

func attacks(t *testing.T, target string) {
	needs(t, target)
	s := newSite(t)
	if err := os.MkdirAll(filepath.Join(s.data, embedded.SecretsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(s.data, 0o711), os.WriteFile(filepath.Join(s.data, embedded.SecretsDir, "victim"), []byte(secret), 0o600)); err != nil {
		t.Fatal(err)
	}
	precious := newPrecious(t, filepath.Dir(s.data))
	// A file that makes the user who runs it root: one that a job can reach in either place.
	rooted := filepath.Join(s.source, "rooted")
	b, err := os.ReadFile(filepath.Join(s.source, "attack"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(rooted, b, 0o755), os.Chmod(rooted, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	s.open(target)
	s.put("victim", "wait", func(w *api.Workspace) {
		w.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:victim"}, {File: "token", Ref: "file:victim"}}
	})
	victim := s.submit("victim", workflow.Update)
	until(t, "the victim runs", func() bool { return s.show(victim).State == workflow.Running })

	within := []string{filepath.Join(s.data, embedded.JobsDir), filepath.Join(s.data, embedded.ContainersDir), filepath.Join(s.data, embedded.RelayDir),
		filepath.Join(s.data, embedded.SecretsDir), s.stateDir("victim")}
	tickets := []string{s.data}
	source := rooted
	ports := listening(t)
	if target == config.TargetDocker {
		ports = "" // there are no others in its network
		tickets = []string{"/dayfly", "/run/dayfly", "/tmp"}
		source = "/dayfly/work/given/rooted"
	}
	ways := map[string]string{
		"environ": "", "mem": "", "fds": "", "ptrace": "", "userns": "", "ticket": strings.Join(tickets, " "),
		"relay": victim + " wf_made_up" + ports, "others": strings.Join(within, " "), "core": "", "signals": "",
		"setuid": source + " ./rooted /bin/su /usr/bin/sudo", "symlinks": precious.dir, "mounts": "",
	}
	if target == config.TargetDocker {
		ways["outside"] = s.data + " " + precious.dir + " /work /root /home /dayfly/source /dayfly/work/given"
	}
	for way, args := range ways {
		t.Run(way, func(t *testing.T) {
			s := *s
			s.t = t
			s.put(way, way+" "+args)
			id := s.submit(way, workflow.Update)
			until(t, "the attack is over", func() bool { return s.show(id).State.Terminal() })
			log := s.log(id)
			if strings.Contains(log, "BREACH") {
				t.Errorf("it succeeded:\n%s", log)
			}
			// A swap of what the run itself needs may fail that run, in words.
			if wf := s.show(id); wf.State != workflow.Succeeded && way != "symlinks" || !strings.Contains(log, "tried "+way) {
				t.Errorf("got %s (%s: %s), want that the attack ran to its end:\n%s", wf.State, wf.Reason, wf.Detail, log)
			}
			precious.check(t)
			if got := s.show(victim).State; got != workflow.Running {
				t.Errorf("the victim is %s", got)
			}
		})
	}
	t.Run("prlimit", func(t *testing.T) {
		s := *s
		s.t = t
		s.put("prlimit", "prlimit")
		id := s.submit("prlimit", workflow.Update)
		until(t, "the attack is over", func() bool { return s.show(id).State.Terminal() })
		wf := s.show(id)
		if target == config.TargetProcess && wf.State != workflow.Succeeded {
			t.Errorf("got %s (%s), want that nothing came of it", wf.State, wf.Reason)
		}
		if wf.Attempt != 1 || wf.SlotHeld {
			t.Errorf("got %+v, want one attempt whose slot is free", wf)
		}
		if got := s.show(victim).State; got != workflow.Running {
			t.Errorf("the victim is %s", got)
		}
	})
	if _, err := s.cl.Cancel(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	until(t, "the victim is cancelled", func() bool { return s.show(victim).State == workflow.Cancelled })
}

// A container gets of its directory source what a run copies, and no more: no credentials of git, no state of another
// workspace. A data directory is no source at all.
func TestSource_AContainerGetsWhatARunCopies(t *testing.T) {
	needs(t, config.TargetDocker)
	s := newSite(t)
	for _, name := range []string{".git/config", "modules/net/terraform.tfstate", "modules/net/.terraform/terraform.tfstate", "terraform.tfstate.backup"} {
		path := filepath.Join(s.source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("planted\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(s.source, "code"), []byte("code\n"), 0o600), os.Chmod(s.source, 0o700)); err != nil {
		t.Fatal(err) // closed to the container's user: the launcher reads it
	}
	s.open(config.TargetDocker)
	s.put("look", "planted /dayfly")
	id := s.submit("look", workflow.Update)
	until(t, "it has looked", func() bool { return s.show(id).State.Terminal() })
	log := s.log(id)
	if wf := s.show(id); wf.State != workflow.Succeeded || strings.Contains(log, "BREACH") || strings.Count(log, "code in") != 1 {
		t.Errorf("got %s (%s), want one copy of the code and nothing else:\n%s", wf.State, wf.Detail, log)
	}
	s.put("data", "", func(w *api.Workspace) { w.Source.Directory = filepath.Join(s.source, "data") })
	if err := os.Symlink(s.data, filepath.Join(s.source, "data")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cl.Submit(t.Context(), api.Submit{Workspace: "data", Operation: workflow.Update}); err == nil {
		t.Error("the data directory was taken for a source")
	}
}

// listening are the TCP ports at which this process, which is the dayfly, listens: each as " port:NUMBER".
func listening(t *testing.T) string {
	t.Helper()
	ours := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		name, _ := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
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
			_, _ = fmt.Fprintf(&ports, " port:%d", port)
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

func (p precious) check(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(p.want, p.look(t)); diff != "" {
		t.Errorf("what lay outside was touched (-want +got):\n%s", diff)
	}
}
