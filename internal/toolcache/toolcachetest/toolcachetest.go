// Package toolcachetest is a publisher of engines for tests: a server of this machine that signs with a key of its own.
// It lays files out as the publishers of terraform and tofu do.
package toolcachetest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

var signatures = map[string]string{"terraform": ".sig", "tofu": ".gpgsig"}

// Releases is a server. Set its fields before it is called.
type Releases struct {
	Truncate bool                    // archives end early
	Redirect string                  // where every archive is; empty: here
	Before   func(req *http.Request) // called with each request

	url string
	key *openpgp.Entity

	mu      sync.Mutex
	files   map[string][]byte // by path
	all     map[string][]string
	calls   int
	fetched map[string]int
}

// New starts a server until the test ends.
func New(t *testing.T) *Releases {
	t.Helper()
	r := &Releases{key: newKey(t), files: map[string][]byte{}, all: map[string][]string{}, fetched: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func newKey(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("tests", "", "tests@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Publishers are both engines' publishers.
func (r *Releases) Publishers() map[string]toolcache.Publisher {
	var key bytes.Buffer
	w, err := armor.Encode(&key, openpgp.PublicKeyType, nil)
	if err == nil {
		err = r.key.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // it was just made
	}
	out := map[string]toolcache.Publisher{}
	for engine, signature := range signatures {
		out[engine] = toolcache.Publisher{
			List: r.url + "/" + engine + "/list", Files: r.url + "/" + engine + "/v{version}/", Signature: signature, Key: key.String(),
		}
	}
	return out
}

// Archive is the name of an archive for this machine.
func Archive(engine, version string) string {
	return fmt.Sprintf("%s_%s_%s_%s.zip", engine, version, runtime.GOOS, runtime.GOARCH)
}

func (r *Releases) path(engine, version, kind string) string {
	dir := "/" + engine + "/v" + version + "/"
	switch kind {
	case "list":
		return "/" + engine + "/list"
	case ".zip":
		return dir + Archive(engine, version)
	case "sig":
		return dir + engine + "_" + version + "_SHA256SUMS" + signatures[engine]
	}
	return dir + engine + "_" + version + "_SHA256SUMS"
}

// Publish publishes a version whose engine is this program.
func (r *Releases) Publish(t *testing.T, engine, version, program string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range map[string]string{"LICENSE.txt": "license", engine: program} {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(fs.FileMode(0o755))
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r.PublishArchive(t, engine, version, b.Bytes())
}

// PublishArchive publishes any bytes as the archive of a version.
func (r *Releases) PublishArchive(t *testing.T, engine, version string, archive []byte) {
	t.Helper()
	r.mu.Lock()
	r.files[r.path(engine, version, ".zip")] = archive
	r.all[engine] = append(r.all[engine], version)
	form, sep := `{"versions":{%s}}`, `%q:{"builds":[]}`
	if engine == "tofu" {
		form, sep = `{"versions":[%s]}`, `{"id":%q,"files":[]}`
	}
	var list []string
	for _, v := range r.all[engine] {
		list = append(list, fmt.Sprintf(sep, v))
	}
	r.files[r.path(engine, "", "list")] = fmt.Appendf(nil, form, strings.Join(list, ","))
	r.mu.Unlock()
	r.Sums(t, engine, version, fmt.Sprintf("%x  %s\n%x  other.zip\n", sha256.Sum256(archive), Archive(engine, version), sha256.Sum256(nil)))
}

// Sums publishes and signs a list of checksums.
func (r *Releases) Sums(t *testing.T, engine, version, sums string) {
	t.Helper()
	r.sign(t, r.key, engine, version, []byte(sums))
}

// SignWithAnotherKey signs a version with a key that is not the publisher's.
func (r *Releases) SignWithAnotherKey(t *testing.T, engine, version string) {
	t.Helper()
	r.mu.Lock()
	sums := r.files[r.path(engine, version, "")]
	r.mu.Unlock()
	r.sign(t, newKey(t), engine, version, sums)
}

func (r *Releases) sign(t *testing.T, key *openpgp.Entity, engine, version string, sums []byte) {
	t.Helper()
	var signature bytes.Buffer
	if err := openpgp.DetachSign(&signature, key, bytes.NewReader(sums), nil); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[r.path(engine, version, "")], r.files[r.path(engine, version, "sig")] = sums, signature.Bytes()
}

// Change changes the answer for a file of a version: list, .zip, sig or SHA256SUMS. An empty one means that it is
// missing.
func (r *Releases) Change(engine, version, kind string, change func([]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.path(engine, version, kind)
	r.files[p] = change(r.files[p])
}

// Calls is how often the server was called.
func (r *Releases) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// Fetched is how many archives of an engine were asked for.
func (r *Releases) Fetched(engine string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched[engine]
}

func (r *Releases) serve(w http.ResponseWriter, req *http.Request) {
	if r.Before != nil {
		r.Before(req)
	}
	archive := path.Ext(req.URL.Path) == ".zip"
	r.mu.Lock()
	r.calls++
	if archive {
		r.fetched[strings.Split(req.URL.Path, "/")[1]]++
	}
	b := r.files[req.URL.Path]
	r.mu.Unlock()
	switch {
	case r.Redirect != "" && (archive || req.URL.Path == r.Redirect):
		http.Redirect(w, req, r.Redirect, http.StatusFound)
	case b == nil:
		http.NotFound(w, req)
	case archive && r.Truncate:
		w.Header().Set("Content-Length", fmt.Sprint(len(b)+1))
		_, _ = w.Write(b)
	default:
		_, _ = w.Write(b)
	}
}
