package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

// applicationID marks a file as ours in its header, as SQLite provides for: "dayf".
const applicationID = 0x64617966

// pageSize is the size of the file's pages. A commit changes a few bytes in each of many pages and writes them whole,
// so small pages make a small log. With still smaller ones the records do not fit. (Records that lie in the tree of
// their key, WITHOUT ROWID, were tried: with pages of 4 KB the log of a lifecycle is 30 % larger than this, because
// leaves are split where a table's end is only added to; with these pages the file is half as large again.)
const pageSize = 2048

// Schema is the version of the schema below, which is that of 0.1.0. A file of another one is refused, so a change of
// the schema that raises it has to convert the files of all releases.
const Schema = 2

const schema = `
CREATE TABLE records (
	part    BLOB NOT NULL,
	sort    BLOB NOT NULL,
	version INTEGER NOT NULL,
	expires INTEGER NOT NULL, -- Unix seconds; 0: never
	part1   BLOB, -- the entry in the first index: its partition and its place (store.Place)
	place1  BLOB,
	part2   BLOB,
	place2  BLOB,
	value   BLOB  -- NULL is as good as empty
) STRICT;
CREATE UNIQUE INDEX records_key ON records (part, sort);
CREATE INDEX records_index1 ON records (part1, place1) WHERE part1 IS NOT NULL;
CREATE INDEX records_index2 ON records (part2, place2) WHERE part2 IS NOT NULL;
CREATE INDEX records_expires ON records (expires) WHERE expires > 0;
CREATE TABLE commit_ids (
	span        INTEGER NOT NULL, -- the ten minutes in which it was made, since 1970
	id          BLOB NOT NULL,
	fingerprint BLOB NOT NULL,
	PRIMARY KEY (span, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE about (
	name  TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`

// file is a data file and how to connect to it.
type file struct {
	path string
	busy time.Duration
}

// connect returns up to limit connections to the file, with the given settings over the common ones.
func (f file) connect(limit int, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", f.busy.Milliseconds())}, pragmas...)}
	// The path is escaped, so that no file name is taken for a setting.
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: f.path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(limit)
	db.SetMaxIdleConns(limit)
	return db, nil
}

// durable are the settings with which nothing that was committed is lost. A fence that a power cut undoes would mean a
// second apply.
var durable = []string{"synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)"}

// connectWriter returns one connection whose commits are durable.
func (f file) connectWriter() (*sql.DB, error) {
	return f.connect(1, append([]string{
		"journal_mode(WAL)",
		fmt.Sprintf("wal_autocheckpoint(%d)", 4<<20/pageSize),
		"journal_size_limit(67108864)", // after a burst, the log shrinks to this again
	}, durable...)...)
}

// openFile makes the file if there is none.
func openFile(ctx context.Context, path string, cfg Config) (file, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return file{}, fmt.Errorf("open %s: %w", path, err)
	}
	f := file{path: absolute, busy: cmp.Or(cfg.BusyTimeout, 5*time.Second)}
	if err := f.make(); err != nil {
		return file{}, err
	}
	empty, err := f.inspect(ctx)
	if err != nil {
		return file{}, err
	}
	// For files that another program put here. SQLite gives its log the same mode.
	if err := os.Chmod(f.path, 0o600); err != nil {
		return file{}, fmt.Errorf("close data file to others: %w", err)
	}
	if !empty {
		f.compact(ctx, cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)))
		return f, nil
	}
	if err := f.keepLog(ctx); err != nil {
		return file{}, fmt.Errorf("make %s: %w", path, err)
	}
	if err := f.fill(ctx, cfg.Program); err != nil {
		return file{}, fmt.Errorf("make %s: %w", path, err)
	}
	return f, syncDirectory(f.path)
}

