package layers

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"runtime/debug"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// bundles are the files in which systems keep their CA certificates, in the order in which Go looks for them.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// Bundle is the path of the CA certificates of a file system. Where it has none, it is the first path that programs
// try.
func (t *Tree) Bundle() string {
	for _, p := range bundles {
		if _, ok := t.Resolve(p); ok {
			return p
		}
	}
	return bundles[0]
}

// Mozilla returns the roots of Mozilla's store as PEM, and the version of the module that has them. A root that is
// trusted for a time only is left out, because a bundle cannot say so.
func Mozilla() (bundlePEM []byte, version string) {
	var roots []*x509.Certificate
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			roots = append(roots, &x509.Certificate{Raw: root.Certificate})
		}
	}
	version = "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.HasSuffix(m.Path, "/x509roots/fallback") {
				version = m.Version
			}
		}
	}
	return PEM(roots), version
}

// Certificates returns the certificates of a bundle. Other blocks are skipped.
func Certificates(bundlePEM []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundlePEM = pem.Decode(bundlePEM); block == nil {
			return out
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
}

// PEM writes certificates as a bundle.
func PEM(certificates []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, c := range certificates {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // into memory: it cannot fail
	}
	return out.Bytes()
}

// Bundles are the paths at which a bundle may lie.
func Bundles() []string { return bundles }
