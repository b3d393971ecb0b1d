package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
)

func put(t testing.TB, s store.Store, id, sort, value string) {
	t.Helper()
	r := store.Record{Key: store.Key{Part: "p", Sort: sort}, Value: []byte(value)}
	if err := s.Commit(t.Context(), id, store.Put(r, store.Absent)); err != nil {
		t.Fatal(err)
	}
}

func values(t testing.TB, s store.Store) (out []string) {
	t.Helper()
	page, err := s.Range(t.Context(), store.Scan{Part: "p", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		out = append(out, string(r.Value))
	}
	return out
}

func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOpen_FindsWhatWasWrittenBefore(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	put(t, s, "one", "a", "kept")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := files(t, filepath.Dir(path)), []string{"dayfly.db"}; !slices.Equal(got, want) {
		t.Errorf("after closing, the directory holds %q, want %q", got, want)
	}
	s = open(t, path, sqlite.Config{})
	if got := values(t, s); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("got %q, want the written value", got)
	}
	// A repeat across the restart is still a repeat.
	put(t, s, "one", "a", "kept")
}

func TestOpen_FilesAreForTheirOwnerOnly(t *testing.T) {
	path := dataFile(t)
	for range 2 {
		s := open(t, path, sqlite.Config{})
		put(t, s, fmt.Sprint(values(t, s)), fmt.Sprint(len(values(t, s))), "x")
		names := files(t, filepath.Dir(path))
		if len(names) < 2 {
			t.Fatalf("only %q while the store is open: the log is missing", names)
		}
		for _, name := range names {
			info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o600 {
				t.Errorf("%s has mode %o, want 600", name, got)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// As an administrator's copy may leave it.
		if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // the mode to be repaired
			t.Fatal(err)
		}
	}
}

func TestOpen_AnyPathIsAFileName(t *testing.T) {
	for _, name := range []string{"with space.db", "a?mode=memory", "100%41.db", "#hash", "ümlaut", "file:x.db", ":memory:", "a&_pragma=synchronous(0)"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			s := open(t, name, sqlite.Config{}) // relative
			put(t, s, "one", "a", "x")
			if got, err := s.WriterPragma(t.Context(), "synchronous"); err != nil || got != "2" {
				t.Errorf("synchronous is %s (%v), want 2", got, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := files(t, dir); !slices.Equal(got, []string{name}) {
				t.Errorf("the directory holds %q, want %q", got, name)
			}
		})
	}
}

// A fence that a power cut undoes would mean a second apply.
func TestOpen_CommitsAreSynced(t *testing.T) {
	s := open(t, dataFile(t), sqlite.Config{})
	for name, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "fullfsync": "1", "page_size": "2048"} {
		if got, err := s.WriterPragma(t.Context(), name); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestOpen_RefusesWhatIsNotItsFile(t *testing.T) {
	database := func(t *testing.T, path string, statements ...string) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path string, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"text":        {func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("not a database ", 100))) }, "is not a Dayfly data file (it is not a database)"},
		"short text":  {func(t *testing.T, path string) { write(t, path, []byte("x")) }, "is not a Dayfly data file (it is not a database)"},
		"archive":     {func(t *testing.T, path string) { write(t, path, append([]byte("PK\x03\x04"), make([]byte, 5000)...)) }, "is not a Dayfly data file (it is not a database)"},
		"other table": {func(t *testing.T, path string) { database(t, path, "CREATE TABLE bills (id)") }, "database of another program"},
		"other application": {func(t *testing.T, path string) {
			database(t, path, "PRAGMA application_id = 77", "PRAGMA user_version = 1", "CREATE TABLE records (id)")
		}, "database of another program"},
		"other version": {func(t *testing.T, path string) { database(t, path, "PRAGMA user_version = 1") }, "database of another program"},
		"forged version": {func(t *testing.T, path string) {
			database(t, path, "PRAGMA application_id = 1684109670", "PRAGMA user_version = -5")
		}, "database of another program"},
		"directory": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is not a regular file"},
		"no directory": {func(t *testing.T, path string) {
			if err := os.Remove(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
		}, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data", "file")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			tt.make(t, path)
			before, _ := os.ReadFile(path)
			for range 2 { // refused once, refused again
				s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
				if err == nil {
					t.Fatalf("opened: %v", s.Close())
				}
				if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("got %q, want it to name the file and to say %q", err, tt.want)
				}
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			if got, err := os.ReadDir(filepath.Dir(path)); err == nil && len(got) != 1 {
				t.Errorf("something was left beside the file: %v", got)
			}
		})
	}
}

