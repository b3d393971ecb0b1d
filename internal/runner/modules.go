package runner

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// stepInit is the step in which terraform and tofu fetch modules and providers.
const stepInit = "init"

// modules are the credentials with which the engine fetches modules and providers. Their files are there only while a
// step has them, and the runner's own memory has them in between.
type modules struct {
	env   []string
	files map[string]string // by name below the directory of modules
	only  string            // the one step that gets them; empty: all of the engine's
	used  int               // steps that have them now
}

// modules resolves the credentials for modules of a spec and masks them. before is the environment of the engine, which
// may have settings of git already.
func (r *run) modules(ctx context.Context, spec api.Spec, before []string) (modules, error) {
	out := modules{files: map[string]string{}}
	if spec.Engine == api.EngineTerraform || spec.Engine == api.EngineTofu {
		out.only = stepInit
	}
	var git, ssh []string
	for i, m := range spec.Modules {
		name, ref := strconv.Itoa(i), cmp.Or(m.TokenRef, m.SSHKeyRef)
		value, err := r.resolver().Resolve(ctx, ref)
		if err != nil {
			return out, fmt.Errorf("the credential for modules of %s did not resolve: %w", m.Host, err)
		}
		secret := strings.TrimSpace(value.Reveal())
		if r.hidden.Add(secret) > 0 {
			r.logf("the credential for modules of %s has fewer than %d characters and cannot be masked", m.Host, mask.MinLength)
		}
		switch {
		case secret == "" || strings.ContainsRune(secret, 0):
			return out, fmt.Errorf("the credential for modules of %s is empty or has a zero byte", m.Host)
		case m.SSHKeyRef != "":
			out.files[name], out.files[name+".known_hosts"] = secret+"\n", m.KnownHosts+"\n"
			host, _, err := net.SplitHostPort(m.Host)
			if err != nil {
				host = m.Host
			}
			ssh = append(ssh, sshHost(host, r.dirs.module(name)))
		case strings.ContainsAny(secret, "\r\n"):
			return out, fmt.Errorf("the credential for modules of %s holds more than one line", m.Host)
		default:
			user := cmp.Or(m.Username, "x-access-token")
			r.hidden.Add(base64.StdEncoding.EncodeToString([]byte(user + ":" + secret)))
			out.env = append(out.env, registryVariable(m.Host)+"="+secret)
			out.files[name] = "username=" + user + "\npassword=" + secret + "\n"
			key := "credential.https://" + strings.ToLower(m.Host) + ".helper"
			// The empty one takes away the helpers of the machine, which would keep the token.
			git = append(git, key, "", key, "!f() { test \"$1\" != get || cat "+shellWord(r.dirs.module(name))+"; }; f")
		}
	}
	if len(git) > 0 {
		out.env = append(append(out.env, "GIT_TERMINAL_PROMPT=0"), gitSettings(before, git)...)
	}
	if len(ssh) > 0 {
		out.files["ssh_config"] = strings.Join(ssh, "") + "Host *\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
		out.env = append(out.env, "GIT_SSH_COMMAND=ssh -F "+shellWord(r.dirs.module("ssh_config")))
	}
	return out, nil
}

// registryVariable is the name of the variable in which terraform and tofu look for the token of a host.
func registryVariable(host string) string {
	return "TF_TOKEN_" + strings.NewReplacer(".", "_", "-", "__").Replace(strings.TrimSuffix(strings.ToLower(host), ":443"))
}

// gitSettings are the variables that add settings to git's configuration, after those that the environment has.
func gitSettings(env, pairs []string) []string {
	n, err := strconv.Atoi(lookIn(env)("GIT_CONFIG_COUNT"))
	if err != nil || n < 0 {
		n = 0
	}
	var out []string
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, pair[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, pair[1]))
		n++
	}
	return append(out, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

// sshHost is what a configuration of ssh says of one host.
func sshHost(host, key string) string {
	key = strings.ReplaceAll(key, "%", "%%") // ssh replaces what follows a single one
	return fmt.Sprintf("Host %s\n  IdentityFile \"%s\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile \"%s.known_hosts\"\n  GlobalKnownHostsFile /dev/null\n", host, key, key)
}

// shellWord makes one word for a shell.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// withModules does a step with the credentials for modules, where it gets them. They are gone when it has ended.
func (h *host) withModules(ctx context.Context, step string, fn func(ctx context.Context) (string, error)) (string, error) {
	m, d := &h.modules, &h.r.dirs
	if len(m.env) == 0 || step == stepSource || m.only != "" && m.only != step {
		return fn(ctx)
	}
	if m.used++; m.used == 1 { // a step may have others in it
		defer func() { logRemoval(h.r.log, disk.RemoveTree(d.modules)) }()
		for name, content := range m.files {
			if err := d.write(d.modules, name, content, h.r.owner()); err != nil {
				return "", fmt.Errorf("the credentials for modules cannot be written: %w", err)
			}
		}
	}
	defer func() { m.used-- }()
	h.lent = append(slices.Clip(h.lent), m.env...)
	return fn(ctx)
}

// module is the path of a file of the credentials for modules.
func (d *dirs) module(name string) string { return filepath.Join(d.modules, name) }
