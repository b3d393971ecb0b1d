package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		t.Errorf("got %q, want what was written", got)
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
		if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // what is to be repaired
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
	for name, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "fullfsync": "1"} {
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

// A later schema that adds a table and a column, as one would.
var later = append(slices.Clone(sqlite.Migrations),
	"ALTER TABLE records ADD COLUMN colour TEXT; CREATE TABLE seen (n INTEGER) STRICT;",
	"INSERT INTO seen (n) SELECT count(*) FROM records",
)

func TestOpen_RefusesANewerSchemaAndNamesTheProgramNeeded(t *testing.T) {
	path := dataFile(t)
	s, err := sqlite.OpenWith(t.Context(), path, sqlite.Config{Program: "dayfly v9.4.0"}, later)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "one", "a", "precious")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), path, sqlite.Config{Program: "dayfly v1.0.0"})
	if err == nil {
		t.Fatal("a newer schema was opened")
	}
	for _, want := range []string{path, "schema version 3", "knows versions up to 1", "dayfly v9.4.0 or later"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to say %q", err, want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestOpen_MigratesAnOlderSchemaAfterACopy(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{Program: "dayfly v1.0.0"})
	put(t, s, "one", "a", "kept")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s, err := sqlite.OpenWith(t.Context(), path, sqlite.Config{Program: "dayfly v2.0.0"}, later)
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, s); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("after the migration the store holds %q", got)
	}
	put(t, s, "two", "b", "new")
	put(t, s, "one", "a", "kept") // a repeat from before the migration
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := files(t, filepath.Dir(path)), []string{"dayfly.db", "dayfly.db.v1"}; !slices.Equal(got, want) {
		t.Fatalf("the directory holds %q, want %q", got, want)
	}
	info, err := os.Stat(path + ".v1")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy has mode %v (%v), want 600", info.Mode(), err)
	}
	// The copy is a data file of the old schema as it was; the older program goes on with it.
	old := open(t, path+".v1", sqlite.Config{})
	if got := values(t, old); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the copy holds %q", got)
	}
	// Opened again, nothing is left to migrate.
	s, err = sqlite.OpenWith(t.Context(), path, sqlite.Config{}, later)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, filepath.Dir(path)); slices.Contains(got, "dayfly.db.v3") {
		t.Errorf("a file of the newest schema was copied: %q", got)
	}
}

// older makes a data file as a program made it that had larger pages and no table commit_ids.
func older(t *testing.T, path string, n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	text := "PRAGMA journal_mode = WAL; BEGIN;" + sqlite.Migrations[0] + "PRAGMA application_id = 0x64617966; PRAGMA user_version = 1; COMMIT"
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		k := store.Key{Part: "p", Sort: fmt.Sprintf("%07d", (i*7919)%n)}
		e := store.Entry{Part: "i", Sort: fmt.Sprint(i % 10)}
		_, err := tx.ExecContext(t.Context(), "INSERT INTO records (part, sort, version, expires, part1, place1, value) VALUES (?, ?, 7, ?, ?, ?, ?)",
			[]byte(k.Part), []byte(k.Sort), i%2*1000, []byte(e.Part), []byte(store.Place(e, k)), []byte(strings.Repeat("x", i%1500)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tx.Commit(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Nothing in it keeps the older program from going on with it: see also test/upgrade.
func TestOpen_WritesAnOlderFileAnew(t *testing.T) {
	path := dataFile(t)
	const n = 900
	older(t, path, n)
	s := open(t, path, sqlite.Config{})
	page, err := s.Range(t.Context(), store.Scan{Part: "p", Limit: 1000})
	if err != nil || len(page.Records) != n {
		t.Fatalf("%d records are left of %d (%v)", len(page.Records), n, err)
	}
	for i, r := range page.Records {
		if want := fmt.Sprintf("%07d", i); r.Key.Sort != want || r.Version != 7 || r.Indexes[store.Index1].Part != "i" {
			t.Fatalf("got %+v, want record %s at version 7, in an index", r, want)
		}
	}
	if page, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "i", Limit: 1000}); err != nil || len(page.Records) != n {
		t.Errorf("the index has %d records (%v)", len(page.Records), err)
	}
	if got, err := s.WriterPragma(t.Context(), "page_size"); err != nil || got != "2048" {
		t.Errorf("the pages have %s bytes (%v)", got, err)
	}
	if purged, err := s.Purge(t.Context(), time.Unix(2000, 0)); err != nil || purged != sqlite.PurgeLimit {
		t.Errorf("purged %d (%v)", purged, err)
	}
	if got, err := s.WriterPragma(t.Context(), "user_version"); err != nil || got != "1" {
		t.Errorf("the schema is %s (%v)", got, err)
	}
}

func TestOpen_FailedMigrationLeavesTheOldFile(t *testing.T) {
	path := dataFile(t)
	s := open(t, path, sqlite.Config{})
	put(t, s, "one", "a", "kept")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	broken := append(slices.Clone(later), "DELETE FROM records; INSERT INTO nowhere VALUES (1)")
	for range 2 {
		_, err := sqlite.OpenWith(t.Context(), path, sqlite.Config{}, broken)
		if err == nil || !strings.Contains(err.Error(), "from schema 1 to 4: to version 4: ") {
			t.Fatalf("got %v, want the step that failed", err)
		}
	}
	// Each try keeps a copy of its own and overwrites none.
	if got, want := files(t, filepath.Dir(path)), []string{"dayfly.db", "dayfly.db.v1", "dayfly.db.v1-2"}; !cmp.Equal(got, want) {
		t.Errorf("the directory holds %q, want %q", got, want)
	}
	s = open(t, path, sqlite.Config{})
	if got := values(t, s); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the file holds %q", got)
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

// A file of which most was deleted is small again after the next start, and holds what is left.
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
		if _, err := sqlite.Copy(t.Context(), path, to); err != nil {
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
