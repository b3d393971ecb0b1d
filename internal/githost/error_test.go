package githost_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func TestClassify_SaysWhetherAnotherTryHelpsAndWhen(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	at := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	for name, c := range map[string]struct {
		call      githost.FailedCall
		permanent bool
		wait      time.Duration
		says      string
	}{
		"unauthorized":            {githost.FailedCall{Status: 401}, true, 0, "the token is wrong, has expired or was revoked"},
		"forbidden":               {githost.FailedCall{Status: 403}, true, 0, "the token needs a permission"},
		"not found":               {githost.FailedCall{Status: 404}, true, 0, "it needs a permission"},
		"gone":                    {githost.FailedCall{Status: 410}, true, 0, "it is not there"},
		"unprocessable":           {githost.FailedCall{Status: 422, Said: "no"}, true, 0, `422: "no"`},
		"bad request":             {githost.FailedCall{Status: 400}, true, 0, "does not accept the request"},
		"moved":                   {githost.FailedCall{Status: 301}, true, 0, "another name"},
		"conflict":                {githost.FailedCall{Status: 409}, false, 0, ""},
		"time-out":                {githost.FailedCall{Status: 408}, false, 0, ""},
		"bad gateway":             {githost.FailedCall{Status: 502}, false, 0, ""},
		"too many, seconds":       {githost.FailedCall{Status: 429, Header: header("Retry-After", "7")}, false, 7 * time.Second, "too many"},
		"too many, date":          {githost.FailedCall{Status: 429, Header: header("Retry-After", now.Add(time.Hour).Format(http.TimeFormat))}, false, time.Hour, ""},
		"too many, past":          {githost.FailedCall{Status: 429, Header: header("Retry-After", now.Add(-time.Hour).Format(http.TimeFormat))}, false, time.Minute, ""},
		"too many, nonsense":      {githost.FailedCall{Status: 429, Header: header("Retry-After", "-5", "X-Ratelimit-Reset", "x")}, false, time.Minute, ""},
		"too many, a year":        {githost.FailedCall{Status: 429, Header: header("Retry-After", "31536000")}, false, 24 * time.Hour, ""},
		"primary limit":           {githost.FailedCall{Status: 403, Header: header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", at(20*time.Minute))}, false, 20 * time.Minute, "too many"},
		"a limit that is left":    {githost.FailedCall{Status: 403, Header: header("X-RateLimit-Remaining", "9", "X-RateLimit-Reset", at(20*time.Minute))}, true, 0, "the token needs"},
		"secondary limit":         {githost.FailedCall{Status: 403, Said: "You have exceeded a secondary rate limit."}, false, time.Minute, "too many"},
		"GitLab's limit":          {githost.FailedCall{Status: 429, Header: header("RateLimit-Remaining", "0", "RateLimit-Reset", at(30*time.Second))}, false, 30 * time.Second, ""},
		"down for some time":      {githost.FailedCall{Status: 503, Header: header("Retry-After", "60")}, false, time.Minute, ""},
		"no answer":               {githost.FailedCall{Cause: errors.New("connection reset")}, false, 0, "connection reset"},
		"no answer in time":       {githost.FailedCall{Cause: fmt.Errorf("get: %w", context.DeadlineExceeded)}, false, 0, "in time"},
		"an answer without sense": {githost.FailedCall{Status: 200, Cause: errors.New("not JSON")}, false, 0, "not JSON"},
		"a private address":       {githost.FailedCall{Cause: fmt.Errorf("dial: %w", outbound.ErrRefused)}, true, 0, "not called"},
		"too long an answer":      {githost.FailedCall{Status: 200, Cause: fmt.Errorf("read: %w", outbound.ErrLong)}, true, 0, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c.call.Host, c.call.Doing, c.call.Needs = "GitHub", "read it", "a permission"
			got := githost.Classify(c.call, now)
			if got.Permanent != c.permanent || got.RetryAfter != c.wait || !strings.Contains(got.Error(), c.says) || !strings.HasPrefix(got.Error(), "GitHub did not read it") {
				t.Errorf("got permanent %t, wait %v: %v", got.Permanent, got.RetryAfter, got)
			}
			if c.call.Status == 0 && !errors.Is(got, c.call.Cause) {
				t.Errorf("%v does not hold its cause", got)
			}
		})
	}
}

// Whatever a host answers, there is a short sentence without the token, and no endless wait.
func FuzzClassify(f *testing.F) {
	f.Add(403, "60", "0", "1770000000", "secondary rate limit")
	f.Add(429, "Wed, 21 Oct 2026 07:28:00 GMT", "", "", "")
	f.Add(500, "99999999999999999999", "0", "-9223372036854775808", "\x00\xff secret")
	f.Fuzz(func(t *testing.T, status int, after, remaining, reset, said string) {
		h := http.Header{"Retry-After": {after}, "X-Ratelimit-Remaining": {remaining}, "X-Ratelimit-Reset": {reset}}
		e := githost.Classify(githost.FailedCall{Host: "GitHub", Doing: "read", Needs: "x", Status: status, Header: h, Said: said + "tok_123456", Cause: errors.New(said), Secret: redact.New("tok_123456")}, now)
		if e.RetryAfter < 0 || e.RetryAfter > 24*time.Hour || len(e.Message) > 500 || !strings.Contains(e.Message, "GitHub did not read") || strings.Contains(e.Message, "tok_123456") {
			t.Errorf("got %v, %q", e.RetryAfter, e.Message)
		}
	})
}

func TestNames_AreEachOnce(t *testing.T) {
	var n githost.Names
	n.Add("a", "")
	n.Add("c", "a")
	n.Add("b", "b")
	for counted, want := range map[int]bool{0: false, 3: false, 4: true} {
		files, truncated := n.Files(counted)
		if d := cmp.Diff([]string{"a", "c", "b"}, files); d != "" || truncated != want {
			t.Errorf("of %d: truncated %t\n%s", counted, truncated, d)
		}
	}
}
