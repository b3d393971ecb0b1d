// Package pullrequest has the rules of pull requests (GitLab: merge requests): which workspaces their files concern,
// which command a comment holds, and how their previews are shown there. It does no I/O.
package pullrequest

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// The parts of a repository's address. The hosts that this version knows have no other characters in their paths, and
// a path of these characters alone reads the same in every form of address.
var (
	hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`) })
	repoPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9._~+-]+(/[a-z0-9._~+-]+)*$`) })
	scpForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]+@([A-Za-z0-9.-]+):([^:]+)$`) })
)

// Repository reads the address of a git repository, in any form in which git takes one from a remote host, as the
// host and the path there, both in lower case. Addresses of one repository give the same: https and ssh, with user
// and without, with .git and without. A port stays where it is one of http that is not 80 or 443. ok is false for
// anything else, such as a path of the machine.
func Repository(address string) (host, path string, ok bool) {
	if m := scpForm().FindStringSubmatch(address); m != nil {
		return repository(m[1], "", m[2])
	}
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", "", false
	}
	switch u.Scheme {
	case "http", "https":
		return repository(u.Hostname(), u.Port(), u.Path)
	case "ssh":
		return repository(u.Hostname(), "", u.Path)
	}
	return "", "", false
}

func repository(host, port, path string) (string, string, bool) {
	host, path = strings.ToLower(host), strings.ToLower(path)
	for before := ""; path != before; {
		before, path = path, strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	}
	if !hostName().MatchString(host) || !repoPath().MatchString(path) {
		return "", "", false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return "", "", false
		}
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", "", false
		}
		if n != 80 && n != 443 {
			host += ":" + strconv.FormatUint(n, 10)
		}
	}
	return host, path, true
}
