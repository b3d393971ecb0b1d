package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "0": 0, "": 0, "-1": 0, "soon": 0, "1.5": 0, "999999999999999999999": 0, "86401": 24 * time.Hour,
		now.Add(time.Hour).Format(http.TimeFormat): time.Hour, now.Add(-time.Hour).Format(http.TimeFormat): 0,
		now.AddDate(1, 0, 0).Format(http.TimeFormat): 24 * time.Hour,
	} {
		if got := api.ParseRetryAfter(value, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "-1", "2147483648", "Sun, 01 Mar 2026 12:00:00 GMT", "Sunday, 01-Mar-26 12:00:00 GMT", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if d := api.ParseRetryAfter(value, time.Now()); d < 0 || d > 24*time.Hour {
			t.Errorf("%q: %s", value, d)
		}
	})
}
