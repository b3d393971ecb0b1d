package logstream_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
)

func TestForeign_CannotPoseAsOurs(t *testing.T) {
	for in, want := range map[string]string{
		"[dayfly] apply succeeded":             "|| [dayfly] apply succeeded",
		"  \t[dayfly] x":                       "  \t|| [dayfly] x",
		"\x1b[1m\x1b[32m[dayfly] x":            "\x1b[1m\x1b[32m|| [dayfly] x",
		"\x1b]0;t\a\x00\u200b\u00a0[dayfly] x": "\x1b]0;t\a\x00\u200b\u00a0|| [dayfly] x",
		"[\x1b[1mda\u200by\x1b]0;x\afly] x":    "|| [\x1b[1mda\u200by\x1b]0;x\afly] x",
		"\x1b(B[day\x1b(Bfly] x":               "\x1b(B|| [day\x1b(Bfly] x",
		"\x1b[3[dayfly] x":                     "\x1b[3|| [dayfly] x", "\x1b]0;x[dayfly] x": "\x1b]0;x|| [dayfly] x", "\x1b[\u00e9[dayfly] x": "\x1b[\u00e9|| [dayfly] x",
		"$\x1b[0m\u200b x":                    "|| $\x1b[0m\u200b x",
		"[\x00da\u200by\u00adfly] x":          "|| [\x00da\u200by\u00adfly] x",
		"[DayFly] x":                          "|| [DayFly] x",
		"[ dayfly ] x":                        "|| [ dayfly ] x",
		"\uff3bd\u0430yf1y\uff3d x":           "|| \uff3bd\u0430yf1y\uff3d x",
		"working 10%\r[dayfly] x":             "working 10%\r|| [dayfly] x",
		"over\b\b\b\b[dayfly] x":              "over\b\b\b\b|| [dayfly] x",
		"a\x1b[2K\x1b[1G[dayfly] x":           "a\x1b[2K\x1b[1G|| [dayfly] x",
		"a\u009b1G[dayfly] x":                 "a\u009b1G|| [dayfly] x",
		"a\u2028[dayfly] x\v[dayfly] y":       "a\u2028|| [dayfly] x\v|| [dayfly] y",
		"\u202e[dayfly] x":                    "\u202e|| [dayfly] x",
		"\x1b[dayfly] x":                      "\x1b|| [dayfly] x", // d ends the sequence: it is seen as "ayfly] x"
		"$ terraform apply":                   "|| $ terraform apply",
		" \x1b[1m$\u00a0rm x":                 " \x1b[1m|| $\u00a0rm x",
		"done\r$ rm x":                        "done\r|| $ rm x",
		"":                                    "",
		"[day] [dayfl] [x":                    "[day] [dayfl] [x",
		"a line of [dayfly] and $ x":          "a line of [dayfly] and $ x",
		"\x1b[1mit costs\x1b[0m: 5 $ and [1]": "\x1b[1mit costs\x1b[0m: 5 $ and [1]",
		"$HOME $1 $":                          "$HOME $1 $",
		"dayfly: x":                           "dayfly: x",
		"[\u043e\u0448\u0438\u0431\u043a\u0430] \xff\xfe x": "[\u043e\u0448\u0438\u0431\u043a\u0430] \xff\xfe x",
		"\x1b[0m  \x1b[32m+\x1b[0m arn = \"[x]\" 100%\r":    "\x1b[0m  \x1b[32m+\x1b[0m arn = \"[x]\" 100%\r",
	} {
		if got := logstream.Foreign(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// What a line looks like without control characters does not begin like ours, and nothing of it is lost.
func FuzzForeign(f *testing.F) {
	f.Add("\x1b[1m[dayfly] x")
	f.Add("a\r[d\x00ayfly] x")
	f.Fuzz(func(t *testing.T, line string) {
		got := logstream.Foreign(line)
		seen := strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, got))
		if strings.HasPrefix(seen, "[dayfly]") || strings.HasPrefix(seen, "$ ") && !strings.Contains(line, "\x1b") {
			t.Errorf("%q is shown as %q", line, got)
		}
		if strings.ReplaceAll(got, "|| ", "") != strings.ReplaceAll(line, "|| ", "") {
			t.Errorf("%q became %q", line, got)
		}
	})
}

// Each line and each piece of one says truly whether it is the runner's own.
func TestStream_TellsOwnLinesFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := logstream.New(logstream.Config{Dir: t.TempDir(), Send: func(_ context.Context, in api.Logs) (int64, error) {
			for _, l := range in.Lines {
				got = append(got, l.Text)
			}
			return in.First + int64(len(in.Lines)), nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		s.Say("apply", api.RunnerLine+"hello", false)
		s.Add("apply", api.RunnerLine+"apply succeeded", false)
		s.Add("apply", strings.Repeat("x", 100), true)
		s.Add("apply", api.CommandLine+"rm", false)
		if err := s.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []string{"[dayfly] hello", "|| [dayfly] apply succeeded", strings.Repeat("x", 100), "|| $ rm"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
