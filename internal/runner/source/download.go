package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// trusting is a transport of its own, which trusts more certificates than the machine's where some are given.
func trusting(caPEM []byte) (*http.Transport, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the standard transport was replaced")
	}
	base = base.Clone()
	base.DisableKeepAlives = true
	if len(caPEM) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read trusted certificates: %w", err)
		}
		pool.AppendCertsFromPEM(caPEM)
		base.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return base, nil
}

// download reads a file by https. A redirect may lead elsewhere, as hosts of release files do it, but never from https
// to http, and the token stays with the host that the workspace names.
func download(ctx context.Context, from *url.URL, token string, caPEM []byte) (io.ReadCloser, error) {
	transport, err := trusting(caPEM)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		const maxRedirects = 5
		switch {
		case len(via) >= maxRedirects:
			return fmt.Errorf("%d redirects follow each other", maxRedirects)
		case req.URL.Scheme != "https" && from.Scheme == "https":
			return errors.New("it redirects to an address without TLS")
		case req.URL.Host != from.Host:
			req.Header.Del("Authorization")
		}
		return nil
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.archive.url", "%s is not an address", quote(from.Redacted()))
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("fetch %s: %w", quote(from.Redacted()), cause)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address of a redirect, which may be signed
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %s", quote(from.Redacted()), text.Cut(err.Error(), 300))
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	_ = res.Body.Close()
	kind, why := workflow.ErrInvalid, "it answers "+res.Status
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind, why = workflow.ErrForbidden, "it refuses ("+res.Status+"): name a secret in token_ref, or check the one that is named"
	case http.StatusNotFound, http.StatusGone:
		kind = workflow.ErrNotFound
	}
	return nil, workflow.Refuse(kind, "source.archive.url", "%s cannot be fetched: %s", quote(from.Redacted()), why)
}
