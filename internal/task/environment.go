package task

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment holds the variables of a runner. A launcher fills it in and writes it with Variables; a stack may set
// some variables in its task definition; the runner gets it back from Read. The tag names the variable and says what
// Read checks: that it is set (required), or that each of its paths is absolute (path). A list holds paths, or names
// with commas between them. An empty field has no variable. Nothing in it is secret: the ticket is sealed.
type Environment struct {
	Gate    string `env:"DAYFLY_GATE_FD"`     // descriptor at which the runner waits, see OpenGate; empty: it begins at once
	Bundled bool   `env:"DAYFLY_GATE_BUNDLE"` // a Bundle comes through the gate

	Workflow  string `env:"DAYFLY_JOB,required"`
	Attempt   int    `env:"DAYFLY_ATTEMPT,required"`
	Task      string `env:"DAYFLY_TASK,required"` // the launcher's reference
	Ticket    string `env:"DAYFLY_TICKET,required"`
	Relay     string `env:"DAYFLY_RELAY,required"` // address that it reports to
	RelayAuth string `env:"DAYFLY_RELAY_AUTH"`     // whether its calls are signed; empty: the address says so

	WorkDir        string        `env:"DAYFLY_WORK_DIR,path"`
	SourceDir      string        `env:"DAYFLY_SOURCE_DIR,path"`       // where the directory source is, in the task; its name elsewhere may differ
	SourceRoots    []string      `env:"DAYFLY_SOURCE_ROOTS,path"`     // below which a directory source may lie
	EnginePath     []string      `env:"DAYFLY_ENGINE_PATH,path"`      // directories in which engines are looked for first
	ToolsDir       string        `env:"DAYFLY_TOOLS_DIR,path"`        // of engines that were downloaded; empty: each run has its own
	Downloads      []string      `env:"DAYFLY_ENGINE_DOWNLOADS"`      // engines that the runner may download
	ProvidersDir   string        `env:"DAYFLY_PROVIDERS_DIR,path"`    // cache of providers, which the task reads; empty: none
	ProviderMirror string        `env:"DAYFLY_PROVIDER_MIRROR"`       // https address of a network mirror of providers; empty: none
	SecretsStore   string        `env:"DAYFLY_SECRETS_STORE"`         // directory of the local secret store
	Forward        []string      `env:"DAYFLY_ENV_FORWARD_ALLOWLIST"` // names of variables for the engine
	EngineUID      uint32        `env:"DAYFLY_ENGINE_UID"`            // user of the engine; none: the runner's own
	Grace          time.Duration `env:"DAYFLY_STOP_GRACE"`            // from the engine's interrupt to its end

	Hooks     []string `env:"DAYFLY_PREAPPROVED_HOOKS"` // SHA-256 of the hooks that may run; none: every hook
	Notice    string   `env:"DAYFLY_NOTICE"`            // a sentence with which the log of the run begins
	Processes int      `env:"DAYFLY_MAX_PROCESSES"`     // processes and threads that the task's cgroup is limited to; 0: by none

	DiskGiB int `env:"DAYFLY_DISK_GIB"` // limit of the work directory's size; 0: no limit

	Unsaved string `env:"DAYFLY_UNSAVED"` // where files in UnsavedName stay, in words; empty: they go with the task

	StateDir       string   `env:"DAYFLY_STATE_DIR,path"`  // directory of the workspace's state
	StateOlds      []string `env:"DAYFLY_STATE_OLDS,path"` // other such directories, named as their states
	StateStore     string   `env:"DAYFLY_STATE_STORE"`     // id of the root that these lie below
	StateBucket    string   `env:"DAYFLY_STATE_BUCKET"`    // where the state of a workspace is kept that names no place
	StateKMSKeyARN string   `env:"DAYFLY_STATE_KMS_KEY_ARN"`

	VaultAddress   string `env:"DAYFLY_VAULT_ADDRESS"` // of a Vault server; none: vault:PATH#KEY does not resolve
	VaultNamespace string `env:"DAYFLY_VAULT_NAMESPACE"`
	VaultTokenFile string `env:"DAYFLY_VAULT_TOKEN_FILE,path"` // on a machine: file with the token for it
	VaultAuthMount string `env:"DAYFLY_VAULT_AUTH_MOUNT"`      // in an ECS task: of the AWS auth method; none: aws
	VaultRole      string `env:"DAYFLY_VAULT_ROLE"`            // in it; none: the one with the name of the IAM role
	VaultServerID  string `env:"DAYFLY_VAULT_SERVER_ID"`       // value of the header that the login signs; none: no header
}

