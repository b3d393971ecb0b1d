package deploy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const moduleDir = "../../infra/terraform"

// module is the Terraform module, read and evaluated as Terraform would, without a provider.
type module struct {
	blocks []*hclsyntax.Block
	eval   *hcl.EvalContext
}

// readModule evaluates the module's locals with these variables over the defaults.
func readModule(t *testing.T, variables map[string]cty.Value) *module {
	t.Helper()
	m := &module{}
	files, err := filepath.Glob(filepath.Join(moduleDir, "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		f, diags := hclparse.NewParser().ParseHCLFile(name)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		m.blocks = append(m.blocks, f.Body.(*hclsyntax.Body).Blocks...)
	}
	values := map[string]cty.Value{}
	for _, b := range m.of("variable") {
		if d, ok := b.Body.Attributes["default"]; ok {
			values[b.Labels[0]], _ = d.Expr.Value(nil)
		}
	}
	for k, v := range variables {
		values[k] = v
	}
	object := func(kv ...string) cty.Value {
		out := map[string]cty.Value{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = cty.StringVal(kv[i+1])
		}
		return cty.ObjectVal(out)
	}
	current := func(v cty.Value) cty.Value { return cty.ObjectVal(map[string]cty.Value{"current": v}) }
	locals := map[string]cty.Value{}
	m.eval = &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"var":  cty.ObjectVal(values),
			"path": object("module", moduleDir),
			"data": cty.ObjectVal(map[string]cty.Value{
				"aws_region": current(object("region", "us-east-1")), "aws_partition": current(object("dns_suffix", "amazonaws.com")),
				"aws_prefix_list": cty.ObjectVal(map[string]cty.Value{"s3": cty.TupleVal([]cty.Value{object("id", "pl-63a5400a")})}),
			}),
		},
		Functions: map[string]function.Function{
			"replace": stdlib.ReplaceFunc, "jsonencode": stdlib.JSONEncodeFunc, "jsondecode": stdlib.JSONDecodeFunc,
			"join": stdlib.JoinFunc, "substr": stdlib.SubstrFunc, "concat": stdlib.ConcatFunc, "sort": stdlib.SortFunc, "keys": stdlib.KeysFunc,
			"tostring": stdlib.MakeToFunc(cty.String), "contains": stdlib.ContainsFunc,
			"sha256":     ofText(func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }),
			"filesha256": ofText(func(s string) string { return "sum of " + s }),
			"file": ofText(func(s string) string {
				b, err := os.ReadFile(s)
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}),
		},
	}
	// In the order that they are written in, which is that of their use.
	var attrs []*hclsyntax.Attribute
	for _, b := range m.of("locals") {
		for _, a := range b.Body.Attributes {
			attrs = append(attrs, a)
		}
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Line - b.SrcRange.Start.Line })
	for _, a := range attrs {
		m.eval.Variables["local"] = cty.ObjectVal(locals)
		v, diags := a.Expr.Value(m.eval)
		if diags.HasErrors() {
			t.Fatalf("local %s: %v", a.Name, diags)
		}
		locals[a.Name] = v
	}
	m.eval.Variables["local"] = cty.ObjectVal(locals)
	return m
}

func ofText(f func(string) string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "s", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.StringVal(f(args[0].AsString())), nil
		},
	})
}

func (m *module) of(kind string, labels ...string) []*hclsyntax.Block {
	var out []*hclsyntax.Block
	for _, b := range m.blocks {
		if b.Type == kind && (len(labels) == 0 || slices.Equal(b.Labels, labels)) {
			out = append(out, b)
		}
	}
	return out
}

// attr evaluates one attribute of a block.
func (m *module) attr(t *testing.T, b *hclsyntax.Block, name string, more map[string]cty.Value) cty.Value {
	t.Helper()
	a, ok := b.Body.Attributes[name]
	if !ok {
		t.Fatalf("%v has no %s", b.Labels, name)
	}
	in := m.eval.NewChild()
	in.Variables = more
	v, diags := a.Expr.Value(in)
	if diags.HasErrors() {
		t.Fatalf("%v %s: %v", b.Labels, name, diags)
	}
	return v
}

// An API with another endpoint is deployed anew: its deployment has another name then.
func TestTerraform_DeploysTheAPIAnewInAnotherNetwork(t *testing.T) {
	seen := map[string]string{}
	for _, mode := range []string{"endpoints-only", "public"} {
		for _, vpc := range []string{"", "vpc-01234567"} {
			m := readModule(t, map[string]cty.Value{
				"network_mode": cty.StringVal(mode), "vpc_id": cty.StringVal(vpc), "pool_name": cty.StringVal("prod"),
				"stack_name": cty.StringVal("dayfly-prod"), "artifacts_bucket": cty.StringVal("artifacts"), "functions_directory": cty.StringVal("dist/functions"),
			})
			name := regexp.MustCompile(`StatusApiDeployment[0-9a-f]+`).FindString(m.eval.Variables["local"].GetAttr("template").AsString())
			if other := seen[name]; name == "" || other != "" {
				t.Errorf("%s %s has the deployment %q of %q", mode, vpc, name, other)
			}
			seen[name] = mode + " " + vpc
		}
	}
}

