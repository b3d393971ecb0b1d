package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Sources say where settings are looked for.
type Sources struct {
	// File is the file to read; it must exist. Empty means the first FileName in Dirs, else the
	// first FallbackFileName there, else none.
	File string
	Dirs []string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Flags are the flags that were given, by key. They win over everything.
	Flags map[string]Flag
}

// Flag is a setting on a command line.
type Flag struct{ Name, Value string }

// SearchPath returns the directories in which the file is looked for.
func SearchPath(getenv func(string) string) []string {
	var dirs []string
	if cwd, err := os.Getwd(); err == nil {
		dirs = append(dirs, cwd)
	}
	if home := getenv("HOME"); home != "" {
		dirs = append(dirs, home)
	}
	dirs = append(dirs, "/etc")
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(exe))
	}
	return dirs
}

// Loaded is the result of Load.
type Loaded struct {
	Config
	File string // the file that was read; empty: none
	// Notices are one-line messages for the person who starts the command.
	Notices []string
}

// Load reads the settings for a use. Its error is workflow.Mistakes unless a file could not be read.
func Load(use Use, from Sources) (Loaded, error) {
	l := loader{use: use, where: map[string]string{}}
	l.out.Config = Default()
	if err := l.file(from); err != nil {
		return Loaded{}, err
	}
	l.environment(from.Environ)
	if len(l.passed) > 0 {
		l.out.Notices = append(l.out.Notices, "ignored, because they ask for nothing: "+strings.Join(l.passed, ", "))
	}
	l.flags(from.Flags)
	l.together()
	if err := l.mistakes.Err(); err != nil {
		return Loaded{}, err
	}
	return l.out, nil
}

type loader struct {
	use      Use
	out      Loaded
	where    map[string]string // key: where its value came from
	mistakes workflow.Mistakes
	passed   []string // names of fallback settings that ask for nothing
}

// wrong records a mistake in a key, or in a whole file, and where it is: file and line, variable, flag or nowhere.
func (l *loader) wrong(name, where, format string, args ...any) {
	switch {
	case where == "":
		where = name
	case name != "" && strings.Contains(where, ":"): // a file and a line; variables and flags name their key
		where += ": " + name
	}
	l.mistakes.Add(where, format, args...)
}

// set applies a value of a key that acts. A mistake in a value that a later source overrides is still a mistake.
func (l *loader) set(k *key, where string, values []string) {
	if why := k.refusal(l.use); why != "" {
		l.wrong(k.name, where, "%s", why)
		return
	}
	l.where[k.name] = where
	if err := k.apply(&l.out.Config, values); err != nil {
		l.wrong(k.name, where, "%s", err)
	}
}

func (k key) split(v string) []string {
	if k.sep == "" {
		return []string{v}
	}
	var values []string
	for one := range strings.FieldsFuncSeq(v, func(r rune) bool { return strings.ContainsRune(k.sep, r) }) {
		if one = strings.TrimSpace(one); one != "" {
			values = append(values, one)
		}
	}
	return values
}

func (l *loader) file(from Sources) error {
	name := from.File
	if name == "" {
		name = first(from.Dirs, FileName)
	}
	if name == "" {
		if name = first(from.Dirs, FallbackFileName); name != "" {
			l.out.Notices = append(l.out.Notices, fmt.Sprintf("reading %s; rename it to %s", name, FileName))
		}
	}
	if name == "" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	const maxFile = 1 << 20
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("read the settings in %s: %w", name, err)
	}
	if len(data) > maxFile {
		l.wrong("", name, "has more than %d bytes: this is not a settings file", maxFile)
		return nil
	}
	l.out.File = name
	l.yaml(name, data, filepath.Base(name) == FallbackFileName)
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o044 != 0 && strings.HasPrefix(l.where["token"], name) {
		l.out.Notices = append(l.out.Notices, fmt.Sprintf("%s holds a token and others can read it: chmod 600 %s", name, name))
	}
	return nil
}

func first(dirs []string, name string) string {
	for _, d := range dirs {
		p := filepath.Join(d, name)
		info, err := os.Stat(p)
		// A file that exists and cannot be examined is chosen too: reading it says why.
		if err == nil && info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return p
		}
	}
	return ""
}

