package ticket_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestEnsureFile_CreatesOnceThenLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ticket.keys")
	first, err := ticket.EnsureFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), fs.FileMode(0o600); got != want {
		t.Errorf("mode: got %o, want %o", got, want)
	}
	again, err := ticket.EnsureFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Open(seal(t, first, claims()), now); err != nil {
		t.Errorf("a ticket from before the restart: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("got %d files in the directory, want the key file alone", len(left))
	}
}

func TestEnsureFile_AtOnceAllGetTheSameKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ticket.keys")
	rings := make([]*ticket.Keyring, 8)
	var wg sync.WaitGroup
	for i := range rings {
		wg.Go(func() {
			k, err := ticket.EnsureFile(path)
			if err != nil {
				t.Error(err)
			}
			rings[i] = k
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	text := seal(t, rings[0], claims())
	for i, k := range rings {
		if _, err := k.Open(text, now); err != nil {
			t.Errorf("ring %d has another key: %v", i, err)
		}
	}
}

// The error must name the key file, so that it can be repaired.
func TestLoadFile_NamesTheFileThatItRefuses(t *testing.T) {
	for _, text := range []string{"", "no JSON", `{"keys": []}`, `{"keys": [{"id": "one", "key": "planted"}]}`} {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ticket.LoadFile(path)
		refusal, ok := errors.AsType[*workflow.Error](err)
		if !ok || !strings.Contains(refusal.Error(), path) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%q: got %v, want a refusal that names %s and no key", text, err, path)
		}
	}
}

func TestLoadFile_RefusesWhatOthersCouldRead(t *testing.T) {
	dir := t.TempDir()
	document, err := ticket.FormatKeys(ticket.GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, document, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", 0o600)
	if _, err := ticket.LoadFile(good); err != nil {
		t.Fatalf("0600: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ path, sentence string }{
		"group may read":   {file("group", 0o640), "mode 0640"},
		"others may read":  {file("others", 0o604), "mode 0604"},
		"others may write": {file("write", 0o602), "chmod 600"},
		"symbolic link":    {link, "symbolic link"},
		"directory":        {dir, "not a plain file"},
	}
	if os.Geteuid() == 0 {
		foreign := file("foreign", 0o600)
		if err := os.Chown(foreign, 65534, -1); err != nil {
			t.Fatal(err)
		}
		tests["another user's"] = struct{ path, sentence string }{foreign, "belongs to user 65534"}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ticket.LoadFile(tt.path)
			if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), tt.sentence) {
				t.Errorf("got %v, want ErrInvalid with %q", err, tt.sentence)
			}
		})
	}
	if _, err := ticket.LoadFile(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: got %v, want ErrNotExist", err)
	}
}

func TestParseKeys_KeepsTheOrderForARotation(t *testing.T) {
	old, fresh := ticket.GenerateKey(), ticket.GenerateKey()
	document, err := ticket.FormatKeys(fresh, old)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ticket.ParseKeys(document)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring(t, fresh).Open(seal(t, ring(t, keys...), claims()), now); err != nil {
		t.Errorf("the first key does not seal: %v", err)
	}
	if _, err := ring(t, keys...).Open(seal(t, ring(t, old), claims()), now); err != nil {
		t.Errorf("the second key does not open: %v", err)
	}
}

func TestParseKeys_RefusalsDoNotShowTheDocument(t *testing.T) {
	const planted = "cGxhbnRlZC1zZWNyZXQ"
	for name, document := range map[string]string{
		"empty":         "",
		"bare key":      planted,
		"no keys":       `{"keys":[]}`,
		"unknown field": `{"keys":[{"id":"a","secret":"` + planted + `"}]}`,
		"short key":     `{"keys":[{"id":"a","key":"` + planted + `"}]}`,
		"not base64":    `{"keys":[{"id":"a","key":"` + planted + `!"}]}`,
		"two documents": `{"keys":[]}{"keys":[]}`,
		"wrong type":    `{"keys":"` + planted + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ticket.ParseKeys([]byte(document))
			if !errors.Is(err, workflow.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			if strings.Contains(err.Error(), planted) {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
}

func FuzzParseKeys(f *testing.F) {
	document, err := ticket.FormatKeys(ticket.GenerateKey(), ticket.GenerateKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(document)
	f.Add([]byte(`{"keys":[{"id":"a","key":""}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, err := ticket.ParseKeys(document)
		if err != nil {
			if !errors.Is(err, workflow.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			return
		}
		// Accepted keys can be written and are accepted again.
		b, err := ticket.FormatKeys(keys...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.ParseKeys(b); err != nil {
			t.Fatal(err)
		}
	})
}
