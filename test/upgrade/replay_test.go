package upgrade_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Records with a workflow in every state that it can be in when its control plane is replaced continue under this one.
// Every pool and runner that was at work makes the calls that the recording has, byte for byte, and gets the answers
// that it has. So pools and runners of a release cannot tell the control planes apart, and everything that was on its way
// arrives.
func TestUpgrade_OldRecordsGoOnAsUnderTheirOwnVersion(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		records := lines[stored](t, dir, "records.jsonl")
		for name, open := range stores {
			t.Run(name, func(t *testing.T) {
				if name == "dynamodb" && testing.Short() {
					t.Skip("over DynamoDB in the long run only: each call is several over HTTP")
				}
				list := records
				if name == "sqlite" {
					list = nil // the file itself
				}
				w := newWorld(t, dir, open(t, dir, list))
				w.replay(t, lines[call](t, dir, "calls.jsonl"), nil)
			})
		}
	})
}

// A person who is signed in to the web pages stays so.
func TestUpgrade_OldSessionsGoOn(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		value := w.scene.Tokens["session"]
		if who, err := w.plane.Session(t.Context(), value, true); err != nil || who.Name != api.FirstAdmin || who.Role != api.RoleAdmin {
			t.Errorf("got %+v, %v", who, err)
		}
		if err := w.plane.SignOut(t.Context(), value); err != nil {
			t.Error(err)
		}
		if _, err := w.plane.Session(t.Context(), value, true); !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Errorf("after it has ended: %v", err)
		}
	})
}

// replay makes the calls and holds the answers to those on record. What is made anew, such as the token of a claim,
// takes the place of what was made then. change, where given, alters the requests first.
func (w *world) replay(t *testing.T, calls []call, change func(c call, body []byte) []byte) {
	t.Helper()
	if len(calls) < 200 {
		t.Fatalf("only %d calls", len(calls))
	}
	known, anew := string(read(t, w.dir, "records.jsonl"))+string(read(t, w.dir, "scene.json")), map[string]string{}
	renew := func(s string) string {
		for before, after := range anew {
			s = strings.ReplaceAll(s, before, after)
		}
		return s
	}
	for i, c := range calls {
		w.clock.set(c.At)
		if c.Pass {
			if _, err := w.plane.Pass(t.Context()); err != nil {
				t.Fatalf("call %d: pass: %v", i, err)
			}
			continue
		}
		body := []byte(renew(string(c.Request) + c.Form))
		if change != nil && len(body) > 0 {
			body = change(c, body)
		}
		request := httptest.NewRequestWithContext(t.Context(), c.Method, renew(c.Path), bytes.NewReader(body))
		for name, value := range c.Header {
			request.Header.Set(name, renew(value))
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, request)
		what := fmt.Sprintf("call %d, %s %s %s", i, c.Method, c.Path, c.Request)
		if answer.Code != c.Status {
			t.Fatalf("%s: got %d %s, want %d %s", what, answer.Code, answer.Body, c.Status, c.Response)
		}
		if len(c.Response) == 0 {
			continue
		}
		got := decoded(t, answer.Body.Bytes())
		learn(decoded(t, c.Response), got, known, anew)
		for _, d := range w.differences(decoded(t, []byte(renew(string(c.Response)))), got, "") {
			t.Errorf("%s: %s", what, d)
		}
	}
}

func decoded(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// made is the form of ids and tokens, which are made at random.
var made = regexp.MustCompile(`\b([a-z]{2,5}_)[0-9A-Za-z_-]{20,}`)

// learn notes the ids and tokens that are made anew: those on record that nothing of the time before has, and that
// differ from the ones at the same place of the answer.
func learn(want, got any, known string, anew map[string]string) {
	switch want := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for name, v := range want {
			learn(v, g[name], known, anew)
		}
	case []any:
		g, _ := got.([]any)
		for i := range min(len(want), len(g)) {
			learn(want[i], g[i], known, anew)
		}
	case string:
		g, _ := got.(string)
		before, after := made.FindAllStringSubmatch(want, -1), made.FindAllStringSubmatch(g, -1)
		for i := range min(len(before), len(after)) {
			b, a := before[i], after[i]
			if b[0] != a[0] && b[1] == a[1] && anew[b[0]] == "" && !strings.Contains(known, b[0]) {
				anew[b[0]] = a[0]
			}
		}
	}
}

// sentences are fields that only people read: their words may change. What programs read of waiting_for is code.
var sentences = []string{"next", "note", "waiting_for"}

// differences lists what a reader of the recorded version would find changed in an answer. It ignores a field that it
// does not know.
func (w *world) differences(want, got any, at string) []string {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: got %T, want an object", at, got)}
		}
		var out []string
		for name, v := range want {
			gv, ok := g[name]
			switch {
			case name == "version" && w.rewrites:
			case name == "revision" && ok: // it sums up all the rest, which may have more fields and later microseconds
			case name == "id" && isEntry(v, gv):
			case slices.Contains(sentences, name) && reflect.TypeOf(v) == reflect.TypeOf(gv) && gv != "":
			case strings.HasSuffix(name, "_seconds") && sameSeconds(v, gv):
			case !ok:
				out = append(out, fmt.Sprintf("%s.%s: is gone, it was %v", at, name, v))
			default:
				out = append(out, w.differences(v, gv, at+"."+name)...)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return []string{fmt.Sprintf("%s: got %v, want %v", at, got, want)}
		}
		var out []string
		for i := range want {
			out = append(out, w.differences(want[i], g[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
		return out
	}
	if !reflect.DeepEqual(want, got) && !sameTime(want, got) && !w.sameBody(want, got) {
		return []string{fmt.Sprintf("%s: got %v, want %v", at, got, want)}
	}
	return nil
}

// isEntry says whether both are ids of an entry of the audit trail, of the same millisecond: the rest of one is made
// anew.
func isEntry(want, got any) bool {
	a, isA := want.(string)
	b, isB := got.(string)
	const form = "%020d/"
	var at [2]int64
	_, errA := fmt.Sscanf(a, form, &at[0])
	_, errB := fmt.Sscanf(b, form, &at[1])
	return isA && isB && errA == nil && errB == nil && time.Duration(at[0]-at[1]).Abs() < time.Millisecond
}

// sameBody says whether both are texts of JSON without differences, such as the body of a notification.
func (w *world) sameBody(want, got any) bool {
	a, isA := want.(string)
	b, isB := got.(string)
	var x, y map[string]any
	return isA && isB && json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && len(w.differences(x, y, "")) == 0
}

// sameSeconds is sameTime for what has gone by or remains. The service clock counts a minute of each pass at most, and
// these come some microseconds later than that.
func sameSeconds(want, got any) bool {
	a, isA := want.(float64)
	b, isB := got.(float64)
	return isA && isB && math.Abs(a-b) < 1e-2
}

// sameTime takes two times for one that differ by less than a millisecond: the clock of these tests moves by
// a microsecond with each look at it, and how often a version looks is its own affair.
func sameTime(want, got any) bool {
	var at [2]time.Time
	for i, v := range []any{want, got} {
		text, ok := v.(string)
		if !ok {
			return false
		}
		var err error
		if at[i], err = time.Parse(time.RFC3339Nano, text); err != nil {
			return false
		}
	}
	return at[0].Sub(at[1]).Abs() < time.Millisecond
}