// NoHooks in place of the digests of hooks allows none.
const NoHooks = "none"

const pathSeparator = string(os.PathListSeparator)

// EngineGrace is the part of a runner's grace that its engine gets: the runner must still report before it is killed.
func EngineGrace(grace time.Duration) time.Duration { return grace * 3 / 4 }

// Variables returns the variables of an environment by name.
func (e Environment) Variables() map[string]string {
	out := map[string]string{}
	for f, v := range reflect.ValueOf(e).Fields() {
		tag := parse(f)
		switch x := v.Interface().(type) {
		case string:
			out[tag.name] = x
		case []string:
			out[tag.name] = strings.Join(x, tag.separator())
		default: // bool, int, uint32, time.Duration
			if !v.IsZero() {
				out[tag.name] = fmt.Sprint(x)
			}
		}
		if out[tag.name] == "" {
			delete(out, tag.name)
		}
	}
	return out
}

// List makes the environment of a process from variables, sorted by name.
func List(variables map[string]string) []string {
	out := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		out = append(out, name+"="+variables[name])
	}
	return out
}

// Read reads the variables that a launcher wrote, and reports every mistake in them at once. If the launcher did not
// know the task's name when it wrote the variables, the task gives it as ref.
func Read(getenv func(string) string, ref string) (Environment, error) {
	e := Environment{}
	var mistakes []error
	for f, v := range reflect.ValueOf(&e).Elem().Fields() {
		tag := parse(f)
		text := getenv(tag.name)
		if f.Name == "Task" && ref != "" {
			text = ref
		}
		if text == "" {
			if tag.required {
				mistakes = append(mistakes, fmt.Errorf("%s is missing", tag.name))
			}
			continue
		}
		if part, want := set(v, text, tag); want != "" {
			mistakes = append(mistakes, fmt.Errorf("%s: %q is not %s", tag.name, part, want))
		}
	}
	return e, errors.Join(mistakes...)
}

// set parses a text into a field. If that fails, want describes valid values, and part is the wrong part.
func set(field reflect.Value, text string, tag tag) (part, want string) {
	var err error
	switch to := field.Addr().Interface().(type) {
	case *string:
		*to = text
		if tag.path && !filepath.IsAbs(text) {
			return text, "an absolute path"
		}
	case *[]string:
		for part := range strings.SplitSeq(text, tag.separator()) {
			if tag.path && !filepath.IsAbs(part) {
				return part, "an absolute path"
			}
			if !tag.path {
				part = strings.TrimSpace(part)
			}
			if part != "" {
				*to = append(*to, part)
			}
		}
	case *bool:
		*to = text == "true"
	case *int:
		if *to, err = strconv.Atoi(text); err != nil || *to < 1 {
			return text, "a whole number of at least 1"
		}
	case *uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		if *to = uint32(n); err != nil || n == 0 { //nolint:gosec // of 32 bits
			return text, "the number of a user that is not root"
		}
	case *time.Duration:
		if *to, err = time.ParseDuration(text); err != nil || *to <= 0 {
			return text, "a duration such as 90s"
		}
	}
	return "", ""
}

// Name returns the name of the variable of a field of Environment, for messages.
func Name(field string) string {
	f, _ := reflect.TypeFor[Environment]().FieldByName(field)
	return parse(f).name
}

// ForgetTicket removes the ticket from this process's own environment.
func ForgetTicket() error {
	if err := os.Unsetenv(Name("Ticket")); err != nil {
		return fmt.Errorf("forget the ticket: %w", err)
	}
	return nil
}

// tag is a parsed field tag.
type tag struct {
	name           string
	required, path bool
}

func parse(f reflect.StructField) tag {
	name, rule, _ := strings.Cut(f.Tag.Get("env"), ",")
	return tag{name: name, required: rule == "required", path: rule == "path"}
}

func (t tag) separator() string {
	if t.path {
		return pathSeparator
	}
	return ","
}
