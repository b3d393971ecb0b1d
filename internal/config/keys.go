package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agext/levenshtein"

	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// key is one setting: how its value is written, and where it goes.
type key struct {
	name string
	sep  string                                 // of a list, the separators of its values in the environment and in flags; empty: one value
	set  func(c *Config, values []string) error // a key that is not a list gets exactly one value
	// use is the only one for which it acts, and why says why; empty: it acts for all.
	use Use
	why string
	// only and never name a deploy target: the one with which it acts, the one with which it does not.
	only, never string
	words       []string // the values that it takes; empty: set decides
}

// keys are the settings that act, in the order in which people read them.
var keys = []key{
	{name: "token", use: Agent, why: "it makes a token of its own", set: single(func(c *Config, v string) error {
		if v == "" || strings.ContainsAny(v, " \t\r\n") {
			return errors.New("want a pool token without spaces")
		}
		c.Token = redact.New(v)
		return nil
	})},
	{name: "oidc_token_file", use: Agent, why: "it makes a token of its own", set: single(func(c *Config, v string) error { return path(&c.OIDCTokenFile, v) })},
	{name: "organization_name", use: Agent, why: "it has one organization", set: matching(func(c *Config) *string { return &c.OrganizationName }, plainName, "the name of an organization, such as default")},
	{name: "runner_pool_id", use: Agent, why: "it has a pool of its own", set: matching(func(c *Config) *string { return &c.RunnerPoolID }, plainName, "the id of a pool, as dayfly pool show prints it")},
	{name: "token_expiration", use: Agent, why: "it makes a token of its own", set: duration(func(c *Config) *time.Duration { return &c.TokenExpiration }, time.Minute, 24*time.Hour)},
	{name: "service_url", use: Agent, why: "it is its own control plane", set: single(func(c *Config, v string) error {
		c.ServiceURL = strings.TrimRight(v, "/")
		return CheckControlPlane(v)
	})},
	{name: "working_directory", set: single(func(c *Config, v string) error { return path(&c.WorkingDirectory, v) })},
	{name: "deploy_target", words: []string{TargetAuto, TargetDocker, TargetProcess, TargetECS}, set: single(func(c *Config, v string) error {
		if v == "kubernetes" {
			return fmt.Errorf("%s is not in this version: use %s, %s, %s or %s", v, TargetAuto, TargetDocker, TargetProcess, TargetECS)
		}
		c.DeployTarget = v
		return nil
	})},
	{name: "runner_image", never: TargetECS, set: matching(func(c *Config) *string { return &c.RunnerImage }, image, "the name of an image, such as dayfly-runner:v1")},
	{name: "images", sep: ", \t\n", set: images},
	{name: "disk_quota", never: TargetECS, set: number(func(c *Config) *int { return &c.DiskQuota }, 0, 100_000)},
	{name: "max_disk", set: number(func(c *Config) *int { return &c.MaxDisk }, 0, 100_000)},
	{name: "runner_network", never: TargetECS, words: []string{NetworkOutbound, NetworkNone}, set: single(func(c *Config, v string) error { c.RunnerNetwork = v; return nil })},
	{name: "shared_volume_directory", never: TargetECS, set: single(func(c *Config, v string) error { return path(&c.SharedVolumeDirectory, v) })},
	{name: "pull_image", never: TargetECS, set: single(func(c *Config, v string) error { return truth(&c.PullImage, v) })},
	{name: "single_run", use: Agent, why: "it serves until it is stopped", set: single(func(c *Config, v string) error { return truth(&c.SingleRun, v) })},
	{name: "concurrency", set: number(func(c *Config) *int { return &c.Concurrency }, 0, 1000)},
	{name: "enabled_workflow_types", sep: ",", set: types},
	{name: "env_forward_allowlist", never: TargetECS, sep: ", \t\n", set: variables},
	{name: "additional_binary_paths", never: TargetECS, sep: string(os.PathListSeparator), set: paths(func(c *Config) *[]string { return &c.AdditionalBinaryPaths })},
	{name: "engine_downloads", never: TargetECS, sep: ",", words: []string{"terraform", "tofu"}, set: func(c *Config, values []string) error { c.EngineDownloads = slices.Clone(values); return nil }},
	{name: "provider_cache", never: TargetECS, set: single(func(c *Config, v string) error { return truth(&c.ProviderCache, v) })},
	{name: "provider_cache_size", never: TargetECS, set: number(func(c *Config) *int { return &c.ProviderCacheSize }, 1, 100_000)},
	{name: "source_roots", never: TargetECS, sep: string(os.PathListSeparator), set: paths(func(c *Config) *[]string { return &c.SourceRoots })},
	{name: "preapproved_hooks", never: TargetECS, sep: ",", set: hooks},
	{name: "vault_address", never: TargetECS, set: single(func(c *Config, v string) error {
		if c.VaultAddress = strings.TrimRight(v, "/"); inClear(v) {
			return errors.New("plain http would show the token to others on the network: want an https address, or one of this machine such as http://127.0.0.1:8200")
		}
		return checkURL(v)
	})},
	{name: "vault_namespace", never: TargetECS, set: matching(func(c *Config) *string { return &c.VaultNamespace }, vaultPath, "a namespace of Vault, such as team/infra")},
	{name: "vault_token_file", never: TargetECS, set: single(func(c *Config, v string) error { return path(&c.VaultTokenFile, v) })},
	{name: "private_deliveries", sep: ",", set: func(c *Config, values []string) error {
		c.PrivateDeliveries = values
		_, err := outbound.ReadPrivate(values)
		return err
	}},
	{name: "polling_interval", set: duration(func(c *Config) *time.Duration { return &c.PollingInterval }, time.Second, time.Hour)},
	{name: "polling_interval_override", use: Agent, why: "it is its own control plane", set: single(func(c *Config, v string) error { return truth(&c.PollingIntervalOverride, v) })},
	{name: "job_status_loop_interval", set: duration(func(c *Config) *time.Duration { return &c.JobStatusLoopInterval }, time.Second, 10*time.Minute)},
	{name: "request_timeout", set: duration(func(c *Config) *time.Duration { return &c.RequestTimeout }, time.Second, 10*time.Minute)},
	{name: "request_retry_count", set: number(func(c *Config) *int { return &c.RequestRetryCount }, 0, 20)},
	{name: "request_retry_wait", set: duration(func(c *Config) *time.Duration { return &c.RequestRetryWait }, time.Millisecond, time.Hour)},
	{name: "request_retry_max_wait", set: duration(func(c *Config) *time.Duration { return &c.RequestRetryMaxWait }, time.Millisecond, time.Hour)},
	{name: "circuit_breaker_failures", set: number(func(c *Config) *int { return &c.CircuitBreakerFailures }, 1, 1000)},
	{name: "circuit_breaker_timeout", set: duration(func(c *Config) *time.Duration { return &c.CircuitBreakerTimeout }, time.Second, 24*time.Hour)},

	{name: "http_server_address", use: Agent, why: "its control plane has /healthz", set: single(func(c *Config, v string) error {
		if c.HTTPServerAddress = v; v != "localhost" && net.ParseIP(v) == nil {
			return fmt.Errorf("want an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them, not %q", clip(v))
		}
		return nil
	})},
	{name: "http_server_port", use: Agent, why: "its control plane has /healthz", set: number(func(c *Config) *int { return &c.HTTPServerPort }, 0, 65535)},
	{name: "health_threshold", use: Agent, why: "its control plane has /healthz", set: duration(func(c *Config) *time.Duration { return &c.HealthThreshold }, time.Second, 24*time.Hour)},
	{name: "log_level", words: []string{"debug", "info", "warn", "error"}, set: single(func(c *Config, v string) error { c.LogLevel = v; return nil })},
	{name: "log_jobs", set: single(func(c *Config, v string) error { return truth(&c.LogJobs, v) })},
	{name: "syslog", set: single(func(c *Config, v string) error { return truth(&c.Syslog, v) })},

	{name: "relay_url", only: TargetECS, set: single(func(c *Config, v string) error { c.RelayURL = strings.TrimRight(v, "/"); return checkURL(v) })},
	{name: "relay_listen", only: TargetECS, set: single(listen)},
	{name: "relay_cert", only: TargetECS, set: single(func(c *Config, v string) error { return path(&c.RelayCert, v) })},
	{name: "relay_key", only: TargetECS, set: single(func(c *Config, v string) error { return path(&c.RelayKey, v) })},
	{name: "relay_insecure", only: TargetECS, set: single(func(c *Config, v string) error { return truth(&c.RelayInsecure, v) })},
	{name: "cluster", only: TargetECS, set: matching(func(c *Config) *string { return &c.Cluster }, awsName, "the name or ARN of a cluster")},
	{name: "task_definition", only: TargetECS, set: matching(func(c *Config) *string { return &c.TaskDefinition }, awsName, "FAMILY, FAMILY:REVISION or the ARN of a task definition")},
	{name: "container", only: TargetECS, set: matching(func(c *Config) *string { return &c.Container }, awsName, "the name of the runner's container in the task definition")},
	{name: "subnets", only: TargetECS, sep: ",", set: ids(func(c *Config) *[]string { return &c.Subnets }, "subnet-", 16)},
	{name: "security_groups", only: TargetECS, sep: ",", set: ids(func(c *Config) *[]string { return &c.SecurityGroups }, "sg-", 5)},
	{name: "assign_public_ip", only: TargetECS, set: single(func(c *Config, v string) error { return truth(&c.AssignPublicIP, v) })},
	{name: "spot", only: TargetECS, words: []string{SpotNever, SpotReads, SpotAll}, set: single(func(c *Config, v string) error { c.Spot = v; return nil })},
	{name: "launch_rate", only: TargetECS, set: single(func(c *Config, v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(n > 0 && n <= 100) {
			return fmt.Errorf("want launches a second, above 0 and at most 100, not %q", clip(v))
		}
		c.LaunchRate = n
		return nil
	})},

	{name: "private_issuers", use: Up, why: "it is not a control plane", sep: ",", set: func(c *Config, values []string) error {
		c.PrivateIssuers = values // the server checks their form
		if slices.Contains(values, "") {
			return errors.New("want hosts, addresses or networks such as 10.1.0.0/16")
		}
		return nil
	}},
	{name: "listen", use: Up, why: "it is not a control plane", set: single(func(c *Config, v string) error {
		c.Listen = v
		if _, _, err := net.SplitHostPort(v); err != nil {
			return fmt.Errorf("want HOST:PORT, such as 127.0.0.1:7331, not %q", clip(v))
		}
		return nil
	})},
}

