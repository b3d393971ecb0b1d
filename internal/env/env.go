// Package env says which names a variable of the environment may have. It reads none.
package env

import "strings"

// Prefix begins the names of Dayfly's own variables.
const Prefix = "DAYFLY_"

// MaxName is how many characters a name may have.
const MaxName = 128

// Valid reports whether a name is one that every shell can set: letters, digits and _, and no digit first.
func Valid(name string) bool {
	return name != "" && len(name) <= MaxName && (name[0] < '0' || name[0] > '9') &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
		})
}

// Ours reports whether a variable is one of Dayfly's own, which are never forwarded.
func Ours(name string) bool { return strings.HasPrefix(name, Prefix) }

// Reserved reports whether nobody else may set a variable: by Dayfly's own, code would reach the runner; by those of
// the loader, every program that it starts.
func Reserved(name string) bool { return Ours(name) || strings.HasPrefix(name, "LD_") }
