// Package awss3 says where an object of S3 is and signs requests for it, so that nobody needs the SDK's client of S3.
// It sends nothing.
package awss3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Address is where an object is: below a name of its bucket's own, unless a dot in that name would not fit the
// certificate, or the service has another address (S3 user guide, "Methods for accessing a bucket").
func Address(endpoint *string, region, bucket, key string) (*url.URL, error) {
	if endpoint != nil {
		u, err := url.Parse(*endpoint)
		if err != nil {
			return nil, fmt.Errorf("address of S3: %w", err)
		}
		return encoded(u.JoinPath(bucket, key)), nil
	}
	host := "s3." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	u := &url.URL{Scheme: "https", Host: host}
	if strings.Contains(bucket, ".") {
		return encoded(u.JoinPath(bucket, key)), nil
	}
	u.Host = bucket + "." + host
	return encoded(u.JoinPath(key)), nil
}

// encoded writes a path as S3 does before it checks a signature: with nothing in it but unreserved characters. Go leaves
// some others, such as + and =, as they are. It begins with a slash also where the address is signed before it is text.
func encoded(u *url.URL) *url.URL {
	u.Path = "/" + strings.TrimPrefix(u.Path, "/")
	u.RawPath = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(u.Path))
	return u
}

// Sign signs a request whose body has this SHA-256, in hexadecimal digits.
func Sign(ctx context.Context, req *http.Request, creds aws.Credentials, sum, region string, now time.Time) error {
	req.Header.Set("X-Amz-Content-Sha256", sum)
	// S3 alone takes a path as it stands (IAM user guide, "Create a signed AWS API request").
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, creds, req, sum, "s3", region, now); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	return nil
}

// Presign signs a request whose body needs not be known yet, for so long a time. It returns the URL, which is a secret,
// and the headers that have to be sent as they are. A Content-Length of more than 0 is one of them.
func Presign(ctx context.Context, req *http.Request, creds aws.Credentials, region string, now time.Time, life time.Duration) (string, map[string]string, error) {
	req = req.Clone(ctx)
	query := req.URL.Query()
	query.Set("X-Amz-Expires", strconv.Itoa(int(life/time.Second)))
	req.URL.RawQuery = query.Encode()
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // see Sign
	signed, header, err := signer.PresignHTTP(ctx, creds, req, "UNSIGNED-PAYLOAD", "s3", region, now)
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
