package arch_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/arch"
)

// heavy are the packages that a function may not link, not even indirectly: each costs more at every cold start than
// all the work of the function.
var heavy = []struct{ prefix, instead string }{
	{"github.com/google/go-github/", "git hosts are called by the deliverer"},
	{"gitlab.com/gitlab-org/", "git hosts are called by the deliverer"},
	{"github.com/aws/aws-sdk-go-v2/config", "read the environment with functions/internal/boot"},
	{"modernc.org/sqlite", "a function keeps its records in DynamoDB"},
	{"github.com/go-git/", "sources are fetched by the runner"},
	{"github.com/open-policy-agent/", "policies are judged by the runner"},
	{"github.com/docker/", "tasks are run by ECS"},
	{arch.Module + "/internal/launcher/docker", "tasks are run by ECS"},
	{arch.Module + "/internal/launcher/process", "tasks are run by ECS"},
	{arch.Module + "/internal/store/sqlite", "a function keeps its records in DynamoDB"},
	{arch.Module + "/internal/runner", "the runner is not a function"},
	{"github.com/alecthomas/kong", "a function has no command line"},
	{"go.yaml.in/", "a function has no settings file"},
	{"net/rpc", "build it with the tag lambda.norpc"},
}

// calls is the function that calls git hosts.
const calls = "functions/deliverer"

// linked returns what is too heavy among the dependencies of a program.
func linked(name string, deps []string) (found []string) {
	for _, dep := range deps {
		for _, h := range heavy {
			if name == calls && strings.HasSuffix(h.instead, "by the deliverer") {
				continue
			}
			if dep == strings.TrimSuffix(h.prefix, "/") || strings.HasPrefix(dep, strings.TrimSuffix(h.prefix, "/")+"/") {
				found = append(found, dep+" ("+h.instead+")")
			}
		}
	}
	return found
}

func TestFunctions_LinkNothingHeavy(t *testing.T) {
	functions := programs(t, "lambda.norpc", "functions")
	for name, deps := range functions {
		if !strings.Contains(strings.Join(deps, "\n"), "github.com/aws/aws-lambda-go/lambda") {
			t.Errorf("%s is not a function: it does not link aws-lambda-go/lambda", name)
		}
		for _, dep := range linked(name, deps) {
			t.Errorf("%s links %s", name, dep)
		}
	}
	if len(functions) < 2 {
		t.Errorf("go list found %d functions: that cannot be all", len(functions))
	}
}

// The rule can fail.
func TestFunctions_HeavyThingsAreFound(t *testing.T) {
	deps := []string{
		"github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/configured", "modernc.org/sqlite/lib",
		arch.Module + "/internal/runner/source", arch.Module + "/internal/store", "net/rpc", "net/rpcx", "github.com/google/go-github/v89/github",
	}
	for name, want := range map[string]int{"functions/poller": 5, calls: 4} {
		if got := linked(name, deps); len(got) != want {
			t.Errorf("%s: found %q, want %d", name, got, want)
		}
	}
}
