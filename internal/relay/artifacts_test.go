package relay_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/relay"
)

var (
	_ relay.Places = (*artifact.Directory)(nil)
	_ relay.Bytes  = (*artifact.Directory)(nil)
)

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// owned shows the ticket of an attempt.
func owned(t *testing.T, job string, attempt int) func(*http.Request) {
	t.Helper()
	sealed := seal(t, job, attempt, time.Now().Add(time.Hour))
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+sealed) }
}

func method(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }

func named(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(api.HeaderArtifact, name) }
}

// recording is a control plane that records what is announced, or answers that this is the input of a run.
func recording(input api.Artifact) func(seen) (int, string) {
	return func(s seen) (int, string) {
		var out any
		switch job := strings.Split(s.URL, "/")[6]; {
		case strings.HasSuffix(s.URL, "/artifacts"):
			var in api.NewArtifacts
			_ = json.Unmarshal([]byte(s.Body), &in)
			var taken api.ArtifactsTaken
			for _, a := range in.Artifacts {
				place := *in.Place
				place.Key = api.ArtifactKey("default", "ws_1", job, 1, a.Name)
				taken.Artifacts = append(taken.Artifacts, api.Artifact{
					Name: a.Name, Kind: a.Kind, Attempt: 1, Size: a.Size, SHA256: a.SHA256, Place: place, ExpiresAt: time.Now().Add(24 * time.Hour),
				})
			}
			out = taken
		case strings.HasSuffix(s.URL, "/input"):
			out = api.Input{Artifact: input}
		default:
			return 200, "{}"
		}
		text, _ := json.Marshal(out)
		return 200, string(text)
	}
}

func announcement(name, text string) string {
	in := api.NewArtifacts{
		Artifacts: []api.NewArtifact{{Name: name, Kind: api.ArtifactFile, Size: int64(len(text)), SHA256: sum(text)}},
		Place:     &api.Place{Kind: api.PlaceS3, Bucket: "of-the-runner"},
	}
	body, _ := json.Marshal(in)
	return string(body)
}

func TestArtifacts_AnnouncedThenPlaced(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	dir := artifact.NewDirectory(t.TempDir())
	r := u.relay(t, relay.Config{Hold: -1, Places: dir})
	own := owned(t, "wf_1", 1)

	w := call(t, r, "artifacts", "wf_1", announcement("files/a", "one"), own)
	var taken api.ArtifactsTaken
	if err := json.Unmarshal(w.Body.Bytes(), &taken); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if d := cmp.Diff([]api.Transfer{{Method: "PUT", URL: "/v1/jobs/wf_1/bytes"}}, taken.Uploads); d != "" {
		t.Errorf("uploads (-want +got):\n%s", d)
	}
	if body := u.made()[0].Body; !strings.Contains(body, `"place":{"kind":"directory"}`) || strings.Contains(body, "of-the-runner") {
		t.Errorf("the control plane was told %s", body)
	}
	put := func(name, text string, more ...func(*http.Request)) *httptest.ResponseRecorder {
		return call(t, r, "bytes", "wf_1", text, append([]func(*http.Request){own, method("PUT"), named(name)}, more...)...)
	}
	for what, tc := range map[string]struct {
		w    *httptest.ResponseRecorder
		want string
	}{
		"other bytes":            {put("files/a", "two"), "invalid"},
		"fewer bytes":            {put("files/a", "on"), "invalid"},
		"more bytes":             {put("files/a", "one more"), "invalid"},
		"of a length not said":   {put("files/a", "one more", func(r *http.Request) { r.ContentLength = -1 }), "invalid"},
		"not announced":          {put("files/b", "one"), "busy"},
		"no name":                {put("", "one"), "busy"},
		"another way to say it":  {put("files/../files/a", "one"), "busy"},
		"of another attempt":     {put("files/a", "one", owned(t, "wf_1", 2), func(r *http.Request) { r.Header.Set(api.HeaderAttempt, "2") }), "busy"},
		"with another's ticket":  {put("files/a", "one", owned(t, "wf_2", 1)), "unauthenticated"},
		"the input of a run":     {call(t, r, "bytes", "wf_1", "", own, method("GET")), "busy"},
		"another method of HTTP": {call(t, r, "bytes", "wf_1", "", own, method("DELETE")), "invalid"},
	} {
		if got := code(t, tc.w); got != tc.want {
			t.Errorf("%s: got %d %s", what, tc.w.Code, tc.w.Body)
		}
	}
	key := api.ArtifactKey("default", "ws_1", "wf_1", 1, "files/a")
	if _, err := dir.Open(key); err == nil {
		t.Error("there are bytes already")
	}
	if w := put("files/a", "one"); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := put("files/a", "one"); code(t, w) != "busy" {
		t.Errorf("placed twice: %d %s", w.Code, w.Body)
	}
	// Announced again, the same bytes count as placed.
	call(t, r, "artifacts", "wf_1", announcement("files/a", "one"), own)
	if w := put("files/a", "one"); w.Code != http.StatusOK {
		t.Errorf("again: %d %s", w.Code, w.Body)
	}
	// Not even the control plane has an artifact replaced.
	call(t, r, "artifacts", "wf_1", announcement("files/a", "two"), own)
	if w := put("files/a", "two"); code(t, w) != "already_exists" {
		t.Errorf("other bytes in its place: %d %s", w.Code, w.Body)
	}
	if strings.Contains(u.log.String(), token) {
		t.Error("the log shows the token")
	}
}

