// Package providercachetest is a registry of providers for tests: a server of this machine, over TLS, that signs with
// a key of its own and counts its downloads. Engines install from it as from any other registry.
package providercachetest

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/dayfly-dev/dayfly/internal/providercache"
)

// Registry is a server.
type Registry struct {
	Host string // part of each provider's source, such as localhost:34567
	CA   string // file with its certificate: the engine's SSL_CERT_FILE

	key *openpgp.Entity

	mu       sync.Mutex
	packages map[string]Package // by type and version
	fetched  map[string]int     // archives, by type and version
	bytes    int64
}

// Package is a published package.
type Package struct {
	Source  string // HOST/NAMESPACE/TYPE
	Type    string
	Version string
	Hash    string // its h1 hash
	Files   map[string][]byte
	archive []byte
}

// New starts a server until the test ends.
func New(tb testing.TB) *Registry {
	tb.Helper()
	key, err := openpgp.NewEntity("tests", "", "tests@example.com", &packet.Config{RSABits: 2048})
	check(tb, err)
	r := &Registry{key: key, packages: map[string]Package{}, fetched: map[string]int{}, CA: filepath.Join(tb.TempDir(), "ca.pem")}
	cert, pemCert := certificate(tb)
	check(tb, os.WriteFile(r.CA, pemCert, 0o644)) //nolint:gosec // G306: engines run as other users
	for dir := filepath.Dir(r.CA); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		check(tb, os.Chmod(dir, 0o755)) //nolint:gosec // G302: see above
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	tb.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	check(tb, err)
	r.Host = "localhost:" + port
	return r
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// certificate makes one for localhost.
func certificate(tb testing.TB) (tls.Certificate, []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	is := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	check(tb, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Program is the header of a provider's program on this machine, followed by size random bytes, which do not
// compress. Engines do not start it to install it.
func Program(tb testing.TB, size int) []byte {
	tb.Helper()
	self, err := os.Executable()
	check(tb, err)
	f, err := os.Open(self) //nolint:gosec // G304: this program
	check(tb, err)
	defer func() { _ = f.Close() }()
	out := make([]byte, 64+size)
	_, err = f.ReadAt(out[:64], 0)
	check(tb, err)
	_, err = rand.Read(out[64:])
	check(tb, err)
	return out
}

// Publish publishes a version of a provider in the namespace "tests", for this machine's platform. Its program has so
// many random bytes.
func (r *Registry) Publish(tb testing.TB, name, version string, size int) Package {
	tb.Helper()
	return r.PublishFiles(tb, name, version, map[string][]byte{
		"LICENSE": []byte("license of " + name + "\n"), "terraform-provider-" + name + "_v" + version: Program(tb, size),
	})
}

// PublishFiles is Publish with these files.
func (r *Registry) PublishFiles(tb testing.TB, name, version string, files map[string][]byte) Package {
	tb.Helper()
	p := Package{Source: r.Host + "/tests/" + name, Type: name, Version: version, Files: files}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		h := &zip.FileHeader{Name: file, Method: zip.Deflate}
		h.SetMode(fs.FileMode(0o755))
		w, err := z.CreateHeader(h)
		check(tb, err)
		_, err = w.Write(files[file])
		check(tb, err)
	}
	check(tb, z.Close())
	p.archive = b.Bytes()
	path := filepath.Join(tb.TempDir(), "package.zip")
	check(tb, os.WriteFile(path, p.archive, 0o600))
	var err error
	p.Hash, err = dirhash.HashZip(path, dirhash.Hash1)
	check(tb, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.packages[name+"/"+version] = p
	return p
}

// Fetched returns how often archives were fetched since the last call, and how many bytes they had.
func (r *Registry) Fetched() (archives map[string]int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	archives, bytes = r.fetched, r.bytes
	r.fetched, r.bytes = map[string]int{}, 0
	return archives, bytes
}

// Lock is a dependency lock file with these packages, as providers lock writes it for this machine's platform.
func (r *Registry) Lock(packages ...Package) string {
	var b strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&b, "provider %q {\n  version = %q\n  hashes = [\n    %q,\n    %q,\n  ]\n}\n\n", p.Source, p.Version, p.Hash, fmt.Sprintf("zh:%x", sha256.Sum256(p.archive)))
	}
	return b.String()
}

// Module is a root module that needs these packages.
func Module(packages ...Package) string {
	var b strings.Builder
	b.WriteString("terraform {\n  required_providers {\n")
	for _, p := range packages {
		fmt.Fprintf(&b, "    %s = {\n      source = %q\n    }\n", p.Type, p.Source)
	}
	b.WriteString("  }\n}\n\nresource \"terraform_data\" \"one\" {}\n")
	return b.String()
}

func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/.well-known/terraform.json" {
		answer(w, map[string]any{"providers.v1": "/v1/providers/"})
		return
	}
	if name, ok := strings.CutPrefix(req.URL.Path, "/mirror/"+MirroredHost+"/tests/"); ok {
		r.mirror(w, req, name)
		return
	}
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/v1/providers/tests/"), "/")
	switch {
	case len(parts) == 2 && parts[1] == "versions":
		answer(w, map[string]any{"versions": r.versions(parts[0])})
	case len(parts) == 5 && parts[2] == "download":
		r.describe(w, req, parts[0], parts[1])
	case len(parts) == 3:
		r.give(w, req, parts[0]+"/"+parts[1], parts[2])
	default:
		http.NotFound(w, req)
	}
}

