package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// findings reads the value of a rule: a set or an array of results.
func findings(r rule, value any) ([]api.PackageFinding, error) {
	results, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("is %s; want a set of results, as `contains msg if { ... }` makes one", shape(value))
	}
	out := make([]api.PackageFinding, 0, len(results))
	for _, result := range results {
		f, err := finding(result)
		if err != nil {
			return nil, err
		}
		f.Rule, f.Warns = r.name, r.warns
		out = append(out, f)
	}
	return out, nil
}

// finding reads one result.
func finding(result any) (f api.PackageFinding, err error) {
	switch result := result.(type) {
	case string:
		f.Message = result
	case map[string]any:
		if f.Message, err = field(result, "msg", "message"); err != nil {
			return f, err
		}
		if f.Address, err = field(result, "address", "resource"); err != nil {
			return f, err
		}
	default:
		return f, fmt.Errorf("has a result that is %s; want text, or an object with msg", shape(result))
	}
	if strings.TrimSpace(f.Message) == "" {
		return f, errors.New("has a result without text; want text, or an object with msg")
	}
	// A waiver compares addresses, so one is never cut.
	if len(f.Address) > maxAddress || !utf8.ValidString(f.Address) {
		return f, fmt.Errorf("has a result whose address has more than %d characters or is not text", maxAddress)
	}
	// The runner masks sensitive values and cuts the message after that: a value that was cut here would not be found.
	if f.Message = strings.ToValidUTF8(f.Message, "?"); len(f.Message) > maxMessage {
		f.Message = fmt.Sprintf("its message is too long to be shown: it has %d bytes, and the most is %d", len(f.Message), maxMessage)
	}
	return f, nil
}

// field is the text of a field that has two names; empty if it has neither.
func field(object map[string]any, names ...string) (string, error) {
	for _, name := range names {
		v, ok := object[name]
		if !ok {
			continue
		}
		s, ok := v.(string)
		if !ok {
			return "", fmt.Errorf("has a result whose %s is %s; want text", name, shape(v))
		}
		return s, nil
	}
	return "", nil
}

// shape names the type of a value.
func shape(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "one text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// sentence is an error as an answer carries it: without the codes and line breaks of OPA's own.
func sentence(err error) string {
	return text.Middle(strings.Join(strings.Fields(strings.ToValidUTF8(explain(err), "?")), " "), maxError)
}

// most errors of a compiler follow from the first.
const shownErrors = 3

func explain(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // this very error, not one that it wraps
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, explain(e))
		}
		return strings.Join(all, "; ")
	}
	if list, ok := errors.AsType[ast.Errors](err); ok {
		all := make([]string, 0, shownErrors+1)
		for i, e := range list {
			if i == shownErrors {
				all = append(all, text.Count(len(list)-i, "more error"))
				break
			}
			all = append(all, place(e.Location)+e.Message+whyRemoved(e.Message))
		}
		return strings.Join(all, "; ")
	}
	if e, ok := errors.AsType[*ast.Error](err); ok {
		return place(e.Location) + e.Message
	}
	if e, ok := errors.AsType[*topdown.Error](err); ok {
		before, _, _ := strings.Cut(err.Error(), e.Error())
		return before + place(e.Location) + e.Message
	}
	return err.Error()
}

func place(l *ast.Location) string {
	switch {
	case l == nil || l.File == "":
		return ""
	case l.Row == 0:
		return l.File + ": "
	}
	return fmt.Sprintf("%s:%d: ", l.File, l.Row)
}

// firstOf is the first of a parser's errors, on one line.
func firstOf(err error) error {
	if list, ok := errors.AsType[ast.Errors](err); ok && len(list) > 0 {
		return errors.New(place(list[0].Location) + list[0].Message)
	}
	return err
}
