package deliverer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Bounds of a key, in bytes, and the prefix of a secret that holds one (Standard Webhooks 1.0.0, "Signature scheme").
const (
	keyPrefix = "whsec_"
	minKey    = 24
	maxKey    = 64
)

// send posts a notification once, signed as Standard Webhooks 1.0.0 say, and returns the result.
func (d *Deliverer) send(ctx context.Context, id string, in api.SendNotification) (t Try) {
	to, err := d.address(ctx, in)
	if err != nil {
		return Try{Err: err}
	}
	t.Host = to.Host
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(in.Body))
	if err != nil {
		return Try{Host: t.Host, Err: mistake("its address cannot be called")} // the error may quote the address
	}
	now := strconv.FormatInt(d.cfg.Now().Unix(), 10)
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"dayfly"}, "Webhook-Id": {id}, "Webhook-Timestamp": {now},
	}
	if in.SecretRef != "" {
		key, err := d.key(ctx, in.SecretRef)
		if err != nil {
			return Try{Host: t.Host, Err: err}
		}
		request.Header.Set("Webhook-Signature", Signature(key, id, now, in.Body))
	}
	response, err := d.client.Do(request)
	if err != nil {
		t.Err = err
		return t
	}
	_, _ = io.Copy(io.Discard, response.Body) // so that its sender can end it well; the text itself is of no use
	_ = response.Body.Close()
	t.Status, t.RetryAfter = response.StatusCode, api.ParseRetryAfter(response.Header.Get("Retry-After"), d.cfg.Now())
	return t
}

// address returns the address of a notification. No error repeats any part of a secret.
func (d *Deliverer) address(ctx context.Context, in api.SendNotification) (*url.URL, error) {
	text, subject := in.URL, "the address"
	if in.URLRef != "" {
		value, err := d.cfg.Secrets.Resolve(ctx, in.URLRef)
		if err != nil {
			return nil, unresolved("url_ref", err)
		}
		text, subject = strings.TrimSpace(value.Reveal()), "the address in the secret of url_ref"
	}
	to, err := url.Parse(text)
	if err != nil {
		return nil, mistake(subject + " is not one") // the error quotes it
	}
	switch to.Fragment = ""; {
	case to.User != nil:
		return nil, mistake(subject + " must not contain credentials")
	case to.Scheme != "https" && to.Scheme != "http" || to.Opaque != "" || to.Hostname() == "":
		return nil, mistake(subject + " does not begin with https:// and a host")
	}
	if err := d.cfg.Private.Check(subject, d.cfg.Setting, to); err != nil {
		return nil, mistake(err.Error()) // which names the host at most
	}
	return to, nil
}

// key reads the key in the secret of a reference.
func (d *Deliverer) key(ctx context.Context, ref string) (redact.String, error) {
	value, err := d.cfg.Secrets.Resolve(ctx, ref)
	if err != nil {
		return redact.String{}, unresolved("secret_ref", err)
	}
	return ReadKey(value)
}

// ReadKey reads a key as it is written in a secret: whsec_ and the base64 of 24 to 64 bytes.
func ReadKey(value redact.String) (redact.String, error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(value.Reveal()), keyPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minKey || len(key) > maxKey {
		return redact.String{}, mistake(fmt.Sprintf("the secret of secret_ref is not a key: it is written %s and the base64 of %d to %d bytes", keyPrefix, minKey, maxKey))
	}
	return redact.New(string(key)), nil
}

// Signature signs a message with a key: its id, when it is sent, in Unix seconds, and its body.
func Signature(key redact.String, id, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	_, _ = io.WriteString(mac, id+"."+timestamp+"."+body) // never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
