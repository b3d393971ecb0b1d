package engine

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/text"
)

var (
	// handedOn are errors of pulumi that only say that the program, or another one, failed.
	handedOn = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^error: .*(?: failed$|exit status \d|exited with non-zero exit code)`)
	})
	untrusted = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)CERTIFICATE_VERIFY_FAILED|x509: |invalid peer certificate|self.signed certificate|unable to (?:get|verify)[a-z ]* certificate`)
	})
	pluginEnded = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`error reading from server: EOF|transport is closing|signal: (?:killed|segmentation fault|aborted)`)
	})
	npmError  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^npm (?:error|ERR!)(?: (\S+))?`) })
	toolError = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:ERROR: |× )`) }) // of pip and uv
	exception = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?(?:: |$)`)
	})
)

// pulumiError returns the error that explains a failure in the output of pulumi, on either stream: its own first one, or
// that of the program, npm, pip or uv if its own leaves the cause to them.
func pulumiError(printed string) string {
	lines := strings.Split(text.WithoutEscapes(strings.ToValidUTF8(printed, "")), "\n")
	own := ""
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "error: ") {
			continue
		}
		own = explained(lines[i:])
		if strings.HasSuffix(strings.TrimSpace(line), "an unhandled exception:") {
			own = cmp.Or(thrown(lines[i+1:]), own)
		}
		if !handedOn().MatchString(own) {
			return text.Middle(own, maxDetail/2)
		}
	}
	return text.Middle(cmp.Or(foreignError(lines), own), maxDetail/2)
}

// explained joins an error's first line with those that continue it, up to an empty line or another message.
func explained(lines []string) string {
	var parts []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || len(parts) > 0 && (strings.HasPrefix(line, "error: ") || strings.HasPrefix(line, "warning: ")) {
			break
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, " ")
}

// thrown returns the exception of a program: the line behind the frames of the last traceback of Python, or else the
// first line, which node prints before the frames.
func thrown(lines []string) string {
	if end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "error: ") }); end >= 0 {
		lines = lines[:end]
	}
	found, frames := "", -1 // the indentation of the traceback whose frames are read
	for _, line := range lines {
		said := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		switch {
		case strings.HasPrefix(said, "Traceback (most recent call last)"):
			frames = indent
		case frames >= 0 && said != "" && indent <= frames:
			found, frames = said, -1
		}
	}
	if found != "" {
		return found
	}
	for i, line := range lines {
		said := strings.TrimPrefix(strings.TrimSpace(line), "<ref *1> ")
		if strings.HasSuffix(said, ":") && i+1 < len(lines) { // the compiler of TypeScript lists its errors
			said += " " + strings.TrimSpace(lines[i+1])
		}
		if said != "" {
			return said
		}
	}
	return ""
}

// foreignError returns the error of a program that pulumi called: a certificate that is not trusted, which most of
// them report as something else; the first line of npm, pip or uv that is a sentence; or an exception.
func foreignError(lines []string) string {
	for _, says := range []func(line string) bool{
		untrusted().MatchString,
		func(line string) bool {
			m := npmError().FindStringSubmatch(line)
			return m != nil && !slices.Contains([]string{"", "code", "errno", "syscall", "path", "dest"}, m[1])
		},
		toolError().MatchString,
	} {
		for i, line := range lines {
			line = strings.TrimSpace(line)
			if !says(line) {
				continue
			}
			if strings.HasSuffix(line, ":") {
				return explained(lines[i:])
			}
			return line
		}
	}
	if at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "Traceback (most recent call last)") }); at >= 0 {
		return thrown(lines[at:])
	}
	if at := slices.IndexFunc(lines, func(l string) bool { return exception().MatchString(strings.TrimSpace(l)) }); at >= 0 {
		return strings.TrimSpace(lines[at])
	}
	return ""
}
