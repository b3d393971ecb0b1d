package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// Requests that are joined into one transaction are bounded, so that nobody waits for long on others.
const (
	groupRequests = 256
	groupBytes    = 4 << 20
)

// span is a stretch of time for which ids of commits are kept together: they are recognised in their own and the next,
// which is as long as the contract asks for.
const span = 10 * time.Minute

func spanOf(t time.Time) int64 { return t.Unix() / int64(span/time.Second) }

// request asks the writer to run something within a transaction. answer is returned to the caller
// when the transaction is durable; failure means that the storage failed, and undoes it all.
type request struct {
	run  func(context.Context, *session) (answer, failure error)
	size int        // bytes of values
	done chan error // holds one, so that the writer never waits for a caller that gave up
}

// writer is the goroutine that writes, and the way to it.
type writer struct {
	file     file
	now      func() time.Time
	requests chan *request // not buffered: a request that was sent is accepted, and will be answered
	stop     chan struct{}
	stopped  chan struct{}
	failed   error // the error of the last connection; set before stopped is closed
	log      *slog.Logger
	failing  bool // the last that is known of the storage; the writer's alone
	once     sync.Once
}

func startWriter(ctx context.Context, f file, cfg Config) (*writer, error) {
	now := cfg.Now
	if now == nil {
		// A step of the wall clock must not make the ids of commits older.
		start := time.Now()
		now = func() time.Time { return start.Add(time.Since(start)) }
	}
	w := &writer{file: f, now: now, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), requests: make(chan *request), stop: make(chan struct{}), stopped: make(chan struct{})}
	s, err := openSession(ctx, w)
	if err != nil {
		return nil, err
	}
	go w.loop(ctx, s)
	return w, nil
}

// close lets the writer finish the requests that it has accepted, and waits for its end.
func (w *writer) close() error {
	w.once.Do(func() { close(w.stop) })
	<-w.stopped
	return w.failed
}

