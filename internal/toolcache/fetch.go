package toolcache

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/hashicorp/go-version"
)

// Limits of the files of a publisher, in bytes.
const (
	maxList      = 32 << 20
	maxSums      = 1 << 20
	maxSignature = 64 << 10
	maxArchive   = 512 << 20
	maxBinary    = 1 << 30

	maxRedirects = 5
)

//go:embed keys/terraform.asc
var keyOfTerraform string

//go:embed keys/tofu.asc
var keyOfTofu string

// Publisher is where the versions of an engine come from.
type Publisher struct {
	List      string // address of the list of versions
	Files     string // address of the directory of a version, with {version} in it
	Signature string // suffix of the name of the signature, after that of the checksums
	Key       string // armored public key
}

// Publishers are those of the engines that can be fetched. Their keys are part of this program:
// C874 011F 0AB4 0511 0D02 1055 3436 5D94 72D7 468F and E3E6 E43D 84CB 852E ADB0 051D 0C0A F313 E5FD 9F80.
func Publishers() map[string]Publisher {
	return map[string]Publisher{
		"terraform": {
			List: "https://releases.hashicorp.com/terraform/index.json", Files: "https://releases.hashicorp.com/terraform/{version}/",
			Signature: ".sig", Key: keyOfTerraform,
		},
		"tofu": {
			List: "https://get.opentofu.org/tofu/api.json", Files: "https://github.com/opentofu/opentofu/releases/download/v{version}/",
			Signature: ".gpgsig", Key: keyOfTofu,
		},
	}
}

// source is a publisher and the connections to it.
type source struct {
	Publisher

	transport *http.Transport
}

func newSource(p Publisher) *source {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	return &source{p, t.Clone()}
}

func (s *source) close() { s.transport.CloseIdleConnections() }

// highest returns the highest version of the list that fits.
func (s *source) highest(ctx context.Context, want version.Constraints) (*version.Version, error) {
	var list bytes.Buffer
	if err := s.read(ctx, s.List, &list, maxList); err != nil {
		return nil, err
	}
	all, err := versionsOf(list.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.List, err)
	}
	var best *version.Version
	for _, v := range all {
		if fits(want, v) && (best == nil || v.GreaterThan(best)) {
			best = v
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s has no such version among its %d", s.List, len(all))
	}
	return best, nil
}

// versionsOf reads a list of versions. One publisher writes them as an object by name, the other as an array with ids.
func versionsOf(list []byte) ([]*version.Version, error) {
	var doc struct{ Versions json.RawMessage }
	if err := json.Unmarshal(list, &doc); err != nil {
		return nil, errors.New("it is not a list of versions")
	}
	var names []string
	var byName map[string]json.RawMessage
	var byID []struct{ ID string }
	switch {
	case json.Unmarshal(doc.Versions, &byName) == nil:
		for name := range byName {
			names = append(names, name)
		}
	case json.Unmarshal(doc.Versions, &byID) == nil:
		for _, one := range byID {
			names = append(names, one.ID)
		}
	default:
		return nil, errors.New("it is not a list of versions")
	}
	var out []*version.Version
	for _, name := range names {
		if v, err := version.NewSemver(name); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}

// fetch makes the directory of a version in dir, after the signature and the checksum are found right.
func (s *source) fetch(ctx context.Context, engine string, v *version.Version, dir string) (err error) {
	files := strings.ReplaceAll(s.Files, "{version}", url.PathEscape(v.String()))
	archive := fmt.Sprintf("%s_%s_%s_%s.zip", engine, v, runtime.GOOS, runtime.GOARCH)
	want, err := s.digest(ctx, files+engine+"_"+v.String()+"_SHA256SUMS", archive)
	if err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, unfinished)
	if err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }() // which is not there after the rename
	zipped := filepath.Join(fresh, "archive.zip")
	f, err := os.OpenFile(zipped, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: in the cache itself
	if err != nil {
		return fmt.Errorf("keep its archive: %w", err)
	}
	sum := sha256.New()
	err = s.read(ctx, files+archive, io.MultiWriter(f, sum), maxArchive)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if got != want {
		return fmt.Errorf("the checksum of %s is %s, and its publisher signed %s", files+archive, got, want)
	}
	if err := unpack(zipped, engine, filepath.Join(fresh, engine)); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	return place(fresh, zipped, got, filepath.Join(dir, v.String()))
}

