// Package env says which names environment variables may have. It does not read any variable.
package env

import "strings"

// Prefix is the beginning of the names of Dayfly's own variables.
const Prefix = "DAYFLY_"

// MaxName is the longest name, in characters.
const MaxName = 128

// Valid reports whether every shell can set a variable of this name: letters, digits and _, not starting with a
// digit.
func Valid(name string) bool {
	return name != "" && len(name) <= MaxName && (name[0] < '0' || name[0] > '9') &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
		})
}

// Ours reports whether a variable is one of Dayfly's own; those are never forwarded.
func Ours(name string) bool { return strings.HasPrefix(name, Prefix) }

// Reserved reports whether only Dayfly may set a variable: its own variables would bring foreign code into the
// runner, and those of the loader into every program that it starts.
func Reserved(name string) bool { return Ours(name) || strings.HasPrefix(name, "LD_") }
