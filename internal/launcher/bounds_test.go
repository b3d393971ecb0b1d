package launcher_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher"
)

func TestDisk_IsWithinWhatThePoolGives(t *testing.T) {
	for _, tc := range []struct{ wanted, each, most, want int }{ // want -1: refused
		{0, 0, 0, 0}, {30, 0, 0, 30}, {0, 20, 50, 20}, {50, 20, 50, 50}, {51, 20, 50, -1}, {10, 20, 0, 10}, {21, 20, 0, -1}, {-1, 0, 0, -1},
	} {
		got, err := launcher.Disk(tc.wanted, tc.each, tc.most)
		if (err != nil) != (tc.want < 0) || err == nil && got != tc.want {
			t.Errorf("%+v: got %d, %v", tc, got, err)
		}
	}
}

func TestImage_IsOneThatThePoolHas(t *testing.T) {
	has := map[string]string{"gpu": "runner-gpu:v2", "big": "runner-big:v2"}
	for _, tc := range []struct {
		name       string
		has        map[string]string
		want, says string
	}{
		{"", has, "runner:v1", ""}, {"gpu", has, "runner-gpu:v2", ""}, {"arm", has, "", "this pool has big, gpu"}, {"gpu", nil, "", "this pool has none with a name"},
	} {
		got, err := launcher.Image(tc.name, "runner:v1", tc.has)
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: got %q, %v", tc.name, got, err)
		}
	}
}

// What the runner logs it masks itself. What Go prints of a panic nobody masks.
func TestLastWords_TellNoPanicsCause(t *testing.T) {
	for said, want := range map[string]string{
		"":                           "it ended",
		`{"msg":"result not taken"}`: `it ended; the runner said at last: {"msg":"result not taken"}`,
		"{\"msg\":\"x\"}\npanic: secret\n\ngoroutine 1 [running]:": "it ended; the runner said at last: {\"msg\":\"x\"}\nit panicked",
		"cret\n\ngoroutine 7 [running]:\nmain":                     "it ended; the runner said at last: it panicked",
	} {
		if got := launcher.LastWords("it ended", said); got != want {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
}
