// Package awss3 makes requests for objects of S3 and signs them, so that nobody needs the SDK's client of S3.
// It sends nothing.
package awss3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Object is one of a bucket.
type Object struct {
	Endpoint            *string // of the service; nil means AWS's own in the region
	Region, Bucket, Key string
}

// Body is the content of an object.
type Body struct {
	Reader io.Reader // not for an address
	Size   int64
	SHA256 []byte
}

// Request is a signed request for an object; with a body, to make it. S3 checks the body, and replaces nothing.
func (o Object) Request(ctx context.Context, creds aws.Credentials, now time.Time, body *Body) (*http.Request, error) {
	req, err := o.request(ctx, body)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(nil)
	digits := hex.EncodeToString(sum[:])
	if body != nil {
		digits = hex.EncodeToString(body.SHA256)
	}
	req.Header.Set("X-Amz-Content-Sha256", digits)
	if err := newSigner().SignHTTP(ctx, creds, req, digits, "s3", o.Region, now); err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	return req, nil
}

// Presign signs the address of such a request, for so long a time and for callers without credentials. It returns the
// URL, which is a secret, and the headers that have to be sent as they are. A Content-Length of more than 0 is one of
// them.
func (o Object) Presign(ctx context.Context, creds aws.Credentials, now time.Time, life time.Duration, body *Body) (string, map[string]string, error) {
	req, err := o.request(ctx, body)
	if err != nil {
		return "", nil, err
	}
	query := req.URL.Query()
	query.Set("X-Amz-Expires", strconv.Itoa(int(life/time.Second)))
	req.URL.RawQuery = query.Encode()
	signed, header, err := newSigner().PresignHTTP(ctx, creds, req, "UNSIGNED-PAYLOAD", "s3", o.Region, now)
	if err != nil {
		return "", nil, fmt.Errorf("sign the address: %w", err)
	}
	send := map[string]string{}
	for name := range header {
		if name != "Host" { // the address says it
			send[name] = header.Get(name)
		}
	}
	return signed, send, nil
}

func (o Object) request(ctx context.Context, body *Body) (*http.Request, error) {
	at, err := o.address()
	if err != nil {
		return nil, err
	}
	if body == nil {
		return http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody) //nolint:wrapcheck // it names the parsed text
	}
	from := body.Reader
	if body.Size == 0 {
		from = http.NoBody // with any other, no length would be sent
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, at.String(), from)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.ContentLength = body.Size
	req.Header.Set("If-None-Match", "*")
	req.Header.Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(body.SHA256))
	return req, nil
}

// newSigner takes a path as it stands, as S3 alone does (IAM user guide, "Create a signed AWS API request").
func newSigner() *v4.Signer {
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

// address is below a name of the bucket's own, unless a dot in that name would not fit the certificate, or the service
// has another address (S3 user guide, "Methods for accessing a bucket").
func (o Object) address() (*url.URL, error) {
	if o.Endpoint != nil {
		u, err := url.Parse(*o.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("address of S3: %w", err)
		}
		return encoded(u.JoinPath(o.Bucket, o.Key)), nil
	}
	host := "s3." + o.Region + ".amazonaws.com"
	if strings.HasPrefix(o.Region, "cn-") {
		host += ".cn"
	}
	u := &url.URL{Scheme: "https", Host: host}
	if strings.Contains(o.Bucket, ".") {
		return encoded(u.JoinPath(o.Bucket, o.Key)), nil
	}
	u.Host = o.Bucket + "." + host
	return encoded(u.JoinPath(o.Key)), nil
}

// encoded writes a path as S3 does before it checks a signature: with nothing in it but unreserved characters. Go leaves
// some others, such as + and =, as they are.
func encoded(u *url.URL) *url.URL {
	u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	u.RawPath = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(u.Path))
	return u
}
