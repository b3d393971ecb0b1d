package source

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// address is the parsed URL of a repository.
type address struct {
	scheme string // https, http or ssh
	user   string // with ssh
	host   string // with its port, where one is given
	path   string
}

var scpLike = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z0-9._-]+)@([A-Za-z0-9][A-Za-z0-9.-]*):([^:].*)$`)
})

// parseURL accepts https://, ssh:// and user@host:path, and http:// for this machine itself. An address
// that may hold a password is refused without repeating it.
func parseURL(raw string) (address, error) {
	if !strings.Contains(raw, "://") {
		return parseSCP(raw)
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || hasControl(raw) {
		return address{}, refusedURL(urlForms)
	}
	if err := checkURL(u); err != nil {
		return address{}, err
	}
	a := address{scheme: u.Scheme, host: u.Host, path: u.Path}
	if u.Scheme == "ssh" {
		a.user = u.User.Username()
		if a.user == "" {
			a.user = "git"
		}
	}
	return a, nil
}

// checkURL refuses URLs that name no repository, may hold a password, or have another scheme.
func checkURL(u *url.URL) error {
	_, hasPassword := u.User.Password()
	switch {
	case hasPassword || (u.Scheme != "ssh" && u.User != nil) || u.RawQuery != "" || u.Fragment != "":
		return refusedURL("a git URL holds no credentials, query or fragment; name a secret in token_ref or ssh_key_ref")
	case u.Path == "" || u.Path == "/":
		return refusedURL("the git URL names no repository")
	case u.Scheme == "https":
	case u.Scheme == "http" && outbound.Loopback(u.Hostname()):
	case u.Scheme == "http":
		return refusedURL("http:// is refused because anybody on the network path could change the code; use https:// (http:// is accepted only for this machine itself)")
	case u.Scheme == "ssh":
	default:
		return refusedURL("git URLs of the kind %s are refused; use https:// or ssh://", quote(u.Scheme+"://"))
	}
	return nil
}

// parseSCP reads user@host:path.
func parseSCP(raw string) (address, error) {
	m := scpLike().FindStringSubmatch(raw)
	if m == nil || hasControl(raw) {
		return address{}, refusedURL(urlForms)
	}
	if strings.HasPrefix(m[3], "-") {
		return address{}, refusedURL("the path of a git URL cannot begin with -")
	}
	return address{scheme: "ssh", user: m[1], host: m[2], path: m[3]}, nil
}

const urlForms = "a git URL is written https://host/path, ssh://user@host/path or user@host:path"

func refusedURL(format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, "source.git.url", format, args...)
}

func (a address) String() string {
	if a.scheme == "ssh" {
		return fmt.Sprintf("ssh://%s@%s/%s", a.user, a.host, strings.TrimPrefix(a.path, "/"))
	}
	return a.scheme + "://" + a.host + a.path
}

// sameHost reports whether the credentials for one address may be sent to the other.
func (a address) sameHost(b address) bool {
	return a.scheme == b.scheme && strings.EqualFold(a.host, b.host)
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// checkGit refuses mistakes that can be found without asking the server.
func checkGit(g api.GitSource) (address, error) {
	a, err := parseURL(g.URL)
	if err != nil {
		return a, err
	}
	refuse := func(field, format string, args ...any) (address, error) {
		return a, workflow.Refuse(workflow.ErrInvalid, "source.git."+field, format, args...)
	}
	switch {
	case hasControl(g.Ref) || strings.HasPrefix(g.Ref, "-") || strings.Contains(g.Ref, " "):
		return refuse("ref", "%s is not a branch, tag or commit", quote(g.Ref))
	case g.Ref != "" && g.Version != "":
		return refuse("version", "set either ref or version, not both")
	case g.Path != "" && !filepath.IsLocal(filepath.FromSlash(g.Path)):
		return refuse("path", "path is a directory inside the repository; %s is not", quote(g.Path))
	case a.scheme == "ssh" && g.TokenRef != "":
		return refuse("token_ref", "a token goes with an https:// URL; with ssh name a key in ssh_key_ref")
	case a.scheme == "ssh" && g.SSHKeyRef == "":
		return refuse("ssh_key_ref", "a repository over ssh needs a private key: name its secret in ssh_key_ref")
	case a.scheme == "ssh" && strings.TrimSpace(g.KnownHosts) == "":
		return refuse("known_hosts", "a repository over ssh needs the host's keys in known_hosts: take the lines that `ssh-keyscan %s` prints, and check them", hostOnly(a.host))
	case a.scheme != "ssh" && g.SSHKeyRef != "":
		return refuse("ssh_key_ref", "a key goes with an ssh:// URL; with https name a token in token_ref")
	}
	return a, nil
}

func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}