// elsewhere are settings of other agents that have another name here, or none, with what to do instead.
var elsewhere = map[string]string{
	"image":                       "is runner_image here: rename it",
	"image_pull_policy":           "is pull_image here, true or false: rename it",
	"workflow_runners_directory":  "does nothing here, because the runner is part of this program: remove it",
	"workflow_runners_embeddable": "does nothing here, because the runner is part of this program: remove it",
}

// asksNothing reports whether a setting in a fallback file or variable can be ignored: one without a value, or the
// version of the agent that the file was written for.
func asksNothing(name, value string) bool { return value == "" || name == "version" }

func find(name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// Keys lists the settings that act for a use.
func Keys(use Use) []string {
	var names []string
	for _, k := range keys {
		if k.refusal(use) == "" {
			names = append(names, k.name)
		}
	}
	return names
}

// refusal says why a key does nothing for a use; empty means that it acts.
func (k key) refusal(use Use) string {
	if k.use == "" || k.use == use {
		return ""
	}
	return fmt.Sprintf("does nothing for dayfly %s (%s): remove it", use, k.why)
}

// unknown words the mistake of a name that is not a key, and reports whether it is close to one that is.
func unknown(name string) (message string, near bool) {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	if instead, ok := elsewhere[name]; ok {
		return instead, true
	}
	if best := Nearest(name, names); best != "" {
		return "unknown key: did you mean " + best + "?", true
	}
	return "unknown key: remove it", false
}

// Nearest returns the name that a misspelled one probably stands for; empty if none is close.
func Nearest(name string, among []string) string {
	best, distance := "", 3
	for _, one := range among {
		if d := levenshtein.Distance(text.Head(name, 64), one, nil); d < distance { // long names are slow
			best, distance = one, d
		}
	}
	return best
}

func single(set func(*Config, string) error) func(*Config, []string) error {
	return func(c *Config, values []string) error { return set(c, values[0]) }
}

func duration(field func(*Config) *time.Duration, shortest, longest time.Duration) func(*Config, []string) error {
	return func(c *Config, values []string) error {
		d, err := time.ParseDuration(values[0])
		if err != nil {
			hint := ""
			if _, err := strconv.Atoi(values[0]); err == nil && len(values[0]) < 10 {
				hint = fmt.Sprintf(": a unit is missing, such as in %ss", values[0])
			}
			return fmt.Errorf("want a duration such as 30s or 2m, not %q%s", clip(values[0]), hint)
		}
		if d < shortest || d > longest {
			return fmt.Errorf("want %s to %s, not %s", shortest, longest, d)
		}
		*field(c) = d
		return nil
	}
}

func number(field func(*Config) *int, low, high int) func(*Config, []string) error {
	return func(c *Config, values []string) error {
		n, err := strconv.Atoi(values[0])
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d, not %q", low, high, clip(values[0]))
		}
		*field(c) = n
		return nil
	}
}

