package templates

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var (
	terms     = regexp.MustCompile(`^\{ (.+) \}$`)
	equals    = regexp.MustCompile(`^\$\.(\w+) = "([^"]*)"$`)
	otherwise = regexp.MustCompile(`^\$\.(\w+) IS (NULL|TRUE)$`)
)

// Counted returns how many lines of a log a metric filter of the template counts. It knows what the templates use of the
// patterns of CloudWatch Logs: texts that are equal, IS NULL and IS TRUE, joined by &&. Lines that are not JSON match none.
func (t *Template) Counted(filter, log string) (n int, err error) {
	pattern, _ := t.Resources[filter].Properties["FilterPattern"].(string)
	inner := terms.FindStringSubmatch(pattern)
	if t.Resources[filter].Type != "AWS::Logs::MetricFilter" || inner == nil {
		return 0, fmt.Errorf("%s has the pattern %q", filter, pattern)
	}
	for line := range strings.Lines(log) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue
		}
		all := true
		for term := range strings.SplitSeq(inner[1], " && ") {
			if joined := strings.Contains(inner[1], " && "); joined {
				term = strings.TrimSuffix(strings.TrimPrefix(term, "("), ")")
			}
			if m := equals.FindStringSubmatch(term); m != nil {
				all = all && fields[m[1]] == m[2]
			} else if m := otherwise.FindStringSubmatch(term); m != nil {
				value, there := fields[m[1]]
				all = all && there && value == map[string]any{"NULL": nil, "TRUE": true}[m[2]]
			} else {
				return 0, fmt.Errorf("the term %q of %s is not understood", term, filter)
			}
		}
		if all {
			n++
		}
	}
	return n, nil
}
