package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Skew is how far a request's time may be from the verifier's; of S3 it is S3Skew.
const (
	Skew   = 5 * time.Minute
	S3Skew = 15 * time.Minute
)

// What a request of S3 may say of its body instead of a hash: that it is not signed.
const (
	UnsignedPayload = "UNSIGNED-PAYLOAD"
	UnsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

const timeFormat = "20060102T150405Z"

// ScopeOf reads the scope that a request was signed for, without judging the signature: by its
// service a server finds whom the request is for.
func ScopeOf(r *http.Request) (Scope, error) {
	a, err := authorization(r)
	return a.Scope, err
}

func authorization(r *http.Request) (Authorization, error) {
	header := r.Header.Get("Authorization")
	if query := r.URL.Query(); presigned(query) {
		if header != "" {
			return Authorization{}, refuseS3(http.StatusBadRequest, "InvalidArgument", "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string parameter or the Authorization header should be specified")
		}
		return parseQuery(query)
	}
	if header == "" {
		return Authorization{}, &wire.Error{Status: http.StatusForbidden, Code: "MissingAuthenticationTokenException", QueryCode: "MissingAuthenticationToken", Message: "Missing Authentication Token"}
	}
	return ParseAuthorization(header)
}

// Verify judges the signature of a request whose body was read, for a service (a signing name) in a
// region, and says who made it. Every error is a *wire.Error with the codes that AWS has for it.
func (t *Table) Verify(r *http.Request, body []byte, region, service string) (wire.Identity, error) {
	a, err := authorization(r)
	if err != nil {
		return wire.Identity{}, err
	}
	now := t.now()
	stamp, token := r.Header.Get("X-Amz-Date"), r.Header.Get(queryToken)
	query := r.URL.Query()
	inAddress := presigned(query)
	if inAddress {
		stamp, token = query.Get(queryDate), query.Get(queryToken)
	}
	at, err := time.Parse(timeFormat, stamp)
	if err != nil {
		return wire.Identity{}, incomplete("Date must be in ISO-8601 'basic format' in the header X-Amz-Date.")
	}
	c, err := t.find(a.AccessKeyID, token, now)
	if err != nil {
		return wire.Identity{}, err
	}
	switch {
	case inAddress:
		if err := inTime(query, at, now); err != nil {
			return wire.Identity{}, err
		}
	case service == "s3" && now.Sub(at).Abs() > S3Skew:
		return wire.Identity{}, refuseS3(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	case service == "s3":
	case at.Before(now.Add(-Skew)):
		return wire.Identity{}, mismatch("Signature expired: %s is now earlier than %s (%s - 5 min.)", stamp, now.Add(-Skew).UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	case at.After(now.Add(Skew)):
		return wire.Identity{}, mismatch("Signature not yet current: %s is still later than %s (%s + 5 min.)", stamp, now.Add(Skew).UTC().Format(timeFormat), now.UTC().Format(timeFormat))
	}
	switch {
	case a.Scope.Date != stamp[:8]:
		return wire.Identity{}, mismatch("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '%s' != '%s'", a.Scope.Date, stamp[:8])
	case a.Scope.Region != region:
		return wire.Identity{}, mismatch("Credential should be scoped to a valid region, not '%s'.", a.Scope.Region)
	case a.Scope.Service != service:
		return wire.Identity{}, mismatch("Credential should be scoped to correct service: '%s'.", service)
	}
	switch name := unsigned(r, a.SignedHeaders); {
	case name == "":
	case inAddress:
		return wire.Identity{}, refuseS3(http.StatusForbidden, "AccessDenied", "There were headers present in the request which were not signed: "+name)
	default:
		return wire.Identity{}, mismatch("'%s' must be a 'SignedHeader' in the AWS Authorization.", name)
	}
	payload, err := payloadOf(r, body, service)
	if err != nil {
		return wire.Identity{}, err
	}
	canonical, err := canonicalRequest(r, a.SignedHeaders, payload, service)
	if err != nil {
		return wire.Identity{}, err
	}
	sum := sha256.Sum256([]byte(canonical))
	toSign := strings.Join([]string{Algorithm, stamp, a.Scope.String(), hex.EncodeToString(sum[:])}, "\n")
	if !hmac.Equal(a.Signature, sign(c.SecretAccessKey, a.Scope, toSign)) {
		return wire.Identity{}, mismatch("The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	}
	return c.Identity, nil
}

func mismatch(format string, args ...any) error {
	return &wire.Error{Status: http.StatusForbidden, Code: "InvalidSignatureException", QueryCode: "SignatureDoesNotMatch", Message: fmt.Sprintf(format, args...)}
}

// refuseS3 is an error that only S3 has.
func refuseS3(status int, code, message string) error {
	return &wire.Error{Status: status, Code: code, Message: message}
}

// payloadOf is what stands for the body in the signature: its hash, and in S3 also what says that it has none there.
// (S3 API reference, "Authenticating Requests: Using the Authorization Header".)
func payloadOf(r *http.Request, body []byte, service string) (string, error) {
	sum := sha256.Sum256(body)
	computed := hex.EncodeToString(sum[:])
	said := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case said == "" && presigned(r.URL.Query()): // whoever signed an address need not know the body
		return UnsignedPayload, nil
	case said == computed, said == "" && service != "s3":
		return computed, nil
	case service != "s3":
		return "", mismatch("The provided X-Amz-Content-Sha256 header does not match what was computed.")
	case said == UnsignedPayload, said == UnsignedTrailer:
		return said, nil
	case strings.HasPrefix(said, "STREAMING-"):
		return "", refuseS3(http.StatusNotImplemented, "NotImplemented", "x-amz-content-sha256: "+said+" is not known here.")
	}
	return "", refuseS3(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
}

// unsigned names a header that must be signed and is not: the host and every X-Amz one.
func unsigned(r *http.Request, signed []string) string {
	if !slices.Contains(signed, "host") {
		return "Host"
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(signed, lower) {
			return name
		}
	}
	return ""
}

// canonicalRequest is what both sides hash. (IAM user guide, "Create a signed AWS API request".)
func canonicalRequest(r *http.Request, signed []string, payload, service string) (string, error) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(r.RequestURI, "/") { // none, or one that is meant for a proxy
		path, query = r.URL.EscapedPath(), r.URL.RawQuery
	}
	if service == "s3" { // its paths are encoded once, those of all others twice
		var err error
		if path, err = url.PathUnescape(path); err != nil {
			return "", incomplete("the path is malformed")
		}
	}
	canonicalQuery, err := sortedQuery(withoutSignature(query))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(r.Method + "\n" + escape(path, "/") + "\n" + canonicalQuery + "\n")
	for _, name := range signed {
		b.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	b.WriteString("\n" + strings.Join(signed, ";") + "\n" + payload)
	return b.String(), nil
}

func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	var values []string
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}

func sortedQuery(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	var pairs []string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return "", incomplete("the query string is malformed")
		}
		value, err = url.QueryUnescape(value)
		if err != nil {
			return "", incomplete("the query string is malformed")
		}
		pairs = append(pairs, escape(name, "")+"="+escape(value, ""))
	}
	// By name, then value: "=" sorts before none of the unreserved characters but "-" and ".", so
	// the pairs are compared by their parts.
	slices.SortFunc(pairs, func(a, b string) int {
		an, av, _ := strings.Cut(a, "=")
		bn, bv, _ := strings.Cut(b, "=")
		if c := strings.Compare(an, bn); c != 0 {
			return c
		}
		return strings.Compare(av, bv)
	})
	return strings.Join(pairs, "&"), nil
}

// escape encodes everything but the unreserved characters of RFC 3986 and those in keep.
func escape(s, keep string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~"+keep, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func sign(secret string, s Scope, toSign string) []byte {
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.Date, s.Region, s.Service, "aws4_request", toSign} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	return key
}