// C5: what a neighbour has announced cannot be placed by its socket or its name.
// Written anew, it would reach the control plane as if each member had stood once.
func TestArtifacts_WithAMemberTwiceAreNotForwarded(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	r := u.relay(t, relay.Config{Hold: -1, Places: artifact.NewDirectory(t.TempDir())})
	w := call(t, r, "artifacts", "wf_1", `{"artifacts":[],"artifacts":[{"name":"files/a"}]}`)
	if w.Code != http.StatusUnprocessableEntity || len(u.made()) != 0 {
		t.Errorf("%d %s, %d forwarded", w.Code, w.Body, len(u.made()))
	}
}

func TestArtifacts_AnotherJobsSocket(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	r := u.relay(t, relay.Config{Hold: -1, Places: artifact.NewDirectory(t.TempDir())})
	call(t, r, "artifacts", "wf_1", announcement("files/a", "one"))
	w := call(t, r.For("wf_2", 1), "bytes", "wf_1", "one", method("PUT"), named("files/a"))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("its path: %d %s", w.Code, w.Body)
	}
	w = call(t, r.For("wf_2", 1), "bytes", "wf_2", "one", method("PUT"), named("files/a"))
	if code(t, w) != "busy" {
		t.Errorf("its name: %d %s", w.Code, w.Body)
	}
}

