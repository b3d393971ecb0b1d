package task_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// full is an environment in which every field has a value. A field of a new kind fails here: teach Variables and Read
// that kind, in environment.go.
func full(t *testing.T) task.Environment {
	t.Helper()
	var e task.Environment
	for f, v := range reflect.ValueOf(&e).Elem().Fields() {
		path := strings.HasSuffix(f.Tag.Get("env"), ",path")
		switch to := v.Addr().Interface().(type) {
		case *string:
			if *to = f.Name; path {
				*to = "/" + f.Name
			}
		case *[]string:
			if *to = []string{f.Name, "B"}; path {
				*to = []string{"/" + f.Name, "/b c"}
			}
		case *bool:
			*to = true
		case *int:
			*to = 7
		case *uint32:
			*to = 8
		case *time.Duration:
			*to = 90 * time.Second
		default:
			t.Fatalf("%s is of a kind that no variable carries: %s", f.Name, f.Type)
		}
	}
	return e
}

func TestEnvironment_ComesBackAsItWasWritten(t *testing.T) {
	want := full(t)
	variables := want.Variables()
	got, err := task.Read(func(name string) string { return variables[name] }, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a field is forgotten by Variables or Read, in environment.go (-want +got):\n%s", diff)
	}
}

// Images and launchers of other versions know these names and these forms. A line may be added, and none may change.
func TestEnvironment_NamesAreThoseOfEarlierVersions(t *testing.T) {
	want := []string{
		"DAYFLY_ATTEMPT=7", "DAYFLY_DISK_GIB=7", "DAYFLY_ENGINE_DOWNLOADS=Downloads,B", "DAYFLY_ENGINE_PATH=/EnginePath:/b c", "DAYFLY_ENGINE_UID=8", "DAYFLY_ENV_FORWARD_ALLOWLIST=Forward,B",
		"DAYFLY_GATE_BUNDLE=true", "DAYFLY_GATE_FD=Gate", "DAYFLY_JOB=Workflow", "DAYFLY_MAX_PROCESSES=7", "DAYFLY_NOTICE=Notice", "DAYFLY_PREAPPROVED_HOOKS=Hooks,B", "DAYFLY_PROVIDERS_DIR=/ProvidersDir", "DAYFLY_PROVIDER_MIRROR=ProviderMirror", "DAYFLY_RELAY=Relay", "DAYFLY_RELAY_AUTH=RelayAuth",
		"DAYFLY_SECRETS_STORE=SecretsStore", "DAYFLY_SOURCE_DIR=/SourceDir", "DAYFLY_SOURCE_ROOTS=/SourceRoots:/b c",
		"DAYFLY_STATE_BUCKET=StateBucket", "DAYFLY_STATE_DIR=/StateDir", "DAYFLY_STATE_KMS_KEY_ARN=StateKMSKeyARN",
		"DAYFLY_STATE_OLDS=/StateOlds:/b c", "DAYFLY_STATE_STORE=StateStore", "DAYFLY_STOP_GRACE=1m30s", "DAYFLY_TASK=Task",
		"DAYFLY_TICKET=Ticket", "DAYFLY_TOOLS_DIR=/ToolsDir", "DAYFLY_UNSAVED=Unsaved", "DAYFLY_VAULT_ADDRESS=VaultAddress", "DAYFLY_VAULT_AUTH_MOUNT=VaultAuthMount", "DAYFLY_VAULT_NAMESPACE=VaultNamespace",
		"DAYFLY_VAULT_ROLE=VaultRole", "DAYFLY_VAULT_SERVER_ID=VaultServerID", "DAYFLY_VAULT_TOKEN_FILE=/VaultTokenFile", "DAYFLY_WORK_DIR=/WorkDir",
	}
	if diff := cmp.Diff(want, task.List(full(t).Variables())); diff != "" {
		t.Errorf("variables differ (-want +got):\n%s", diff)
	}
	if got := (task.Environment{}).Variables(); len(got) != 0 {
		t.Errorf("nothing is written as %v", got)
	}
}

func TestRead_ReportsEveryMistake(t *testing.T) {
	variables := map[string]string{
		"DAYFLY_ATTEMPT": "0", "DAYFLY_ENGINE_UID": "0", "DAYFLY_STOP_GRACE": "-1s", "DAYFLY_WORK_DIR": "work",
		"DAYFLY_SOURCE_ROOTS": "/a::/b", "DAYFLY_ENV_FORWARD_ALLOWLIST": " A, ,B",
	}
	got, err := task.Read(func(name string) string { return variables[name] }, "")
	if err == nil {
		t.Fatal("got no error")
	}
	want := []string{
		"DAYFLY_JOB is missing", `DAYFLY_ATTEMPT: "0" is not a whole number of at least 1`, "DAYFLY_TASK is missing", "DAYFLY_TICKET is missing",
		"DAYFLY_RELAY is missing", `DAYFLY_WORK_DIR: "work" is not an absolute path`, `DAYFLY_SOURCE_ROOTS: "" is not an absolute path`,
		`DAYFLY_ENGINE_UID: "0" is not the number of a user that is not root`, `DAYFLY_STOP_GRACE: "-1s" is not a duration such as 90s`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("mistakes differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"A", "B"}, got.Forward); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

// A task of ECS learns its name from ECS.
func TestRead_TakesANameThatNoVariableHas(t *testing.T) {
	if e, _ := task.Read(func(string) string { return "" }, "arn"); e.Task != "arn" {
		t.Errorf("got %q", e.Task)
	}
}
