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
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// stepInit is the step in which terraform and tofu fetch modules and providers.
const stepInit = "init"

// modules are the credentials with which the engine fetches modules and providers. Their files are there only while a
// step has them, and the runner's own memory has them in between.
type modules struct {
	env   []string
	files []resolved // below the directory of modules
	only  string     // the one step that gets them; empty: all of the engine's
}

func (m *modules) file(name, content string) {
	m.files = append(m.files, resolved{api.Secret{File: name}, redact.New(content)})
}

// goTo reports whether a step gets the credentials.
func (m *modules) goTo(step string) bool { return m.only == "" || m.only == step }

// modules resolves the credentials for modules of a spec and masks them. before is the environment of the engine, which
// may have settings of git already.
func (r *run) modules(ctx context.Context, spec api.Spec, before []string) (modules, error) {
	out := modules{}
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
			out.file(name, secret+"\n")
			out.file(name+".known_hosts", m.KnownHosts+"\n")
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
			out.env = append(out.env, engine.TokenVariable(m.Host)+"="+secret)
			out.file(name, "username="+user+"\npassword="+secret+"\n")
			key := "credential.https://" + strings.ToLower(m.Host) + ".helper"
			// The empty one takes away the helpers of the machine, which would keep the token.
			git = append(git, key, "", key, "!f() { test \"$1\" != get || cat "+text.ShellWord(r.dirs.module(name))+"; }; f")
		}
	}
	if len(git) > 0 {
		out.env = append(append(out.env, "GIT_TERMINAL_PROMPT=0"), gitSettings(before, git)...)
	}
	if len(ssh) > 0 {
		out.file("ssh_config", strings.Join(ssh, "")+"Host *\n  StrictHostKeyChecking yes\n  BatchMode yes\n")
		out.env = append(out.env, "GIT_SSH_COMMAND=ssh -F "+text.ShellWord(r.dirs.module("ssh_config")))
	}
	return out, nil
}

// gitSettings are the variables that add settings to git's configuration, after those that the environment has.
func gitSettings(env, pairs []string) []string {
	n, err := strconv.Atoi(lookIn(env, "GIT_CONFIG_COUNT"))
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

// sshHost is the configuration of ssh for one host.
func sshHost(host, key string) string {
	key = strings.ReplaceAll(key, "%", "%%") // ssh replaces the text after a single one
	return fmt.Sprintf("Host %s\n  IdentityFile \"%s\"\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile \"%s.known_hosts\"\n  GlobalKnownHostsFile /dev/null\n", host, key, key)
}

// module is the path of a file of the credentials for modules.
func (d *dirs) module(name string) string { return filepath.Join(d.modules, name) }
