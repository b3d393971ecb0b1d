package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
)

// withPages makes commands talk to the control plane as up serves it: with pages beside the API.
func (w *world) withPages() {
	w.t.Helper()
	server := httptest.NewServer(console.New(w.plane, console.Config{}).Beside(httpapi.New(w.plane, httpapi.Config{})))
	w.t.Cleanup(server.Close)
	w.url, w.env["DAYFLY_URL"] = server.URL, server.URL
}

func TestOpen_PrintsThePageOfAThing(t *testing.T) {
	w := newWorld(t)
	w.withPages()
	w.workspace("net-work")
	w.ok("pool", "create", "build")
	id := strings.TrimSpace(w.ok("run", "net-work"))
	for thing, path := range map[string]string{id: "/runs/" + id, "net-work": "/workspaces/net-work", "build": "/pools#pool-build", "": "/"} {
		args := []string{"open", "--print"}
		if thing != "" {
			args = append(args, thing)
		}
		if got := w.ok(args...); got != w.url+path+"\n" {
			t.Errorf("%v: got %q, want %s", args, got, path)
		}
	}
	for thing, says := range map[string]string{"wf_none": "wf_none", "none": "there is no workspace or pool none"} {
		if got := w.run("open", thing); got.code != cli.ExitRefused || !strings.Contains(got.stderr, says) || got.stdout != "" {
			t.Errorf("%s: got %+v, want exit 2 and %q", thing, got, says)
		}
	}
}

func TestOpen_OpensABrowserWhereThereIsOne(t *testing.T) {
	w := newWorld(t)
	w.withPages()
	w.env["PATH"] = "/nowhere"
	if got := w.run("open"); got.code != cli.ExitOK || got.stdout != w.url+"/\n" || !strings.Contains(got.stderr, "no browser was opened: there is no ") {
		t.Errorf("without a browser: got %+v", got)
	}
	bin := t.TempDir()
	opened := filepath.Join(bin, "opened")
	if err := unix.Mkfifo(opened, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"xdg-open", "open"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho \"$1\" >"+opened+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	w.env["PATH"] = os.Getenv("PATH")
	w.ok("open")
	if got, err := os.ReadFile(opened); err != nil || string(got) != w.url+"/\n" { // it waits for the browser
		t.Errorf("opened %q, %v", got, err)
	}
}

func TestOpen_SaysThatThereAreNoPages(t *testing.T) {
	w := newWorld(t)
	if got := w.run("open"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "serves no web pages") {
		t.Errorf("got %+v", got)
	}
}
