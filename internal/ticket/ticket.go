// Package ticket seals a job token so that it can travel through a queue and a task's environment,
// both of which others may read. A ticket is a JWE in compact form, alg "dir", enc "A256GCM", with
// the key's id in its header and its expiry inside. It says which job and attempt it is for and
// nothing about whether that job still runs, which only the control plane knows.
package ticket

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// MaxLength is the longest ticket, in characters, that is sealed or looked at. A task's environment
// overrides are small (8192 characters in ECS), and ours are about 300.
const MaxLength = 2048

// KeySize is the size of a key in bytes.
const KeySize = 32

const (
	ivSize  = 12
	tagSize = 16
)

var keyID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

// Key is one key of a ring.
type Key struct {
	ID     string        // 1 to 64 characters of A-Z, a-z, 0-9, _ and -; stands in the ticket's header
	Secret redact.String // KeySize bytes
}

// Claims is the content of a ticket.
type Claims struct {
	Job     string
	Attempt int
	Token   redact.String
	Expires time.Time // in whole seconds; a fraction is dropped
	Group   string    // message group of the job
	// Where the artifacts of the run lie.
	Organization, WorkspaceID string
}

// Keyring seals with its first key and opens with each. A key is replaced by putting the new one
// first and keeping the old one for as long as tickets live.
type Keyring struct {
	sealer jose.Encrypter
	keys   map[string][]byte
}

// NewKeyring makes a ring; the first key seals.
func NewKeyring(keys ...Key) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "keys", "a ticket keyring needs at least one key")
	}
	k := &Keyring{keys: make(map[string][]byte, len(keys))}
	for i, key := range keys {
		field := fmt.Sprintf("keys[%d]", i)
		if !keyID().MatchString(key.ID) {
			return nil, workflow.Refuse(workflow.ErrInvalid, field+".id", "a key id has 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
		}
		if n := len(key.Secret.Reveal()); n != KeySize {
			return nil, workflow.Refuse(workflow.ErrInvalid, field+".key", "a key has %d bytes; this one has %d", KeySize, n)
		}
		if _, ok := k.keys[key.ID]; ok {
			return nil, workflow.Refuse(workflow.ErrInvalid, field+".id", "two keys have the id %s", key.ID)
		}
		k.keys[key.ID] = []byte(key.Secret.Reveal())
	}
	sealer, err := jose.NewEncrypter(jose.A256GCM,
		jose.Recipient{Algorithm: jose.DIRECT, Key: k.keys[keys[0].ID], KeyID: keys[0].ID}, nil)
	if err != nil {
		return nil, fmt.Errorf("make sealer: %w", err)
	}
	k.sealer = sealer
	return k, nil
}

// Format implements fmt.Formatter: a ring does not print its keys.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[keyring]") }

// payload is the sealed part. Unknown fields are ignored, so that an older relay opens the tickets
// of a newer poller.
type payload struct {
	Job     string `json:"job"`
	Attempt int    `json:"attempt"`
	Token   string `json:"token"`
	Expires int64  `json:"exp"` // Unix seconds
	Group   string `json:"group"`
	Org     string `json:"org"`
	WSID    string `json:"wsid"`
}

func (p payload) check() error {
	switch {
	case p.Job == "":
		return errors.New("no job")
	case p.Attempt < 1:
		return errors.New("no attempt")
	case p.Token == "":
		return errors.New("no token")
	case p.Expires <= 0:
		return errors.New("no expiry")
	case p.Group == "":
		return errors.New("no group")
	case p.Org == "" || p.WSID == "":
		return errors.New("no organization or workspace")
	}
	return nil
}

// Seal makes a ticket. Sealing the same claims twice gives two different tickets.
func (k *Keyring) Seal(c Claims) (string, error) {
	p := payload{Job: c.Job, Attempt: c.Attempt, Token: c.Token.Reveal(), Expires: c.Expires.Unix(), Group: c.Group, Org: c.Organization, WSID: c.WorkspaceID}
	if err := p.check(); err != nil {
		return "", workflow.Refuse(workflow.ErrInvalid, "", "the claims cannot be sealed: %v", err)
	}
	plain, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode claims of job %s: %w", c.Job, err)
	}
	sealed, err := k.sealer.Encrypt(plain)
	if err != nil {
		return "", fmt.Errorf("seal ticket of job %s: %w", c.Job, err)
	}
	text, err := sealed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("write ticket of job %s: %w", c.Job, err)
	}
	if len(text) > MaxLength {
		return "", workflow.Refuse(workflow.ErrTooLarge, "", "the ticket would have %d characters; the longest allowed has %d", len(text), MaxLength)
	}
	return text, nil
}