func types(c *Config, values []string) error {
	c.EnabledWorkflowTypes = nil
	for _, v := range values {
		t := workflow.Type(v)
		if !slices.Contains(workflow.Types(), t) {
			return fmt.Errorf("want some of %v, not %q", workflow.Types(), clip(v))
		}
		if !slices.Contains(c.EnabledWorkflowTypes, t) {
			c.EnabledWorkflowTypes = append(c.EnabledWorkflowTypes, t)
		}
	}
	if len(values) == 0 {
		return errors.New("is empty, which would claim nothing: leave the key out to claim all")
	}
	return nil
}

// awsName checks the characters of an AWS name or ARN; the launcher checks its form.
var awsName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_:/.-]{1,512}$`) })

// plainName is the form of names and ids.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`) })

// vaultPath is the form of the path of a namespace.
var vaultPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_./-]{1,255}$`) })

// matching reads one value that must match a form.
func matching(field func(*Config) *string, form func() *regexp.Regexp, want string) func(*Config, []string) error {
	return single(func(c *Config, v string) error {
		if *field(c) = v; !form().MatchString(v) {
			return fmt.Errorf("want %s, not %q", want, clip(v))
		}
		return nil
	})
}

// apply sets a value of the key, or the values of a list.
func (k key) apply(c *Config, values []string) error {
	if err := k.set(c, values); err != nil || len(k.words) == 0 {
		return err
	}
	for _, v := range values {
		if !slices.Contains(k.words, v) {
			last := len(k.words) - 1
			return fmt.Errorf("want %s or %s, not %q", strings.Join(k.words[:last], ", "), k.words[last], clip(v))
		}
	}
	return nil
}

func truth(field *bool, v string) (err error) {
	if *field, err = strconv.ParseBool(v); err != nil {
		return fmt.Errorf("want true or false, not %q", clip(v))
	}
	return nil
}

var resourceID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]+-[0-9a-f]{8,32}$`) })

