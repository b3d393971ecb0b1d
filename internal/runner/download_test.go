package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/toolcache/toolcachetest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stub is an engine that knows its version and no more.
func stub(version string) string {
	return "#!/bin/sh\ncase $1 in version) echo '{\"terraform_version\":\"" + version + "\"}' ;; *) exit 3 ;; esac\n"
}

// download runs a job whose engine is not installed, and returns its result and its log.
func download(t *testing.T, version string, tools *toolcache.Cache) (result api.Result, log string) {
	t.Helper()
	spec, cfg := job(t, "")
	spec.Engine, spec.EngineVersion, spec.Operation, spec.Commands = api.EngineTofu, version, workflow.Preview, nil
	cfg.Path, cfg.Tools = t.TempDir(), tools
	older := filepath.Join(cfg.Path, "tofu")
	if err := os.WriteFile(older, []byte(stub("1.6.0")), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	return r.result(), r.text()
}

func TestRunJob_EngineThatIsNotInstalledIsDownloaded(t *testing.T) {
	releases := toolcachetest.New(t)
	for _, v := range []string{"1.9.0", "1.10.1"} {
		releases.Publish(t, "tofu", v, stub(v))
	}
	dir := filepath.Join(t.TempDir(), "tools")
	for name, tc := range map[string]struct {
		tools         toolcache.Cache
		wantDownloads int // downloads so far, of both runs
	}{
		"of the run alone": {toolcache.Cache{}, 2},
		"kept":             {toolcache.Cache{Dir: dir}, 1},
	} {
		before := releases.Fetched("tofu")
		tc.tools.Allowed, tc.tools.From = []string{"tofu"}, releases.Publishers()
		for range 2 {
			_, log := download(t, "~> 1.9", &tc.tools)
			for _, want := range []string{"tofu 1.10.1 at ", ", a download whose archive has the SHA-256 "} {
				if !strings.Contains(log, want) {
					t.Errorf("%s: the log does not say %q:\n%s", name, want, log)
				}
			}
		}
		if got := releases.Fetched("tofu") - before; got != tc.wantDownloads {
			t.Errorf("%s: got %d downloads, want %d", name, got, tc.wantDownloads)
		}
		// What is installed comes first.
		if _, log := download(t, "< 1.10", &tc.tools); !strings.Contains(log, "tofu 1.6.0 at ") {
			t.Errorf("%s: got %s", name, log)
		}
	}
}

func TestRunJob_DownloadThatFailsIsSaidInOneLine(t *testing.T) {
	releases := toolcachetest.New(t)
	releases.Publish(t, "tofu", "1.10.1", stub("1.10.1"))
	releases.Publish(t, "tofu", "1.11.0", stub("1.10.1"))
	releases.SignWithAnotherKey(t, "tofu", "1.10.1")
	from := toolcache.Cache{Allowed: []string{"tofu"}, From: releases.Publishers()}
	for version, tc := range map[string]struct {
		tools *toolcache.Cache
		says  string
	}{
		"= 1.10.1": {&from, "the signature of "},
		"1.11.0":   {&from, "it says that it is 1.10.1"},
		"~> 99.1":  {&from, "has no such version among its 2"},
		"1.10.1":   {&toolcache.Cache{}, "not downloaded: downloads are not allowed here: engine_downloads"},
	} {
		result, _ := download(t, version, tc.tools)
		if result.Reason != workflow.ReasonEngineNotFound {
			t.Errorf("%s: got %s", version, result.Reason)
		}
		for _, want := range []string{"this runner has no tofu " + version, "tofu (1.6.0)", tc.says} {
			if !strings.Contains(result.Detail, want) || strings.Contains(result.Detail, "\n") {
				t.Errorf("%s: got %q, want %q in one line", version, result.Detail, want)
			}
		}
	}
}
