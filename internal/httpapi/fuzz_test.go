package httpapi_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Whatever is sent to an operation, by whoever may call it, it answers with less than 500, and
// with a problem where it refuses.
func FuzzRequest(f *testing.F) {
	w := newWorld(f)
	all := operations(f, w)
	for i, o := range all {
		f.Add(i, "abc", "limit=3&cursor=x", o.body)
	}
	f.Add(0, "%2e%2e", "limit=-1", `{"name":"\u0000"}`)
	f.Add(1, "a\x00b", "cursor=%ff", `{"variables":{"a":[1e400]}}`)
	f.Fuzz(func(t *testing.T, i int, name, query, body string) {
		if i < 0 || i >= len(all) || all[i].ID == "revoke-token" {
			return
		}
		in := all[i].request()
		in.path = replaceName(all[i].path, name) + "?" + escapeQuery(query)
		in.body = body
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // long polls included
		defer cancel()
		in.ctx = ctx
		switch all[i].audience() {
		case "pool":
			in.token = w.pool
		case "job":
			in.token = "dfj_x"
		default:
			in.token = w.admin
		}
		answer := w.send(t, in)
		if answer.Code >= http.StatusInternalServerError && answer.Code != http.StatusServiceUnavailable {
			t.Errorf("%s answered %d: %s\n%s", all[i].ID, answer.Code, answer.Body, w.log)
		}
		if answer.Code >= http.StatusBadRequest {
			problemOf(t, answer)
		}
		w.log.Reset()
	})
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

func replaceName(path, name string) string {
	return placeholder.ReplaceAllLiteralString(path, url.PathEscape(name))
}

// escapeQuery makes a query that a request line can hold, without making it well-formed.
func escapeQuery(query string) string {
	var b strings.Builder
	for _, c := range []byte(query) {
		if c <= ' ' || c > '~' || c == '#' {
			b.WriteString(url.QueryEscape(string(rune(c))))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
