package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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

// replay makes the calls and holds the answers to those on record. What is made anew, such as the token of a claim,
// takes the place of what was made then. change, where given, alters the requests first.
func (w *world) replay(t *testing.T, calls []call, change func(c call, body []byte) []byte) {
	t.Helper()
	if len(calls) < 200 {
		t.Fatalf("only %d calls", len(calls))
	}
	anew := map[string]string{}
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
		body := []byte(renew(string(c.Request)))
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
		learn(c.Response, answer.Body.Bytes(), anew)
		for _, d := range w.differences(decoded(t, []byte(renew(string(c.Response)))), decoded(t, answer.Body.Bytes()), "") {
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

// learn notes the tokens that a claim made anew.
func learn(before, after []byte, anew map[string]string) {
	var b, a struct{ Jobs []struct{ ID, Token string } }
	if json.Unmarshal(before, &b) != nil || json.Unmarshal(after, &a) != nil {
		return
	}
	for i, job := range b.Jobs {
		if i < len(a.Jobs) && job.ID == a.Jobs[i].ID && job.Token != "" {
			anew[job.Token] = a.Jobs[i].Token
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
	if !reflect.DeepEqual(want, got) && !sameTime(want, got) {
		return []string{fmt.Sprintf("%s: got %v, want %v", at, got, want)}
	}
	return nil
}

// isEntry says whether both are ids of an entry of the audit trail, of the same time: the rest of one is made anew.
func isEntry(want, got any) bool {
	a, isA := want.(string)
	b, isB := got.(string)
	at, _, ofEntry := strings.Cut(a, "/")
	return isA && isB && ofEntry && strings.HasPrefix(b, at+"/")
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
