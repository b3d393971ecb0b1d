// Package local resolves references to secrets of one machine: file:NAME is a file of a directory
// that only its owner can read, env:NAME a variable of the runner's environment that its
// configuration names. Values are not encrypted on disk: every user who may read the owner's files
// may read them.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// MaxValue is the maximum size of a secret in bytes.
const MaxValue = 64 << 10

const (
	fileScheme = "file:"
)

var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`) })

// Files is a directory of secrets, one file each. Its methods may be called concurrently, also
// from several processes: a value is replaced as a whole or not at all.
type Files struct{ dir string }

// New makes the store that lies in dir. Nothing is read or written yet; the first Set makes the
// directory.
func New(dir string) *Files { return &Files{dir: dir} }

// CheckName refuses a name that no secret can have.
func CheckName(name string) error {
	if !secretName().MatchString(name) {
		return workflow.Refuse(workflow.ErrInvalid, "name", "a secret's name has 1 to 128 characters of A-Z, a-z, 0-9, ., _ and -, and begins with a letter, a digit or _; %s does not", quote(name))
	}
	return nil
}

// Resolve implements secrets.Resolver. A file that others than its owner can read, or that is not a
// plain file, is refused.
func (f *Files) Resolve(ctx context.Context, ref string) (redact.String, error) {
	if err := ctx.Err(); err != nil {
		return redact.String{}, err
	}
	name, ok := strings.CutPrefix(ref, fileScheme)
	if !ok || CheckName(name) != nil {
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "a reference to a secret of this machine is written file:NAME, with A-Z, a-z, 0-9, ., _ and - in its name; %s is not", quote(ref))
	}
	root, err := f.open()
	if err != nil {
		return redact.String{}, refuseMissing(err, name)
	}
	defer func() { _ = root.Close() }()
	value, err := read(root, name)
	if err != nil {
		return redact.String{}, refuseMissing(err, name)
	}
	return redact.New(string(value)), nil
}

// Set keeps a value under a name, in place of an older one. When it returns without an error, the
// value is on disk.
func (f *Files) Set(ctx context.Context, name string, value redact.String) error {
	if err := CheckName(name); err != nil {
		return err
	}
	switch n := len(value.Reveal()); {
	case n == 0:
		return workflow.Refuse(workflow.ErrInvalid, "value", "the value of secret %s is empty", name)
	case n > MaxValue:
		return workflow.Refuse(workflow.ErrTooLarge, "value", "the value of secret %s has %d bytes; at most %d are kept", name, n, MaxValue)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("make directory of secrets: %w", err)
	}
	root, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := disk.ReplaceIn(root, name, []byte(value.Reveal())); err != nil {
		return fmt.Errorf("set secret %s: %w", name, err)
	}
	return nil
}

// List returns the names of all secrets, sorted. It reads no value.
func (f *Files) List(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list secrets: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete removes a secret. One that is not there is a workflow.ErrNotFound.
func (f *Files) Delete(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	root, err := f.open()
	if err != nil {
		return refuseMissing(err, name)
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(name); err != nil {
		return refuseMissing(err, name)
	}
	return disk.Sync(root)
}

// open opens the directory after checking that nobody else can look into it.
func (f *Files) open() (*os.Root, error) {
	info, err := os.Lstat(f.dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of secrets: %w", err)
	}
	if !info.IsDir() {
		return nil, workflow.Refuse(workflow.ErrForbidden, "secrets", "%s is not a directory; a symbolic link is not followed there", f.dir)
	}
	if err := private(info, f.dir, "0700"); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of secrets: %w", err)
	}
	// The opened directory must be the one that was checked.
	opened, err := root.Stat(".")
	if err != nil || !os.SameFile(info, opened) {
		_ = root.Close()
		return nil, fmt.Errorf("open directory of secrets: %s was replaced meanwhile: %w", f.dir, secrets.ErrUnavailable)
	}
	return root, nil
}

func read(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, workflow.Refuse(workflow.ErrForbidden, "secrets", "secret %s is not a plain file; a symbolic link is not followed there", name)
	}
	if err := private(info, "secret "+name, "0600"); err != nil {
		return nil, err
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	// A Set meanwhile puts another file in place, which is as good if it is as private.
	opened, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !opened.Mode().IsRegular() {
		return nil, workflow.Refuse(workflow.ErrForbidden, "secrets", "secret %s is not a plain file", name)
	}
	if err := private(opened, "secret "+name, "0600"); err != nil {
		return nil, err
	}
	value, err := io.ReadAll(io.LimitReader(file, MaxValue+1))
	if err != nil {
		return nil, err
	}
	if len(value) > MaxValue {
		return nil, workflow.Refuse(workflow.ErrTooLarge, "secrets", "secret %s has more than %d bytes", name, MaxValue)
	}
	if len(value) == 0 {
		return nil, workflow.Refuse(workflow.ErrNotFound, "secrets", "secret %s is empty; set it with: dayfly secret set %s", name, name)
	}
	return value, nil
}

// private refuses files that another user than this process's can read or owns.
func private(info fs.FileInfo, name, want string) error {
	if info.Mode().Perm()&0o077 != 0 {
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "%s can be read by others (mode %04o); make it %s", name, info.Mode().Perm(), want)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "%s belongs to user %d, and this process runs as user %d", name, st.Uid, os.Geteuid())
	}
	return nil
}

// refuseMissing says what to do about a missing secret, and passes on a refusal. Other errors come from
// the disk.
func refuseMissing(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no secret %s on this machine; set it with: dayfly secret set %s", name, name)
	}
	if _, ok := errors.AsType[*workflow.Error](err); ok {
		return err
	}
	return fmt.Errorf("secret %s: %w: %w", name, secrets.ErrUnavailable, err)
}

// quote shows foreign text in an error: quoted, and cut where it is long.
func quote(s string) string { return text.Quote(s, 80) }