// MirroredHost is where the packages of the mirror come from: engines find no mirror of a host with a port.
const MirroredHost = "registry.example.com"

// Mirrored is a package as the mirror has it.
func (p Package) Mirrored() Package {
	p.Source = MirroredHost + "/tests/" + p.Type
	return p
}

// Mirror is the address of a network mirror that has the same packages. Its archives are counted under other names.
func (r *Registry) Mirror() string { return "https://" + r.Host + "/mirror/" }

// mirror answers as the files do that `terraform providers mirror` writes.
func (r *Registry) mirror(w http.ResponseWriter, req *http.Request, name string) {
	dir, file := path.Split(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.packages {
		switch {
		case p.Type+"/" != dir:
		case file == "index.json":
			answer(w, map[string]any{"versions": map[string]any{p.Version: map[string]any{}}})
			return
		case file == p.Version+".json":
			answer(w, map[string]any{"archives": map[string]any{providercache.Platform(): map[string]any{"url": p.file(), "hashes": []string{p.Hash}}}})
			return
		case file == p.file():
			if req.Method == http.MethodGet {
				r.fetched["mirror/"+key]++
				r.bytes += int64(len(p.archive))
			}
			_, _ = w.Write(p.archive)
			return
		}
	}
	http.Error(w, "AccessDenied", http.StatusForbidden)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (r *Registry) versions(name string) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	os, arch, _ := strings.Cut(providercache.Platform(), "_")
	out := []any{}
	for _, p := range r.packages {
		if p.Type == name {
			out = append(out, map[string]any{"version": p.Version, "protocols": []string{"5.0"}, "platforms": []any{map[string]string{"os": os, "arch": arch}}})
		}
	}
	return out
}

func (r *Registry) find(name string) (Package, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.packages[name]
	return p, ok
}

func (p Package) file() string {
	return "terraform-provider-" + p.Type + "_" + p.Version + "_" + providercache.Platform() + ".zip"
}

// describe returns the address of a package's archive, and the signer of its checksum.
func (r *Registry) describe(w http.ResponseWriter, req *http.Request, name, version string) {
	p, ok := r.find(name + "/" + version)
	if !ok {
		http.NotFound(w, req)
		return
	}
	var key bytes.Buffer
	a, err := armor.Encode(&key, openpgp.PublicKeyType, nil)
	if err == nil {
		err = r.key.Serialize(a)
	}
	if err == nil {
		err = a.Close()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	os, arch, _ := strings.Cut(providercache.Platform(), "_")
	at := "/v1/providers/tests/" + name + "/" + version + "/"
	answer(w, map[string]any{
		"protocols": []string{"5.0"}, "os": os, "arch": arch, "filename": p.file(), "shasum": fmt.Sprintf("%x", sha256.Sum256(p.archive)),
		"download_url": at + "archive", "shasums_url": at + "sums", "shasums_signature_url": at + "signature",
		"signing_keys": map[string]any{"gpg_public_keys": []any{map[string]string{
			"key_id": r.key.PrimaryKey.KeyIdString(), "ascii_armor": key.String(),
		}}},
	})
}

// give gives one of the files of a package away.
func (r *Registry) give(w http.ResponseWriter, req *http.Request, name, kind string) {
	p, ok := r.find(name)
	if !ok {
		http.NotFound(w, req)
		return
	}
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(p.archive), p.file())
	switch kind {
	case "archive":
		if req.Method == http.MethodGet { // Terraform asks with HEAD first
			r.mu.Lock()
			r.fetched[name]++
			r.bytes += int64(len(p.archive))
			r.mu.Unlock()
		}
		_, _ = w.Write(p.archive)
	case "sums":
		_, _ = w.Write(sums)
	case "signature":
		_ = openpgp.DetachSign(w, r.key, bytes.NewReader(sums), nil)
	default:
		http.NotFound(w, req)
	}
}
