package cloud_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

const events = "../../events"

func TestSamples_EachFileIsOfOneFunction(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(events, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no events: %v", err)
	}
	var taken []string
	for _, of := range cloud.Samples {
		taken = append(taken, of...)
	}
	for _, f := range files {
		if n := len(taken); len(slices.DeleteFunc(slices.Clone(taken), func(s string) bool { return s == filepath.Base(f) })) != n-1 {
			t.Errorf("%s is not the sample of one function", f)
		}
	}
	if len(taken) != len(files) {
		t.Errorf("%d samples are named and %d are there", len(taken), len(files))
	}
}

// Each sample is understood by its function, as it is built and deployed: an unknown job is not an error. Each line
// that is written then names its invocation.
func TestSamples_AreTakenByTheDeployedFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs functions")
	}
	var lines atomic.Int32
	c, err := cloud.Start(t.Context(), cloud.Config{
		Root: "../..", Functions: functions, Image: "none", Runner: &procrun.Runner{},
		Log: func(function, line string) {
			t.Log(function, line)
			if strings.HasPrefix(line, "{") {
				lines.Add(1)
				if !strings.Contains(line, `"request_id":"`) {
					t.Errorf("%s does not name its invocation: %s", function, line)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Close()
		if lines.Load() < 5 {
			t.Errorf("only %d lines were written", lines.Load())
		}
	}()
	for function, samples := range cloud.Samples {
		for _, name := range samples {
			event, err := os.ReadFile(filepath.Join(events, name))
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.Invoke(t.Context(), function, event)
			if err != nil || out.FunctionError != "" {
				t.Errorf("%s with %s: %v %s %s", function, name, err, out.FunctionError, out.Payload)
			}
		}
	}
}