// yaml reads one document: a mapping of keys to values, each key once. It is foreign if it has the fallback name.
func (l *loader) yaml(name string, data []byte, foreign bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			l.wrong("", name, "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		return
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		l.wrong("", name, "has more than one document: keep one")
		return
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		l.wrong("", at(name, root), "want lines of the form key: value")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		kn, vn := root.Content[i], root.Content[i+1]
		where := at(name, kn)
		k := find(kn.Value)
		if line, twice := seen[kn.Value]; twice {
			l.wrong(clip(kn.Value), where, "is given twice, first in line %d", line)
			continue
		}
		seen[kn.Value] = kn.Line
		if foreign && vn.Kind == yaml.ScalarNode && asksNothing(kn.Value, vn.Value) {
			l.passed = append(l.passed, kn.Value)
			continue
		}
		if k == nil {
			message, _ := unknown(kn.Value)
			l.wrong(clip(kn.Value), where, "%s", message)
			continue
		}
		values, err := values(*k, vn)
		if err != nil {
			l.wrong(k.name, at(name, vn), "%s", err)
			continue
		}
		l.set(k, at(name, vn), values)
	}
}

func at(name string, n *yaml.Node) string { return fmt.Sprintf("%s:%d", name, n.Line) }

func values(k key, n *yaml.Node) ([]string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil, errors.New("has no value: give one or remove the line")
	case n.Kind == yaml.ScalarNode:
		return k.split(n.Value), nil
	case n.Kind != yaml.SequenceNode || k.sep == "":
		if k.sep != "" {
			return nil, errors.New("want a list")
		}
		return nil, errors.New("want a single value")
	}
	list := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return nil, errors.New("want a list of plain values")
		}
		list = append(list, item.Value)
	}
	return list, nil
}

// environment reads DAYFLY_ variables, and fallback names where there is no such variable. An unknown variable
// is refused only if it looks like a key: other programs set names with our prefix too (Kubernetes does for a
// service called dayfly).
func (l *loader) environment(environ []string) {
	own, fallback := map[string]string{}, map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if n, ok := strings.CutPrefix(name, env.Prefix); ok {
			own[strings.ToLower(n)] = value
		} else if n, ok := strings.CutPrefix(name, fallbackEnvPrefix); ok {
			fallback[strings.ToLower(n)] = value
		}
	}
	var old []string
	for _, name := range slices.Sorted(maps.Keys(fallback)) {
		if _, ok := own[name]; ok {
			continue
		}
		variable := fallbackEnvPrefix + strings.ToUpper(name)
		if asksNothing(name, fallback[name]) {
			l.passed = append(l.passed, variable)
			continue
		}
		old = append(old, variable)
		l.variable(name, variable, fallback[name])
	}
	if len(old) > 0 {
		l.out.Notices = append(l.out.Notices, fmt.Sprintf("reading %s; names that begin with %s win over these", strings.Join(old, ", "), env.Prefix))
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if !slices.Contains(otherVariables, name) {
			l.variable(name, env.Prefix+strings.ToUpper(name), own[name])
		}
	}
}

// otherVariables have our prefix and are not settings: those of the command line, and those of a runner.
var otherVariables = []string{
	"url", "api_token", "config", "ticket", "job", "attempt", "task", "relay", "work_dir", "state_dir",
	"gate_fd", "gate_bundle", "source_dir", "secrets_store", "secrets_dir", "engine_uid", "engine_path", "stop_grace", "relay_auth",
}

func (l *loader) variable(name, variable, value string) {
	k := find(name)
	if k == nil {
		if message, near := unknown(name); near {
			l.wrong(name, variable, "%s", message)
		}
		return
	}
	l.set(k, variable, k.split(value))
}

func (l *loader) flags(given map[string]Flag) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		where := "--" + given[name].Name
		k := find(name)
		if k == nil {
			message, _ := unknown(name)
			l.wrong(name, where, "%s", message)
			continue
		}
		if name == "token" {
			// Every user of the machine can read the arguments of a process.
			l.wrong(name, where, "must not be on a command line: put it into %s or %sTOKEN", FileName, env.Prefix)
			continue
		}
		l.set(k, where, k.split(given[name].Value))
	}
}

// together checks the keys that depend on each other.
func (l *loader) together() {
	c := l.out.Config
	if l.use == Agent {
		l.required()
	}
	if u, err := url.Parse(c.ServiceURL); err == nil && u.Hostname() == "api.pulumi.com" {
		l.wrong("service_url", l.where["service_url"], "is Pulumi Cloud, which is not a control plane of Dayfly: name the address of one, such as with %sSERVICE_URL", env.Prefix)
	}
	if (c.VaultAddress == "") != (c.VaultTokenFile == "") {
		l.wrong("vault_address", cmp.Or(l.where["vault_address"], l.where["vault_token_file"]), "a server needs a token: set both vault_address and vault_token_file")
	}
	if _, named := l.where["vault_namespace"]; named && c.VaultAddress == "" {
		l.wrong("vault_namespace", l.where["vault_namespace"], "does nothing without vault_address: remove it")
	}
	l.authority()
	l.target()
	l.relay()
	if c.RequestRetryMaxWait < c.RequestRetryWait {
		where := l.where["request_retry_max_wait"]
		if where == "" {
			where = l.where["request_retry_wait"]
		}
		l.wrong("request_retry_max_wait", where, "is %s, which is less than request_retry_wait (%s)", c.RequestRetryMaxWait, c.RequestRetryWait)
	}
	if inClear(c.RelayURL) {
		l.out.Notices = append(l.out.Notices, fmt.Sprintf("%s is not https: others on the network can read tickets and logs", c.RelayURL))
	}
}

