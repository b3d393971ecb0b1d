package runner

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// Mask returns a function that hides values in the remaining lines of a runner, and the secrets in forwarded
// variables (KEY=VALUE).
func Mask(values, variables []string) func(line string) string {
	var hidden mask.Set
	hidden.Add(values...)
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		hidden.Add(secretsOf(name, value).values...)
	}
	return hidden.String
}

// hidden are the masked parts of a forwarded variable, and the reason.
type hidden struct {
	values []string // none: it is shown
	reason string
}

// secretsOf decides which parts of a forwarded variable are masked: all, unless its name or its form is one of those
// that are known to be public, because a log without any region or host name is hard to use. Parts that are secrets
// of their own, such as the password in an address, are masked alone too. It is a pure function.
func secretsOf(name, value string) hidden {
	value = strings.TrimSpace(value)
	parts := partsOf(value)
	switch {
	case value == "":
		return hidden{reason: "it is empty"}
	case patterns().secret.MatchString(name):
		return hidden{append(parts, value), "its name is that of a secret"}
	case len(parts) > 0:
		return hidden{append(parts, value), "it has a password or a key in it"}
	case publicNames[name] || strings.HasPrefix(name, "LC_"):
		return hidden{reason: "its name is public"}
	}
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' }) {
		if !public(word) {
			return hidden{[]string{value}, "neither its name nor its form is known to be public"}
		}
	}
	return hidden{reason: "its form is public"}
}

// publicNames are names of variables that hold no secret, unless their value has a password in it.
// docs/configuration.md lists them.
var publicNames = map[string]bool{
	"AWS_ACCOUNT_ID": true, "AWS_DEFAULT_OUTPUT": true, "AWS_DEFAULT_REGION": true, "AWS_PROFILE": true, "AWS_REGION": true,
	"AWS_ROLE_ARN": true, "EDITOR": true, "HOME": true, "HOSTNAME": true, "LANG": true, "LANGUAGE": true, "LOGNAME": true, "NO_COLOR": true,
	"PATH": true, "SHELL": true, "TERM": true, "TF_LOG": true, "TZ": true, "USER": true,
}

// patterns are compiled when the first variable is forwarded.
var patterns = sync.OnceValue(func() (p struct{ secret, public, random *regexp.Regexp }) {
	p.secret = regexp.MustCompile(`(?i)secret|token|passw|pwd|credential|private|auth|key|dsn|session|cookie|signature`)
	p.public = regexp.MustCompile(`^(?:` + strings.Join([]string{
		`(?i:true|false|yes|no|on|off|none|null|debug|info|warn|error|trace)`,                                   // switches and levels of a log
		`[-+]?[0-9]{1,6}(?:\.[0-9]{1,3})?`,                                                                      // short numbers
		`[0-9]+(?:ns|us|ms|s|m|h|d|[KMGT]i?B?)`,                                                                 // durations and sizes
		`(?:[a-z]{2}|africa|asia|australia|europe|northamerica|southamerica)(?:-[a-z]+){1,3}-?[0-9]{1,2}[a-z]?`, // regions: eu-west-1, us-gov-west-1, europe-west4, us-east-1a
		`(?:~|\.{1,2})?(?:/[A-Za-z0-9._-]*)+(?::(?:/[A-Za-z0-9._-]*)+)*`,                                        // paths, and lists of them
		`(?:[a-z][a-z0-9+.-]*://)?` + hostName + `(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?`,
	}, "|") + `)$`)
	p.random = regexp.MustCompile(`[A-Za-z0-9_-]+`)
	return p
})

// hostName is localhost, a name with a dot, or an address of IPv4; dots or a star may begin it, as in NO_PROXY.
const hostName = `(?:localhost|(?:[*.]{1,2}|` + label + `\.)(?:` + label + `\.)*` + label + `\.?)`

const label = `[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?`

// public reports whether the form of a word is one that no secret has: see patterns. A long one that looks made by
// chance, or has a part that does, is not public: there are paths and addresses that are secrets.
func public(word string) bool {
	const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	if !patterns().public.MatchString(word) || len(word) >= long && strings.ContainsAny(word, lower) && strings.ContainsAny(word, upper) && strings.ContainsAny(word, digits) {
		return false
	}
	return !slices.ContainsFunc(patterns().random.FindAllString(word, -1), func(s string) bool {
		return len(s) >= long && strings.ContainsAny(s, lower+upper) && strings.ContainsAny(s, digits)
	})
}

// long is the length in bytes from which on letters and digits together look made by chance.
const long = 20

// partsOf returns the secrets in a value: user and password of addresses, and the values of secret names in queries,
// connection strings and lists of NAME=VALUE. Those in a JSON document are found by mask.
func partsOf(value string) (out []string) {
	add := func(s string) {
		if s == "" {
			return
		}
		out = append(out, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			out = append(out, plain)
		}
	}
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\n' || r == ',' }) {
		_, rest, ok := strings.Cut(word, "://")
		at := strings.LastIndexByte(rest, '@') // a password may have any character in it
		if !ok || at < 0 || !strings.Contains(rest[:at], ":") && strings.ContainsAny(rest[:at], "/?#") {
			continue
		}
		user, password, both := strings.Cut(rest[:at], ":")
		if add(rest[:at]); both {
			add(password)
		} else {
			add(user) // a token
		}
	}
	for _, pair := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("?&;, \n", r) }) {
		if name, of, ok := strings.Cut(pair, "="); ok && patterns().secret.MatchString(name) {
			add(strings.Trim(of, `"'`))
		}
	}
	return out
}
