package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// FailNextCommit lets the transaction that commits next on the writer's connection fail at its COMMIT.
func (s *Store) FailNextCommit(ctx context.Context) error {
	return s.writer.do(ctx, 0, func(_ context.Context, s *session) (answer, failure error) {
		return s.conn.Raw(func(c any) error {
			first := true // the commit of this very request
			c.(driver.HookRegisterer).RegisterCommitHook(func() int32 {
				if first {
					first = false
					return 0
				}
				return 1
			})
			return nil
		}), nil
	})
}

// Fill leaves no room in the file for as long as the writer's connection is the same: until its next failure.
func (s *Store) Fill(ctx context.Context) error {
	return s.writer.do(ctx, 0, func(ctx context.Context, s *session) (answer, failure error) {
		_, err := s.conn.ExecContext(ctx, "PRAGMA max_page_count = 1") // no less than its present number
		return err, nil
	})
}

// Hold keeps the writer busy until release is closed; it returns when the writer is.
func (s *Store) Hold(ctx context.Context, release <-chan struct{}) error {
	held := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- s.writer.do(ctx, 0, func(context.Context, *session) (answer, failure error) {
			close(held)
			<-release
			return nil, nil
		})
	}()
	select {
	case <-held:
		return nil
	case err := <-failed:
		return err
	}
}

// WriterPragma reads a setting of the writer's connection.
func (s *Store) WriterPragma(ctx context.Context, name string) (value string, err error) {
	err = s.writer.do(ctx, 0, func(ctx context.Context, s *session) (answer, failure error) {
		return s.conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value), nil
	})
	return value, err
}

// CountCommitIDs counts the ids of commits that are remembered.
func (s *Store) CountCommitIDs(ctx context.Context) (n int, err error) {
	return n, s.reads.QueryRowContext(ctx, "SELECT count(*) FROM commit_ids").Scan(&n)
}

// Plan returns how SQLite reads each kind of scan.
func (s *Store) Plans(ctx context.Context) (map[string]string, error) {
	plans := map[string]string{}
	for kind, text := range scanSQL() {
		args := []any{[]byte("p"), []byte("a")}
		if kind.bounded {
			args = append(args, []byte("b"))
		}
		rows, err := s.reads.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, append(args, 1)...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				return nil, err
			}
			plans[fmt.Sprint(kind)] += detail + "\n"
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// CommitWhileWriterWaits hands a commit over, calls cancel when the writer is at work on it, and meanwhile
// when the commit was answered, before the writer goes on.
func (s *Store) CommitWhileWriterWaits(ctx context.Context, cancel, meanwhile func(), id string, ops ...store.Op) error {
	answered, finished := make(chan struct{}), make(chan struct{})
	size, run := toCommit(id, ops)
	err := s.writer.do(ctx, size, func(ctx context.Context, s *session) (answer, failure error) {
		defer close(finished)
		cancel()
		<-answered
		return run(ctx, s)
	})
	meanwhile()
	close(answered)
	<-finished
	return err
}

// Together runs commits as one group, each under the id of its place, and returns their answers. An
// empty one stands for a request that fails as the disk does. The transaction fails at its end if
// failAtEnd is set.
func (s *Store) Together(ctx context.Context, failAtEnd bool, commits ...[]store.Op) ([]error, error) {
	own, err := openSession(ctx, s.writer)
	if err != nil {
		return nil, err
	}
	if failAtEnd {
		if err := own.conn.Raw(func(c any) error {
			c.(driver.HookRegisterer).RegisterCommitHook(func() int32 { return 1 })
			return nil
		}); err != nil {
			return nil, err
		}
	}
	group := make([]*request, len(commits))
	for i, ops := range commits {
		size, run := toCommit(fmt.Sprint(i), ops)
		if len(ops) == 0 {
			run = func(context.Context, *session) (answer, failure error) { return nil, ErrDisk }
		}
		group[i] = &request{run: run, size: size, done: make(chan error, 1)}
	}
	own = s.writer.serve(ctx, own, group)
	answers := make([]error, len(group))
	for i, r := range group {
		answers[i] = <-r.done
	}
	if own != nil {
		return answers, own.close()
	}
	return answers, nil
}

// ErrDisk is how the disk fails in Together.
var ErrDisk = errors.New("disk is gone")