// remade makes a data file and gives it another schema, by statements.
func remade(t *testing.T, path, statements string) {
	t.Helper()
	s := open(t, path, sqlite.Config{Program: "dayfly v9.4.0"})
	put(t, s, "one", "a", "precious")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), statements)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_RefusesAnotherSchemaAndLeavesTheFile(t *testing.T) {
	for name, tt := range map[string]struct {
		statements string
		older      int
		want       []string
	}{
		"older": {"DROP TABLE commit_ids; PRAGMA user_version = 1", 1, []string{"schema version 1", "older program", "only version 2: choose another file"}},
		"newer": {"ALTER TABLE records ADD COLUMN colour TEXT; PRAGMA user_version = 3", 0, []string{"schema version 3", "only version 2: run dayfly v9.4.0 or later"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := dataFile(t)
			remade(t, path, tt.statements)
			long := time.Unix(1000, 0)
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := sqlite.Older(path); got != tt.older {
				t.Errorf("older: got %d, want %d", got, tt.older)
			}
			to := filepath.Join(t.TempDir(), "copy")
			_, err = sqlite.Open(t.Context(), path, sqlite.Config{Program: "dayfly v1.0.0"})
			for _, err := range []error{err, sqlite.Copy(t.Context(), path, to), sqlite.Check(t.Context(), path)} {
				for _, want := range append(tt.want, path) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want it to say %q", err, want)
					}
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed (%v)", err)
			}
			if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(long) {
				t.Errorf("the file was written (%v)", err)
			}
			if got := append(files(t, filepath.Dir(path)), files(t, filepath.Dir(to))...); !slices.Equal(got, []string{"dayfly.db"}) {
				t.Errorf("there are %q, want the file alone", got)
			}
		})
	}
}

