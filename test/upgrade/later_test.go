package upgrade_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A later version is simulated: every object gets a field that no version has. The present version must ignore it, as
// it will have to when a later version comes.

// named are the fields whose keys are somebody's own names and not fields of ours.
var named = []string{
	"variables", "environment", "commands", "tags", "flags", "backend_config", "claims", "grants", "groups", "on", "sensitive", "labels", "pins",
}

// enrich adds fields to every object of a JSON text.
func enrich(t *testing.T, text []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // versions and times do not fit a float64
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := json.Marshal(enriched(v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func enriched(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = enriched(v[i])
		}
	case map[string]any:
		for name := range v {
			_, isObject := v[name].(map[string]any)
			if !(isObject && slices.Contains(named, name)) && name != "value" { // an output's value is the engine's
				v[name] = enriched(v[name])
			}
		}
		v["later_text"], v["later_number"], v["later_list"] = "unheard of", 7, []any{map[string]any{"deep": true}}
	}
	return v
}

func enrichRecords(t *testing.T, records []stored) []stored {
	t.Helper()
	out := slices.Clone(records)
	for i := range out {
		if out[i].Packed == nil {
			out[i].Value = enrich(t, out[i].Value)
		}
	}
	return out
}

// A control plane that is put back to this version, or a function of it that still runs together with the later one,
// finds records with fields that it does not know.
func TestUpgrade_RecordsOfALaterVersionAreRead(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		records := enrichRecords(t, lines[stored](t, dir, "records.jsonl"))
		if !strings.Contains(string(records[0].Value), "unheard of") {
			t.Fatal("the records were not changed")
		}
		for _, name := range []string{"memory", "sqlite"} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, dir, stores[name](t, dir, records))
				w.rewrites = true
				w.replay(t, lines[call](t, dir, "calls.jsonl"), nil)
			})
		}
	})
}

// ofARunner says whether a call is made from inside a task.
func ofARunner(c call) bool { return c.Header["Dayfly-Boot"] != "" }

// A runner's image may be newer than the control plane. What it says in addition is ignored; above all its
// result is accepted.
func TestUpgrade_CallsOfALaterRunnerAreTaken(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		changed := map[string]int{}
		w.replay(t, lines[call](t, dir, "calls.jsonl"), func(c call, body []byte) []byte {
			if !ofARunner(c) {
				return body
			}
			changed[c.Path[strings.LastIndex(c.Path, "/")+1:]]++
			return enrich(t, body)
		})
		for _, kind := range []string{"heartbeat", "steps", "logs", "result"} {
			if changed[kind] == 0 {
				t.Errorf("no call %s was changed", kind)
			}
		}
	})
}

// A pool stack that says more than its control plane knows is refused, and nothing is changed: what a later
// dispatcher reports may be a promise that only a later control plane keeps. That is why the control plane
// goes first.
func TestUpgrade_RefusesCallsOfALaterPool(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		pool := w.client(t, "pool", enriching(t, w.handler, true, false))
		id := w.scene.Workflows["claimed"]
		if _, err := pool.Claim(t.Context(), api.Claim{Instance: "one", Max: 5}); !isInvalid(err) {
			t.Errorf("claim: got %v, want ErrInvalid", err)
		}
		if err := pool.Launch(t.Context(), id, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: "t"}); !isInvalid(err) {
			t.Errorf("launch: got %v, want ErrInvalid", err)
		}
		w.replay(t, lines[call](t, dir, "calls.jsonl"), nil)
	})
}

// What the control plane of a later version answers is read without what this one does not know.
func TestUpgrade_AnswersOfALaterControlPlaneAreRead(t *testing.T) {
	eachVersion(t, func(t *testing.T, dir string) {
		w := newWorld(t, dir, stores["memory"](t, dir, lines[stored](t, dir, "records.jsonl")))
		plain := client.InMemory(w.handler)
		later := enriching(t, w.handler, false, true)
		for _, id := range w.scene.Workflows {
			w.clock.set(w.scene.At)
			want, err := w.client(t, "admin", plain).Why(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			w.clock.set(w.scene.At)
			got, err := w.client(t, "admin", later).Why(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		}
		w.claimToResult(t, later, nil)
	})
}

// client calls the control plane as one of the scene, through a transport.
func (w *world) client(t *testing.T, who string, through http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		URL: "http://control.test", HTTPClient: &http.Client{Transport: through}, RetryCount: -1,
		Token: func() redact.String { return redact.New(w.scene.Tokens[who]) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// enriching is a transport whose requests, or answers, are those of a later version.
func enriching(t *testing.T, h http.Handler, requests, answers bool) http.RoundTripper {
	t.Helper()
	under := client.InMemory(h)
	return transport(func(in *http.Request) (*http.Response, error) {
		if requests && in.Body != nil {
			text, err := io.ReadAll(in.Body)
			if err != nil {
				return nil, err
			}
			in = in.Clone(in.Context())
			in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(enrich(t, text))), -1
		}
		out, err := under.RoundTrip(in)
		if err != nil || !answers {
			return out, err
		}
		text, err := io.ReadAll(out.Body)
		if err != nil || len(text) == 0 {
			return out, err
		}
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(enrich(t, text))), -1
		out.Header.Del("Content-Length")
		return out, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isInvalid(err error) bool {
	return errors.Is(err, workflow.ErrInvalid)
}