// Open returns the claims of a ticket. It refuses anything but an unexpired ticket that was sealed with a key of the
// ring, with workflow.ErrUnauthenticated. The claims are only those of the ticket: the caller compares them with the
// request.
func (k *Keyring) Open(ticket string, now time.Time) (Claims, error) {
	id, err := inspect(ticket)
	if err != nil {
		return Claims{}, broken(err.Error())
	}
	key, ok := k.keys[id]
	if !ok {
		return Claims{}, workflow.Refuse(workflow.ErrUnauthenticated, "",
			"the ticket was sealed with a key (%s) that is not known here: the key was withdrawn, or the ticket is from another installation", id)
	}
	sealed, err := jose.ParseEncryptedCompact(ticket, []jose.KeyAlgorithm{jose.DIRECT}, []jose.ContentEncryption{jose.A256GCM})
	if err != nil {
		return Claims{}, broken("it is not a JWE in compact form")
	}
	plain, err := sealed.Decrypt(key)
	if err != nil {
		return Claims{}, broken("its seal does not hold")
	}
	var p payload
	if err := json.Unmarshal(plain, &p); err != nil {
		return Claims{}, broken("its content is not readable")
	}
	if err := p.check(); err != nil {
		return Claims{}, broken("it has " + err.Error())
	}
	expires := time.Unix(p.Expires, 0).UTC()
	if !now.Before(expires) {
		return Claims{}, workflow.Refuse(workflow.ErrUnauthenticated, "",
			"the ticket expired at %s", expires.Format(time.RFC3339))
	}
	return Claims{Job: p.Job, Attempt: p.Attempt, Token: redact.New(p.Token), Expires: expires, Group: p.Group, Organization: p.Org, WorkspaceID: p.WSID}, nil
}

func broken(why string) error {
	return workflow.Refuse(workflow.ErrUnauthenticated, "", "the ticket is broken: %s", why)
}

// inspect checks the outer form before any library sees the ticket, and returns the key id. It
// accepts one spelling of each ticket: no padding, no line ends, no stray bits, no second header.
func inspect(ticket string) (string, error) {
	if ticket == "" {
		return "", errors.New("it is empty")
	}
	if len(ticket) > MaxLength {
		return "", fmt.Errorf("it has more than %d characters", MaxLength)
	}
	segments := strings.Split(ticket, ".")
	if len(segments) != 5 {
		return "", errors.New("it does not have five parts")
	}
	var parts [5][]byte
	for i, s := range segments {
		b, err := base64.RawURLEncoding.Strict().DecodeString(s)
		// The decoder skips line ends, so the spelling is compared as well.
		if err != nil || base64.RawURLEncoding.EncodeToString(b) != s {
			return "", errors.New("it is not base64url")
		}
		parts[i] = b
	}
	if len(parts[1]) != 0 || len(parts[2]) != ivSize || len(parts[3]) == 0 || len(parts[4]) != tagSize {
		return "", errors.New("its parts have the wrong sizes")
	}
	return inspectHeader(parts[0])
}

// inspectHeader checks the first part of a ticket, and returns the key id.
func inspectHeader(raw []byte) (string, error) {
	var header struct {
		Alg string `json:"alg"`
		Enc string `json:"enc"`
		Kid string `json:"kid"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // zip, crit, a key inside: nothing that we do not write ourselves
	if err := d.Decode(&header); err != nil {
		return "", errors.New("its header is not of our kind")
	}
	if d.InputOffset() != int64(len(raw)) {
		return "", errors.New("its header has something after it")
	}
	if header.Alg != string(jose.DIRECT) || header.Enc != string(jose.A256GCM) || !keyID().MatchString(header.Kid) {
		return "", errors.New("its header is not of our kind")
	}
	return header.Kid, nil
}
