package pullrequest_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/pullrequest"
)

func TestRepository_EachFormOfAnAddressNamesTheSame(t *testing.T) {
	for address, want := range map[string]string{
		"https://github.com/Example/Infra.git":           "github.com example/infra",
		"https://github.com/example/infra":               "github.com example/infra",
		"https://github.com/example/infra/":              "github.com example/infra",
		"https://user:word@GitHub.com:443/example/infra": "github.com example/infra",
		"ssh://git@github.com/example/infra.git":         "github.com example/infra",
		"ssh://git@github.com:2222/example/infra.git/":   "github.com example/infra",
		"git@github.com:example/infra.git":               "github.com example/infra",
		"git@github.com:/example/infra.git":              "github.com example/infra",
		"http://127.0.0.1:8080/a/b/c/d.git":              "127.0.0.1:8080 a/b/c/d",
		"http://git.example.com:80/a/b":                  "git.example.com a/b",
		"https://git.example.com:08443/a/b":              "git.example.com:8443 a/b",
		"https://git.example.com/~a/b.c":                 "git.example.com ~a/b.c",
	} {
		host, path, ok := pullrequest.Repository(address)
		if got := host + " " + path; got != want || !ok {
			t.Errorf("%s: got %s, %v, want %s", address, got, ok, want)
		}
	}
	for _, address := range []string{
		"", "/srv/git/infra", "infra", "file:///srv/git/infra", "git://github.com/a/b", "https://github.com", "https://github.com/", "https://github.com/.git",
		"https:///a/b", "https://github.com/a/../b", "https://github.com/a//b", "https://github.com/a/b?x=y", "https://github.com/a/b#c", "https://github.com/a%20b",
		"https://github.com/a/b?", "https://git.example.com:0/a/b", "https://git.example.com:65536/a/b", "https://[::1]:8080/a/b", "git@github.com:2222:a/b",
		"https://github.com./a/b", "-oProxyCommand=x@h:a/b c", "git@github.com:a/b\n",
	} {
		if host, path, ok := pullrequest.Repository(address); ok {
			t.Errorf("%q was taken for %s %s", address, host, path)
		}
	}
}

func FuzzRepository_IsTheSameWhenItIsWrittenAgain(f *testing.F) {
	for _, s := range []string{
		"https://github.com/Example/Infra.git", "git@github.com:a/b.git/.git", "ssh://git@h:22/a", "http://h:443/a/b", "https://h:0080/.git.git", "HTTPS://H/A/%41",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		host, path, ok := pullrequest.Repository(address)
		if !ok {
			return
		}
		name, _, _ := strings.Cut(host, ":")
		for _, again := range []string{"https://" + host + "/" + path, "http://x@" + host + "/" + path + ".git", "ssh://git@" + name + ":22/" + path, "git@" + name + ":" + path} {
			want := host
			if !strings.HasPrefix(again, "http") {
				want = name
			}
			if h, p, ok := pullrequest.Repository(again); h != want || p != path || !ok {
				t.Errorf("%q is %q %q; written again as %q it is %q %q, %v", address, host, path, again, h, p, ok)
			}
		}
	})
}
