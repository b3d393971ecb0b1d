package record

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Random returns n random bytes as base64url.
func Random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b)
}

const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID makes an id that sorts by time: the prefix, nine characters of milliseconds and eleven random ones (55 bits).
func NewID(prefix string, now time.Time) string {
	var b strings.Builder
	b.WriteString(prefix)
	ms := now.UnixMilli()
	for shift := 40; shift >= 0; shift -= 5 {
		b.WriteByte(idAlphabet[ms>>shift&31])
	}
	random := make([]byte, 11)
	_, _ = rand.Read(random)
	for _, c := range random {
		b.WriteByte(idAlphabet[c&31])
	}
	return b.String()
}

// Hash is the digest that is stored in place of a token or a request.
func Hash(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

// CheckID refuses an invalid id before it becomes part of a key.
func CheckID(id string) error {
	if len(id) > 64 || id == "" || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}) {
		return workflow.Refuse(workflow.ErrNotFound, "id", "this is not the id of a workflow")
	}
	return nil
}