func TestOlder_IsAnOlderDataFile(t *testing.T) {
	path := dataFile(t)
	remade(t, path, "PRAGMA user_version = 1")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"text":              func([]byte) []byte { return bytes.Repeat([]byte("x"), 4096) },
		"short":             func(b []byte) []byte { return b[:99] },
		"empty":             func([]byte) []byte { return nil },
		"other application": func(b []byte) []byte { b[68]++; return b },
		"this version":      func(b []byte) []byte { b[63]++; return b },
	} {
		if err := os.WriteFile(path, change(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := sqlite.Older(path); got != 0 {
			t.Errorf("%s: got %d, want 0", name, got)
		}
	}
	for _, path := range []string{path + "-not-there", filepath.Dir(path)} {
		if got := sqlite.Older(path); got != 0 {
			t.Errorf("%s: got %d, want 0", path, got)
		}
	}
}

// endsAt is a context that ends when it was asked a number of times.
type endsAt struct {
	context.Context
	left *atomic.Int64
	end  func()
}

func (c endsAt) Done() <-chan struct{} {
	if c.left.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Done()
}

// Wherever the making of a file ends, none is there with a part of its schema.
func TestOpen_ThatEndsHalfWayIsBegunAgain(t *testing.T) {
	failed := 0
	for n, made := int64(1), false; !made; n++ {
		path := dataFile(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := endsAt{ctx, &atomic.Int64{}, cancel}
		c.left.Store(n)
		s, err := sqlite.Open(c, path, sqlite.Config{})
		if made = c.left.Load() > 0; err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		} else {
			failed++
		}
		cancel()
		put(t, open(t, path, sqlite.Config{}), "one", "a", "x")
	}
	if failed < 5 {
		t.Errorf("only %d steps were cut short", failed)
	}
}

func TestOpen_SeveralAtOnceMakeOneFile(t *testing.T) {
	path := dataFile(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
			if err != nil {
				t.Error(err)
				return
			}
			r := store.Record{Key: store.Key{Part: "p", Sort: fmt.Sprint(i)}}
			if err := errors.Join(s.Commit(t.Context(), fmt.Sprint(i), store.Put(r, store.Absent)), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := values(t, open(t, path, sqlite.Config{})); len(got) != 8 {
		t.Errorf("%d records are there, want those of all 8", len(got))
	}
}

func TestOpen_IsUndoneWhenItsContextEnds(t *testing.T) {
	path := dataFile(t)
	ctx, cancel := contextEnded(t)
	defer cancel()
	if s, err := sqlite.Open(ctx, path, sqlite.Config{}); !errors.Is(err, ctx.Err()) {
		t.Errorf("got %v, %v, want the context's error", s, err)
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written (%v)", err)
	}
	// The context of opening does not bound the store.
	ctx, cancel = contextOpen(t)
	s, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	put(t, s, "one", "a", "x")
	if got := values(t, s); !slices.Equal(got, []string{"x"}) {
		t.Errorf("got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A file of which most was deleted is small again after the next start, and holds the remaining records.
func TestOpen_CompactsAFileThatIsMostlyFree(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	big := strings.Repeat("x", 340<<10)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const n = 240 // some 80 MB
	for i := range n {
		put(t, s, fmt.Sprint(i), fmt.Sprintf("%03d", i), big)
	}
	for i := range n - 2 {
		if err := s.Commit(t.Context(), fmt.Sprint("gone", i), store.Delete(store.Key{Part: "p", Sort: fmt.Sprintf("%03d", i)}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := size()
	s = open(t, path, sqlite.Config{})
	if after := size(); before < 64<<20 || after > 2<<20 {
		t.Errorf("the file has %d bytes, before %d", after, before)
	}
	if got := values(t, s); len(got) != 2 || got[0] != big {
		t.Errorf("%d values are left, want the two that were not deleted", len(got))
	}
}

func TestCopy_IsWholeWhileAnotherProcessWrites(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	written := make(chan int, 1)
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				written <- i
				return
			default:
			}
			// Both or none.
			if err := s.Commit(t.Context(), fmt.Sprint(i), create(fmt.Sprintf("a%06d", i), "x"), create(fmt.Sprintf("b%06d", i), "x")); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for n := range 5 {
		to := filepath.Join(t.TempDir(), fmt.Sprint("copy", n))
		if err := sqlite.Copy(t.Context(), path, to); err != nil {
			t.Fatal(err)
		}
		if err := sqlite.Check(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		copied := open(t, to, sqlite.Config{})
		count := map[byte]int{}
		for _, prefix := range []string{"a", "b"} {
			for after := ""; ; {
				page, err := copied.Range(t.Context(), store.Scan{Part: "p", From: prefix, To: prefix + "~", Limit: 1000, After: after})
				if err != nil {
					t.Fatal(err)
				}
				count[prefix[0]] += len(page.Records)
				if after = page.Next; after == "" {
					break
				}
			}
		}
		if count['a'] != count['b'] {
			t.Errorf("copy %d has %d and %d records of commits that wrote both", n, count['a'], count['b'])
		}
	}
	close(stop)
	<-stopped
	if n := <-written; n == 0 {
		t.Error("nothing was written meanwhile")
	}
}

func TestCheck_RefusesADamagedFile(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	for i := range 200 {
		put(t, s, fmt.Sprint(i), fmt.Sprintf("%03d", i), strings.Repeat("x", 300))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Check(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[len(data)/2:], bytes.Repeat([]byte{0xaa}, 8192))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Check(t.Context(), path); err == nil {
		t.Error("a damaged file passed")
	}
}

// Another process that makes the same file holds it for a moment, and SQLite does not always wait for that.
func TestOpen_WaitsForWhoMakesTheFile(t *testing.T) {
	for _, held := range []string{"BEGIN; SELECT * FROM sqlite_schema", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"} {
		path := dataFile(t)
		other, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := other.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		opened := make(chan error, 1)
		go func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			t.Errorf("%s: it did not wait: %v", held, err)
		case <-time.After(100 * time.Millisecond):
			if err := errors.Join(conn.Close(), other.Close(), <-opened); err != nil {
				t.Errorf("%s: %v", held, err)
			}
		}
	}
}
