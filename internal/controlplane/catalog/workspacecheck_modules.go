package catalog

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// checkVersion checks the version of a git source, which stands instead of a ref.
func checkVersion(g *api.GitSource) error {
	const field = "source.git.version"
	if g.Version == "" {
		return nil
	}
	if g.Ref != "" {
		return workflow.Invalid(field, "set either ref or version, not both")
	}
	if _, err := version.NewConstraint(g.Version); err != nil || len(g.Version) > 100 {
		return workflow.Invalid(field, "%q is not a version or a constraint, such as 1.4.2 or ~> 1.4", text.Cut(g.Version, 40))
	}
	return nil
}

const maxModules = 20

// moduleHost is the form of a host's name. One with other letters is written in punycode.
var moduleHost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
})

func checkModules(all []api.ModuleCredential) error {
	if len(all) > maxModules {
		return workflow.Invalid("modules", "a workspace has at most %d credentials for modules", maxModules)
	}
	seen := map[string]bool{}
	for i, m := range all {
		field := fmt.Sprintf("modules[%d]", i)
		key, err := checkModule(field, m)
		if err != nil {
			return err
		}
		if seen[key] {
			return workflow.Invalid(field+".host", "%s is named twice; a host has one token, and one key for ssh on all of its ports", m.Host)
		}
		seen[key] = true
	}
	return nil
}

// checkModule checks a credential, and returns a key that no other credential may have.
func checkModule(field string, m api.ModuleCredential) (key string, err error) {
	host := strings.ToLower(m.Host)
	name, port, hasPort := host, "", strings.Contains(host, ":")
	if hasPort {
		name, port, err = net.SplitHostPort(host)
	}
	n, portErr := strconv.ParseUint(port, 10, 16)
	switch ssh := m.SSHKeyRef != ""; {
	case err != nil, len(host) > 255, !moduleHost().MatchString(name), hasPort && (portErr != nil || n == 0):
		return "", workflow.Invalid(field+".host", "%q is not the name of a host, such as modules.example.com or git.example.com:8443; a name with other letters is written in punycode (xn--...)", text.Cut(m.Host, 80))
	case (m.TokenRef == "") == !ssh:
		return "", workflow.Invalid(field, "set either token_ref or ssh_key_ref, not both")
	case ssh && strings.TrimSpace(m.KnownHosts) == "":
		return "", workflow.Invalid(field+".known_hosts", "ssh needs the host's line of a known_hosts file, so that no other host can pose as it")
	case !ssh && m.KnownHosts != "":
		return "", workflow.Invalid(field+".known_hosts", "known_hosts goes with ssh_key_ref")
	case m.Username != "" && (ssh || strings.ContainsAny(m.Username, "\r\n\x00")):
		return "", workflow.Invalid(field+".username", "a user name goes with token_ref, and has one line")
	case ssh:
		return "ssh " + name, CheckRef(field+".ssh_key_ref", m.SSHKeyRef)
	}
	return "https " + strings.TrimSuffix(host, ":443"), CheckRef(field+".token_ref", m.TokenRef)
}
