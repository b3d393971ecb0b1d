// Package sqlite is a store in one SQLite file. It keeps all promises of package store, and a commit that it
// has answered survives the loss of power.
//
// # Consistency model
//
// The file is in WAL mode with synchronous=FULL. All writes of a process go through one goroutine,
// which joins the commits that wait into one transaction and one fsync, each behind a savepoint of
// its own: one that loses its race is undone alone, and nobody is answered before the transaction is
// durable. Reads use connections of their own; each begins after every transaction that was answered, so
// it sees them, and Query is never stale. Several processes may open the file; a call that waits too
// long for another's transaction is answered store.ErrBusy.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Config are the settings of a store. The zero value works.
type Config struct {
	Log *slog.Logger     // nil means no log
	Now func() time.Time // the clock by which commit ids are forgotten; nil means time.Now
	// Program names the program and its version. It is kept in a file that is made, so that a program of an older
	// schema can say which one the file needs. Empty means "a newer program".
	Program string
	// BusyTimeout is how long to wait for another process that writes; 0 means 5 s.
	BusyTimeout time.Duration
}

// Store is a store in a file. Close it.
type Store struct {
	reads  *sql.DB
	gets   [getKeys]*sql.Stmt // of 1, 2 ... keys
	scans  map[scanKind]*sql.Stmt
	writer *writer
	close  func() error
}

var errClosed = errors.New("store: closed")

// Open opens the store in the file at path, and makes the file if there is none; its directory must
// exist. A file of another schema, and one that is not a Dayfly data file, is refused and left as it is. ctx bounds
// the opening only.
func Open(ctx context.Context, path string, cfg Config) (_ *Store, err error) {
	f, err := openFile(ctx, path, cfg)
	if err != nil {
		return nil, err
	}
	w, err := startWriter(context.WithoutCancel(ctx), f, cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s for writing: %w", path, err)
	}
	s := &Store{writer: w, scans: map[scanKind]*sql.Stmt{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.reads, err = f.connect(readConnections, "query_only(1)")
	s.close = sync.OnceValue(func() error {
		// The last connection to close tidies up the log, and only the writer's may.
		return errors.Join(s.closeReads(), w.close())
	})
	if err != nil {
		return nil, fmt.Errorf("open %s for reading: %w", path, err)
	}
	for i := range s.gets {
		if s.gets[i], err = s.reads.PrepareContext(ctx, getSQL(i+1)); err != nil {
			return nil, fmt.Errorf("open %s for reading: %w", path, err)
		}
	}
	for kind, text := range scanSQL() {
		stmt, err := s.reads.PrepareContext(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("open %s for reading: %w", path, err)
		}
		s.scans[kind] = stmt
	}
	return s, nil
}

func (s *Store) closeReads() error {
	if s.reads == nil {
		return nil
	}
	var errs []error
	for _, stmt := range s.gets {
		if stmt != nil {
			errs = append(errs, stmt.Close())
		}
	}
	for _, stmt := range s.scans {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, s.reads.Close())...)
}

// Close ends the store. A commit that is under way is finished first; later calls fail.
func (s *Store) Close() error { return s.close() }

// Commit implements store.Store. Where ctx ends after the commit was handed to the writer, the error
// is both store.ErrUnknown and the context's; where it ends before, nothing was written and the error
// is the context's alone.
func (s *Store) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if err := store.CheckCommit(id, ops); err != nil {
		return err
	}
	size, run := toCommit(id, ops)
	return s.writer.do(ctx, size, run)
}

// toCommit returns the func that the writer is to run, and how many bytes of values it writes.
func toCommit(id string, ops []store.Op) (size int, run func(context.Context, *session) (answer, failure error)) {
	// The writer may still read the values after the caller's context has ended, when they are the
	// caller's again.
	own := make([]store.Op, len(ops))
	for i, op := range ops {
		own[i] = op
		if op.IsPut() {
			r := op.Record().Clone()
			own[i] = store.Put(r, op.Expect())
			size += len(r.Value)
		}
	}
	fingerprint := store.Fingerprint(own)
	return size, func(ctx context.Context, s *session) (answer, failure error) {
		return s.commit(ctx, id, fingerprint[:], own)
	}
}

// PurgeLimit is the maximum of records that one Purge deletes: it holds up commits while it works.
const PurgeLimit = 200

// Purge deletes up to PurgeLimit records whose Expires lies before now and returns how many it
// deleted. One that deleted PurgeLimit has more to do.
func (s *Store) Purge(ctx context.Context, now time.Time) (int, error) {
	var n int64
	err := s.writer.do(ctx, 0, func(ctx context.Context, s *session) (answer, failure error) {
		n, failure = s.exec(ctx, s.purge, now.Unix(), PurgeLimit)
		return nil, failure
	})
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return int(n), nil
}