// do hands a request over and waits for its answer.
func (w *writer) do(ctx context.Context, size int, run func(context.Context, *session) (answer, failure error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{run: run, size: size, done: make(chan error, 1)}
	select {
	case w.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stop:
		return errClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	}
}

func (w *writer) loop(ctx context.Context, s *session) {
	defer close(w.stopped)
	defer func() {
		if s != nil {
			w.failed = s.close()
		}
	}()
	for {
		select {
		case <-w.stop:
			return
		case first := <-w.requests:
			s = w.serve(ctx, s, w.gather(first))
		}
	}
}

// gather returns the requests that wait now. It yields once before it stops: callers that were answered a moment
// ago are about to come back, and one fsync serves them all.
func (w *writer) gather(first *request) []*request {
	group, size, yielded := []*request{first}, first.size, false
	for len(group) < groupRequests && size < groupBytes {
		select {
		case r := <-w.requests:
			group, size, yielded = append(group, r), size+r.size, false
		default:
			if yielded {
				return group
			}
			runtime.Gosched()
			yielded = true
		}
	}
	return group
}

// serve runs a group in one transaction and answers it. It returns the session for the next group:
// nil after a failure, because nothing is known of a connection that failed.
func (w *writer) serve(ctx context.Context, s *session, group []*request) *session {
	answers := make([]error, len(group))
	defer func() {
		for i, r := range group {
			r.done <- answers[i]
		}
	}()
	all := func(err error) {
		for i := range answers {
			answers[i] = err
		}
	}
	if s == nil {
		var err error
		if s, err = openSession(ctx, w); err != nil {
			w.note(err)
			all(classed(err))
			return nil
		}
	}
	if _, err := s.exec(ctx, s.begin); err != nil {
		w.note(err)
		all(classed(err))
		if isBusy(err) {
			return s
		}
		return s.discard()
	}
	s.wrote = false
	for i, r := range group {
		var failure error
		if answers[i], failure = r.run(ctx, s); failure != nil {
			w.note(failure)
			// Nothing of the group was written. The other requests were in order.
			all(store.ErrBusy)
			answers[i] = classed(failure)
			return s.discard()
		}
	}
	if err := s.forget(ctx, len(group)); err != nil {
		w.note(err)
		all(store.ErrBusy)
		return s.discard()
	}
	_, err := s.exec(ctx, s.end)
	if err != nil || s.wrote { // without a write, the disk shows nothing
		w.note(err)
	}
	if err != nil {
		for i := range answers {
			switch {
			case isBusy(err), answers[i] != nil: // a conflict may have been with a neighbour that is undone
				answers[i] = store.ErrBusy
			default:
				answers[i] = fmt.Errorf("%w: %w", store.ErrUnknown, classed(err))
			}
		}
		return s.discard()
	}
	return s
}

// classed marks the failures of the storage that the contract has a name for.
func classed(err error) error {
	switch {
	case isBusy(err):
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	case isFull(err):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}

// note logs when the storage begins to fail and when it works again. Callers get their own errors, which do not help
// an operator.
func (w *writer) note(err error) {
	switch {
	case isBusy(err):
	case err != nil && !w.failing:
		w.failing = true
		w.log.Error("records cannot be written", "file", w.file.path, "err", classed(err))
	case err == nil && w.failing:
		w.failing = false
		w.log.Info("records are written again", "file", w.file.path)
	}
}

// session is the connection that writes, with its prepared statements.
type session struct {
	db         *sql.DB
	conn       *sql.Conn
	now        func() time.Time
	lastForget time.Time   // when there was last nothing more to forget
	wrote      bool        // the transaction applies a commit
	statements []*sql.Stmt // all of the following

	begin, end, savepoint, undo, release            *sql.Stmt
	remember, remembered, forgetOld                 *sql.Stmt
	create, rewrite, update, remove, version, purge *sql.Stmt
}

func openSession(ctx context.Context, w *writer) (_ *session, err error) {
	s := &session{now: w.now}
	if s.db, err = w.file.connectWriter(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.begin, "BEGIN IMMEDIATE"},
		{&s.end, "COMMIT"},
		{&s.savepoint, "SAVEPOINT one"},
		{&s.undo, "ROLLBACK TO one"},
		{&s.release, "RELEASE one"},
		{&s.remember, "INSERT INTO commit_ids (span, id, fingerprint) SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM commit_ids WHERE span = ?1 - 1 AND id = ?2) ON CONFLICT (span, id) DO NOTHING"},
		{&s.remembered, "SELECT fingerprint FROM commit_ids WHERE span IN (?1, ?1 - 1) AND id = ?2"},
		{&s.forgetOld, "DELETE FROM commit_ids WHERE (span, id) IN (SELECT span, id FROM commit_ids WHERE span < ?1 - 1 LIMIT ?2)"},
		{&s.create, "INSERT INTO records (version, expires, part1, place1, part2, place2, value, part, sort) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (part, sort) DO NOTHING"},
		{&s.rewrite, "UPDATE records SET version = ?, expires = ?, value = ? WHERE part = ? AND sort = ? AND version = ? AND part1 IS ? AND place1 IS ? AND part2 IS ? AND place2 IS ?"},
		{&s.update, "UPDATE records SET version = ?, expires = ?, part1 = ?, place1 = ?, part2 = ?, place2 = ?, value = ? WHERE part = ? AND sort = ? AND version = ?"},
		{&s.remove, "DELETE FROM records WHERE part = ? AND sort = ? AND version = ?"},
		{&s.version, "SELECT version FROM records WHERE part = ? AND sort = ?"},
		{&s.purge, "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records INDEXED BY records_expires WHERE expires > 0 AND expires < ? ORDER BY expires LIMIT ?)"},
	} {
		if *p.stmt, err = s.conn.PrepareContext(ctx, p.text); err != nil {
			return nil, fmt.Errorf("%s: %w", p.text, err)
		}
		s.statements = append(s.statements, *p.stmt)
	}
	return s, nil
}

// close ends the connection, which undoes a transaction that is open.
func (s *session) close() error {
	var errs []error
	// An open statement would keep the connection and its files open after Close.
	for _, stmt := range s.statements {
		errs = append(errs, stmt.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}

// discard closes the session after a failure. Its callers get the error.
func (s *session) discard() *session {
	_ = s.close()
	return nil
}

func (s *session) exec(ctx context.Context, stmt *sql.Stmt, args ...any) (changed int64, err error) {
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// commit applies a commit behind a savepoint.
func (s *session) commit(ctx context.Context, id string, fingerprint []byte, ops []store.Op) (answer, failure error) {
	if _, err := s.exec(ctx, s.savepoint); err != nil {
		return nil, err
	}
	added, err := s.exec(ctx, s.remember, spanOf(s.now()), []byte(id), fingerprint)
	if err != nil {
		return nil, err
	}
	if added == 0 {
		answer, failure = s.repeat(ctx, id, fingerprint)
	} else {
		answer, failure = s.applyAll(ctx, ops)
	}
	if failure != nil {
		return nil, failure
	}
	if _, err := s.exec(ctx, s.release); err != nil {
		return nil, err
	}
	return answer, nil
}

// applyAll does all operations, or undoes those that it did and answers with a conflict.
func (s *session) applyAll(ctx context.Context, ops []store.Op) (answer, failure error) {
	for _, op := range ops {
		held, err := s.apply(ctx, op)
		if err != nil {
			return nil, err
		}
		if !held {
			_, err := s.exec(ctx, s.undo)
			return fmt.Errorf("%s is not at version %d: %w", op.Key(), op.Expect(), store.ErrConflict), err
		}
	}
	s.wrote = true
	return nil, nil
}

// repeat answers a commit whose id is known.
func (s *session) repeat(ctx context.Context, id string, fingerprint []byte) (answer, failure error) {
	var first []byte
	if err := s.remembered.QueryRowContext(ctx, spanOf(s.now()), []byte(id)).Scan(&first); err != nil {
		return nil, err
	}
	if !bytes.Equal(first, fingerprint) {
		return fmt.Errorf("store: commit id %q was used for other operations", id), nil
	}
	return nil, nil
}

// apply does one operation and reports whether its condition held.
func (s *session) apply(ctx context.Context, op store.Op) (held bool, err error) {
	k := op.Key()
	part, sort := []byte(k.Part), []byte(k.Sort)
	var changed int64
	switch {
	case op.IsPut():
		r := op.Record()
		part1, place1 := entry(r, store.Index1)
		part2, place2 := entry(r, store.Index2)
		if op.Expect() != store.Absent {
			// One that stays where it is in the indexes: SQLite would write their pages all the same.
			changed, err = s.exec(ctx, s.rewrite, r.Version, r.Expires, r.Value, part, sort, op.Expect(), part1, place1, part2, place2)
			if changed == 1 || err != nil {
				return changed == 1, err
			}
		}
		args := []any{r.Version, r.Expires, part1, place1, part2, place2, r.Value, part, sort}
		if op.Expect() == store.Absent {
			changed, err = s.exec(ctx, s.create, args...)
		} else {
			changed, err = s.exec(ctx, s.update, append(args, op.Expect())...)
		}
	case op.IsDelete():
		changed, err = s.exec(ctx, s.remove, part, sort, op.Expect())
	default:
		version := store.Absent
		err = s.version.QueryRowContext(ctx, part, sort).Scan(&version)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return version == op.Expect(), err
	}
	return changed == 1, err
}

// entry returns the partition and the place of a record in an index, or nil where it is not in it.
func entry(r store.Record, index store.Index) (part, place []byte) {
	e, ok := r.Indexes[index]
	if !ok {
		return nil, nil
	}
	return []byte(e.Part), []byte(store.Place(e, r.Key))
}

// forget removes the ids of commits that are old enough: twice as many as came, so that it keeps up,
// and no more, so that no commit waits for many removals.
func (s *session) forget(ctx context.Context, came int) error {
	now := s.now()
	if now.Sub(s.lastForget).Abs() < time.Minute {
		return nil
	}
	limit := 2*came + 64
	n, err := s.exec(ctx, s.forgetOld, spanOf(now), limit)
	if err != nil {
		return err
	}
	if n < int64(limit) {
		s.lastForget = now
	}
	return nil
}
