package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/ticket"
)

// keep is where the recording of this version goes that a release keeps: CONTRIBUTING.md.
var keep = flag.String("record", "", "write what this version stores and says into this new directory, and keep it")

// recorded is the directory with the recording of this version, which each run of the tests makes anew.
var recorded string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	recorded = *keep
	if recorded == "" {
		var err error
		if recorded, err = os.MkdirTemp("", "dayfly-record-"); err != nil {
			fmt.Fprintln(os.Stderr, "record:", err)
			return 1
		}
		defer func() { _ = os.RemoveAll(recorded) }()
	}
	if err := record(context.Background(), recorded); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		return 1
	}
	return m.Run()
}

// record writes what this version stores and says: the records of a control plane with work in every state, the calls
// that go on from there with their answers, and the launch messages and tickets of that work.
func record(ctx context.Context, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // fixtures are for everybody
		return err
	}
	work, err := os.MkdirTemp("", "dayfly-record-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	database := filepath.Join(work, "dayfly.db")
	st, err := sqlite.Open(ctx, database, sqlite.Config{Program: "record"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	noting := &noting{Store: st, keys: map[store.Key]bool{}}
	r := newRecorder(ctx, noting)
	if err := r.record(func() error { return r.save(ctx, noting, dir, database) }); err != nil {
		return err
	}
	return writeLines(filepath.Join(dir, "calls.jsonl"), r.calls[r.middleAt:])
}

// noting is a store that knows what was ever written to it.
type noting struct {
	store.Store
	mu     sync.Mutex
	keys   map[store.Key]bool
	before func([]store.Op) error // each commit, where set
}

func (n *noting) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if n.before != nil {
		if err := n.before(ops); err != nil {
			return err
		}
	}
	n.mu.Lock()
	for _, op := range ops {
		n.keys[op.Key()] = true
	}
	n.mu.Unlock()
	return n.Store.Commit(ctx, id, ops...)
}

// save writes the state of the middle: records, database, messages, keys, names.
func (r *recorder) save(ctx context.Context, n *noting, dir, database string) error {
	keys := make([]store.Key, 0, len(n.keys))
	for k := range n.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b store.Key) int { return strings.Compare(a.Part+"\x00"+a.Sort, b.Part+"\x00"+b.Sort) })
	var records []stored
	for chunk := range slices.Chunk(keys, store.MaxGet) {
		got, err := n.Get(ctx, chunk...)
		if err != nil {
			return err
		}
		for _, rec := range got {
			one := stored{Part: rec.Key.Part, Sort: rec.Key.Sort, Version: rec.Version, Indexes: rec.Indexes, Expires: rec.Expires}
			if json.Valid(rec.Value) {
				one.Value = rec.Value
			} else {
				one.Packed = rec.Value
			}
			records = append(records, one)
		}
	}
	if err := writeLines(filepath.Join(dir, "records.jsonl"), records); err != nil {
		return err
	}
	if err := pack(ctx, database, filepath.Join(dir, "dayfly.db.gz")); err != nil {
		return err
	}
	keyFile, err := ticket.FormatKeys(ticketKey())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ticket-keys.json"), keyFile, 0o600); err != nil {
		return err
	}
	messages, err := r.messages()
	if err != nil {
		return err
	}
	if err := writeLines(filepath.Join(dir, "messages.jsonl"), messages); err != nil {
		return err
	}
	r.scene.At = r.clock.last()
	text, err := json.MarshalIndent(r.scene, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "scene.json"), append(text, '\n'), 0o600)
}

// ticketKey is not a secret: it seals only what is recorded here.
func ticketKey() ticket.Key {
	return ticket.Key{ID: "upgrade-test", Secret: redact.New(strings.Repeat("k", ticket.KeySize))}
}

func (r *recorder) messages() ([]message, error) {
	ring, err := ticket.NewKeyring(ticketKey())
	if err != nil {
		return nil, err
	}
	var out []message
	for _, name := range r.order {
		job := r.scene.Jobs[name]
		sealed, err := ring.Seal(ticket.Claims{
			Job: job.ID, Attempt: job.Attempt, Token: redact.New(job.Token), Expires: r.clock.last().Add(48 * time.Hour),
			Group: job.Organization + "/" + job.Workspace, Organization: job.Organization, WorkspaceID: job.WorkspaceID,
		})
		if err != nil {
			return nil, err
		}
		body, err := api.NewLaunchMessage(job, sealed, r.clock.last()).Encode()
		if err != nil {
			return nil, err
		}
		out = append(out, message{name, body})
	}
	return out, nil
}

// pack writes a copy of the database as of now; the store stays open for what follows.
func pack(ctx context.Context, from, to string) error {
	copied := from + ".copy"
	for _, end := range []string{"", "-wal"} {
		text, err := os.ReadFile(from + end) //nolint:gosec // our own file
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(copied+end, text, 0o600); err != nil {
			return err
		}
	}
	// Opened and closed once, it is one file.
	st, err := sqlite.Open(ctx, copied, sqlite.Config{Program: "record"})
	if err != nil {
		return err
	}
	if err := st.Close(); err != nil {
		return err
	}
	text, err := os.ReadFile(copied) //nolint:gosec // as above
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}

func writeLines[T any](path string, list []T) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range list {
		if err := e.Encode(v); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}
