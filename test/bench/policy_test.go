package bench_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// planned is how many resources the plan has that policies are evaluated over.
const planned = 1000

// BenchmarkPolicy measures what the step of policies adds to a plan of 1,000 resources: dayfly-policy is started,
// reads the plan and the package from nothing, and evaluates a dozen rules. Where there is an engine, its plan is used,
// and the time for plan and show -json is told, which come before the step; in turns.
func BenchmarkPolicy(b *testing.B) {
	evaluates, dir := program(b, api.PolicyProgram), b.TempDir()
	check(b, os.WriteFile(filepath.Join(dir, "main.rego"), []byte(rules()), 0o600))
	engine := plans(b)
	plan := madeUpPlan()
	var steps, work, starts, shows figures.Sample
	for i := range quick(40, 10) + 1 {
		if engine != nil {
			began := time.Now()
			plan = engine.show(b)
			if i > 0 {
				shows = append(shows, time.Since(began))
			}
		}
		query, err := json.Marshal(api.PolicyQuery{Input: plan, Packages: []api.PolicyPackage{{Name: "rules", Directory: dir}}})
		check(b, err)
		began := time.Now()
		answer, used := evaluated(b, evaluates, query)
		took := time.Since(began)
		if len(answer.Packages) != 1 || answer.Packages[0].Error != "" || answer.Packages[0].Rules != 12 || len(answer.Packages[0].Findings) != planned/100 {
			b.Fatalf("got %.500v", answer)
		}
		began = time.Now()
		check(b, exec.CommandContext(b.Context(), evaluates, "version").Run())
		if i > 0 { // the first one fills caches
			steps, work, starts = append(steps, took), append(work, used), append(starts, time.Since(began))
		}
	}
	b.Logf("a dozen rules over a plan of %d resources (%.1f MB of JSON): %s; processor time %s; the start of the process alone %s; %d rounds", planned, mb(int64(len(plan))), medianOf(steps), medianOf(work), medianOf(starts), len(steps))
	if engine == nil {
		b.Log("there is neither terraform nor tofu on PATH, so the plan is made up")
	} else {
		b.Logf("%s plan of it %s once; show -json %s", engine.name, ms(engine.took), medianOf(shows))
	}
	metric(b, milliseconds(steps.At(0.5)), "policy-ms")
}

// medianOf tells a median, and between which values most of the others lie.
func medianOf(s figures.Sample) string {
	return fmt.Sprintf("%s (%s to %s)", ms(s.At(0.5)), ms(s.At(0.1)), ms(s.At(0.9)))
}

func evaluated(b *testing.B, program string, query []byte) (answer api.PolicyAnswer, used time.Duration) {
	b.Helper()
	c := exec.CommandContext(b.Context(), program, "evaluate")
	c.Stdin, c.Env = bytes.NewReader(query), []string{}
	out, err := c.Output()
	if err != nil {
		b.Fatalf("%s: %v", program, err)
	}
	check(b, json.Unmarshal(out, &answer))
	return answer, c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// rules are a dozen, as people write them: each looks at every resource. One of them denies each hundredth.
func rules() string {
	var s strings.Builder
	s.WriteString("package main\n\nchanged contains r if {\n\tsome r in input.resource_changes\n\tsome action in r.change.actions\n\taction in {\"create\", \"update\"}\n}\n")
	for i := range 11 {
		fmt.Fprintf(&s, "\ndeny_size_%d contains {\"msg\": \"too large\", \"address\": r.address} if {\n\tsome r in changed\n\tr.type == \"terraform_data\"\n\tto_number(split(r.change.after.input, \"-\")[1]) > %d\n}\n", i, 10_000+i)
	}
	s.WriteString("\ndeny_hundreds contains {\"msg\": sprintf(\"%s ends with 00\", [r.address]), \"address\": r.address} if {\n\tsome r in changed\n\tendswith(r.change.after.input, \"00\")\n}\n")
	return s.String()
}

// input is what resource i of the plan has.
func input(i int) string { return fmt.Sprintf("n-%d", planned+i) }

// madeUpPlan has the form of the engines' own.
func madeUpPlan() []byte {
	var changes, values []string
	for i := range planned {
		head := fmt.Sprintf(`{"address":"terraform_data.this[%d]","mode":"managed","type":"terraform_data","name":"this","index":%[1]d,"provider_name":"terraform.io/builtin/terraform"`, i)
		changes = append(changes, fmt.Sprintf(`%s,"change":{"actions":["create"],"before":null,"after":{"input":%q,"triggers_replace":null},"after_unknown":{"id":true,"output":true},"before_sensitive":false,"after_sensitive":{}}}`, head, input(i)))
		values = append(values, fmt.Sprintf(`%s,"schema_version":0,"values":{"input":%q,"triggers_replace":null},"sensitive_values":{}}`, head, input(i)))
	}
	return fmt.Appendf(nil, `{"format_version":"1.2","planned_values":{"root_module":{"resources":[%s]}},"resource_changes":[%s]}`, strings.Join(values, ","), strings.Join(changes, ","))
}

// engineWithPlan is an engine that has made a plan.
type engineWithPlan struct {
	name, path, dir string
	took            time.Duration
}

// plans makes the plan; nil where no engine is there.
func plans(b *testing.B) *engineWithPlan {
	b.Helper()
	for _, name := range []string{api.EngineTofu, api.EngineTerraform} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		e := &engineWithPlan{name: name, path: path, dir: b.TempDir()}
		code := fmt.Sprintf("resource \"terraform_data\" \"this\" {\n  count = %d\n  input = \"n-${%[1]d + count.index}\"\n}\n", planned)
		check(b, os.WriteFile(filepath.Join(e.dir, "main.tf"), []byte(code), 0o600))
		e.run(b, "init", "-input=false", "-no-color")
		began := time.Now()
		e.run(b, "plan", "-input=false", "-no-color", "-out=plan")
		e.took = time.Since(began)
		return e
	}
	return nil
}

func (e *engineWithPlan) show(b *testing.B) []byte {
	b.Helper()
	return e.run(b, "show", "-json", "plan")
}

func (e *engineWithPlan) run(b *testing.B, args ...string) []byte {
	b.Helper()
	c := exec.CommandContext(b.Context(), e.path, args...)
	c.Dir = e.dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.dir, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1"}
	out, err := c.Output()
	if err != nil {
		b.Fatalf("%s %s: %v\n%s", e.name, args[0], err, out)
	}
	return out
}
