// Package webhook verifies that a git host sent a webhook, and reads it. It trusts nothing beyond that: code that
// acts on an event asks the host again. It links no client of a host, because the control plane's binary has it.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The kinds of host whose webhooks are known.
const (
	github = "github"
	gitlab = "gitlab"
)

// Bounds of the signed parts of a message, beside the body.
const (
	maxSkew       = 5 * time.Minute // as Standard Webhooks advises
	maxID         = 256             // bytes of a message's id
	maxSignatures = 10              // in one header
)

// secretPrefix begins a secret in the form of Standard Webhooks: the rest is its bytes in base64.
const secretPrefix = "whsec_"

// Verify refuses a webhook whose sender does not know the secret. All refusals are one kind, and none names the
// compared values.
//
// GitHub signs the body with the text of the secret: X-Hub-Signature-256 (docs.github.com, "Validating webhook
// deliveries"). GitLab signs as Standard Webhooks says (www.standardwebhooks.com), where the webhook has a
// signing token; an older GitLab sends the secret itself in X-Gitlab-Token, which proves nothing about the body.
// A header that signs is never passed over for one that does not.
func Verify(kind, secret string, header http.Header, body []byte, now time.Time) error {
	switch {
	case secret == "":
		return refuse("the webhook has no secret")
	case kind == github:
		return verifyGitHub(secret, header.Values("X-Hub-Signature-256"), body)
	case kind == gitlab && len(header.Values("Webhook-Signature")) > 0:
		return verifyStandard(secret, header, body, now)
	case kind == gitlab:
		got := header.Values("X-Gitlab-Token")
		if len(got) != 1 {
			return refuse("the webhook has neither webhook-signature nor X-Gitlab-Token: give it the secret as its signing token")
		}
		if !same([]byte(got[0]), []byte(secret)) {
			return refuse("the webhook has another token")
		}
		return nil
	}
	return refuse("there are no webhooks of such a host")
}

func refuse(why string) error { return workflow.Refuse(workflow.ErrUnauthenticated, "", "%s", why) }

// same compares in a time that reveals nothing, not even the length of the secret.
func same(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func sign(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func verifyGitHub(secret string, signatures []string, body []byte) error {
	if len(signatures) != 1 {
		return refuse("the webhook has no X-Hub-Signature-256: give it a secret")
	}
	digits, ok := strings.CutPrefix(signatures[0], "sha256=")
	got, err := hex.DecodeString(digits)
	if !ok || err != nil || !hmac.Equal(got, sign([]byte(secret), body)) {
		return refuse("the webhook is signed with another secret, or its body was changed")
	}
	return nil
}

func verifyStandard(secret string, header http.Header, body []byte, now time.Time) error {
	id, at := header.Values("Webhook-Id"), header.Values("Webhook-Timestamp")
	if len(id) != 1 || len(at) != 1 || id[0] == "" || len(id[0]) > maxID {
		return refuse("the webhook has no webhook-id or no webhook-timestamp")
	}
	seconds, err := strconv.ParseInt(at[0], 10, 64)
	if err != nil {
		return refuse("webhook-timestamp is not a number of seconds")
	}
	if skew := now.Unix() - seconds; skew < -int64(maxSkew/time.Second) || skew > int64(maxSkew/time.Second) {
		return refuse("the webhook was sent more than five minutes ago, or a clock is wrong")
	}
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) == 0 {
		return refuse("the secret of the webhook is not in the form whsec_BASE64")
	}
	want := sign(key, []byte(id[0]), []byte("."), []byte(at[0]), []byte("."), body)
	signatures := strings.Fields(strings.Join(header.Values("Webhook-Signature"), " "))
	for _, s := range signatures[:min(len(signatures), maxSignatures)] {
		encoded, ok := strings.CutPrefix(s, "v1,")
		if got, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return refuse("the webhook is signed with another secret, or its body was changed")
}
