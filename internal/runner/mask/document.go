package mask

import (
	"encoding/json"
	"strings"
)

const (
	maxLeaves  = 1000 // of one value
	maxDepth   = 16   // of documents in texts of documents
	longNumber = 8    // digits from which on a number is a value of its own
)

// leaves returns the texts of a value that is a JSON object or array, at any depth, and its numbers of longNumber digits
// or more: a port or a count is not a secret, a PIN that long may be one. A text that is a document itself is read too.
// Names of keys, true and false are left out. Texts beyond maxLeaves, maxDepth or maxValue are hidden as a part of
// their document only. A document that is cut off or malformed is read up to there.
func leaves(value string) (out []string) {
	var read func(text string, depth int)
	read = func(text string, depth int) {
		if text = strings.TrimSpace(text); depth == maxDepth || len(text) > maxValue || text == "" || text[0] != '{' && text[0] != '[' {
			return
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var open []level
		for len(out) < maxLeaves {
			t, err := d.Token()
			if err != nil {
				return
			}
			top := len(open) - 1
			if top >= 0 && open[top].object && t != json.Delim('}') {
				if open[top].key = !open[top].key; open[top].key {
					continue
				}
			}
			switch t := t.(type) {
			case json.Delim:
				if t == '{' || t == '[' {
					open = append(open, level{object: t == '{'})
				} else {
					open = open[:top]
				}
			case string:
				out = append(out, strings.TrimSpace(t))
				read(t, depth+1)
			case json.Number:
				if digits(t.String()) >= longNumber {
					out = append(out, t.String())
				}
			}
		}
	}
	read(value, 0)
	return out
}

// level is an object or array that is being read; key says that the last token was the name of a key.
type level struct{ object, key bool }

func digits(s string) (n int) {
	for _, c := range s {
		if '0' <= c && c <= '9' {
			n++
		}
	}
	return n
}
