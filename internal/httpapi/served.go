package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// served is the document as it is sent, plain and compressed.
type served struct {
	plain, zipped []byte
	hash          string
}

func compress(text []byte) *served {
	sum := sha256.Sum256(text)
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(text) // to memory: it cannot fail
	_ = z.Close()
	return &served{plain: text, zipped: out.Bytes(), hash: hex.EncodeToString(sum[:16])}
}

// serve answers with the document, or says that the caller has it already.
func (s *served) serve(w http.ResponseWriter, r *http.Request) {
	header, text, tag := w.Header(), s.plain, s.hash
	if zips(r.Header.Values("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		text, tag = s.zipped, tag+"-gzip" // each of the two has its own bytes
	}
	header.Set("Content-Type", "application/openapi+json")
	header.Set("Cache-Control", "no-cache") // kept, and asked for each time
	header.Set("ETag", `"`+tag+`"`)
	header.Set("Vary", "Accept-Encoding")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// zips says whether a caller takes gzip.
func zips(accepted []string) bool {
	for one := range strings.SplitSeq(strings.ToLower(strings.Join(accepted, ",")), ",") {
		coding, quality, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if coding == "gzip" {
			return strings.Trim(strings.TrimPrefix(quality, "q="), "0.") != "" || quality == ""
		}
	}
	return false
}
