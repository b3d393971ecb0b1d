// Package redact has a string that does not print: formatted, logged or marshalled it shows a placeholder, and only
// Reveal returns the value. It does not encrypt anything and does not wipe memory.
package redact

import (
	"fmt"
	"io"
	"log/slog"
)

const placeholder = "[redacted]"

// String is a value that must not appear in a log, an error or a document.
type String struct{ value, document string }

// New wraps a secret value.
func New(value string) String { return String{value: value} }

// Of sets the secret document that a value is a part of: a reader of the part has read the whole document.
func (s String) Of(document string) String { return String{s.value, document} }

// Document returns the secret document that the value is a part of; empty if there is none.
func (s String) Document() string { return s.document }

// Reveal returns the value. Each call of it should be reviewed.
func (s String) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s String) Empty() bool { return s.value == "" }

// String, GoString, Format, LogValue, MarshalText and MarshalJSON all print a
// placeholder, so that no formatting verb and no encoder shows the value.
func (s String) String() string { return placeholder }

// GoString implements fmt.GoStringer.
func (s String) GoString() string { return placeholder }

// Format implements fmt.Formatter.
func (s String) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue implements slog.LogValuer.
func (s String) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalText implements encoding.TextMarshaler.
func (s String) MarshalText() ([]byte, error) { return []byte(placeholder), nil }

// MarshalJSON implements json.Marshaler.
func (s String) MarshalJSON() ([]byte, error) { return []byte(`"` + placeholder + `"`), nil }
