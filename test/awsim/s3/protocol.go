package s3

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

const (
	sse    = "X-Amz-Server-Side-Encryption"
	sseKey = "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
)

// call is how an operation is requested. Any other query parameter or header is refused.
type call struct {
	method        string
	object        bool // of an object; else of a bucket
	query, header []string
}

var calls = map[string]call{
	"CreateBucket":  {method: http.MethodPut},
	"HeadBucket":    {method: http.MethodHead},
	"ListObjectsV2": {method: http.MethodGet, query: []string{"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "encoding-type"}},
	"PutObject": {method: http.MethodPut, object: true, header: append([]string{
		"Content-Encoding", "Content-Md5", "If-None-Match", "X-Amz-Decoded-Content-Length", "X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Trailer", sse, sseKey,
	}, checksumHeaders()...)},
	"GetObject":    {method: http.MethodGet, object: true, header: []string{"Range", "X-Amz-Checksum-Mode"}},
	"HeadObject":   {method: http.MethodHead, object: true, header: []string{"X-Amz-Checksum-Mode"}},
	"DeleteObject": {method: http.MethodDelete, object: true},
}

// signing are headers that any request may have.
var signing = []string{"Content-Length", "Content-Type", "X-Amz-Content-Sha256", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-User-Agent"}

// input is what a call asks for.
type input struct {
	Bucket, Key string
	Query       url.Values
	Header      http.Header // with the checksum of a trailer
	Body        []byte
	Deleted     int // how often the object was deleted before the call came
}

// Protocol implements what the server asks.
func (s *Service) Protocol() wire.Protocol { return rest{s} }

// rest is REST-XML as S3 speaks it, with buckets named in the path.
type rest struct{ *Service }

// Read implements wire.Protocol.
func (p rest) Read(r *http.Request, body []byte) (string, []byte, error) {
	in := input{Query: r.URL.Query(), Header: r.Header, Body: body}
	for _, name := range sigv4.QueryParameters() {
		in.Query.Del(name)
	}
	in.Bucket, in.Key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	operation, err := find(r.Method, in)
	if err != nil {
		return "", nil, err
	}
	if r.Header.Get("X-Amz-Content-Sha256") == sigv4.UnsignedTrailer {
		if in.Header, in.Body, err = unchunk(r.Header, body); err != nil {
			return "", nil, err
		}
	}
	p.mu.Lock()
	if b := p.buckets[in.Bucket]; b != nil {
		in.Deleted = b.deleted[in.Key]
	}
	p.mu.Unlock()
	out, err := json.Marshal(in)
	if err != nil {
		return "", nil, fmt.Errorf("marshal the input: %w", err)
	}
	return operation, out, nil
}

// find finds the operation that a request is for.
func find(method string, in input) (string, error) {
	for name, c := range calls {
		if c.method != method || c.object != (in.Key != "") || in.Bucket == "" {
			continue
		}
		for parameter, values := range in.Query {
			if !slices.Contains(c.query, parameter) && (parameter != "x-id" || values[0] != name) {
				return "", unknown("The query parameter %s of %s", parameter, name)
			}
		}
		for header := range in.Header {
			lower := strings.ToLower(header)
			matters := slices.ContainsFunc([]string{"x-amz-", "if-", "content-", "range", "expires", "cache-control"}, func(p string) bool { return strings.HasPrefix(lower, p) })
			if matters && !slices.Contains(signing, header) && !slices.Contains(c.header, header) {
				return "", unknown("The header %s of %s", header, name)
			}
		}
		if name == "ListObjectsV2" && in.Query.Get("list-type") != "2" {
			return "", unknown("ListObjects")
		}
		return name, nil
	}
	return "", unknown("%s /%s/%s", method, in.Bucket, in.Key)
}

func unknown(format string, args ...any) error {
	return refuse(http.StatusNotImplemented, "NotImplemented", "%s is not known here.", fmt.Sprintf(format, args...))
}

// Write implements wire.Protocol.
func (rest) Write(w http.ResponseWriter, _ *http.Request, _ string, result any) error {
	out, ok := result.(output)
	if !ok {
		return fmt.Errorf("an answer is a %T", result)
	}
	var body []byte
	contentType := "application/xml"
	switch v := out.body.(type) {
	case nil:
	case []byte:
		body, contentType = v, out.header.Get("Content-Type")
		if contentType == "" {
			contentType = "binary/octet-stream"
		}
	default:
		text, err := xml.Marshal(v)
		if err != nil {
			return fmt.Errorf("marshal the answer: %w", err)
		}
		body = append([]byte(xml.Header), text...)
	}
	for name, values := range out.header {
		w.Header()[name] = values
	}
	send(w, max(out.status, http.StatusOK), contentType, body)
	return nil
}

// codes are the errors of the server in the words of S3. (API reference, "Error responses".)
var codes = map[string]struct {
	code   string
	status int
}{
	"AccessDenied":          {"AccessDenied", http.StatusForbidden},
	"ExpiredToken":          {"ExpiredToken", http.StatusBadRequest},
	"InvalidClientTokenId":  {"InvalidAccessKeyId", http.StatusForbidden},
	"IncompleteSignature":   {"AuthorizationHeaderMalformed", http.StatusBadRequest},
	"RequestEntityTooLarge": {"EntityTooLarge", http.StatusBadRequest},
	"SignatureDoesNotMatch": {"SignatureDoesNotMatch", http.StatusForbidden},
}

// Fail implements wire.Protocol.
func (rest) Fail(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	code, status := e.Code, e.Status
	if of, ok := codes[e.QueryCode]; ok {
		code, status = of.code, of.status
	}
	for name, values := range e.Header {
		w.Header()[name] = values
	}
	var text bytes.Buffer
	text.WriteString(xml.Header)
	_ = xml.NewEncoder(&text).Encode(struct { // of texts
		XMLName                 xml.Name `xml:"Error"`
		Code, Message, Resource string
	}{Code: code, Message: e.Message, Resource: r.URL.Path})
	send(w, max(status, http.StatusBadRequest), "application/xml", text.Bytes())
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("X-Amz-Request-Id", wire.RequestID())
	wire.Send(w, status, contentType, body)
}
