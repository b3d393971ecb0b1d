package dynamodb

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// maxSort is the maximum size in bytes of a sort key in DynamoDB, of a table and of an index.
const maxSort = 1024

// A key of a store may have any bytes, and DynamoDB orders text by the bytes of its UTF-8. Keys are kept as text,
// which people can read in a console, in an encoding that keeps their order: ASCII stands for itself, each byte from
// 128 on becomes the code point of its number (two bytes), and the bytes 0 and 1 become the pairs 1 1 and 1 2, because
// some tools and proxies do not accept a zero byte in a text.
const escape = 1

// encode makes text of a key.
func encode(key string) string {
	n := store.SortSize(key)
	if n == len(key) {
		return key
	}
	b := make([]byte, 0, n)
	for i := range len(key) {
		switch c := key[i]; {
		case c <= escape:
			b = append(b, escape, c+1)
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			b = utf8.AppendRune(b, rune(c))
		}
	}
	return string(b)
}

var errNotKey = errors.New("an attribute is not the text of a key")

// decode makes a key of its text. It refuses every text that encode does not make, so that no two texts are one key.
func decode(text string) (string, error) {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == escape:
			if i+1 == len(text) || text[i+1] != escape && text[i+1] != escape+1 {
				return "", errNotKey
			}
			b.WriteByte(text[i+1] - 1)
			i += 2
		case c == 0:
			return "", errNotKey
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError || r > 0xFF {
				return "", errNotKey
			}
			b.WriteByte(byte(r)) //nolint:gosec // it fits, see above
			i += n
		}
	}
	return b.String(), nil
}
