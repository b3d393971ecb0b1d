package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// eachVersion runs a test for what this version wrote, and for what the releases did of which there is a recording: the
// directories below testdata.
func eachVersion(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	releases, err := filepath.Glob(filepath.Join("testdata", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(releases, recorded) {
		name := filepath.Base(dir)
		if dir == recorded {
			name = "this"
		}
		t.Run(name, func(t *testing.T) { test(t, dir) })
	}
}

// stored is one record as it is written down.
type stored struct {
	Part    string                      `json:"part"`
	Sort    string                      `json:"sort"`
	Version int64                       `json:"version"`
	Indexes map[store.Index]store.Entry `json:"indexes,omitempty"`
	Expires int64                       `json:"expires,omitempty"`
	Value   json.RawMessage             `json:"value,omitempty"`
	Packed  []byte                      `json:"packed,omitempty"` // in place of it, where the value is not JSON
}

// call is one exchange with the control plane, or one of its passes.
type call struct {
	At       time.Time         `json:"at"`
	Pass     bool              `json:"pass,omitempty"`
	Method   string            `json:"method,omitempty"`
	Path     string            `json:"path,omitempty"` // with its query
	Header   map[string]string `json:"header,omitempty"`
	Request  json.RawMessage   `json:"request,omitempty"`
	Form     string            `json:"form,omitempty"` // in place of it
	Status   int               `json:"status,omitempty"`
	Response json.RawMessage   `json:"response,omitempty"`
}

// message is a launch message as it lies in the queue.
type message struct {
	Name string          `json:"name"`
	Body json.RawMessage `json:"body"`
}

// scene names what there is when the records are written down.
type scene struct {
	At        time.Time          `json:"at"`
	Tokens    map[string]string  `json:"tokens"`
	Workflows map[string]string  `json:"workflows"` // ids by what they are there for
	Jobs      map[string]api.Job `json:"jobs"`
	Runs      map[string]api.Run `json:"runs"`
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func lines[T any](t *testing.T, path ...string) []T {
	t.Helper()
	var list []T
	d := json.NewDecoder(bytes.NewReader(read(t, path...)))
	for {
		var v T
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
}

func sceneOf(t *testing.T, dir string) scene {
	t.Helper()
	var s scene
	if err := json.Unmarshal(read(t, dir, "scene.json"), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// database unpacks the database file of a recording.
func database(t *testing.T, dir, to string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, dir, "dayfly.db.gz")))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// fill writes records into an empty store, each with the version that it had.
func fill(t *testing.T, st store.Store, records []stored) {
	t.Helper()
	id := 0
	for version := int64(1); ; version++ {
		var ops []store.Op
		flush := func() {
			if len(ops) == 0 {
				return
			}
			id++
			if err := st.Commit(t.Context(), "fill-"+time.Duration(id).String(), ops...); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
		left := false
		for _, r := range records {
			if r.Version < version {
				continue
			}
			left = true
			ops = append(ops, store.Put(store.Record{
				Key: store.Key{Part: r.Part, Sort: r.Sort}, Value: append(r.Packed, r.Value...), Indexes: r.Indexes, Expires: r.Expires,
			}, version-1))
			if len(ops) == 50 {
				flush()
			}
		}
		flush()
		if !left {
			return
		}
	}
}

// opened is how a store with recorded records comes to be.
type opened func(t *testing.T, dir string, records []stored) store.Store

// stores are the three that a control plane of ours runs over. That of SQLite is opened over the recorded file unless
// the records were changed.
var stores = map[string]opened{
	"memory": func(t *testing.T, _ string, records []stored) store.Store {
		st := memory.New()
		fill(t, st, records)
		return st
	},
	"sqlite": func(t *testing.T, dir string, records []stored) store.Store {
		path := filepath.Join(t.TempDir(), "dayfly.db")
		if records == nil {
			database(t, dir, path)
		}
		st, err := sqlite.Open(t.Context(), path, sqlite.Config{Program: "upgrade test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		fill(t, st, records)
		return st
	},
	"dynamodb": func(t *testing.T, _ string, records []stored) store.Store {
		credentials := sigv4.NewTable(nil)
		server := httptest.NewServer(awsim.New(awsim.Config{
			Credentials: credentials, Services: map[string]awsim.Service{"dynamodb": &fake.Service{}},
		}))
		t.Cleanup(server.Close)
		client := awsdynamodb.NewFromConfig(awsim.ClientConfig(server.URL, credentials.User("test")))
		if err := dynamodbtest.Create(t.Context(), client, "table", time.Minute); err != nil {
			t.Fatal(err)
		}
		st, err := dynamodb.New(client, "table", dynamodb.Config{})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, st, records)
		return st
	},
}

// clock is a time that a test sets.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(time.Microsecond)
	return c.t
}

func (c *clock) last() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}

// world is this version's control plane over recorded records.
type world struct {
	dir     string // of the recording
	clock   *clock
	plane   *controlplane.Plane
	handler http.Handler
	scene   scene
	// rewrites says that a record may be written where its own version would have left it: not all that it
	// holds is known here, so it is never found unchanged. Its version is then of no interest.
	rewrites bool
}

func newWorld(t *testing.T, dir string, st store.Store) *world {
	t.Helper()
	w := &world{dir: dir, clock: &clock{}, scene: sceneOf(t, dir)}
	w.clock.set(w.scene.At)
	w.plane = controlplane.New(st, config(w.clock.now))
	w.handler = httpapi.New(w.plane, httpapi.Config{})
	return w
}
