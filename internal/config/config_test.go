package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func same(t *testing.T, got, want config.Config) {
	t.Helper()
	reveal := cmp.Transformer("reveal", func(s redact.String) string { return s.Reveal() })
	if diff := cmp.Diff(want, got, reveal); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

const everything = `# all keys
token: dfp_secret
service_url: https://dayfly.example.com/
working_directory: /srv/dayfly
deploy_target: process
runner_image: registry.example.com/runner:v2
images: [big=registry.example.com/runner-big:v2]
disk_quota: 20
max_disk: 50
runner_network: none
shared_volume_directory: /host/dayfly
pull_image: true
single_run: true
concurrency: 4
enabled_workflow_types: [deployment, insights_scan]
env_forward_allowlist:
  - LANG
  - AWS_REGION
additional_binary_paths: [/opt/engines, /opt/more]
engine_downloads: [terraform, tofu]
provider_cache: true
provider_cache_size: 25
source_roots: [/srv/code, /srv/more]
preapproved_hooks: [9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08]
vault_address: https://vault.example.com:8200
vault_namespace: team/infra
vault_token_file: /run/vault/token
private_deliveries: [hooks.example.internal, 10.1.0.0/16]
polling_interval: 5s
polling_interval_override: true
job_status_loop_interval: 10s
http_server_address: 0.0.0.0
http_server_port: 9090
health_threshold: 3m
log_level: warn
log_jobs: true
syslog: true
request_timeout: 15s
request_retry_count: 4
request_retry_wait: 1s
request_retry_max_wait: 9s
circuit_breaker_failures: 7
circuit_breaker_timeout: 3m
`

// onECS are the keys that go with a deploy target of their own, and those that go with any.
const onECS = `oidc_token_file: /var/run/token
organization_name: acme
runner_pool_id: pool_1m7y6r825rcvqh83rh3a
token_expiration: 2h
service_url: https://dayfly.example.com
deploy_target: ecs
relay_url: https://relay.example.com/
relay_listen: 10.0.0.5:8180
relay_cert: /etc/dayfly/relay.pem
relay_key: /etc/dayfly/relay.key
relay_insecure: true
cluster: runners
task_definition: runner:7
container: job
subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
security_groups: [sg-0123456789abcdef0]
assign_public_ip: true
spot: reads
launch_rate: 2.5
`

func allOnECS() config.Config {
	c := config.Default()
	c.OIDCTokenFile, c.OrganizationName, c.RunnerPoolID, c.TokenExpiration = "/var/run/token", "acme", "pool_1m7y6r825rcvqh83rh3a", 2*time.Hour
	c.ServiceURL, c.DeployTarget = "https://dayfly.example.com", "ecs"
	c.RelayURL, c.RelayListen = "https://relay.example.com", "10.0.0.5:8180"
	c.RelayCert, c.RelayKey, c.RelayInsecure = "/etc/dayfly/relay.pem", "/etc/dayfly/relay.key", true
	c.Cluster, c.TaskDefinition, c.Container = "runners", "runner:7", "job"
	c.Subnets, c.SecurityGroups = []string{"subnet-0123456789abcdef0", "subnet-0123456789abcdef1"}, []string{"sg-0123456789abcdef0"}
	c.AssignPublicIP, c.Spot, c.LaunchRate = true, "reads", 2.5
	return c
}

func all() config.Config {
	return config.Config{
		Container: "runner", Spot: "never", LaunchRate: 20,
		Token: redact.New("dfp_secret"), ServiceURL: "https://dayfly.example.com", WorkingDirectory: "/srv/dayfly",
		DeployTarget: "process", RunnerImage: "registry.example.com/runner:v2", RunnerNetwork: "none", SharedVolumeDirectory: "/host/dayfly", PullImage: true, SingleRun: true, Concurrency: 4,
		Images: map[string]string{"big": "registry.example.com/runner-big:v2"}, DiskQuota: 20, MaxDisk: 50,
		EnabledWorkflowTypes: []workflow.Type{workflow.Deployment, workflow.InsightsScan},
		EnvForwardAllowlist:  []string{"LANG", "AWS_REGION"}, SourceRoots: []string{"/srv/code", "/srv/more"},
		VaultAddress: "https://vault.example.com:8200", VaultNamespace: "team/infra", VaultTokenFile: "/run/vault/token",
		AdditionalBinaryPaths: []string{"/opt/engines", "/opt/more"}, EngineDownloads: []string{"terraform", "tofu"},
		ProviderCache: true, ProviderCacheSize: 25,
		PreapprovedHooks:        []string{"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
		PrivateDeliveries:       []string{"hooks.example.internal", "10.1.0.0/16"},
		PollingIntervalOverride: true, HTTPServerAddress: "0.0.0.0", HTTPServerPort: 9090, HealthThreshold: 3 * time.Minute,
		LogLevel: "warn", LogJobs: true, Syslog: true,
		PollingInterval: 5 * time.Second, JobStatusLoopInterval: 10 * time.Second, RequestTimeout: 15 * time.Second,
		RequestRetryCount: 4, RequestRetryWait: time.Second, RequestRetryMaxWait: 9 * time.Second,
		CircuitBreakerFailures: 7, CircuitBreakerTimeout: 3 * time.Minute,
	}
}

// D3: every key in the file reaches its field; none of the fields stays at its default.
func TestLoad_EveryKeyOfTheFileIsPassedOn(t *testing.T) {
	file := write(t, "dayfly.yaml", everything)
	got, err := config.Load(config.Agent, config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got.Config, all())
	if got.File != file || len(got.Notices) != 0 {
		t.Errorf("got file %q, notices %q, want %q and none", got.File, got.Notices, file)
	}
	other, err := config.Load(config.Agent, config.Sources{File: write(t, "dayfly.yaml", onECS)})
	if err != nil {
		t.Fatal(err)
	}
	same(t, other.Config, allOnECS())
	ours, err := config.Load(config.Up, config.Sources{File: write(t, "dayfly.yaml", "listen: 127.0.0.1:9000\nprivate_issuers: [id.example.internal, 10.1.0.0/16]\n")})
	if err != nil || ours.Listen != "127.0.0.1:9000" || !slices.Equal(ours.PrivateIssuers, []string{"id.example.internal", "10.1.0.0/16"}) {
		t.Errorf("up listens at %q, calls %q, %v", ours.Listen, ours.PrivateIssuers, err)
	}
	got.Listen, got.PrivateIssuers = ours.Listen, ours.PrivateIssuers // of up alone
	set, more, zero := reflect.ValueOf(got.Config), reflect.ValueOf(other.Config), reflect.ValueOf(config.Default())
	for i := range set.NumField() {
		if reflect.DeepEqual(set.Field(i).Interface(), zero.Field(i).Interface()) && reflect.DeepEqual(more.Field(i).Interface(), zero.Field(i).Interface()) {
			t.Errorf("%s is still its default: no key sets it", set.Type().Field(i).Name)
		}
	}
	if n := len(config.Keys(config.Agent)); n != set.NumField()-2 {
		t.Errorf("got %d keys for %d fields of which two are up's", n, set.NumField())
	}
}

func TestLoad_EnvironmentSetsEveryKeyToo(t *testing.T) {
	env := []string{
		"DAYFLY_TOKEN=dfp_secret", "DAYFLY_SERVICE_URL=https://dayfly.example.com", "DAYFLY_WORKING_DIRECTORY=/srv/dayfly",
		"DAYFLY_DEPLOY_TARGET=process", "DAYFLY_RUNNER_IMAGE=registry.example.com/runner:v2", "DAYFLY_IMAGES=big=registry.example.com/runner-big:v2", "DAYFLY_DISK_QUOTA=20", "DAYFLY_MAX_DISK=50", "DAYFLY_RUNNER_NETWORK=none", "DAYFLY_SHARED_VOLUME_DIRECTORY=/host/dayfly", "DAYFLY_PULL_IMAGE=true", "DAYFLY_SINGLE_RUN=true", "DAYFLY_CONCURRENCY=4", "DAYFLY_ENABLED_WORKFLOW_TYPES=deployment, insights_scan",
		"DAYFLY_ENV_FORWARD_ALLOWLIST=LANG,AWS_REGION", "DAYFLY_SOURCE_ROOTS=/srv/code:/srv/more", "DAYFLY_ADDITIONAL_BINARY_PATHS=/opt/engines:/opt/more", "DAYFLY_ENGINE_DOWNLOADS=terraform,tofu", "DAYFLY_PROVIDER_CACHE=true", "DAYFLY_PROVIDER_CACHE_SIZE=25",
		"DAYFLY_PREAPPROVED_HOOKS=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "DAYFLY_VAULT_ADDRESS=https://vault.example.com:8200", "DAYFLY_VAULT_NAMESPACE=team/infra", "DAYFLY_VAULT_TOKEN_FILE=/run/vault/token",
		"DAYFLY_PRIVATE_DELIVERIES=hooks.example.internal,10.1.0.0/16", "DAYFLY_POLLING_INTERVAL=5s", "DAYFLY_POLLING_INTERVAL_OVERRIDE=true",
		"DAYFLY_HTTP_SERVER_ADDRESS=0.0.0.0", "DAYFLY_HTTP_SERVER_PORT=9090", "DAYFLY_HEALTH_THRESHOLD=3m", "DAYFLY_LOG_LEVEL=warn", "DAYFLY_LOG_JOBS=true", "DAYFLY_SYSLOG=true",
		"DAYFLY_JOB_STATUS_LOOP_INTERVAL=10s", "DAYFLY_REQUEST_TIMEOUT=15s", "DAYFLY_REQUEST_RETRY_COUNT=4",
		"DAYFLY_REQUEST_RETRY_WAIT=1s", "DAYFLY_REQUEST_RETRY_MAX_WAIT=9s", "DAYFLY_CIRCUIT_BREAKER_FAILURES=7",
		"DAYFLY_CIRCUIT_BREAKER_TIMEOUT=3m", "DAYFLY_URL=http://elsewhere", "DAYFLY_API_TOKEN=dfu_x",
	}
	got, err := config.Load(config.Agent, config.Sources{Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got.Config, all())
}

func TestLoad_KeysOfECS(t *testing.T) {
	env := []string{
		"DAYFLY_OIDC_TOKEN_FILE=/var/run/token", "DAYFLY_ORGANIZATION_NAME=acme", "DAYFLY_RUNNER_POOL_ID=pool_1m7y6r825rcvqh83rh3a", "DAYFLY_TOKEN_EXPIRATION=2h",
		"DAYFLY_SERVICE_URL=https://dayfly.example.com", "DAYFLY_DEPLOY_TARGET=ecs", "DAYFLY_RELAY_URL=https://relay.example.com",
		"DAYFLY_RELAY_LISTEN=10.0.0.5:8180",
		"DAYFLY_RELAY_CERT=/etc/dayfly/relay.pem", "DAYFLY_RELAY_KEY=/etc/dayfly/relay.key", "DAYFLY_RELAY_INSECURE=true", "DAYFLY_CLUSTER=runners", "DAYFLY_TASK_DEFINITION=runner:7", "DAYFLY_CONTAINER=job",
		"DAYFLY_SUBNETS=subnet-0123456789abcdef0, subnet-0123456789abcdef1", "DAYFLY_SECURITY_GROUPS=sg-0123456789abcdef0",
		"DAYFLY_ASSIGN_PUBLIC_IP=true", "DAYFLY_SPOT=reads", "DAYFLY_LAUNCH_RATE=2.5",
	}
	got, err := config.Load(config.Agent, config.Sources{Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got.Config, allOnECS())

	for url, want := range map[string]string{"http://10.0.0.5:8180/x": ":8180", "https://relay.example.com": ":443", "http://relay.example.com": ":80"} {
		without := slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "DAYFLY_RELAY") })
		got, err := config.Load(config.Agent, config.Sources{Environ: append(without, "DAYFLY_RELAY_URL="+url, "DAYFLY_RELAY_INSECURE=true")})
		if err != nil || got.RelayListen != want {
			t.Errorf("%s: it listens at %q, %v, want %q", url, got.RelayListen, err, want)
		}
		if inClear := strings.HasPrefix(url, "http:"); inClear != (len(got.Notices) == 1) {
			t.Errorf("%s: notices %q", url, got.Notices)
		}
	}
}

// withoutTLS are settings of ecs that say nothing about TLS of the relay.
func withoutTLS(ecs string) string {
	return strings.Replace(ecs, "relay_cert: /etc/dayfly/relay.pem\nrelay_key: /etc/dayfly/relay.key\nrelay_insecure: true\n", "", 1)
}

// L9: the relay of tasks elsewhere speaks TLS, unless only this machine can reach it or it is said that a proxy does.
func TestLoad_RelayInClearTextIsForThisMachineOnly(t *testing.T) {
	for name, file := range map[string]string{
		"loopback":   strings.Replace(withoutTLS(onECS), "10.0.0.5", "127.0.0.1", 1),
		"localhost":  strings.Replace(withoutTLS(onECS), "10.0.0.5", "localhost", 1),
		"it is said": withoutTLS(onECS) + "relay_insecure: true\n",
	} {
		if _, err := config.Load(config.Agent, config.Sources{File: write(t, "dayfly.yaml", file)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoad_KeysOfAnotherTargetAreRefused(t *testing.T) {
	agent := "token: dfp_secret\nservice_url: https://dayfly.example.com\n"
	ecs := onECS
	for name, test := range map[string]struct {
		use  config.Use
		file string
		says []string
	}{
		"of ecs, elsewhere": {config.Agent, agent + "cluster: runners\nspot: all\n", []string{
			"3: cluster: does nothing with deploy_target auto: it is for ecs only: remove it", "4: spot: does nothing",
		}},
		"of machines, on ecs": {config.Agent, ecs + "runner_image: x:1\nenv_forward_allowlist: [LANG]\nsource_roots: [/srv]\nrunner_network: none\nadditional_binary_paths: [/opt]\nengine_downloads: [tofu]\n", []string{
			"runner_image: does nothing with deploy_target ecs, where the task definition sets it", "env_forward_allowlist: does", "source_roots: does", "runner_network: does",
			"additional_binary_paths: does", "engine_downloads: does",
		}},
		"of up":       {config.Agent, agent + "listen: 127.0.0.1:9000\n", []string{"3: listen: does nothing for dayfly agent (it is not a control plane): remove it"}},
		"no download": {config.Up, "engine_downloads: [tofu, command]\n", []string{"1: engine_downloads: want terraform or tofu"}},
		"no port":     {config.Up, "listen: localhost\n", []string{"1: listen: want HOST:PORT"}},
		"too many":    {config.Up, "concurrency: 1001\n", []string{"1: concurrency: want a number from 0 to 1000"}},
		"for up":      {config.Up, "deploy_target: ecs\n", []string{"1: deploy_target: ecs is for dayfly agent"}},
		"incomplete":  {config.Agent, agent + "deploy_target: ecs\n", []string{"relay_url: is required", "cluster: is required", "task_definition: is required", "subnets: is required"}},
		"no relay":    {config.Agent, strings.Replace(ecs, "relay_url: https://relay.example.com/", "relay_url: relay", 1), []string{"relay_url: want an address"}},
		"no address":  {config.Agent, strings.Replace(ecs, "10.0.0.5:8180", "relay.example.com:8180", 1), []string{"relay_listen: want an address of this machine"}},
		"no subnet":   {config.Agent, strings.Replace(ecs, "subnet-0123456789abcdef1", "vpc-0123456789abcdef1", 1), []string{"subnets: want ids such as subnet-"}},
		"twice":       {config.Agent, strings.Replace(ecs, "subnet-0123456789abcdef1", "subnet-0123456789abcdef0", 1), []string{"subnets: subnet-0123456789abcdef0 is given twice"}},
		"no groups":   {config.Agent, strings.Replace(ecs, "[sg-0123456789abcdef0]", "[]", 1), []string{"security_groups: want 1 to 5 ids"}},
		"no policy":   {config.Agent, strings.Replace(ecs, "spot: reads", "spot: often", 1), []string{"spot: want never, reads or all"}},
		"no rate":     {config.Agent, strings.Replace(ecs, "launch_rate: 2.5", "launch_rate: 0", 1), []string{"launch_rate: want launches a second"}},
		"not a rate":  {config.Agent, strings.Replace(ecs, "launch_rate: 2.5", "launch_rate: .nan", 1), []string{"launch_rate: want launches a second"}},
		"no cluster":  {config.Agent, strings.Replace(ecs, "cluster: runners", "cluster: my runners", 1), []string{"cluster: want the name or ARN"}},
		"no TLS":      {config.Agent, withoutTLS(ecs), []string{"relay_cert: is required: tasks would send tickets, logs and results to this agent in clear text"}},
		"no key":      {config.Agent, strings.Replace(ecs, "relay_key: /etc/dayfly/relay.key\n", "", 1), []string{"relay_cert: a certificate needs its key"}},
		"not https":   {config.Agent, strings.Replace(ecs, "relay_url: https", "relay_url: http", 1), []string{"relay_url: must begin with https://"}},
		"no decision": {config.Agent, strings.Replace(ecs, "assign_public_ip: true", "assign_public_ip: often", 1), []string{"assign_public_ip: want true or false"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load(test.use, config.Sources{File: write(t, "dayfly.yaml", test.file)})
			for _, want := range test.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if wrong, ok := errors.AsType[workflow.Mistakes](err); ok && len(wrong) != len(test.says) {
				t.Errorf("got %d mistakes: %v", len(wrong), err)
			}
		})
	}
}

func TestLoad_NothingSaidGivesTheDefaults(t *testing.T) {
	got, err := config.Load(config.Up, config.Sources{Dirs: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, got.Config, config.Default())
}

func TestLoad_FlagsWinOverEnvironmentOverFile(t *testing.T) {
	file := write(t, "dayfly.yaml", "polling_interval: 5s\nrequest_timeout: 5s\nrequest_retry_count: 5\n")
	got, err := config.Load(config.Up, config.Sources{
		File:    file,
		Environ: []string{"DAYFLY_REQUEST_TIMEOUT=6s", "DAYFLY_REQUEST_RETRY_COUNT=6"},
		Flags:   map[string]config.Flag{"request_retry_count": {Name: "request-retry-count", Value: "7"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.PollingInterval, want.RequestTimeout, want.RequestRetryCount = 5*time.Second, 6*time.Second, 7
	same(t, got.Config, want)
}

func TestLoad_FirstDirectoryWithAFileWins(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{b: "polling_interval: 2s", c: "polling_interval: 3s"} {
		if err := os.WriteFile(filepath.Join(dir, "dayfly.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The fallback's name counts only where there is no file of ours anywhere.
	if err := os.WriteFile(filepath.Join(a, "pulumi-workflow-agent.yaml"), []byte("polling_interval: 9s"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Up, config.Sources{Dirs: []string{a, b, c}})
	if err != nil {
		t.Fatal(err)
	}
	if got.PollingInterval != 2*time.Second || got.File != filepath.Join(b, "dayfly.yaml") {
		t.Errorf("got %s from %s, want 2s from %s", got.PollingInterval, got.File, b)
	}
}

// D3: an installation moves over by changing the binary.
func TestLoad_FallbackNamesAreReadWithANotice(t *testing.T) {
	dir := t.TempDir()
	text := "token: old\nservice_url: https://old.example.com\nworking_directory: /srv/old\n"
	if err := os.WriteFile(filepath.Join(dir, "pulumi-workflow-agent.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Agent, config.Sources{
		Dirs:    []string{dir},
		Environ: []string{"PULUMI_AGENT_TOKEN=new", "PULUMI_AGENT_POLLING_INTERVAL=3s", "DAYFLY_POLLING_INTERVAL=4s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Token.Reveal() != "new" || got.PollingInterval != 4*time.Second || got.WorkingDirectory != "/srv/old" {
		t.Errorf("got token %q, polling %s, directory %s", got.Token.Reveal(), got.PollingInterval, got.WorkingDirectory)
	}
	if len(got.Notices) != 2 || !strings.Contains(got.Notices[0], "rename it to dayfly.yaml") || !strings.Contains(got.Notices[1], "PULUMI_AGENT_TOKEN") {
		t.Errorf("got notices %q, want one for the file and one for the variables", got.Notices)
	}
	for _, n := range got.Notices {
		if strings.Contains(n, "\n") {
			t.Errorf("notice %q has more than one line", n)
		}
	}
}

// D3: a file with every setting that such agents come with, each at the value that it comes with.
func TestLoad_ASampleOfAnotherAgentIsTaken(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "pulumi-workflow-agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sample := string(data)
	t.Setenv("HOME", "/home/somebody")
	dir := t.TempDir()
	file := filepath.Join(dir, "pulumi-workflow-agent.yaml")
	if err := os.WriteFile(file, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Agent, config.Sources{Dirs: []string{dir}, Environ: []string{"PULUMI_AGENT_SYSLOG=false"}})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Token, want.ServiceURL, want.DeployTarget = redact.New("pul-xxx"), "https://api.example.com", config.TargetDocker
	want.WorkingDirectory, want.EnabledWorkflowTypes = "/home/somebody/agent", workflow.Types()
	want.EnvForwardAllowlist, want.PullImage = []string{"KEY_ONE", "KEY_TWO", "KEY_THREE"}, true
	same(t, got.Config, want)
	const ignored = "ignored, because they ask for nothing: version, shared_volume_directory, oidc_token_file, organization_name, runner_pool_id, token_expiration, health_threshold"
	if len(got.Notices) != 3 || !strings.Contains(got.Notices[1], "reading PULUMI_AGENT_SYSLOG; ") || got.Notices[2] != ignored {
		t.Errorf("got notices %q", got.Notices)
	}

	listed := strings.Replace(sample, `"KEY_ONE KEY_TWO  KEY_THREE"`, "\n    - KEY_ONE\n    - KEY_TWO", 1)
	if err := os.WriteFile(file, []byte(listed), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = config.Load(config.Agent, config.Sources{Dirs: []string{dir}, Environ: []string{"PULUMI_AGENT_ENV_FORWARD_ALLOWLIST=VAR1 VAR2"}})
	if err != nil || !slices.Equal(got.EnvForwardAllowlist, []string{"VAR1", "VAR2"}) {
		t.Errorf("got %q, %v", got.EnvForwardAllowlist, err)
	}

	// Each of its settings acts, and what has another name here is said.
	const acting = "PULUMI_AGENT_SHARED_VOLUME_DIRECTORY=/mnt/work PULUMI_AGENT_PULL_IMAGE=false PULUMI_AGENT_POLLING_INTERVAL_OVERRIDE=true PULUMI_AGENT_HTTP_SERVER_PORT=9090 PULUMI_AGENT_HEALTH_THRESHOLD=5m PULUMI_AGENT_SYSLOG=true"
	got, err = config.Load(config.Agent, config.Sources{Dirs: []string{dir}, Environ: strings.Fields(acting)})
	if err != nil {
		t.Fatal(err)
	}
	want.EnvForwardAllowlist = []string{"KEY_ONE", "KEY_TWO"}
	want.SharedVolumeDirectory, want.PullImage, want.PollingIntervalOverride = "/mnt/work", false, true
	want.HTTPServerPort, want.HealthThreshold, want.Syslog = 9090, 5*time.Minute, true
	same(t, got.Config, want)
	for name, from := range map[string]config.Sources{
		"token_expiration: does nothing":              {File: write(t, "pulumi-workflow-agent.yaml", strings.Replace(sample, `token_expiration: ""`, "token_expiration: 2h", 1))},
		"PULUMI_AGENT_IMAGE: is runner_image":         {File: write(t, "pulumi-workflow-agent.yaml", sample), Environ: []string{"PULUMI_AGENT_IMAGE=x:1"}},
		"PULUMI_AGENT_IMAGE_PULL_POLICY: is pull":     {File: write(t, "pulumi-workflow-agent.yaml", sample), Environ: []string{"PULUMI_AGENT_IMAGE_PULL_POLICY=Always"}},
		"service_url: is Pulumi Cloud":                {File: write(t, "pulumi-workflow-agent.yaml", strings.Replace(sample, "api.example.com", "api.pulumi.com", 1))},
		"workflow_runners_directory: does nothing":    {File: write(t, "pulumi-workflow-agent.yaml", sample+"workflow_runners_directory: /x\n")},
		"deploy_target: kubernetes is not in this ve": {File: write(t, "pulumi-workflow-agent.yaml", strings.Replace(sample, `"docker"`, "kubernetes", 1))},
		"version: unknown key: remove":                {File: write(t, "dayfly.yaml", "token: x\nservice_url: https://x.example.com\nversion: v1\n")},
	} {
		_, err := config.Load(config.Agent, from)
		if wrong, ok := errors.AsType[workflow.Mistakes](err); !ok || len(wrong) != 1 || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want one mistake with %q", err, name)
		}
	}
}

func TestLoad_AHomeDirectoryIsPutIntoPaths(t *testing.T) {
	t.Setenv("HOME", "/home/somebody")
	for in, want := range map[string]string{"~": "/home/somebody", "~/x": "/home/somebody/x", "/~/x": "/~/x"} {
		got, err := config.Load(config.Up, config.Sources{File: write(t, "dayfly.yaml", "working_directory: \""+in+"\"\nsource_roots: [\""+in+"\"]\n")})
		if err != nil || got.WorkingDirectory != want || !slices.Equal(got.SourceRoots, []string{want}) {
			t.Errorf("%s: got %q and %q, %v, want %q", in, got.WorkingDirectory, got.SourceRoots, err, want)
		}
	}
}

func TestLoad_EveryMistakeIsReportedAtOnceWithItsPlace(t *testing.T) {
	file := write(t, "dayfly.yaml", strings.Join([]string{
		"poling_interval: 3s",        // 1: near miss
		"image: x:1",                 // 2: another agent's
		"polling_interval: 30",       // 3: no unit
		"polling_interval: 40s",      // 4: twice
		"deploy_target: kubernetes",  // 5: not in this version
		"zebra: 1",                   // 6: unknown
		"single_run: maybe",          // 7
		"source_roots: {a: b}",       // 8
		"request_retry_count: [1]",   // 9
		"request_timeout:",           // 10
		"enabled_workflow_types: []", // 11
	}, "\n"))
	_, err := config.Load(config.Agent, config.Sources{
		File:    file,
		Environ: []string{"DAYFLY_SYSLOG=perhaps", "DAYFLY_LOG_LEVEL=all", "DAYFLY_CIRCUIT_BREAKER_FAILURES=0", "DAYFLY_SERVICE_HOST=10.0.0.1", "DAYFLY_SERVICE_URL=ftp://x"},
		Flags:   map[string]config.Flag{"request_retry_max_wait": {Name: "request-retry-max-wait", Value: "1s"}, "token": {Name: "token", Value: "dfp_x"}},
	})
	wrong, ok := errors.AsType[workflow.Mistakes](err)
	if !ok {
		t.Fatalf("got %v, want mistakes", err)
	}
	var got []string
	for _, m := range wrong {
		got = append(got, strings.TrimPrefix(m, filepath.Dir(file)+"/"))
	}
	want := []string{
		"dayfly.yaml:1: poling_interval: unknown key: did you mean polling_interval?",
		"dayfly.yaml:2: image: is runner_image here: rename it",
		`dayfly.yaml:3: polling_interval: want a duration such as 30s or 2m, not "30": a unit is missing, such as in 30s`,
		"dayfly.yaml:4: polling_interval: is given twice, first in line 3",
		"dayfly.yaml:5: deploy_target: kubernetes is not in this version: use auto, docker, process or ecs",
		"dayfly.yaml:6: zebra: unknown key: remove it",
		`dayfly.yaml:7: single_run: want true or false, not "maybe"`,
		"dayfly.yaml:8: source_roots: want a list",
		"dayfly.yaml:9: request_retry_count: want a single value",
		"dayfly.yaml:10: request_timeout: has no value: give one or remove the line",
		"dayfly.yaml:11: enabled_workflow_types: is empty, which would claim nothing: leave the key out to claim all",
		`DAYFLY_CIRCUIT_BREAKER_FAILURES: want a number from 1 to 1000, not "0"`,
		`DAYFLY_LOG_LEVEL: want debug, info, warn or error, not "all"`,
		`DAYFLY_SERVICE_URL: want an address such as https://dayfly.example.com, not "ftp://x"`,
		`DAYFLY_SYSLOG: want true or false, not "perhaps"`,
		"--token: must not be on a command line: put it into dayfly.yaml or DAYFLY_TOKEN",
		"token: is required, or oidc_token_file: set it in dayfly.yaml or as DAYFLY_TOKEN",
		"--request-retry-max-wait: is 1s, which is less than request_retry_wait (20s)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
	if text := err.Error(); strings.Count(text, "\n") != 17 || strings.Contains(text, "dfp_x") {
		t.Errorf("got %s", text)
	}
}

// Every name of the contract either acts or is refused by name: none is swallowed.
func TestLoad_NoNameOfTheContractIsSwallowed(t *testing.T) {
	names := strings.Fields(`token service_url working_directory shared_volume_directory deploy_target single_run pull_image
		enabled_workflow_types env_forward_allowlist oidc_token_file organization_name runner_pool_id token_expiration
		polling_interval polling_interval_override job_status_loop_interval request_timeout request_retry_count
		request_retry_wait request_retry_max_wait circuit_breaker_failures circuit_breaker_timeout http_server_port
		health_threshold syslog relay_url source_roots`)
	for _, use := range []config.Use{config.Agent, config.Up} {
		acts := map[string]bool{}
		for _, k := range config.Keys(use) {
			acts[k] = true
		}
		for _, name := range names {
			if acts[name] {
				continue
			}
			for place, from := range map[string]config.Sources{
				"dayfly.yaml:1: " + name:                  {File: write(t, "dayfly.yaml", name+": x\n")},
				"DAYFLY_" + strings.ToUpper(name):         {Environ: []string{"DAYFLY_" + strings.ToUpper(name) + "=x"}},
				"PULUMI_AGENT_" + strings.ToUpper(name):   {Environ: []string{"PULUMI_AGENT_" + strings.ToUpper(name) + "=x"}},
				"--" + strings.ReplaceAll(name, "_", "-"): {Flags: map[string]config.Flag{name: {Name: strings.ReplaceAll(name, "_", "-"), Value: "x"}}},
			} {
				_, err := config.Load(use, from)
				if wrong, ok := errors.AsType[workflow.Mistakes](err); !ok || !strings.Contains(wrong.Error(), place+": ") {
					t.Errorf("%s with %s from %v: got %v, want a refusal by name", use, name, from, err)
				}
			}
		}
	}
}

func TestLoad_AgentTokenIsEitherStoredOrExchanged(t *testing.T) {
	const url = "DAYFLY_SERVICE_URL=https://x.example.com"
	for name, tc := range map[string]struct {
		environ []string
		want    []string // mistakes, each by a part of it
	}{
		"both": {
			[]string{"DAYFLY_TOKEN=x", "DAYFLY_OIDC_TOKEN_FILE=/t", "DAYFLY_ORGANIZATION_NAME=acme", "DAYFLY_RUNNER_POOL_ID=pool_1"},
			[]string{"DAYFLY_OIDC_TOKEN_FILE: excludes token (DAYFLY_TOKEN): an agent has one of them"},
		},
		"neither": {nil, []string{"token: is required, or oidc_token_file: "}},
		"a file alone": {
			[]string{"DAYFLY_OIDC_TOKEN_FILE=/t"},
			[]string{"organization_name: is required: set it in dayfly.yaml or as DAYFLY_ORGANIZATION_NAME", "runner_pool_id: is required: "},
		},
		"the rest alone": {
			[]string{"DAYFLY_TOKEN=x", "DAYFLY_ORGANIZATION_NAME=acme", "DAYFLY_RUNNER_POOL_ID=pool_1", "DAYFLY_TOKEN_EXPIRATION=1h"},
			[]string{"DAYFLY_ORGANIZATION_NAME: does nothing without oidc_token_file", "DAYFLY_RUNNER_POOL_ID: does nothing", "DAYFLY_TOKEN_EXPIRATION: does nothing"},
		},
		"wrong values": {
			[]string{"DAYFLY_OIDC_TOKEN_FILE=/t", "DAYFLY_ORGANIZATION_NAME=a b", "DAYFLY_RUNNER_POOL_ID=/", "DAYFLY_TOKEN_EXPIRATION=10s"},
			[]string{"DAYFLY_ORGANIZATION_NAME: want the name of an organization", "DAYFLY_RUNNER_POOL_ID: want the id of a pool", "DAYFLY_TOKEN_EXPIRATION: want 1m0s to 24h0m0s, not 10s"},
		},
		"a file": {[]string{"DAYFLY_OIDC_TOKEN_FILE=/t", "DAYFLY_ORGANIZATION_NAME=acme", "DAYFLY_RUNNER_POOL_ID=pool_1"}, nil},
	} {
		_, err := config.Load(config.Agent, config.Sources{Environ: append(tc.environ, url)})
		wrong, _ := errors.AsType[workflow.Mistakes](err)
		if len(wrong) != len(tc.want) {
			t.Errorf("%s: got %v, want %d mistakes", name, err, len(tc.want))
		}
		for _, part := range tc.want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("%s: got %v, want %q in it", name, err, part)
			}
		}
	}
}

func TestLoad_ATokenNeverShows(t *testing.T) {
	_, err := config.Load(config.Agent, config.Sources{Environ: []string{"DAYFLY_TOKEN=dfp secret value"}})
	if err == nil || strings.Contains(err.Error(), "secret value") {
		t.Errorf("got %v, want a refusal without the token", err)
	}
	loaded, err := config.Load(config.Agent, config.Sources{Environ: []string{"DAYFLY_TOKEN=dfp_planted", "DAYFLY_SERVICE_URL=https://10.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v", loaded, loaded.Config, loaded); strings.Contains(text, "planted") {
		t.Errorf("the token shows in %s", text)
	}
}

func TestLoad_ATokenGoesOverTLSOrToThisMachine(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://dayfly.example.com": true, "http://127.0.0.1:7331": true, "http://127.9.9.9:7331": true, "http://localhost:7331/x": true, "http://[::1]:7331": true,
		"http://dayfly.example.com": false, "http://10.0.0.5:7331": false, "http://0.0.0.0:7331": false, "http://127.0.0.1.example.com": false, "http://[fe80::1]": false,
	} {
		_, err := config.Load(config.Agent, config.Sources{Environ: []string{"DAYFLY_TOKEN=dfp_planted", "DAYFLY_SERVICE_URL=" + url}})
		if ok && err != nil || !ok && (err == nil || !strings.Contains(err.Error(), "DAYFLY_SERVICE_URL: plain http would show the token")) {
			t.Errorf("%s: got %v, taken must be %v", url, err, ok)
		}
	}
}

func TestLoad_WrongFilesAreSaidToBeWrong(t *testing.T) {
	for name, text := range map[string]string{
		"is not YAML":           "a: [",
		"more than one":         "polling_interval: 1s\n---\npolling_interval: 2s\n",
		"of the form":           "- a\n",
		"this is not a setting": strings.Repeat("# long\n", 200_000),
	} {
		_, err := config.Load(config.Up, config.Sources{File: write(t, "dayfly.yaml", text)})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%.20q: got %v, want one that says %q", text, err, name)
		}
	}
	if _, err := config.Load(config.Up, config.Sources{File: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is not there: got %v", err)
	}
}

func TestLoad_AReadableTokenFileIsNoticed(t *testing.T) {
	file := write(t, "dayfly.yaml", "token: dfp_x\nservice_url: https://x.example.com\n")
	if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // the wrong mode is what is tested
		t.Fatal(err)
	}
	got, err := config.Load(config.Agent, config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "chmod 600") {
		t.Errorf("got notices %q, want one about the mode", got.Notices)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("a: &x [1]\nsource_roots: *x\n"))
	f.Add([]byte("token: !!binary aGk=\n? [a]: b\n"))
	f.Add([]byte("<<: {a: b}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "dayfly.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(config.Up, config.Sources{File: file})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		// What was accepted keeps every bound.
		if got.PollingInterval < time.Second || got.RequestRetryCount < 0 || got.CircuitBreakerFailures < 1 ||
			got.RequestRetryMaxWait < got.RequestRetryWait || !slices.Contains([]string{"auto", "docker", "process"}, got.DeployTarget) {
			t.Errorf("accepted %+v from %q", got.Config, data)
		}
	})
}

func TestLoad_NoHookIsAllowedByAnEmptyList(t *testing.T) {
	for file, want := range map[string][]string{"concurrency: 2\n": nil, "preapproved_hooks: []\n": {"none"}, "preapproved_hooks: none\n": {"none"}} {
		got, err := config.Load(config.Up, config.Sources{File: write(t, "dayfly.yaml", file)})
		if err != nil || !slices.Equal(got.PreapprovedHooks, want) {
			t.Errorf("%s: got %q, %v", file, got.PreapprovedHooks, err)
		}
	}
	for _, file := range []string{"preapproved_hooks: lint\n", "preapproved_hooks: [none, 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08]\n"} {
		if _, err := config.Load(config.Up, config.Sources{File: write(t, "dayfly.yaml", file)}); err == nil || !strings.Contains(err.Error(), "dayfly hook digest") {
			t.Errorf("%s: got %v", file, err)
		}
	}
}
