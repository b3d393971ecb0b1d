package cloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// gatewayService is the name for which calls of an API Gateway are signed.
const gatewayService = "execute-api"

var gatewayHost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com(?:\.cn)?$`)
})

// Gateway reports whether an address is that of an API Gateway, and in which region: calls there are signed without
// a setting. An API behind a domain name of its own is not recognised.
func Gateway(address string) (region string, ok bool) {
	u, err := url.Parse(address)
	if err != nil {
		return "", false
	}
	m := gatewayHost().FindStringSubmatch(strings.ToLower(u.Hostname()))
	if m == nil {
		return "", false
	}
	return m[1], true
}

// Sign returns a transport that signs each request with the task's credentials, for a relay behind an API
// Gateway with IAM authorization. Such a gateway needs the Authorization header for itself, so the
// ticket moves to a header of its own (api.HeaderTicket), which is signed too.
func (c *Cloud) Sign(region string) http.RoundTripper {
	if region == "" {
		region = c.region
	}
	return &signer{
		v4: v4.NewSigner(), cloud: c, region: region,
		next: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
	}
}

type signer struct {
	v4     *v4.Signer
	cloud  *Cloud
	region string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(in *http.Request) (*http.Response, error) {
	defer func() {
		if in.Body != nil {
			_ = in.Body.Close()
		}
	}()
	ctx := in.Context()
	req := in.Clone(ctx) // the caller's stays as it is
	sum := sha256.New()
	if in.Body != nil && in.Body != http.NoBody {
		if in.GetBody == nil {
			return nil, errors.New("the body of the request can be read only once and so cannot be signed")
		}
		body, err := in.GetBody()
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		if _, err := io.Copy(sum, body); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		if req.Body, err = in.GetBody(); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	if scheme, ticket, _ := strings.Cut(req.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		req.Header.Set(api.HeaderTicket, ticket)
	}
	req.Header.Del("Authorization")
	creds, err := s.cloud.task.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.v4.SignHTTP(ctx, creds, req, hex.EncodeToString(sum.Sum(nil)), gatewayService, s.region, s.cloud.now()); err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	resp, err := s.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusForbidden && !ours(resp) {
		s.cloud.task.refused()
	}
	return resp, err
}

// ours reports whether a refusal comes from the relay behind the gateway and not from the gateway itself.
func ours(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

// SignCall signs a call of AWS as this identity, for somebody else to make it, and adds the signature to its header.
func (i *Identity) SignCall(ctx context.Context, method, address, service, region string, header http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	req.Header = header
	creds, err := i.keys.Retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), service, region, i.cloud.now()); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	return nil
}
