// Package goclient_test holds the API's document to what a caller does with it: a client in Go is generated from it,
// compiled, and runs a workflow.
package goclient_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/oapi-codegen/runtime" // what a generated client links

	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// DAYFLY_DOCUMENT names another document than the repository's.
func TestClient_OfTheDocumentRunsAWorkflow(t *testing.T) {
	document := os.Getenv("DAYFLY_DOCUMENT")
	if document == "" {
		document = filepath.Join("..", "..", "docs", "openapi.json")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	client, program := filepath.Join(dir, "client.go"), filepath.Join(dir, "run")
	run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", client, document)
	place, err := filepath.Abs(filepath.Join("testdata", "run", "client.go"))
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, []byte(`{"Replace":{"`+place+`":"`+client+`"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run("go", "build", "-overlay", overlay, "-o", program, "./testdata/run")

	dayfly, err := built.Program(t.Context(), dir, "cmd/dayfly")
	if err != nil {
		t.Fatal(err)
	}
	w := uptest.New(t)
	up := exec.CommandContext(t.Context(), dayfly, "up", "--data", w.Data, "--listen", "127.0.0.1:0", "--source-root", w.Source)
	up.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir) // it notes there how to reach it
	w.Spawn(up)
	t.Log(run(program, w.URL, w.Token, w.Source))
}
