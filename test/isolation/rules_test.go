package isolation_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// rules are packages of policies that reach for more than the plan, and code of a job that would have its plan pass.
func (w *world) rules() {
	const name = "rules"
	source := filepath.Join(filepath.Dir(w.Data), name)
	pack := source + "-package"
	program := filepath.Join(engines(w.site.Source), api.PolicyProgram)
	own, err := os.ReadFile(program)
	w.must(errors.Join(err, os.MkdirAll(source, 0o755), os.MkdirAll(pack, 0o755), os.WriteFile(filepath.Join(source, "address"), []byte("thing.planned"), 0o644)))
	w.put(name, "", func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.Source, ws.State = api.EngineTerraform, nil, api.Source{Directory: source}, &api.State{Kind: api.StateDirectory}
		ws.Environment = map[string]string{"MODE": "mode:rules " + program}
	})
	defer func() { w.must(w.Client.DeleteSetting(w.T.Context(), kind.For(api.PolicyGroup{}), name)) }()
	// denied is a run under the package of a directory. The plan of each must be denied, whatever is wrong with the package.
	denied := func(what, dir, says string) {
		w.T.Helper()
		_, _, err := w.Client.PutSetting(w.T.Context(), api.PolicyGroup{Name: name, Enforcement: api.PolicyMandatory, Workspaces: []string{name}, Source: api.Source{Directory: dir}})
		w.must(err)
		id := w.Update(name)
		wf, log := w.Over(id), w.attempted(id)
		if !strings.Contains(log, "tried ") || !strings.Contains(log, "left: rewriter") {
			w.T.Errorf("the job tried nothing:\n%s", log)
		}
		held := wf.State == workflow.Failed && wf.Reason == workflow.ReasonPolicyFailed && strings.Contains(wf.Detail, says) && w.read(w.stateFile(name)) == ""
		w.tried(what, held && !strings.Contains(wf.Detail+log, secret) && !strings.Contains(wf.Detail+log, forwarded), "%s (%s): %s", wf.State, wf.Reason, wf.Detail)
	}

	var called atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			called.Add(1)
			_ = c.Close()
		}
	}()
	victims := filepath.Join(w.Data, embedded.SecretsDir, "victim")
	for _, c := range []struct{ what, rule, link, says string }{
		{"call the network", fmt.Sprintf(`x := http.send({"method": "get", "url": "http://%s/"})`, l.Addr()), "", "undefined function http.send"},
		{"ask for an address", `x := net.lookup_ip_addr("example.com")`, "", "undefined function net.lookup_ip_addr"},
		{"read the environment", `x := opa.runtime().env`, "", "undefined function opa.runtime"},
		{"read a file by a schema", fmt.Sprintf(`x := json.match_schema({}, {"$ref": "file://%s"})`, victims), "", "undefined function json.match_schema"},
		{"read a secret by a link", `x := data.stolen`, victims, "symbolic link"},
		{"read its environment by a link", `x := data.stolen`, "/proc/self/environ", "symbolic link"},
	} {
		w.must(os.WriteFile(filepath.Join(pack, "main.rego"), []byte("package main\n\ndeny contains sprintf(\"%v\", [x]) if {\n\t"+c.rule+"\n}\n"), 0o644))
		stolen := filepath.Join(pack, "stolen.json")
		if c.link != "" {
			w.must(os.Symlink(c.link, stolen))
		}
		denied(c.what, pack, c.says)
		w.must(os.RemoveAll(stolen))
	}
	w.must(l.Close())
	<-done
	w.tried("reach a server of this machine", called.Load() == 0, "%d calls", called.Load())
	denied("name a data directory of Dayfly as the package", filepath.Join(w.Data, embedded.SecretsDir), "could not be fetched")

	w.must(os.WriteFile(filepath.Join(pack, "main.rego"), []byte("package main\n\ndeny contains \"as it was written\"\n"), 0o644))
	denied("rewrite the rules, and kill the program that evaluates them", pack, "main.deny: as it was written")
	now, err := os.ReadFile(program)
	w.tried("change the program", err == nil && string(now) == string(own), "%d bytes, %v", len(now), err)
}
