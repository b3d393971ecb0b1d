package scenario_test

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssecrets "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	fakesqs "github.com/dayfly-dev/dayfly/test/awsim/sqs"
	fakests "github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// TestQuickStories tells what needs neither containers, nor an engine, nor long waiting. `make e2e` tells all.
func TestQuickStories(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it builds and runs the functions")
	}
	dir := t.TempDir()
	runner, err := build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := gitserver.OpenAuthority(filepath.Join(dir, "authority"))
	if err != nil {
		t.Fatal(err)
	}
	git, err := scenario.ServeGit(t.Context(), authority, "127.0.0.1")
	if err != nil {
		t.Skip(err)
	}
	defer git.Close()
	bundle := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(bundle, authority.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	options := func(t *testing.T, root string) scenario.Options {
		tap := scenario.NewTap()
		return scenario.Options{
			Tap: tap, Git: git, Quick: true, Say: t.Logf, NoEngine: "none is needed",
			Cloud: cloud.Config{
				Root: root, Functions: filepath.Join(dir, "functions"), Image: "runner", TaskEnv: map[string]string{"SSL_CERT_FILE": bundle},
				Runner: &procrun.Runner{
					Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")},
					Dir: filepath.Join(dir, "tasks"), DirEnv: "DAYFLY_WORK_DIR", Output: tap.Writer("the output of a task"),
				},
			},
		}
	}
	t.Run("end as they must", func(t *testing.T) {
		rows, err := scenario.Run(t.Context(), options(t, root))
		if err != nil {
			t.Fatal(err)
		}
		if err := scenario.Failed(rows); err != nil {
			t.Error(err)
		}
		if len(rows) < 9 {
			t.Errorf("only %d outcomes", len(rows))
		}
	})
	t.Run("end as they must with services elsewhere", func(t *testing.T) { elsewhere(t, func() scenario.Options { return options(t, root) }) })
	// The templates are what runs: a permission that is missing there is missing here.
	t.Run("fail without a permission", func(t *testing.T) {
		o := options(t, without(t, `"ecs:RunTask"`, `"ecs:DescribeClusters"`))
		o.Only, o.Hasty = "command", true // it is tried again and again, and the reason is what counts here
		rows, err := scenario.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := scenario.Failed(rows); err == nil || !strings.Contains(err.Error(), "dayfly-main-DispatcherRole-1A2B3C4D5E6F may not ecs:RunTask") {
			t.Errorf("without the permission to launch tasks: %v", err)
		}
	})
}

// elsewhere runs two times with the same two servers, which stand for LocalStack. Each answers a service, the runs do not
// get into each other's way, and a service that nothing calls is a mistake.
func elsewhere(t *testing.T, options func() scenario.Options) {
	serve := func(services map[string]awsim.Service) string {
		table := sigv4.NewTable(nil)
		table.Add(cloud.Foreign)
		services["sts"] = &fakests.Service{Credentials: table}
		server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: services}))
		t.Cleanup(server.Close)
		return server.URL
	}
	first := serve(map[string]awsim.Service{"sqs": &fakesqs.Service{}})
	second := serve(map[string]awsim.Service{"secretsmanager": &fakesecrets.Service{}})
	left := awssecrets.CreateSecretInput{Name: aws.String("dayfly-control-AdminTokenSecret")} // by a run that was killed
	if _, err := awssecrets.NewFromConfig(awsim.ClientConfig(second, cloud.Foreign)).CreateSecret(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ story, list, unused string }{
		{"command", "sqs,secretsmanager=" + second, ""},
		{"directory source", "sqs,secretsmanager=" + second + ",sts=" + second, "calls of sts answered by " + second},
	} {
		o := options()
		o.Only = c.story
		var err error
		if o.Cloud.External, err = cloud.ParseExternal(c.list, first); err != nil {
			t.Fatal(err)
		}
		rows, err := scenario.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range rows {
			got[r.What] = r.Got
			if (len(r.Wrong) > 0) != (r.What == c.unused) {
				t.Errorf("%s: %s: %q", c.story, r.What, r.Wrong)
			}
		}
		for _, what := range []string{"calls of sqs answered by " + first, "calls of secretsmanager answered by " + second, "calls of dynamodb answered by our fake"} {
			if n, err := strconv.Atoi(got[what]); n == 0 {
				t.Errorf("%s: %s: %q, %v", c.story, what, got[what], err)
			}
		}
		if c.unused != "" && got[c.unused] != "0" {
			t.Errorf("%s: %q", c.unused, got[c.unused])
		}
		client := awssqs.NewFromConfig(awsim.ClientConfig(first, cloud.Foreign))
		if left, err := client.ListQueues(t.Context(), &awssqs.ListQueuesInput{}); err != nil || len(left.QueueUrls) > 0 {
			t.Errorf("%s: left %v, %v", c.story, left, err)
		}
	}
}

const root = "../../.."

// without copies the templates, with something else in place of a text.
func without(t *testing.T, text, other string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "root")
	from := filepath.Join(root, "infra", "transformed")
	if err := os.CopyFS(filepath.Join(to, "infra", "transformed"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, "infra", "transformed", "pool.json")
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(old), text, other)
	if changed == string(old) {
		t.Fatalf("the template has no %s", text)
	}
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// build builds the functions and the runner.
func build(ctx context.Context, dir string) (runner string, err error) {
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return "", err
	}
	if _, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: filepath.Join(dir, "functions"), NoZip: true}, packages...); err != nil {
		return "", err
	}
	return built.Program(ctx, dir, "runnerimage")
}