// digest returns the checksum of a file from the signed list of checksums.
func (s *source) digest(ctx context.Context, address, file string) (string, error) {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(s.Key))
	if err != nil {
		return "", fmt.Errorf("read the key of the publisher: %w", err)
	}
	var sums, signature bytes.Buffer
	if err := s.read(ctx, address, &sums, maxSums); err != nil {
		return "", err
	}
	if err := s.read(ctx, address+s.Signature, &signature, maxSignature); err != nil {
		return "", err
	}
	if _, err := openpgp.CheckDetachedSignature(keys, bytes.NewReader(sums.Bytes()), &signature, nil); err != nil {
		return "", fmt.Errorf("the signature of %s is not its publisher's: %w", address, err)
	}
	return sumOf(sums.String(), file)
}

// sumOf finds the checksum of a file in a list of them.
func sumOf(sums, file string) (string, error) {
	for line := range strings.Lines(sums) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != file {
			continue
		}
		if raw, err := hex.DecodeString(fields[0]); err != nil || len(raw) != sha256.Size {
			return "", fmt.Errorf("the checksum of %s is not one", file)
		}
		return strings.ToLower(fields[0]), nil
	}
	return "", fmt.Errorf("its publisher has no %s", file)
}

// read writes the answer of an address, if it is not too long.
func (s *source) read(ctx context.Context, address string, to io.Writer, limit int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	r.Header.Set("User-Agent", "dayfly")
	client := &http.Client{Transport: s.transport, CheckRedirect: checkRedirect}
	response, err := client.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the address of a redirect, which can have a signature in it
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: it answers %s", address, response.Status)
	}
	n, err := io.Copy(to, io.LimitReader(response.Body, limit+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	if n > limit {
		return fmt.Errorf("read %s: it is longer than %d MiB", address, limit>>20)
	}
	return nil
}

// checkRedirect follows a few redirects to encrypted addresses. One on this machine may lead to another one there.
func checkRedirect(to *http.Request, via []*http.Request) error {
	local := func(u *url.URL) bool {
		ip := net.ParseIP(u.Hostname())
		return ip != nil && ip.IsLoopback()
	}
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case to.URL.Scheme != "https" && !(to.URL.Scheme == "http" && local(via[0].URL) && local(to.URL)):
		return fmt.Errorf("it redirects to %s, which is not https", to.URL.Hostname())
	}
	return nil
}

// unpack writes the engine of an archive to a file. The rest of the archive is ignored.
func unpack(archive, engine, to string) (err error) {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	for _, e := range z.File {
		if e.Name != engine {
			continue
		}
		if !e.Mode().IsRegular() {
			return fmt.Errorf("its %s is not a file", engine)
		}
		return unpackOne(e, to)
	}
	return fmt.Errorf("there is no %s in it", engine)
}

func unpackOne(e *zip.File, to string) (err error) {
	from, err := e.Open()
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: in the cache itself
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(from, maxBinary+1))
	if err == nil && n > maxBinary {
		err = fmt.Errorf("it is longer than %d MiB", maxBinary>>20)
	}
	if err == nil {
		err = errors.Join(f.Chmod(0o755), f.Sync()) // not before it is complete
	}
	return errors.Join(err, f.Close())
}

// place gives a complete directory its name.
func place(fresh, archive, digest, to string) error {
	err := os.Remove(archive)
	if err == nil {
		err = os.WriteFile(filepath.Join(fresh, digestFile), []byte(digest+"\n"), 0o600)
	}
	if err == nil {
		// Engines run as other users.
		err = errors.Join(os.Chmod(filepath.Join(fresh, digestFile), 0o644), os.Chmod(fresh, 0o755)) //nolint:gosec // G302: see above
	}
	if err == nil {
		err = os.Rename(fresh, to)
	}
	if err != nil {
		return fmt.Errorf("put it into its place: %w", err)
	}
	return nil
}
