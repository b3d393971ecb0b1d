package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// abouts describe the keys, for people who point at one in an editor.
var abouts = map[string]string{ //nolint:gosec // G101: it names credentials and has none
	"token":                     "Pool token of the agent; better given as DAYFLY_TOKEN",
	"oidc_token_file":           "File with a token of an issuer, from which the agent gets its pool token",
	"organization_name":         "With oidc_token_file: the organization that trusts the issuer",
	"runner_pool_id":            "With oidc_token_file: id or name of the pool",
	"token_expiration":          "With oidc_token_file: lifetime of each pool token; default 1h",
	"service_url":               "Address of the control plane: https, or of this machine",
	"working_directory":         "The data directory: jobs, state, secrets, records",
	"deploy_target":             "Where jobs run",
	"runner_image":              "Image of container jobs",
	"images":                    "Further images that workspaces may name, each NAME=IMAGE; with ecs NAME=TASK_DEFINITION",
	"disk_quota":                "Disk of each job in GiB; 0 means no bound",
	"max_disk":                  "Limit of the disk in GiB that a workspace may ask for; 0 means as much as each job has",
	"preapproved_hooks":         "SHA-256 of the only hooks that may run; default every hook",
	"runner_network":            "Network of container jobs",
	"shared_volume_directory":   "working_directory as the Docker engine sees it, where the agent is itself in a container",
	"pull_image":                "Whether runner_image is pulled before each job",
	"single_run":                "Whether the agent handles one job, then exits",
	"concurrency":               "Maximum number of jobs at once; default 10",
	"enabled_workflow_types":    "Types that are claimed; default all",
	"env_forward_allowlist":     "Names of variables that reach every engine",
	"additional_binary_paths":   "Directories in which jobs look for engines first",
	"engine_downloads":          "Engines of which versions that are missing are downloaded and verified",
	"provider_cache":            "Whether jobs share a cache of the providers of terraform and tofu, and Pulumi workspaces keep packages",
	"provider_cache_size":       "Size in GiB of that cache, and of all these packages; default 10",
	"source_roots":              "Directories below which a directory source may lie",
	"vault_address":             "Address of a Vault server, whose secrets vault:PATH#KEY names",
	"vault_namespace":           "Namespace of Vault Enterprise",
	"vault_token_file":          "File with a token for Vault",
	"private_deliveries":        "Hosts, addresses and networks that deliveries may call although they are private",
	"polling_interval":          "Longest pause between two polls that found nothing",
	"polling_interval_override": "Whether polling_interval wins over a pause that the control plane asks for",
	"job_status_loop_interval":  "Pause between two looks at the running jobs",
	"request_timeout":           "Time limit of one request of the poller",
	"request_retry_count":       "Further tries of a failed request; 0 means none",
	"request_retry_wait":        "Wait before the first of them",
	"request_retry_max_wait":    "Longest wait between two of them",
	"circuit_breaker_failures":  "Failed polls in a row after which polling pauses",
	"circuit_breaker_timeout":   "How long polling pauses",
	"http_server_address":       "Address of this machine at which /healthz is served",
	"http_server_port":          "Port at which /healthz is served; 0 means that it is not",
	"health_threshold":          "Time without a sign of life after which /healthz answers 503; default twice the longer loop",
	"log_level":                 "The least important lines of the log",
	"log_jobs":                  "Whether the output of jobs is in the log too",
	"syslog":                    "Whether the log goes to the syslog of this machine",
	"relay_url":                 "With ecs: address by which tasks reach this agent",
	"relay_listen":              "With ecs: where the agent listens for tasks; default every address, at the port of relay_url",
	"relay_cert":                "With ecs: file of the certificate with which the agent speaks TLS to tasks",
	"relay_key":                 "With ecs: file of its key",
	"relay_insecure":            "With ecs: whether tasks may report without TLS, because a proxy in front has it",
	"cluster":                   "With ecs: the cluster, by name or ARN",
	"task_definition":           "With ecs: the runner's, by family, family:revision or ARN",
	"container":                 "With ecs: name of the runner's container in it",
	"subnets":                   "With ecs: subnets of the tasks, tried in turn",
	"security_groups":           "With ecs: security groups of the tasks; default that of the VPC",
	"assign_public_ip":          "With ecs: whether tasks get public addresses",
	"spot":                      "With ecs: the runs that may use Spot",
	"launch_rate":               "With ecs: limit of launches a second",
	"private_issuers":           "With up: hosts, addresses and networks of OIDC issuers that may be called although they are private",
	"listen":                    "With up: where it serves",
}

// SchemaPath is where a control plane serves Schema.
const SchemaPath = "/schemas/agent.json"

// Schema returns the JSON Schema of a settings file. The type and the default of a key are those of its field in
// Config, which has the name of the key without its underscores.
func Schema() ([]byte, error) {
	properties := map[string]any{}
	defaults := reflect.ValueOf(Default())
	for _, k := range keys {
		field := defaults.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, strings.ReplaceAll(k.name, "_", "")) })
		properties[k.name] = k.schema(field)
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FileName,
		"description": "Settings of dayfly up and dayfly agent", "type": "object", "properties": properties, "additionalProperties": false,
	}, "", "  ")
	return append(text, '\n'), err
}

// schema describes a key by the default of its field.
func (k key) schema(field reflect.Value) map[string]any {
	s := map[string]any{"type": "string", "description": abouts[k.name]}
	if !field.IsValid() {
		return s
	}
	switch field.Interface().(type) {
	case time.Duration:
		s["pattern"] = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	case redact.String:
		return s
	}
	value := field.Interface()
	switch field.Kind() { //nolint:exhaustive // a setting has no other kind
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int:
		s["type"] = "integer"
	case reflect.Float64:
		s["type"] = "number"
	case reflect.Int64:
		value = strings.Replace(time.Duration(field.Int()).String(), "m0s", "m", 1)
	case reflect.Slice, reflect.Map: // a map is written as a list of NAME=VALUE
		return map[string]any{"description": abouts[k.name], "anyOf": []any{map[string]any{"type": "array", "items": k.item(field.Type())}, map[string]any{"type": "string"}}}
	}
	if len(k.words) > 0 {
		s["enum"] = k.words
	}
	if !field.IsZero() {
		s["default"] = value
	}
	return s
}

// item describes one value of a list.
func (k key) item(list reflect.Type) map[string]any {
	s := map[string]any{"type": "string"}
	switch {
	case list == reflect.TypeFor[[]workflow.Type]():
		s["enum"] = workflow.Types()
	case len(k.words) > 0:
		s["enum"] = k.words
	}
	return s
}
