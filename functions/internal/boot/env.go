package boot

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Env reads variables by type and remembers every mistake, so that Err reports all of them at once. A wrong
// variable reads as its zero value. Only one goroutine may use an Env.
type Env struct {
	getenv   func(string) string
	mistakes workflow.Mistakes
}

// Read returns a reader of the environment.
func Read(getenv func(string) string) *Env { return &Env{getenv: getenv} }

// Err returns all mistakes as workflow.Mistakes, or nil.
func (e *Env) Err() error {
	if err := e.mistakes.Err(); err != nil {
		return fmt.Errorf("mistakes in the environment:\n%w", err)
	}
	return nil
}

// Wrong adds a mistake about a variable; the text says what is wrong, and how to correct it.
func (e *Env) Wrong(name, format string, args ...any) {
	e.mistakes.Add(name, format, args...)
}

// Also adds the settings that a package refused: a refusal of the field cluster is a mistake in
// DAYFLY_CLUSTER.
func (e *Env) Also(err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only errors of errors.Join are taken apart
		for _, one := range several.Unwrap() {
			e.Also(one)
		}
		return
	}
	if refusal, ok := errors.AsType[*workflow.Error](err); ok && refusal.Field != "" {
		e.Wrong("DAYFLY_"+strings.ToUpper(refusal.Field), "%s", refusal.Message)
	} else if err != nil {
		e.mistakes = append(e.mistakes, err.Error())
	}
}

// get reads a variable without the spaces around its value.
func (e *Env) get(name string) string { return strings.TrimSpace(e.getenv(name)) }

// Text reads a variable that may be missing.
func (e *Env) Text(name, otherwise string) string {
	return cmp.Or(e.get(name), otherwise)
}

// Required reads a variable that must be set. meaning describes it in the message.
func (e *Env) Required(name, meaning string) string {
	v := e.get(name)
	if v == "" {
		e.Wrong(name, "is missing: it is %s", meaning)
	}
	return v
}

// URL is a required address.
func (e *Env) URL(name, meaning string) string {
	v := e.Required(name, meaning)
	if v == "" {
		return ""
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		e.Wrong(name, "is not an address: give %s as https://...", meaning) // without the value: it may hold a password
		return ""
	}
	return v
}

// Duration is a time in Go's syntax, from shortest to longest.
func (e *Env) Duration(name string, otherwise, shortest, longest time.Duration) time.Duration {
	v := e.get(name)
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	switch {
	case err != nil:
		e.Wrong(name, "%q is not a duration: write one such as 30s or 1m30s", v)
		return 0
	case d < shortest || d > longest:
		e.Wrong(name, "%s is not between %s and %s", v, shortest, longest)
		return 0
	}
	return d
}

// Int is a whole number from low to high.
func (e *Env) Int(name string, otherwise, low, high int) int {
	v := e.get(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		e.Wrong(name, "%q is not a whole number between %d and %d", v, low, high)
		return 0
	}
	return n
}

// Number is a number above 0 and up to a limit.
func (e *Env) Number(name string, otherwise, limit float64) float64 {
	v := e.get(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0 && n <= limit) {
		e.Wrong(name, "%q is not a number above 0 and up to %g", v, limit)
		return 0
	}
	return n
}

// Bool is true or false.
func (e *Env) Bool(name string, otherwise bool) bool {
	switch v := e.get(name); v {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	default:
		e.Wrong(name, "%q is neither true nor false", v)
		return false
	}
}

// List reads a list separated by commas. It ignores empty elements; a repeated one is a mistake.
func (e *Env) List(name string) []string {
	var out []string
	for one := range strings.SplitSeq(e.get(name), ",") {
		one = strings.TrimSpace(one)
		switch {
		case one == "":
		case slices.Contains(out, one):
			e.Wrong(name, "%q is listed twice", one)
		default:
			out = append(out, one)
		}
	}
	return out
}

// RequiredList is a list with at least one element.
func (e *Env) RequiredList(name, meaning string) []string {
	out := e.List(name)
	if len(out) == 0 {
		e.Wrong(name, "is missing: it is %s, separated by commas", meaning)
	}
	return out
}

// OneOf is one of a few words.
func (e *Env) OneOf(name, otherwise string, words ...string) string {
	v := e.Text(name, otherwise)
	if !slices.Contains(words, v) {
		e.Wrong(name, "%q is not one of %s", v, strings.Join(words, ", "))
		return otherwise
	}
	return v
}
