package ticket

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxKeyFile bounds a key file: some thousand keys, far more than any overlap needs.
const maxKeyFile = 256 << 10

// keyDocument is the form of a key file, and of a secret that holds the same.
type keyDocument struct {
	Keys []keyEntry `json:"keys"` // the first seals, all open
}

type keyEntry struct {
	ID  string `json:"id"`
	Key string `json:"key"` // base64url without padding
}

// GenerateKey makes a new random key with a random id.
func GenerateKey() Key {
	var id [8]byte
	var secret [KeySize]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	_, _ = rand.Read(secret[:])
	return Key{ID: hex.EncodeToString(id[:]), Secret: redact.New(string(secret[:]))}
}

// FormatKeys writes keys in the form that ParseKeys reads. The result is secret.
func FormatKeys(keys ...Key) ([]byte, error) {
	if _, err := NewKeyring(keys...); err != nil {
		return nil, err
	}
	var doc keyDocument
	for _, k := range keys {
		doc.Keys = append(doc.Keys, keyEntry{ID: k.ID, Key: base64.RawURLEncoding.EncodeToString([]byte(k.Secret.Reveal()))})
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode keys: %w", err)
	}
	return append(b, '\n'), nil
}

// ParseKeys reads {"keys": [{"id": ..., "key": ...}, ...]}. The order is kept: the first key seals.
// No error quotes the document.
func ParseKeys(document []byte) ([]Key, error) {
	var doc keyDocument
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "keys", `cannot read the keys: give a document {"keys": [{"id": "...", "key": "..."}]}`)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, workflow.Refuse(workflow.ErrInvalid, "keys", "there is more text after the keys")
	}
	keys := make([]Key, 0, len(doc.Keys))
	for i, e := range doc.Keys {
		b, err := base64.RawURLEncoding.DecodeString(e.Key)
		if err != nil {
			return nil, workflow.Refuse(workflow.ErrInvalid, fmt.Sprintf("keys[%d].key", i), "the key is not base64url without padding")
		}
		keys = append(keys, Key{ID: e.ID, Secret: redact.New(string(b))})
	}
	if _, err := NewKeyring(keys...); err != nil {
		return nil, err
	}
	return keys, nil
}

// LoadFile makes a ring of a key file. It refuses a file that others than its owner can read, that belongs to another
// user, or that is not a plain file. If there is no file, the error is fs.ErrNotExist.
func LoadFile(path string) (*Keyring, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "the key file %s is a symbolic link: give the path of the file itself", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "the key file %s is not a plain file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "the key file %s can be read by others (mode %04o): run chmod 600 on it, and replace its keys if others use this machine", path, info.Mode().Perm())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "the key file %s belongs to user %d, not to the user that runs this program (%d)", path, st.Uid, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	if len(b) > maxKeyFile {
		return nil, workflow.Refuse(workflow.ErrTooLarge, "", "the key file %s is larger than %d bytes", path, maxKeyFile)
	}
	keys, err := ParseKeys(b)
	var ring *Keyring
	if err == nil {
		ring, err = NewKeyring(keys...)
	}
	if err != nil { // a refusal of its own, because only the message of a refusal is shown
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "the key file %s cannot be used: %v", path, err)
	}
	return ring, nil
}

// EnsureFile is LoadFile, but first makes a file with one new key (mode 0600) if there is none. If several processes
// make it at once, one wins, and all load that file.
func EnsureFile(path string) (*Keyring, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		b, err := FormatKeys(GenerateKey())
		if err == nil {
			err = disk.Create(path, b)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create key file: %w", err)
		}
	}
	return LoadFile(path)
}
