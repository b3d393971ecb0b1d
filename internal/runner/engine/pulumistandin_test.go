package engine_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestMain lets the test's own program stand in for pulumi, where a script of that name calls it.
func TestMain(m *testing.M) {
	if os.Getenv("PULUMI_STANDIN") != "" {
		os.Exit((&standIn{}).main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// standIn does what pulumi 3 does with a backend that is a directory, as far as the runner sees it: its commands, the
// JSON that they print, its files, and its errors. A resource of its programs has a type and properties, and is only in
// the state; one of the package pulumi-nodejs needs what install leaves. A property of the name forceNew replaces the
// resource, and one in the environment's DRIFT drifts.
type standIn struct {
	project struct {
		Name      string
		Resources map[string]standInResource
		Outputs   map[string]any
		Fails     string
	}
	settings struct {
		EncryptionSalt string `yaml:"encryptionsalt,omitempty"`
		Config         map[string]any
	}
	stack, file string
	state       standInState
}

type standInResource struct {
	Type       string
	Properties map[string]any
}

type standInState struct {
	Manifest struct {
		Time time.Time `json:"time"`
	} `json:"manifest"`
	Secrets map[string]any   `json:"secrets_providers"`
	Rows    []map[string]any `json:"resources,omitempty"`
	Pending []map[string]any `json:"pending_operations,omitempty"`
}

func (s *standIn) main(args []string) int {
	if args[0] == "version" {
		_, _ = os.Stdout.WriteString("v3.274.1\n")
		return 0
	}
	if !slices.Contains(args, "--non-interactive") || os.Getenv("PULUMI_HOME") == "" {
		return s.fail(1, "this could ask somebody")
	}
	raw, _ := os.ReadFile("Pulumi.yaml")
	if err := yaml.Unmarshal(raw, &s.project); err != nil {
		return s.fail(1, err.Error())
	}
	if args[0] == "install" {
		_ = os.MkdirAll("node_modules", 0o700)
		fmt.Fprintln(os.Stdout, "npm caches in", os.Getenv("npm_config_cache"), "uv in", os.Getenv("UV_CACHE_DIR"))
		return len(os.Getenv("BROKEN_INSTALL"))
	}
	s.stack = args[slices.Index(args, "--stack")+1]
	raw, _ = os.ReadFile("Pulumi." + s.stack + ".yaml")
	if err := yaml.Unmarshal(raw, &s.settings); err != nil {
		return s.fail(1, err.Error())
	}
	if args[0] == "config" {
		return s.setSecret(args[3])
	}
	top := strings.TrimPrefix(os.Getenv("PULUMI_BACKEND_URL"), "file://")
	s.file = filepath.Join(top, ".pulumi/stacks", s.project.Name, s.stack+".json")
	raw, err := os.ReadFile(s.file)
	var doc struct{ Checkpoint struct{ Latest standInState } }
	if err == nil {
		_ = json.Unmarshal(raw, &doc)
	}
	s.state = doc.Checkpoint.Latest
	if command := strings.Join(args[:2], " "); command == "stack init" {
		return s.init()
	} else if err != nil {
		return s.fail(6, "no stack named '"+s.stack+"' found")
	} else if command == "stack export" {
		return s.print(map[string]any{"version": 3, "deployment": s.state})
	} else if command == "stack import" {
		return s.take(after(args, "--file"))
	} else if command == "stack output" {
		return s.print(s.outputs(slices.Contains(args, "--show-secrets")))
	}
	locks, _ := filepath.Glob(filepath.Join(top, ".pulumi/locks/organization", s.project.Name, s.stack, "*.json"))
	return s.operate(args, locks)
}

// take makes an export the state, with its time, and keeps what was there for once.
func (s *standIn) take(file string) int {
	if locks, _ := filepath.Glob(filepath.Join(filepath.Dir(s.file), "../../locks/organization", s.project.Name, s.stack, "*.json")); len(locks) > 0 {
		return s.fail(1, "the stack is currently locked by 1 lock(s).\n  file://"+locks[0]+"?no_tmp_dir=true: created by root@ci (pid 42) at 2026-01-02T03:04:05Z")
	}
	var doc struct{ Deployment json.RawMessage }
	raw, _ := os.ReadFile(file)
	_ = json.Unmarshal(raw, &doc)
	raw, _ = json.Marshal(map[string]any{"version": 3, "checkpoint": map[string]any{"latest": doc.Deployment}})
	if os.Getenv("DEAF") == "" {
		_ = os.WriteFile(s.file, raw, 0o600)
	}
	return 0
}

// setSecret encrypts, after its fashion, what it reads, without the end of the line.
func (s *standIn) setSecret(name string) int {
	value, _ := io.ReadAll(os.Stdin)
	if s.settings.Config == nil {
		s.settings.Config = map[string]any{}
	}
	s.settings.Config[s.project.Name+":"+name] = map[string]any{"secure": base64.StdEncoding.EncodeToString([]byte(strings.TrimSuffix(string(value), "\n")))}
	raw, _ := yaml.Marshal(s.settings)
	_ = os.WriteFile("Pulumi."+s.stack+".yaml", raw, 0o600)
	return 0
}

func (s *standIn) fail(code int, text string) int {
	fmt.Fprintln(os.Stderr, "error: "+text)
	return code
}

func (s *standIn) print(v any) int {
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "    ")
	_ = out.Encode(v)
	return 0
}

func (s *standIn) init() int {
	if _, ok := os.LookupEnv("PULUMI_CONFIG_PASSPHRASE"); !ok {
		return s.fail(1, "could not create secrets manager for new stack: passphrase must be set with PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE environment variables")
	}
	salt := s.settings.EncryptionSalt
	if salt == "" {
		salt = "v1:" + fmt.Sprint(time.Now().UnixNano())
		f, _ := os.OpenFile("Pulumi."+s.stack+".yaml", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		_, _ = f.WriteString("encryptionsalt: " + salt + "\n")
		_ = f.Close()
	}
	s.state.Secrets = map[string]any{"type": "passphrase", "state": map[string]any{"salt": salt}}
	return s.save()
}

func (s *standIn) save() int {
	s.state.Manifest.Time = time.Now()
	raw, _ := json.Marshal(map[string]any{"version": 3, "checkpoint": map[string]any{"latest": s.state}})
	_ = os.MkdirAll(filepath.Dir(s.file), 0o700)
	if err := os.WriteFile(s.file, raw, 0o600); err != nil {
		return s.fail(1, err.Error())
	}
	return 0
}

func (s *standIn) urn(kind, name string) string {
	return "urn:pulumi:" + s.stack + "::" + s.project.Name + "::" + kind + "::" + name
}

func (s *standIn) outputs(open bool) any {
	out := map[string]any{}
	for _, r := range s.state.Rows {
		if r["type"] != "pulumi:pulumi:Stack" {
			continue
		}
		of, _ := r["outputs"].(map[string]any)
		for name, v := range of {
			if secret, ok := v.(map[string]any); ok && secret["fn::secret"] != nil {
				if v = "[secret]"; open {
					v = secret["fn::secret"]
				}
			}
			out[name] = v
		}
	}
	return out
}

// operate does preview, up, refresh and destroy, or shows what they would do.
func (s *standIn) operate(args, locks []string) int {
	wanted := map[string]standInResource{}
	if args[0] == "preview" || args[0] == "up" {
		wanted = s.project.Resources
	}
	for _, row := range s.state.Rows {
		if _, missing := os.Stat("node_modules"); missing != nil && strings.HasPrefix(fmt.Sprint(row["type"]), "pulumi-nodejs:") {
			return s.fail(255, "Cannot find module '@pulumi/pulumi/cmd/dynamic-provider'")
		}
	}
	next, steps, counts := s.diff(args[0], wanted)
	if file := after(args, "--save-plan"); file != "" {
		raw, _ := json.Marshal(s.plan(wanted, steps))
		if os.Getenv("EMPTIED") != "" {
			raw = nil
		}
		_ = os.WriteFile(file, raw, 0o600)
	}
	if file := after(args, "--plan"); file != "" && len(locks) == 0 {
		want, _ := json.Marshal(s.plan(s.surprised(wanted), steps))
		if raw, err := os.ReadFile(file); err != nil || string(raw) != string(want) {
			return s.fail(255, "resource "+s.urn("demo:index:Disk", "a")+" violates plan: properties changed: ~~size[{planted-was}!={planted-is}]")
		}
	}
	if args[0] == "preview" || slices.Contains(args, "--preview-only") {
		said := []map[string]any{{"message": "looking\n", "severity": "info"}}
		if s.project.Fails != "" {
			said = append(said, map[string]any{"message": "error: \x1b[31m" + s.project.Fails + "\x1b[0m\n\n", "severity": "error"})
		}
		s.print(map[string]any{"steps": steps, "diagnostics": said, "changeSummary": counts})
		return min(len(s.project.Fails), 1)
	}
	if len(locks) > 0 {
		return s.fail(1, "the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the lock file with `pulumi cancel`.\n  file://"+
			locks[0]+"?no_tmp_dir=true: created by root@ci (pid 42) at 2026-01-02T03:04:05Z")
	}
	_, _ = os.Stdout.WriteString("Updating (" + s.stack + "):\n")
	if os.Getenv("KILLED") != "" {
		_ = os.MkdirAll(filepath.Join(filepath.Dir(s.file), "../../locks/organization", s.project.Name, s.stack), 0o700)
		_ = os.WriteFile(filepath.Join(filepath.Dir(s.file), "../../locks/organization", s.project.Name, s.stack, "cccc.json"), []byte("{}"), 0o600)
		return 137
	}
	if os.Getenv("CUT_OFF") != "" {
		for _, kind := range []string{"creating", "updating"} {
			s.state.Pending = append(s.state.Pending, map[string]any{"type": kind, "resource": map[string]any{"urn": s.urn("demo:index:Thing", kind)}})
		}
		s.state.Rows = append(s.state.Rows, map[string]any{"urn": s.urn("demo:index:Thing", "made"), "type": "demo:index:Thing"})
		_ = s.save()
		return 255
	}
	if args[0] != "refresh" {
		s.state.Rows = next
	} else {
		s.state.Pending = slices.DeleteFunc(s.state.Pending, func(op map[string]any) bool {
			return op["type"] != "creating" || slices.Contains(args, "--clear-pending-creates")
		})
	}
	return s.save()
}

// after is the argument after a flag; empty: it is not there.
func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 {
		return args[i+1]
	}
	return ""
}

// plan is an update plan, of which the stand-in compares the whole.
func (s *standIn) plan(wanted map[string]standInResource, steps []map[string]any) any {
	adds := map[string]any{}
	is, _ := json.Marshal(s.project.Outputs)
	for _, r := range s.state.Rows {
		if was, _ := json.Marshal(r["outputs"]); r["type"] == "pulumi:pulumi:Stack" && string(was) != string(is) {
			adds = s.project.Outputs
		}
	}
	of := map[string]any{s.urn("pulumi:pulumi:Stack", s.project.Name): map[string]any{"goal": map[string]any{"outputDiff": map[string]any{"adds": adds}}}}
	of[s.urn("pulumi:providers:demo", "default_1_2_3")] = map[string]any{"steps": []string{"create"}} // is not in the preview
	for _, step := range steps {
		of[step["urn"].(string)] = map[string]any{"steps": []any{"same", step["op"]}}
	}
	if urn := os.Getenv("TAMPERED"); urn != "" {
		of[urn] = map[string]any{"steps": []string{"delete"}}
	}
	return map[string]any{"resourcePlans": of, "wanted": wanted, "salt": s.settings.EncryptionSalt}
}

// surprised is what the program wants at the update, if the environment's SURPRISE is set there.
func (s *standIn) surprised(wanted map[string]standInResource) map[string]standInResource {
	if os.Getenv("SURPRISE") != "" {
		return nil
	}
	return wanted
}

func (s *standIn) diff(command string, wanted map[string]standInResource) (next, steps []map[string]any, counts map[string]int) {
	counts = map[string]int{}
	seen := map[string]bool{}
	add := func(op, urn string, names []string) {
		counts[op]++
		steps = append(steps, map[string]any{"op": op, "urn": urn, "provider": s.urn("pulumi:providers:demo", "default") + "::1", "diffReasons": names, "detailedDiff": nil})
	}
	for _, row := range s.state.Rows {
		urn, _ := row["urn"].(string)
		name := urn[strings.LastIndex(urn, "::")+2:]
		seen[name] = true
		was, _ := row["inputs"].(map[string]any)
		is, ok := wanted[name]
		switch {
		case row["type"] == "pulumi:pulumi:Stack":
		case command == "refresh" && was[os.Getenv("DRIFT")] != nil:
			add("update", urn, []string{os.Getenv("DRIFT") + ".deep[0]"})
		case command == "refresh":
			add("refresh", urn, nil)
		case !ok:
			add("delete", urn, nil)
		case fmt.Sprint(was["forceNew"]) != fmt.Sprint(is.Properties["forceNew"]):
			add("replace", urn, []string{"forceNew"})
			steps[len(steps)-1]["replaceReasons"] = []string{"forceNew"}
		case fmt.Sprint(was) != fmt.Sprint(is.Properties):
			add("update", urn, []string{"size"})
		}
	}
	if command == "destroy" {
		return nil, steps, counts
	}
	for name, v := range s.project.Outputs {
		if key, ok := strings.CutPrefix(fmt.Sprint(v), "${"); ok {
			value := s.settings.Config[s.project.Name+":"+strings.TrimSuffix(key, "}")]
			if sealed, ok := value.(map[string]any); ok {
				raw, _ := base64.StdEncoding.DecodeString(fmt.Sprint(sealed["secure"]))
				value = map[string]any{"fn::secret": string(raw)}
			}
			s.project.Outputs[name] = value
		}
	}
	next = append(next, map[string]any{"urn": s.urn("pulumi:pulumi:Stack", s.project.Name+"-"+s.stack), "type": "pulumi:pulumi:Stack", "outputs": s.project.Outputs})
	for name, r := range wanted {
		urn := s.urn(r.Type, name)
		if !seen[name] {
			add("create", urn, nil)
		}
		next = append(next, map[string]any{"urn": urn, "type": r.Type, "inputs": r.Properties})
	}
	return next, steps, counts
}