// D6: the module hands CloudFormation the reviewed template, every parameter of it, and every file that it
// names.
func TestTerraform_MakesTheSameStack(t *testing.T) {
	m := readModule(t, map[string]cty.Value{
		"pool_name": cty.StringVal("prod"), "service_url": cty.StringVal("https://dayfly.example.com"),
		"image_uri":  cty.StringVal("123456789012.dkr.ecr.us-east-1.amazonaws.com/dayfly-runner:v1"),
		"stack_name": cty.StringVal("dayfly-prod"), "artifacts_bucket": cty.StringVal("artifacts"), "functions_directory": cty.StringVal("dist/functions"),
	})
	stack := m.of("resource", "aws_cloudformation_stack", "pool")[0]
	handed := m.attr(t, stack, "parameters", nil).AsValueMap()
	tmpl, err := templates.Load("../../infra/transformed/pool.json")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for name, v := range handed {
		values[name] = v.AsString()
	}
	for name, p := range tmpl.Parameters {
		v, ok := values[name]
		if !ok {
			t.Errorf("parameter %s is not handed over", name)
		}
		if p.Default != nil && name != "S3PrefixListId" && v != str(p.Default) && v != numeral(p.Default) {
			t.Errorf("%s is %q by default, and %v in the template", name, v, p.Default)
		}
	}
	if _, err := tmpl.Deploy("dayfly-prod", home, values, nil); err != nil {
		t.Error(err)
	}

	// What the module sends is the template with its places filled in, and nothing else.
	sent := m.eval.Variables["local"].GetAttr("template").AsString()
	prefix := m.eval.Variables["local"].GetAttr("prefix").AsString()
	original, err := os.ReadFile("../../infra/transformed/pool.json")
	if err != nil {
		t.Fatal(err)
	}
	network := m.eval.Variables["local"].GetAttr("network").AsString()
	for from, to := range map[string]string{
		`"StatusApiDeployment`: `"StatusApiDeployment` + network, `"S3Bucket": "packaged"`: `"S3Bucket": "artifacts"`, `"S3Key": "`: `"S3Key": "` + prefix + "/",
		"https://s3.amazonaws.com/packaged/": "https://artifacts.s3.us-east-1.amazonaws.com/" + prefix + "/",
	} {
		if !strings.Contains(string(original), from) {
			t.Errorf("the template has no %s", from)
		}
		original = []byte(strings.ReplaceAll(string(original), from, to))
	}
	var want, got any
	if err := json.Unmarshal(original, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(sent), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// Every file that it names is put there.
	var uploaded []string
	for _, b := range m.of("resource") {
		if b.Labels[0] != "aws_s3_object" {
			continue
		}
		if _, each := b.Body.Attributes["for_each"]; !each {
			uploaded = append(uploaded, m.attr(t, b, "key", nil).AsString())
			continue
		}
		for logical := range m.attr(t, b, "for_each", nil).AsValueMap() {
			one := cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(logical), "value": cty.StringVal("")})
			uploaded = append(uploaded, m.attr(t, b, "key", map[string]cty.Value{"each": one}).AsString())
		}
	}
	for _, place := range regexp.MustCompile(prefix+`/[A-Za-z.]+`).FindAllString(sent, -1) {
		if !slices.Contains(uploaded, place) {
			t.Errorf("%s is not uploaded; only %v", place, uploaded)
		}
	}
	var outputs []string
	for _, b := range m.of("output") {
		text := string(b.Body.Attributes["value"].Expr.Range().SliceBytes(readFile(t, b.Body.SrcRange.Filename)))
		outputs = append(outputs, regexp.MustCompile(`outputs\["(\w+)"\]`).FindStringSubmatch(text)[1])
	}
	for name := range tmpl.Outputs {
		if !slices.Contains(outputs, name) {
			t.Errorf("output %s is not passed on", name)
		}
	}
}

func numeral(v any) string {
	b, _ := json.Marshal(v)
	return strings.Trim(string(b), `"`)
}

// Where a provider can be had, Terraform itself has a look.
func TestTerraform_Validates(t *testing.T) {
	if testing.Short() {
		t.Skip("it asks a registry")
	}
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("terraform is not there")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "terraform"), os.DirFS(moduleDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "transformed"), os.DirFS("../../infra/transformed")); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), terraform, append([]string{"-chdir=" + filepath.Join(dir, "terraform")}, args...)...)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")
		return cmd.CombinedOutput()
	}
	if out, err := run("fmt", "-check", "-diff"); err != nil {
		t.Errorf("not formatted: %s", out)
	}
	if out, err := run("init", "-backend=false", "-input=false", "-no-color"); err != nil {
		t.Skipf("the AWS provider cannot be had here: %s", complaint(out))
	}
	if out, err := run("validate", "-no-color"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// complaint is what went wrong, of all that Terraform says about it.
func complaint(out []byte) string {
	_, after, _ := strings.Cut(string(out), "Error: ")
	line, _, _ := strings.Cut(after, "\n")
	return line
}