// keepLog gives an empty file its size of pages, which its log then fixes. Where others make the same file, SQLite does not
// wait for them before it changes the mode (PRAGMA journal_mode returns SQLITE_BUSY at once), so this does.
func (f file) keepLog(ctx context.Context) error {
	for until := time.Now().Add(f.busy); ; {
		err := f.exec(ctx, fmt.Sprintf("PRAGMA page_size = %d; PRAGMA journal_mode = WAL", pageSize))
		if !isBusy(err) || time.Now().After(until) {
			return err
		}
		if err := wait.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// make makes the file if there is none. Only SQLite opens an existing file: to close any descriptor
// of a file releases all locks that this process holds on it.
func (f file) make() error {
	h, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return h.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make data file: %w", err)
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("open data file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("open data file: %s is not a regular file", f.path)
	}
	return nil
}

// inspect reports whether the file is empty. It changes nothing, and refuses a file that this program must not touch.
func (f file) inspect(ctx context.Context) (empty bool, err error) {
	foreign := func(why string) error {
		return fmt.Errorf("%s is not a Dayfly data file (%s): choose another file, or move this one away", f.path, why)
	}
	// SQLite takes a file that is shorter than the shortest page for an empty one.
	if info, err := os.Stat(f.path); err == nil && info.Size() > 0 && info.Size() < 512 {
		return false, foreign("it is not a database")
	}
	db, err := f.connect(1)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var application, version, tables int
	err = db.QueryRowContext(ctx, "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version").
		Scan(&application, &version, &tables)
	switch {
	case codeOf(err) == lib.SQLITE_NOTADB:
		return false, foreign("it is not a database")
	case err != nil:
		return false, fmt.Errorf("read %s: %w", f.path, classed(err))
	case application == 0 && version == 0 && tables == 0:
		return true, nil
	case application != applicationID || version < 1:
		return false, foreign("it is the database of another program")
	case version < Schema:
		return false, fmt.Errorf("%s has schema version %d, made by an older program; this program reads only version %d: choose another file",
			f.path, version, Schema)
	case version > Schema:
		program := "a newer program"
		// A much newer schema may keep the name elsewhere; the version is always there.
		_ = db.QueryRowContext(ctx, "SELECT value FROM about WHERE name = 'program'").Scan(&program)
		return false, fmt.Errorf("%s has schema version %d, made by %s; this program reads only version %d: run %s or later",
			f.path, version, program, Schema, program)
	}
	return false, nil
}

// Older returns the schema version of the data file at path if it is older than that of this program; else, and where
// it cannot be read, 0. It changes nothing, not even where the process that wrote the file was killed. It is for a file
// that this process does not have open: it closes a descriptor of it, see make.
func Older(path string) int {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return 0
	}
	h, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer h.Close() //nolint:errcheck // it was only read
	var header [100]byte
	if _, err := io.ReadFull(h, header[:]); err != nil || !bytes.HasPrefix(header[:], []byte("SQLite format 3\x00")) {
		return 0
	}
	// Where SQLite's file format has them.
	version, application := binary.BigEndian.Uint32(header[60:]), binary.BigEndian.Uint32(header[68:])
	if application != applicationID || version >= Schema {
		return 0
	}
	return int(version)
}

// Copy writes all that is in the data file at path into a new file, as it is at one moment, also while other processes
// write.
func Copy(ctx context.Context, path, to string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	f := file{path: absolute, busy: 5 * time.Second}
	if _, err := os.Stat(absolute); err != nil {
		return fmt.Errorf("copy %s: %w", path, err)
	}
	if _, err := f.inspect(ctx); err != nil {
		return err
	}
	if err := f.copyTo(ctx, to); err != nil {
		return fmt.Errorf("copy %s: %w", path, classed(err))
	}
	return nil
}

// Check refuses a data file that is damaged, is of another schema, or is none.
func Check(ctx context.Context, path string) (err error) {
	f := file{path: path, busy: 5 * time.Second}
	if _, err := f.inspect(ctx); err != nil {
		return err
	}
	db, err := f.connect(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&found); err != nil || found != "ok" {
		return errors.Join(fmt.Errorf("%s is damaged: %s", path, cmp.Or(found, "it cannot be read")), err)
	}
	return nil
}

// copyTo copies the whole file, with the records that are still in its log, into a new one.
func (f file) copyTo(ctx context.Context, to string) (err error) {
	db, err := f.connect(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	h, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	// SQLite writes into an empty file that is there, so that the copy has its mode.
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return err
	}
	return h.Sync()
}

// fill gives an empty file its schema, in one transaction.
func (f file) fill(ctx context.Context, program string) (err error) {
	db, err := f.connectWriter()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, undone := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			err = errors.Join(err, undone)
		}
	}()
	var version int
	if err := conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version == Schema { // another process has made it meanwhile
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return err
	}
	if _, err := conn.ExecContext(ctx, schema); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "INSERT INTO about (name, value) VALUES ('program', ?)", cmp.Or(program, "a newer program")); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", applicationID, Schema))
	return err
}

// worthCompacting is the minimum of free bytes in a file that is rewritten.
const worthCompacting = 64 << 20

// compact rewrites a file of which more than half is free, as after a shorter retention. Free pages are used again,
// so a file with as many additions as deletions does not grow, and stays as it is. Compacting takes as long as
// writing the remaining records, so it is done before anybody waits for the store. If it fails, the file stays as it
// is.
func (f file) compact(ctx context.Context, log *slog.Logger) {
	db, err := f.connect(1)
	if err != nil {
		return
	}
	var free, pages, size int64
	err = db.QueryRowContext(ctx, "SELECT freelist_count, page_count, page_size FROM pragma_freelist_count, pragma_page_count, pragma_page_size").Scan(&free, &pages, &size)
	if errors.Join(err, db.Close()) != nil || free*2 < pages || free*size < worthCompacting {
		return
	}
	log.Info("data file is compacted", "file", f.path, "bytes", pages*size, "free", free*size)
	err = f.exec(ctx, "PRAGMA journal_mode = DELETE; VACUUM; PRAGMA journal_mode = WAL")
	if err != nil {
		log.Warn("data file not compacted", "file", f.path, "err", classed(err))
	}
}

// exec runs statements on a connection of its own. Their changes are durable.
func (f file) exec(ctx context.Context, statements string) (err error) {
	db, err := f.connect(1, durable...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, statements)
	return err
}

func syncDirectory(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// codeOf returns SQLite's primary code of an error; 0 where it has none.
func codeOf(err error) int {
	var e *driver.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}

// isBusy reports an error that another connection causes and that passes.
func isBusy(err error) bool {
	code := codeOf(err)
	return code == lib.SQLITE_BUSY || code == lib.SQLITE_LOCKED
}

// isFull reports that the disk has no room, also for the file that connections share.
func isFull(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && (e.Code() == lib.SQLITE_FULL || e.Code() == lib.SQLITE_IOERR_SHMSIZE)
}
