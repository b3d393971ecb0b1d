package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const lockFile = `# This file is maintained automatically by "terraform init".

provider "registry.terraform.io/hashicorp/aws" {
  version     = "6.3.0"
  constraints = ">= 6.0.0"
  hashes = [
    "h1:abc=",
  ]
}

provider "registry.terraform.io/hashicorp/random" {
  version = "3.7.2"
}
`

// D1: make image PROVIDERS asks the engine for exactly the providers of a lock file, for the processors of tasks.
// (That the engine can download them, only a machine that reaches a registry shows.)
func TestMirrorProviders(t *testing.T) {
	dir := t.TempDir()
	engine := "#!/bin/sh\ncat main.tf .terraform.lock.hcl >\"$SEEN\"\necho \"$@\" >>\"$SEEN\"\n"
	for name, text := range map[string]string{"terraform": engine, "lock": lockFile, "empty": "# nothing\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(lock string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../../scripts/mirror-providers", filepath.Join(dir, lock), filepath.Join(dir, "target"), "arm64")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "SEEN="+filepath.Join(dir, "seen"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("lock"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := string(readFile(t, filepath.Join(dir, "seen")))
	for _, want := range []string{
		`source  = "registry.terraform.io/hashicorp/aws"`, `version = "6.3.0"`, `source  = "registry.terraform.io/hashicorp/random"`, `version = "3.7.2"`,
		`"h1:abc="`, "providers mirror -platform=linux_arm64 " + filepath.Join(dir, "target"),
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("the engine does not see %s: %s", want, seen)
		}
	}
	if terraform, err := exec.LookPath("terraform"); err == nil { // the real one, which checks what was written
		check := t.TempDir()
		text, _, _ := strings.Cut(seen, "# This file")
		if err := os.WriteFile(filepath.Join(check, "main.tf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), terraform, "-chdir="+check, "fmt", "-check", "-diff").CombinedOutput(); err != nil {
			t.Errorf("it is not a configuration, or has another form: %s", out)
		}
	}
	if out, err := run("empty"); err == nil || !strings.Contains(out, "names no provider") {
		t.Errorf("without a provider: %v: %s", err, out)
	}
	if out, err := run("missing"); err == nil || !strings.Contains(out, "cannot read") {
		t.Errorf("without a file: %v: %s", err, out)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Engines do not sign what they ask of a mirror of providers: the endpoint lets that through to one bucket, for reading.
func TestProviderMirror_IsReadThroughTheEndpoint(t *testing.T) {
	for _, bucket := range []string{"", "example-providers"} {
		pool := deploy(t, "pool", map[string]string{"ProviderMirrorBucket": bucket})
		want := ""
		if bucket != "" {
			want = "https://example-providers.s3.us-east-1.amazonaws.com/"
		}
		if got := taskEnvironment(pool)["DAYFLY_PROVIDER_MIRROR"]; got != want {
			t.Errorf("with bucket %q the mirror is %q, want %q", bucket, got, want)
		}
		policy, ok, err := network(t, pool).Endpoint("s3")
		if err != nil || !ok {
			t.Fatalf("the policy of the endpoint: %v, %v", ok, err)
		}
		for what, c := range map[string]struct {
			action, resource string
			want             bool
		}{
			"read the mirror":          {"s3:GetObject", "example-providers/registry.terraform.io/hashicorp/aws/6.3.0.json", bucket != ""},
			"write to the mirror":      {"s3:PutObject", "example-providers/x", false},
			"list the mirror":          {"s3:ListBucket", "example-providers", false},
			"read another bucket":      {"s3:GetObject", "example-providers-2/x", false},
			"write to any other place": {"s3:PutObject", "elsewhere/x", false},
		} {
			allowed, by := templates.Evaluate(policy, templates.Request{Action: c.action, Resource: "arn:aws:s3:::" + c.resource})
			if allowed != c.want {
				t.Errorf("with bucket %q, nobody may %s: allowed %v by %s, want %v", bucket, what, allowed, by, c.want)
			}
		}
	}
}
