package oidc

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"github.com/go-jose/go-jose/v4/json"
)

// Claims are the claims of a token.
type Claims map[string]any

// header is the header of a token.
type header struct {
	Algorithm   string          `json:"alg"`
	KeyID       string          `json:"kid"`
	Type        string          `json:"typ"`
	ContentType string          `json:"cty"`
	Critical    json.RawMessage `json:"crit"`
	Unencoded   json.RawMessage `json:"b64"`
}

// parse takes a token apart, without trusting it.
func parse(token string) (h header, c Claims, err error) {
	if len(token) > MaxToken {
		return h, nil, refuse("the token has %d bytes: at most %d are read", len(token), MaxToken)
	}
	parts := strings.Split(token, ".")
	switch {
	case len(parts) == 5:
		return h, nil, refuse("the token is encrypted: send one that is only signed")
	case len(parts) != 3 || parts[2] == "":
		return h, nil, refuse("this is not a signed JSON Web Token of three parts")
	}
	if err := decode(parts[0], &h); err != nil {
		return h, nil, refuse("the header of the token cannot be read: %v", err)
	}
	switch {
	case len(h.Critical) > 0 || len(h.Unencoded) > 0:
		return h, nil, refuse("the token has the header crit or b64, which is not taken")
	case h.ContentType != "":
		return h, nil, refuse("the token holds another one (it has the header cty), which is not taken")
	case !knownType(h.Type):
		return h, nil, refuse("the token is of type %.40q: want JWT or at+jwt", h.Type)
	}
	if err := decode(parts[1], &c); err != nil {
		return h, nil, refuse("the claims of the token cannot be read: %v", err)
	}
	return h, c, nil
}

// knownType distinguishes tokens that identify a person or a program from others of the same issuer, such as a logout
// token.
func knownType(t string) bool {
	switch strings.TrimPrefix(strings.ToLower(t), "application/") {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}

// decode reads one part of a token: one JSON object, in which no name stands twice.
func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return errors.New("it is not base64url")
	}
	if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' {
		return errors.New("it is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.SetNumberType(json.UnmarshalJSONNumber)
	if err := d.Decode(into); err != nil {
		return errors.New("it is not JSON, or a name stands in it twice")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// Strings returns the values of a claim as text: of a list each of its elements. Parts of the name of a nested claim
// are joined with dots; a name that stands there as a whole comes first.
func (c Claims) Strings(name string) []string { return values(c.find(name)) }

func (c Claims) find(name string) any {
	if v, ok := c[name]; ok {
		return v
	}
	for i, r := range name {
		if r != '.' {
			continue
		}
		if inner, ok := c[name[:i]].(map[string]any); ok {
			if v := Claims(inner).find(name[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

func values(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case json.Number:
		return []string{v.String()}
	case bool:
		if v {
			return []string{"true"}
		}
		return []string{"false"}
	case []any:
		for _, one := range v {
			if _, list := one.([]any); !list {
				out = append(out, values(one)...)
			}
		}
	}
	return out
}

// text is a claim that must be one string.
func (c Claims) text(name string) string {
	s, _ := c[name].(string)
	return s
}

// Match says whether a value is of a form in which each * stands for any characters. It is a pure function.
func Match(form, value string) bool {
	star, from := -1, 0 // where the last * was, and from where in the value it may go on
	f, v := 0, 0
	for v < len(value) {
		switch {
		case f < len(form) && form[f] == '*':
			star, from = f, v
			f++
		case f < len(form) && form[f] == value[v]:
			f, v = f+1, v+1
		case star >= 0:
			from++
			f, v = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(form[f:], "*") == ""
}