func TestArtifacts_NeedAPlace(t *testing.T) {
	u := newUpstream()
	without := u.relay(t, relay.Config{Hold: -1})
	get := method(http.MethodGet)
	for name, w := range map[string]*httptest.ResponseRecorder{
		"no place":              call(t, without, "artifacts", "wf_1", announcement("files/a", "one")),
		"no place of the input": call(t, without, "input", "wf_1", "", get),
		"no place of bytes":     call(t, without, "bytes", "wf_1", "one", get),
	} {
		if code(t, w) != "not_in_this_version" {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
	if n := len(u.made()); n != 0 {
		t.Errorf("%d calls reached the control plane", n)
	}
}

func TestArtifacts_OfMinutesAgoAreAnnouncedAgain(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	now := time.Now()
	r := u.relay(t, relay.Config{Hold: -1, Places: artifact.NewDirectory(t.TempDir()), Now: func() time.Time { return now }})
	call(t, r, "artifacts", "wf_1", announcement("files/a", "one"))
	now = now.Add(11 * time.Minute)
	if w := call(t, r, "bytes", "wf_1", "one", method("PUT"), named("files/a")); code(t, w) != "busy" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestInput_IsThatOfTheTicketsWorkspace(t *testing.T) {
	const text = "the plan"
	dir := artifact.NewDirectory(t.TempDir())
	here := func(key string) api.Artifact {
		return api.Artifact{
			Name: "plan/bundle.tar", Size: int64(len(text)), SHA256: sum(text), ExpiresAt: time.Now().Add(time.Hour),
			Place: api.Place{Kind: api.PlaceDirectory, Key: key},
		}
	}
	for _, key := range []string{"runs/default/ws_1/wf_0/1/plan/bundle.tar", "runs/default/ws_2/wf_0/1/plan/bundle.tar"} {
		if err := dir.Keep(key, here(key), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := here("runs/default/ws_1/wf_0/1/plan/bundle.tar")
	elsewhere.Place.Kind, elsewhere.Place.Bucket = api.PlaceS3, "bucket"
	for name, tc := range map[string]struct {
		input api.Artifact
		want  string // "": it is sent
	}{
		"its own":            {here("runs/default/ws_1/wf_0/1/plan/bundle.tar"), ""},
		"another's":          {here("runs/default/ws_2/wf_0/1/plan/bundle.tar"), "conflict"},
		"another's, by dots": {here("runs/default/ws_1/../ws_2/wf_0/1/plan/bundle.tar"), "conflict"},
		"not there":          {here("runs/default/ws_1/wf_9/1/plan/bundle.tar"), "conflict"},
		"in another place":   {elsewhere, "conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.answer = recording(tc.input)
			r := u.relay(t, relay.Config{Hold: -1, Places: dir})
			w := call(t, r, "input", "wf_1", "", method("GET"))
			if tc.want != "" {
				if got := code(t, w); got != tc.want {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				if w := call(t, r, "bytes", "wf_1", "", method("GET")); code(t, w) != "busy" {
					t.Errorf("the bytes: %d %s", w.Code, w.Body)
				}
				return
			}
			var in api.Input
			if err := json.Unmarshal(w.Body.Bytes(), &in); err != nil || in.Download == nil || in.Download.URL != "/v1/jobs/wf_1/bytes" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if w := call(t, r, "bytes", "wf_1", "", method("GET")); w.Body.String() != text {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// forInput asks for an input that comes from another workspace.
func forInput(n string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(api.HeaderInput, n) }
}

func TestInput_OfAnotherWorkspaceIsItsOutputsAlone(t *testing.T) {
	const text = `{"token":"canary"}`
	dir := artifact.NewDirectory(t.TempDir())
	there := func(kind, key string) api.Artifact {
		return api.Artifact{
			Name: api.OutputsName, Kind: kind, Size: int64(len(text)), SHA256: sum(text), ExpiresAt: time.Now().Add(time.Hour),
			Place: api.Place{Kind: api.PlaceDirectory, Key: key},
		}
	}
	good := there(api.ArtifactOutputs, "runs/default/ws_2/wf_0/1/plan/outputs.json")
	elsewhere := good
	elsewhere.Place = api.Place{Kind: api.PlaceS3, Bucket: "another", Key: good.Place.Key}
	for name, tc := range map[string]struct {
		input api.Artifact
		sent  bool
	}{
		"of its organization":  {good, true},
		"of another":           {there(api.ArtifactOutputs, "runs/other/ws_2/wf_0/1/plan/outputs.json"), false},
		"of another, by dots":  {there(api.ArtifactOutputs, "runs/default/../other/ws_2/wf_0/1/plan/outputs.json"), false},
		"a plan":               {there(api.ArtifactPlan, "runs/default/ws_2/wf_0/1/plan/bundle.tar"), false},
		"a plan under a kind":  {there(api.ArtifactOutputs, "runs/default/ws_2/wf_0/1/plan/bundle.tar"), false},
		"a file of that name":  {there(api.ArtifactOutputs, "runs/default/ws_2/wf_0/1/files/plan/outputs.json"), false},
		"outputs under a kind": {there(api.ArtifactFile, good.Place.Key), false},
		"a push":               {there(api.ArtifactOutputs, "runs/default/ws_2/push/plan/outputs.json"), false},
		"in another place":     {elsewhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.input.Place.Kind == api.PlaceDirectory && !strings.Contains(tc.input.Place.Key, "..") {
				if err := dir.Keep(tc.input.Place.Key, tc.input, strings.NewReader(text)); err != nil {
					t.Fatal(err)
				}
			}
			u := newUpstream()
			u.answer = recording(tc.input)
			r := u.relay(t, relay.Config{Hold: -1, Places: dir})
			w := call(t, r, "input", "wf_1", "", method("GET"), forInput("3"))
			if made := u.made(); len(made) != 1 || made[0].Header.Get(api.HeaderInput) != "3" {
				t.Errorf("the control plane is asked %+v", made)
			}
			bytes := call(t, r, "bytes", "wf_1", "", method("GET"))
			if sent := w.Code == 200 && bytes.Body.String() == text; sent != tc.sent {
				t.Errorf("sent %t: %d %s, %d %s", sent, w.Code, w.Body, bytes.Code, bytes.Body)
			}
			if !tc.sent && strings.Contains(w.Body.String()+bytes.Body.String(), "canary") {
				t.Error("it was sent all the same")
			}
		})
	}
	// Without the header, what another workspace has left is refused as before.
	u := newUpstream()
	u.answer = recording(good)
	if w := call(t, u.relay(t, relay.Config{Hold: -1, Places: dir}), "input", "wf_1", "", method("GET")); code(t, w) != "conflict" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// bucket is a place whose bytes do not come here.
type bucket struct{}

func (bucket) Place() api.Place { return api.Place{Kind: api.PlaceS3, Bucket: "b", Region: "r"} }

func (bucket) Upload(_ context.Context, key string, a api.NewArtifact) (api.Transfer, error) {
	return api.Transfer{Method: "PUT", URL: "https://b.example.com/" + key + "?sum=" + a.SHA256}, nil
}

func (bucket) Download(_ context.Context, key string, _ api.Artifact) (api.Transfer, error) {
	return api.Transfer{Method: "GET", URL: "https://b.example.com/" + key}, nil
}

func TestArtifacts_ToABucketDoNotComeHere(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	r := u.relay(t, relay.Config{Hold: -1, Places: bucket{}})
	w := call(t, r, "artifacts", "wf_1", announcement("files/a", "one"))
	var taken api.ArtifactsTaken
	want := []api.Transfer{{Method: "PUT", URL: "https://b.example.com/runs/default/ws_1/wf_1/1/files/a?sum=" + sum("one")}}
	if err := json.Unmarshal(w.Body.Bytes(), &taken); err != nil || !cmp.Equal(want, taken.Uploads) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call(t, r, "bytes", "wf_1", "one", method("PUT"), named("files/a")); code(t, w) != "not_in_this_version" {
		t.Errorf("the bytes: %d %s", w.Code, w.Body)
	}
	if strings.Contains(u.log.String(), "sum=") {
		t.Error("the log shows a signed URL")
	}
}

// The limits of an agent's server are for small calls: bytes that come slowly must not be cut off by them.
func TestArtifacts_TakeLongerThanACall(t *testing.T) {
	u := newUpstream()
	u.answer = recording(api.Artifact{})
	r := u.relay(t, relay.Config{Hold: -1, Places: artifact.NewDirectory(t.TempDir())})
	call(t, r, "artifacts", "wf_1", announcement("files/a", "one"))
	server := httptest.NewUnstartedServer(r)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	server.Start()
	defer server.Close()
	body, feed := io.Pipe()
	go func() {
		_, _ = io.WriteString(feed, "o")
		<-time.After(200 * time.Millisecond)
		_, _ = io.WriteString(feed, "ne")
		_ = feed.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/v1/jobs/wf_1/bytes", body)
	if err != nil {
		t.Fatal(err)
	}
	owned(t, "wf_1", 1)(req)
	req.Header.Set(api.HeaderAttempt, "1")
	req.Header.Set(api.HeaderArtifact, "files/a")
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		t.Errorf("got %s", resp.Status)
	}
}
