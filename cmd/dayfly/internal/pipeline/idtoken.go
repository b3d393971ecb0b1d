package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Bounds of a request for a token.
const (
	tokenTime = 20 * time.Second
	maxToken  = 64 << 10 // bytes of the answer
)

// HasToken reports whether the job has an OIDC token.
func (j Job) HasToken() bool { return !j.IDToken.Empty() || j.TokenURL != "" }

// Subject returns the job's OIDC token for an audience. GitHub gives a new one for each call: they live for minutes.
// A token from the environment is always the same, and the pipeline's file sets its audience.
func (j Job) Subject(ctx context.Context, audience string) (redact.String, error) {
	if j.TokenURL == "" {
		return j.IDToken, nil
	}
	return ask(ctx, j.TokenURL, j.TokenKey, audience)
}

// ask gets a token as GitHub's "OpenID Connect reference" says: a GET with the audience as a parameter, answered by
// {"value": TOKEN}.
func ask(ctx context.Context, address string, key redact.String, audience string) (redact.String, error) {
	const name = "ACTIONS_ID_TOKEN_REQUEST_URL"
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !outbound.Loopback(u.Hostname())) {
		return redact.String{}, fmt.Errorf("%s: want an https address", name)
	}
	query := u.Query()
	query.Set("audience", audience)
	u.RawQuery = query.Encode()

	ctx, cancel := context.WithTimeout(ctx, tokenTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return redact.String{}, fmt.Errorf("%s: %w", name, err)
	}
	request.Header.Set("Authorization", "Bearer "+key.Reveal())
	request.Header.Set("Accept", "application/json")
	// The key goes nowhere else: a redirect is not followed.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // without the address, whose parameters are GitHub's
		}
		return redact.String{}, fmt.Errorf("ask %s for the job's token: %w", u.Host, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return redact.String{}, fmt.Errorf("ask %s for the job's token: it answered %s; the job needs the permission id-token: write", u.Host, response.Status)
	}

	var answer struct {
		Value string `json:"value"`
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxToken+1))
	if err != nil || len(body) > maxToken || json.Unmarshal(body, &answer) != nil || answer.Value == "" {
		return redact.String{}, fmt.Errorf("ask %s for the job's token: its answer holds none", u.Host)
	}
	return redact.New(answer.Value), nil
}
