package oidc

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of the requests to an issuer, and of the lifetime of its keys.
const (
	askAgain      = 30 * time.Second // after any try
	askTime       = 5 * time.Second  // for its metadata and its keys together
	minAge        = 5 * time.Minute
	usualAge      = time.Hour // if it names none
	maxAge        = 24 * time.Hour
	longestOutage = 24 * time.Hour // beyond their age
	maxMetadata   = 64 << 10
	maxKeySet     = 256 << 10
	maxKeys       = 100
	maxTried      = 4   // keys of one name
	maxSources    = 500 // issuers; a full map is cleared
	minRSA        = 2048
)

// source is an issuer's keys as they were last read.
type source struct {
	slot chan struct{} // held by the caller that asks the issuer

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	fresh   time.Time // they are not read again before it
	until   time.Time // they are not used after it
	tried   time.Time
	failing bool
}

func (v *Verifier) source(issuer string) *source {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sources[issuer]
	if s == nil {
		if len(v.sources) >= maxSources {
			clear(v.sources)
		}
		s = &source{slot: make(chan struct{}, 1)}
		v.sources[issuer] = s
	}
	return s
}

// keys returns the keys of an issuer that may have signed a token.
func (v *Verifier) keys(ctx context.Context, issuer string, h header, now time.Time) ([]jose.JSONWebKey, error) {
	s := v.source(issuer)
	found, ask := s.look(h, now)
	if len(found) > 0 && !ask {
		return found, nil
	}
	if len(found) > 0 { // they are old: one caller asks for new ones, the others go on
		select {
		case s.slot <- struct{}{}:
		default:
			return found, nil
		}
	} else {
		select {
		case s.slot <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer func() { <-s.slot }()
	if found, ask = s.look(h, now); ask {
		v.renew(ctx, s, issuer, now)
		found, _ = s.look(h, now)
	}
	if len(found) > 0 {
		return found, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing || len(s.keys) == 0 {
		return nil, &workflow.Error{Kind: workflow.ErrBusy, Message: "the keys of " + issuer + " cannot be read now: try again; the control plane's log says why", RetryAfter: askAgain}
	}
	return nil, refuse("the token is signed with key %.80q, which %s does not have for %s", h.KeyID, issuer, h.Algorithm)
}

// look returns the keys that fit, and whether the issuer is to be asked first.
func (s *source) look(h header, now time.Time) (found []jose.JSONWebKey, ask bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		found = fitting(s.keys, h)
	}
	may := s.tried.IsZero() || now.Sub(s.tried).Abs() >= askAgain
	return found, may && (len(found) == 0 || !now.Before(s.fresh))
}

// renew asks the issuer. It is bounded by its own time and not by a caller that may leave: one that leaves early must
// not make the issuer be asked more often.
func (v *Verifier) renew(ctx context.Context, s *source, issuer string, now time.Time) {
	s.mu.Lock()
	s.tried = now
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	keys, age, err := v.fetch(ctx, issuer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing = err != nil; err != nil {
		v.log.WarnContext(ctx, "issuer's keys not read", "issuer", issuer, "err", err)
		return
	}
	s.keys, s.fresh, s.until = keys, now.Add(age), now.Add(age+longestOutage)
}

// fitting returns the keys that may have made a signature: of the token's key id and of the algorithm's kind. A token
// without a key id is of the only key of that kind.
func fitting(keys []jose.JSONWebKey, h header) (out []jose.JSONWebKey) {
	for _, k := range keys {
		if (h.KeyID == "" || k.KeyID == h.KeyID) && suits(k, h.Algorithm) {
			out = append(out, k)
		}
	}
	if h.KeyID == "" && len(out) > 1 {
		return nil
	}
	return out[:min(len(out), maxTried)]
}

// suits says whether a key is of the kind that an algorithm works with.
func suits(k jose.JSONWebKey, alg string) bool {
	if k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != alg {
		return false
	}
	switch pub := k.Key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && pub.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		bits := map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}
		return pub.Curve.Params().BitSize == bits[alg]
	}
	return false
}

// fetch reads an issuer's metadata and its keys.
func (v *Verifier) fetch(ctx context.Context, issuer string) ([]jose.JSONWebKey, time.Duration, error) {
	text, _, err := v.get(ctx, strings.TrimRight(issuer, "/")+"/.well-known/openid-configuration", maxMetadata)
	if err != nil {
		return nil, 0, err
	}
	var meta struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, 0, fmt.Errorf("%w: its metadata is not JSON: %w", errDown, err)
	}
	if meta.Issuer != issuer {
		return nil, 0, fmt.Errorf("%w: its metadata is of issuer %.200q", errDown, meta.Issuer)
	}
	text, age, err := v.get(ctx, meta.Keys, maxKeySet)
	if err != nil {
		return nil, 0, err
	}
	keys, err := readKeys(text)
	return keys, age, err
}

// readKeys reads a key set and leaves out keys that cannot check a signature.
func readKeys(text []byte) (out []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%w: its keys are not JSON: %w", errDown, err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%w: it has %d keys, and at most %d are read", errDown, len(set.Keys), maxKeys)
	}
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		// A set may hold kinds of keys that we do not know; they are not used.
		if err := k.UnmarshalJSON(raw); err == nil && k.IsPublic() && k.Valid() {
			k.Certificates = nil
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: none of its keys can check a signature", errDown)
	}
	return out, nil
}

// get reads a document of an issuer, and for how long it serves.
func (v *Verifier) get(ctx context.Context, address string, limit int64) ([]byte, time.Duration, error) {
	if err := v.CheckAddress("url", address); err != nil {
		return nil, 0, fmt.Errorf("%w: %.200q: %w", errDown, address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errDown, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "dayfly")
	response, err := v.http().Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		return nil, 0, fmt.Errorf("%w: %.200s: %w", errDown, address, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%w: %.200s answered %s", errDown, address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %.200s: %w", errDown, address, err)
	case int64(len(text)) > limit:
		return nil, 0, fmt.Errorf("%w: the answer of %.200s is longer than %d bytes", errDown, address, limit)
	}
	return bytes.TrimSpace(text), age(response.Header.Get("Cache-Control")), nil
}

// age is for how long an answer serves, by its Cache-Control within our bounds.
func age(control string) time.Duration {
	directives := strings.Split(strings.ToLower(control), ",")
	for i := range directives {
		directives[i] = strings.TrimSpace(directives[i])
	}
	if slices.Contains(directives, "no-store") || slices.Contains(directives, "no-cache") {
		return minAge
	}
	for _, d := range directives {
		if rest, ok := strings.CutPrefix(d, "max-age="); ok {
			if n, err := strconv.ParseUint(rest, 10, 31); err == nil {
				return min(max(time.Duration(n)*time.Second, minAge), maxAge)
			}
		}
	}
	return usualAge
}
