package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/docs"
)

// samSteps are the command lines of docs/aws.md, "With SAM", one text for each block.
func samSteps(t *testing.T) (out []string) {
	t.Helper()
	_, section, _ := strings.Cut(string(readFile(t, "../../docs/aws.md")), "\n### With SAM\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, block := range docs.Blocks(section) {
		out = append(out, regexp.MustCompile(`(?m)^\$ `).ReplaceAllString(block.Text, ""))
	}
	return out
}

// newSamSite is a clone in which the SAM CLI is a stand-in too.
func newSamSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	for _, name := range []string{"samconfig.toml", "template.yaml", "infra/controlplane.yaml", "infra/artifacts.yaml"} {
		s.copy("../../"+name, name, 0o644)
	}
	s.copy("testdata/sam", "stand-ins/sam", 0o755)
	s.write("stand-ins/git", "#!/bin/sh\necho v1.0.0\n", 0o755)
	s.write("stand-ins/make", `#!/bin/sh
echo "make $* $GOARCH $IMAGE" >>"$STATE/log"
[ "$1" != image ] || cp "$DOCKER_CONFIG/config.json" "$STATE/docker-config"
`, 0o755)
	s.real()
	return s
}

// types runs what a person types, in one shell that ends at the first failure.
func (s *site) types(commands string, env ...string) (said string, calls []string, err error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", commands)
	cmd.Dir = s.root
	cmd.Env = append([]string{"PATH=" + filepath.Join(s.root, "stand-ins") + ":" + os.Getenv("PATH"), "HOME=" + s.root, "STATE=" + s.state, "TMPDIR=" + s.root}, env...)
	out, err := cmd.CombinedOutput()
	log, _ := s.read("log")
	return string(out), strings.Split(log, "\n"), err
}

// Each template takes the parameters of the page and has the outputs that the page asks for.
func TestSam_PageDeploysFromAClone(t *testing.T) {
	t.Parallel()
	s := newSamSite(t)
	said, calls, err := s.types("set -e\n" + strings.Join(samSteps(t), ""))
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "sam deploy --config-env artifacts", "make image arm64 123456789012.dkr.ecr.eu-west-1.amazonaws.com/dayfly-runner:v1.0.0-arm64",
		"sam deploy --config-env control --s3-bucket dayfly-artifacts-Bucket", "sam deploy --s3-bucket dayfly-artifacts-Bucket", "dayfly pool create main",
		"put-secret-value --secret-id dayfly-main-PoolTokenSecret", "put-secret-value --secret-id dayfly-main-TicketKeysSecret", "dayfly pool update main --wake-target dayfly-main-WakeTarget")
	account := templates.Account{Partition: "aws", Region: "eu-west-1", ID: home.ID}
	for stack, template := range map[string]string{"dayfly-artifacts": "artifacts", "dayfly-control": "controlplane", "dayfly-main": "pool"} {
		tmpl, err := templates.Load("../../infra/transformed/" + template + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := tmpl.Allows(s.parameters(stack)); err != nil {
			t.Errorf("%s: %v", stack, err)
		}
		deployed, err := tmpl.Deploy(stack, account, s.parameters(stack), nil)
		if err != nil {
			t.Errorf("%s: %v", stack, err)
			continue
		}
		asked, _ := s.read(filepath.Join("stacks", stack, "asked"))
		for output := range strings.FieldsSeq(asked) {
			if deployed.Outputs[output] == "" {
				t.Errorf("stack %s has no output %s", stack, output)
			}
		}
	}
	if got := s.secret("dayfly-main-PoolTokenSecret"); got != "pool-token-of-main-created" {
		t.Errorf("the pool's secret holds %q", got)
	}
	if keys := s.secret("dayfly-main-TicketKeysSecret"); !ticketKeys.MatchString(keys) {
		t.Errorf("the ticket keys are in another form: %d bytes", len(keys))
	}
	config, _ := s.read("docker-config")
	if config != `{"auths": {"123456789012.dkr.ecr.eu-west-1.amazonaws.com": {"auth": "QVdTOnJlZ2lzdHJ5LXBhc3N3b3Jk"}}}` { // AWS:registry-password
		t.Errorf("make image finds the registry's password in %s", config)
	}
	left, _ := filepath.Glob(filepath.Join(s.root, "tmp.*"))
	if len(left) > 0 {
		t.Errorf("the registry's password stays in %v", left)
	}
	for _, secret := range []string{"pool-token-of", "first-admin-token", "registry-password", "QVdTOnJ"} {
		if strings.Contains(said, secret) || slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, secret) }) {
			t.Errorf("%.12s... was printed, or on a command line", secret)
		}
	}
}

// Without a Region the look-up of the prefix list would answer None, and the stack would take it.
func TestSam_PageNeedsARegion(t *testing.T) {
	t.Parallel()
	for _, step := range samSteps(t) {
		if !strings.Contains(step, "describe-managed-prefix-lists") {
			continue
		}
		s := newSamSite(t)
		s.write("stand-ins/aws", "#!/bin/sh\necho None\n", 0o755)
		said, calls, err := s.types(step)
		if err == nil || !strings.Contains(said, "AWS_REGION") || slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "sam") }) {
			t.Errorf("%v: %s, %v", err, said, calls)
		}
		return
	}
	t.Error("the page looks up no prefix list")
}

// An environment deploys what it built itself, from a directory of its own; a template with code is never deployed unbuilt.
func TestSamConfig_DeploysWhatWasBuilt(t *testing.T) {
	type environment struct{ built, deployed string }
	all, env, command := map[string]environment{}, "", ""
	for line := range strings.Lines(string(readFile(t, "../../samconfig.toml"))) {
		if found := regexp.MustCompile(`^\[(\w+)\.(\w+)\.parameters\]`).FindStringSubmatch(line); found != nil {
			env, command = found[1], found[2]
		}
		found := regexp.MustCompile(`^(build_dir|template_file) = "(.*)"`).FindStringSubmatch(line)
		if found == nil {
			continue
		}
		e := all[env]
		switch command + " " + found[1] {
		case "build build_dir":
			e.built = found[2] + "/template.yaml"
		case "deploy template_file":
			e.deployed = found[2]
		}
		all[env] = e
	}
	places := map[string]bool{}
	for env, e := range all {
		if e.built == "" && !strings.Contains(string(readFile(t, "../../"+e.deployed)), "AWS::Serverless") {
			e.built = e.deployed // it has nothing to build
		}
		if e.deployed != e.built || places[e.built] {
			t.Errorf("%s builds %q and deploys %q", env, e.built, e.deployed)
		}
		places[e.built] = true
	}
	if len(all) != 3 {
		t.Errorf("environments: %v", all)
	}
}
