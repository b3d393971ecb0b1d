package functions_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
)

// patience is how long an init may take here: a machine that is busy is not what is tested.
const patience = 4 * time.Minute

// A function that calls anybody before it asks for its first event pays for that with each cold start, and cannot
// start while what it calls is away.
func TestFunctions_StartWithoutTheNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds every function")
	}
	packages, err := bootstrap.Functions("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 5 {
		t.Fatalf("found %v, want five functions at least", packages)
	}
	built, err := bootstrap.Build(t.Context(), bootstrap.Config{Root: "../../..", Out: t.TempDir(), NoZip: true}, packages...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, a := range built {
		t.Run(a.Name, func(t *testing.T) {
			linksNoTemplates(t, a.Bootstrap)
			network, err := newNetwork(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer network.close()
			host := lambdahost.New(lambdahost.Config{InitTimeout: patience, Log: func(_, line string) { t.Log(line) }})
			defer host.Close()
			if err := host.Put(deployed(a.Name, a.Bootstrap, network.address())); err != nil {
				t.Fatal(err)
			}
			if _, err := host.Warm(ctx, a.Name); err != nil {
				t.Fatal(err)
			}
			if n := network.connections(); n != 0 {
				t.Errorf("it made %d connections before its first event", n)
			}
		})
	}
}

// linksNoTemplates looks for the function of text/template that calls methods by names which it learns at run time.
// Where it is linked, the linker keeps every exported method of every type.
func linksNoTemplates(t *testing.T, program string) {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	// The names of functions stay in a program that is stripped.
	if !bytes.Contains(text, []byte("\x00main.run\x00")) {
		t.Fatalf("%s has no names of functions", program)
	}
	const executes = "text/template.(*Template).execute"
	if bytes.Contains(text, []byte("\x00"+executes+"\x00")) {
		t.Errorf("it links %s: go build -ldflags=-dumpdep shows what needs it", executes)
	}
}

// What is not set is told at once, and by name.
func TestFunctions_SayWhatTheyMiss(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds every function")
	}
	packages, err := bootstrap.Functions("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := bootstrap.Build(t.Context(), bootstrap.Config{Root: "../../..", Out: dir, NoZip: true}, packages...); err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		name := filepath.Base(p)
		said := make(chan string, 100)
		host := lambdahost.New(lambdahost.Config{InitTimeout: patience, Log: func(_, line string) { said <- line }})
		if err := host.Put(lambdahost.Function{Name: name, Bootstrap: filepath.Join(dir, name, bootstrap.Name)}); err != nil {
			t.Fatal(err)
		}
		_, err := host.Warm(t.Context(), name)
		host.Close()
		close(said)
		text := ""
		for line := range said {
			text += line + "\n"
		}
		if err == nil {
			t.Errorf("%s started without its variables", name)
		}
		if !strings.Contains(text, "mistakes in the environment") || !strings.Contains(text, "DAYFLY_") {
			t.Errorf("%s says %q, want every variable that is missing", name, text)
		}
	}
}
