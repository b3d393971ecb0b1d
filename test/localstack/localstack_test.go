// Package localstack_test takes the stories of test/cloud through a deployment whose queues, secrets, records and states
// are LocalStack's; ECS, Lambda and credentials are ours, because no free one runs tasks. It is a module of its own,
// so that the product's does not need what starts containers; it has no `replace`, because it imports nothing of ours: it
// runs the program that make e2e runs.
//
//	LOCALSTACK_IMAGE       default localstack/localstack:4.14.0, the last that needs no token
//	LOCALSTACK_AUTH_TOKEN  is passed on when it is set
//	LOCALSTACK_URL         one that runs already; then none is started, and TASKS=process needs no Docker
//	E2E_EXTERNAL           its services, default all: sqs,secretsmanager,s3,sts,dynamodb
//	ONLY, TASKS            as for make e2e
package localstack_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/localstack"
)

const services = "sqs,secretsmanager,s3,sts,dynamodb"

func TestLocalStack_ServesQueuesSecretsAndRecords(t *testing.T) {
	url := os.Getenv("LOCALSTACK_URL")
	if url == "" {
		url = start(t, cmp.Or(os.Getenv("LOCALSTACK_IMAGE"), "localstack/localstack:4.14.0"))
	}
	tell(t, "E2E_EXTERNAL="+cmp.Or(os.Getenv("E2E_EXTERNAL"), services), "LOCALSTACK_URL="+url)
}

// That the test above does what it says is shown with moto, where there is no LocalStack: one story, for moto's queues
// lose what comes after a batch that failed in part.
func TestMoto_StandsInForLocalStack(t *testing.T) {
	if _, err := exec.LookPath("moto_server"); err != nil {
		t.Skip("there is no moto_server on PATH (pip install 'moto[server]')")
	}
	tell(t, "E2E_EXTERNAL="+services, "LOCALSTACK_URL=moto", "TASKS=process", "ONLY=network")
}

// tell runs the stories.
func tell(t *testing.T, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/e2e")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	// It removes what it made.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// start starts LocalStack until the test ends and returns its address. Where there is no engine or no image, the test
// is skipped; without this look, the module panics without an engine, and leaves a network behind without an image.
func start(t *testing.T, image string) string {
	t.Helper()
	checkTag(t, image)
	docker := func(timeout time.Duration, args ...string) (string, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			line = cmp.Or(line, err.Error())
		}
		return line, err == nil
	}
	if said, ok := docker(30*time.Second, "version", "--format", "{{.Server.Version}}"); !ok {
		t.Skip("no Docker engine answers: ", said)
	}
	if _, ok := docker(30*time.Second, "image", "inspect", image); !ok {
		if said, ok := docker(5*time.Minute, "pull", "-q", image); !ok {
			t.Skipf("the image %s is not there and cannot be pulled: %s", image, said)
		}
	}
	// The container that cleans up after testcontainers is an image of its own, which may not be there.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	env := map[string]string{"SERVICES": services}
	if token := os.Getenv("LOCALSTACK_AUTH_TOKEN"); token != "" {
		env["LOCALSTACK_AUTH_TOKEN"] = token
	}
	starting, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := localstack.Run(starting, image, testcontainers.WithEnv(env))
	if c != nil {
		testcontainers.CleanupContainer(t, c)
	}
	if err != nil {
		t.Fatalf("start %s: %v", image, err)
	}
	address, err := c.PortEndpoint(t.Context(), "4566/tcp", "http")
	if err != nil {
		t.Fatalf("address of %s: %v", image, err)
	}
	return address
}

// checkTag refuses what the module takes for a LocalStack of long ago: no tag, a digest alone, and months with a zero
// (2026.03.0; 2026.3.0 is read well).
func checkTag(t *testing.T, image string) {
	t.Helper()
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if tag == "" || strings.Contains(image, "@") {
		t.Fatalf("LOCALSTACK_IMAGE=%s: name a tag, such as localstack/localstack:4.14.0", image)
	}
	for part := range strings.SplitSeq(tag, ".") {
		if len(part) > 1 && part[0] == '0' {
			t.Fatalf("LOCALSTACK_IMAGE=%s: a part of the tag begins with 0, which is not read as a version; tag the image anew, as with docker tag %s %s", image, image, strings.ReplaceAll(image, ".0", "."))
		}
	}
}
