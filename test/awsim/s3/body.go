package s3

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // Content-MD5
	"crypto/sha1" //nolint:gosec // a checksum that clients may choose
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	checksum        = "X-Amz-Checksum-"
	defaultChecksum = checksum + "Crc64nvme"
)

// digests are the algorithms by the header that has their result. (User guide, "Checking object integrity".)
var digests = map[string]func() hash.Hash{
	checksum + "Crc32":  func() hash.Hash { return crc32.NewIEEE() },
	checksum + "Crc32c": func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) },
	defaultChecksum:     func() hash.Hash { return crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5)) },
	checksum + "Sha1":   sha1.New,
	checksum + "Sha256": sha256.New,
}

func checksumHeaders() []string { return slices.Collect(maps.Keys(digests)) }

func digest(h hash.Hash, body []byte) string {
	_, _ = h.Write(body) // it never fails
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// checksums holds a body against the digests that came with it, and returns the header that keeps its checksum.
func checksums(in input) (http.Header, error) {
	if said, ok := in.Header["Content-Md5"]; ok && said[0] != digest(md5.New(), in.Body) { //nolint:gosec // see above
		return nil, refuse(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.")
	}
	kept := http.Header{}
	for name, h := range digests {
		said, ok := in.Header[name]
		if !ok {
			continue
		}
		if len(kept) > 0 {
			return nil, refuse(http.StatusBadRequest, "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		if said[0] != digest(h(), in.Body) {
			return nil, refuse(http.StatusBadRequest, "BadDigest", "The %s you specified did not match the calculated checksum.", strings.ToUpper(name[len(checksum):]))
		}
		kept[name] = said
	}
	if algorithm := in.Header.Get("X-Amz-Sdk-Checksum-Algorithm"); algorithm != "" && kept.Get(checksum+algorithm) == "" {
		return nil, refuse(http.StatusBadRequest, "InvalidRequest", "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
	}
	if len(kept) == 0 {
		kept.Set(defaultChecksum, digest(digests[defaultChecksum](), in.Body))
	}
	kept.Set(checksum+"Type", "FULL_OBJECT")
	return kept, nil
}

// unchunk takes a body of chunks and a trailer apart, and returns the headers with that of the trailer. (API reference,
// "Signature calculations for trailing headers".)
func unchunk(header http.Header, body []byte) (http.Header, []byte, error) {
	incomplete := refuse(http.StatusBadRequest, "IncompleteBody", "The request body terminated unexpectedly")
	header = header.Clone()
	var out []byte
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, err := strconv.ParseInt(string(line), 16, 32)
		if !ok || err != nil || size < 0 || int(size) > len(rest) {
			return nil, nil, incomplete
		}
		if body = rest; size == 0 {
			break
		}
		out = append(out, body[:size]...)
		if body, ok = bytes.CutPrefix(body[size:], []byte("\r\n")); !ok {
			return nil, nil, incomplete
		}
	}
	name, value, ok := strings.Cut(strings.TrimRight(string(body), "\r\n"), ":")
	if !ok || !strings.EqualFold(name, header.Get("X-Amz-Trailer")) {
		return nil, nil, refuse(http.StatusBadRequest, "MalformedTrailerError", "The request contained trailing data that was not well-formed or did not conform to our published schema.")
	}
	if header.Get("X-Amz-Decoded-Content-Length") != strconv.Itoa(len(out)) || header.Get("Content-Encoding") != "aws-chunked" || digests[http.CanonicalHeaderKey(name)] == nil {
		return nil, nil, incomplete
	}
	header.Set(name, strings.TrimSpace(value))
	return header, out, nil
}