// ids reads a list of ids of one kind, without duplicates.
func ids(field func(*Config) *[]string, prefix string, limit int) func(*Config, []string) error {
	return func(c *Config, values []string) error {
		*field(c) = slices.Clone(values)
		if len(values) == 0 || len(values) > limit {
			return fmt.Errorf("want 1 to %d ids such as %s0123456789abcdef0, not %d", limit, prefix, len(values))
		}
		for i, v := range values {
			switch {
			case !strings.HasPrefix(v, prefix) || !resourceID().MatchString(v):
				return fmt.Errorf("want ids such as %s0123456789abcdef0, not %q", prefix, clip(v))
			case slices.Contains(values[:i], v):
				return fmt.Errorf("%s is given twice", v)
			}
		}
		return nil
	}
}

// listen is an address of this machine; no host means all of its addresses.
func listen(c *Config, v string) error {
	c.RelayListen = v
	host, port, err := net.SplitHostPort(v)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 1 || n > 65535 || host != "" && host != "localhost" && net.ParseIP(host) == nil {
		return fmt.Errorf("want an address of this machine such as :8180 or 10.0.0.5:8180, not %q", clip(v))
	}
	return nil
}

// image is a form of image names that every container engine takes.
var image = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._:/@-]{0,254}$`) })

// images reads NAME=IMAGE of each. The form of an image depends on the target, and its launcher checks that too.
func images(c *Config, values []string) error {
	c.Images = map[string]string{}
	for _, v := range values {
		name, ref, _ := strings.Cut(v, "=")
		if !plainName().MatchString(name) || !image().MatchString(ref) && !awsName().MatchString(ref) {
			return fmt.Errorf("want NAME=IMAGE, or NAME=TASK_DEFINITION with deploy_target ecs, not %q", clip(v))
		}
		if c.Images[name] != "" {
			return fmt.Errorf("%s is given twice", name)
		}
		c.Images[name] = ref
	}
	return nil
}

func variables(c *Config, values []string) error {
	c.EnvForwardAllowlist = nil
	for _, v := range values {
		switch {
		case !env.Valid(v):
			return fmt.Errorf("want names of variables, not %q", clip(v))
		case env.Ours(v):
			return fmt.Errorf("%s begins with "+env.Prefix+", which is reserved: it cannot be forwarded", v)
		}
		c.EnvForwardAllowlist = append(c.EnvForwardAllowlist, v)
	}
	return nil
}

// hooks are the only ones that may run. An empty list is one too, and must not become none at all.
func hooks(c *Config, values []string) error {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	if len(values) == 0 {
		values = []string{task.NoHooks}
	}
	for _, v := range values {
		if !digest().MatchString(v) && (v != task.NoHooks || len(values) > 1) {
			return fmt.Errorf("want the digests that dayfly hook digest prints, or %s alone, not %q", task.NoHooks, clip(v))
		}
	}
	c.PreapprovedHooks = values
	return nil
}

var digest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// paths reads a list of paths.
func paths(field func(*Config) *[]string) func(*Config, []string) error {
	return func(c *Config, values []string) error {
		*field(c) = nil
		for _, v := range values {
			var p string
			if err := path(&p, v); err != nil {
				return err
			}
			*field(c) = append(*field(c), p)
		}
		return nil
	}
}

// path makes a path absolute, so that it means the same after a change of directory. ~ is the home directory: no shell
// has expanded it.
func path(to *string, v string) error {
	if v == "" || strings.ContainsRune(v, 0) {
		return errors.New("want a path")
	}
	if rest, ok := strings.CutPrefix(v, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("%s means the home directory, which is not known: set HOME, or write the whole path", v)
		}
		v = filepath.Join(home, rest)
	}
	abs, err := filepath.Abs(v)
	if err != nil {
		return fmt.Errorf("cannot be made absolute: %w", err)
	}
	*to = abs
	return nil
}

func checkURL(v string) error {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("want an address such as https://dayfly.example.com, not %q", clip(v))
	case u.User != nil:
		return errors.New("must not contain credentials: put the token under token")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("want an address without ? and #")
	}
	return nil
}

// CheckControlPlane refuses an address that cannot be a control plane's, or where others could read the token.
func CheckControlPlane(address string) error {
	if inClear(address) {
		return errors.New("plain http would show the token to others on the network: want an https address, or one of this machine such as http://127.0.0.1:7331")
	}
	return checkURL(address)
}

// inClear reports whether others could read data that is sent to an address.
func inClear(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	return !outbound.Loopback(u.Hostname())
}

func clip(s string) string { return text.Cut(s, 60) }