// required checks that an agent has the keys without which it cannot work.
func (l *loader) required() {
	c := l.out.Config
	for _, must := range []struct {
		key   string
		empty bool
	}{
		{"service_url", c.ServiceURL == ""},
		{"organization_name", c.OIDCTokenFile != "" && c.OrganizationName == ""},
		{"runner_pool_id", c.OIDCTokenFile != "" && c.RunnerPoolID == ""},
		{"relay_url", c.DeployTarget == TargetECS && c.RelayURL == ""},
		{"cluster", c.DeployTarget == TargetECS && c.Cluster == ""},
		{"task_definition", c.DeployTarget == TargetECS && c.TaskDefinition == ""},
		{"subnets", c.DeployTarget == TargetECS && len(c.Subnets) == 0},
	} {
		if _, given := l.where[must.key]; must.empty && !given {
			l.wrong(must.key, "", "is required: set it in %s or as %s%s", FileName, env.Prefix, strings.ToUpper(must.key))
		}
	}
}

// authority checks that an agent has one source of its pool token, and nothing that is for the other one.
func (l *loader) authority() {
	file, exchanges := l.where["oidc_token_file"]
	switch token, given := l.where["token"]; {
	case l.use != Agent:
		return
	case given && exchanges:
		l.wrong("oidc_token_file", file, "excludes token (%s): an agent has one of them", token)
	case !given && !exchanges:
		l.wrong("token", "", "is required, or oidc_token_file: set it in %s or as %sTOKEN", FileName, env.Prefix)
	}
	for _, name := range []string{"organization_name", "runner_pool_id", "token_expiration"} {
		if where, given := l.where[name]; given && !exchanges {
			l.wrong(name, where, "does nothing without oidc_token_file: remove it")
		}
	}
}

// relay refuses to take the calls of tasks in clear text from other machines, unless that is wanted: they carry
// tickets, logs and results.
func (l *loader) relay() {
	c := l.out.Config
	if c.DeployTarget != TargetECS || l.use != Agent || c.RelayURL == "" {
		return
	}
	host, _, _ := net.SplitHostPort(c.RelayListen)
	switch {
	case (c.RelayCert == "") != (c.RelayKey == ""):
		l.wrong("relay_cert", cmp.Or(l.where["relay_cert"], l.where["relay_key"]), "a certificate needs its key: set both relay_cert and relay_key")
	case c.RelayCert != "" && strings.HasPrefix(c.RelayURL, "http:"):
		l.wrong("relay_url", l.where["relay_url"], "must begin with https://, because the relay speaks TLS with relay_cert")
	case c.RelayCert == "" && !outbound.Loopback(host) && !c.RelayInsecure:
		l.wrong("relay_cert", "", "is required: tasks would send tickets, logs and results to this agent in clear text; set relay_cert and relay_key,"+
			" or relay_insecure: true where a proxy that has TLS is in front and nobody else reaches %s", c.RelayListen)
	}
}

// target refuses keys that do nothing with the deploy target, and a target that is not for this use.
func (l *loader) target() {
	target := l.out.DeployTarget
	if target == TargetECS && l.use != Agent {
		l.wrong("deploy_target", l.where["deploy_target"], "%s is for dayfly %s, with a control plane that tasks can reach: dayfly %s uses %s, %s or %s", TargetECS, Agent, l.use, TargetAuto, TargetDocker, TargetProcess)
	}
	for _, k := range keys {
		where, given := l.where[k.name]
		switch {
		case !given:
		case k.only != "" && k.only != target:
			l.wrong(k.name, where, "does nothing with deploy_target %s: it is for %s only: remove it", target, k.only)
		case k.never != "" && k.never == target:
			l.wrong(k.name, where, "does nothing with deploy_target %s, where the task definition sets it: remove it", target)
		}
	}
	if u, err := url.Parse(l.out.RelayURL); err == nil && target == TargetECS && l.out.RelayListen == "" {
		l.out.RelayListen = ":" + cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
}
