package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// maxDetail leaves room for masks in a step's text and a result's detail.
const maxDetail = 900

// tail keeps the beginning and the end of a stream, where an engine explains its errors.
type tail struct {
	limit   int
	head    []byte
	last    []byte
	dropped bool
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if room := t.limit - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	t.last = append(t.last, p...)
	if over := len(t.last) - t.limit; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
		t.dropped = true
	}
	return n, nil
}

func (t *tail) bytes() []byte {
	if t.dropped {
		return append(append(append([]byte(nil), t.head...), '\n'), t.last...)
	}
	return append(append([]byte(nil), t.head...), t.last...)
}

var (
	sourceLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*\d+:`) })
	about      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^with (.+),$`) })
	required   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*\d+:.*\brequired_version"?\s*[=:]\s*"([0-9A-Za-z.,<>=!~ +-]*)"`)
	})
	// contentless are errors that leave the cause to the error behind them.
	contentless = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^Error: (?:\w+ encountered problems during initiali[sz]ation|failed to create backend alias|could not read directory)|: The directory\s+could not be read`)
	})
	where        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^on .* line \d+`) })
	wrongVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Error: Unsupported \w+ Core version`) })
)

// plainLines removes colours and boxes from the output of an engine. A box within the box lists the values of names
// in the source: its lines become empty.
func plainLines(printed string) []string {
	var lines []string
	for line := range strings.Lines(strings.ToValidUTF8(printed, "")) {
		line = strings.TrimRight(text.WithoutEscapes(strings.TrimRight(line, "\r\n")), "\r\t ")
		for _, edge := range []string{"╷", "│", "╵"} {
			if rest, ok := strings.CutPrefix(line, edge); ok {
				line = rest
				break
			}
		}
		line = strings.TrimLeft(line, "\t ")
		if strings.HasPrefix(line, "├") || strings.HasPrefix(line, "│") {
			line = ""
		}
		lines = append(lines, line)
	}
	return lines
}

// firstError returns the first error in the output of an engine: its title, its place, the first paragraph of the
// explanation, and the number of further errors. Lines of source are left out, because they may hold values.
func firstError(printed string) string {
	e := readError(plainLines(printed))
	if e.count == 0 {
		return ""
	}
	return e.String()
}

// engineError is an error of an engine.
type engineError struct {
	title, address, place, explanation string

	requires string // the constraint in its lines of source, if it shows one
	count    int    // of all errors in the output that say something
}

// readError returns the first error that says something, or else the first; its count is 0 if there is none.
func readError(lines []string) engineError {
	all := readErrors(lines)
	says := slices.DeleteFunc(slices.Clone(all), func(e engineError) bool {
		return contentless().MatchString(e.title + ": " + e.explanation)
	})
	if len(says) > 0 {
		all = says
	}
	if len(all) == 0 {
		return engineError{}
	}
	all[0].count = len(all)
	return all[0]
}

func readErrors(lines []string) (all []engineError) {
	done := true // the last error has been read
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "Error: "):
			all, done = append(all, engineError{title: line}), false
		case strings.HasPrefix(line, "Warning: "), strings.HasPrefix(line, "Lock Info:"):
			done = true
		case !done:
			done = all[len(all)-1].read(line)
		}
	}
	return all
}

// read adds a line, and reports whether it was the last.
func (e *engineError) read(line string) (done bool) {
	with := about().FindStringSubmatch(line)
	switch {
	case with != nil && e.place == "" && e.explanation == "":
		e.address = with[1] + ", "
	case where().MatchString(line) && e.place == "":
		e.place = strings.TrimSuffix(line, ":")
	case sourceLine().MatchString(line):
		if found := required().FindStringSubmatch(line); found != nil {
			e.requires = found[1]
		}
	case line == "":
		return e.explanation != ""
	default:
		e.explanation = strings.TrimSpace(e.explanation + " " + line)
	}
	return false
}

// otherVersion says where the version of the engine is set, if the error is that the code does not take this one.
func (e engineError) otherVersion() string {
	if !wrongVersion().MatchString(e.title) {
		return ""
	}
	return "; set engine_version of the workspace to " + cmp.Or(e.requires, "a version that the code takes")
}

// String describes the error in one line.
func (e engineError) String() string {
	line, place := e.title, e.place
	if e.address != "" { // more precise than the block in place
		place, _, _ = strings.Cut(place, ", in ")
	}
	if place = strings.TrimSuffix(e.address+place, ", "); place != "" {
		line += " (" + place + ")"
	}
	if e.explanation != "" {
		line += ": " + strings.TrimSuffix(e.explanation, " Output:") // the output was empty
	}
	line = text.Middle(line, maxDetail/2)
	if e.count > 1 {
		line += " (" + text.Count(e.count-1, "more error") + " in the log)"
	}
	return line
}

// failedWith says how an engine ended, with a signal in words: a host reports one as a shell does.
func failedWith(step, engine string, code int) string {
	n := syscall.Signal(code - 128)
	if n <= 0 || n > 31 {
		return fmt.Sprintf("%s failed with exit code %d", step, code)
	}
	said := fmt.Sprintf("%s failed: %s was ended by signal %d (%s)", step, engine, int(n), n)
	if n == syscall.SIGKILL {
		said += ", which it does not send itself: see whether the machine ran out of memory"
	}
	return said
}

var lockField = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(ID|Path|Operation|Who|Created):\s*(.*)$`) })

// lockFromText reads the block that terraform and tofu print about a lock that somebody else holds.
func lockFromText(printed string) *api.Lock {
	lines := plainLines(printed)
	for i, line := range lines {
		if line != "Lock Info:" {
			continue
		}
		fields := map[string]string{}
		for _, line := range lines[i+1:] {
			m := lockField().FindStringSubmatch(line)
			if m == nil {
				if line == "" {
					break
				}
				continue
			}
			fields[m[1]] = m[2]
		}
		if lock := lockOf(fields); lock != nil {
			return lock
		}
	}
	return nil
}

// lockOf makes a lock of the fields of an engine; nil if it has no id.
func lockOf(fields map[string]string) *api.Lock {
	cut := func(name string, limit int) string { return text.Cut(strings.ToValidUTF8(fields[name], ""), limit) }
	if fields["ID"] == "" {
		return nil
	}
	return &api.Lock{ID: cut("ID", 255), Path: cut("Path", 1000), Operation: cut("Operation", 255), Who: cut("Who", 255), Created: cut("Created", 64)}
}

// lockFromFile reads the file that the engine keeps beside a state on disk while it holds the lock.
func lockFromFile(state *folder, name string) *api.Lock {
	raw, err := state.read(name, 64<<10)
	if err != nil {
		return nil
	}
	return parseLockFile(raw)
}

func parseLockFile(raw []byte) *api.Lock {
	var doc struct{ ID, Path, Operation, Who, Created string }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil
	}
	return lockOf(map[string]string{"ID": doc.ID, "Path": doc.Path, "Operation": doc.Operation, "Who": doc.Who, "Created": doc.Created})
}

// lockSentence says who holds a lock and what to do about it.
func lockSentence(l *api.Lock, workspace string) string {
	return fmt.Sprintf("the state is locked by %s since %s (%s, lock %s); if nobody runs there any more, release it with: dayfly state unlock %s %s",
		orUnknown(l.Who), orUnknown(l.Created), orUnknown(l.Operation), l.ID, workspace, l.ID)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// quote shows foreign text in an error: quoted, and cut where it is long.
func quote(s string) string { return text.Quote(s, 200) }
