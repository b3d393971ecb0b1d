// Package secretstest is the one conformance suite for resolvers of secrets. An implementation
// that passes it can stand in for any other.
package secretstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Subject is a resolver to be tested, over a place of its own that holds nothing yet.
type Subject struct {
	Resolver secrets.Resolver
	// Put keeps a value in the place, in place of an older one of that name, and returns its
	// reference. The name has letters only.
	Put func(t *testing.T, name, value string) (ref string)
	// Missing is a reference in good form to nothing.
	Missing string
	// Forbidden is a reference in good form to a value that may not be read; empty where there is
	// no such thing.
	Forbidden string
	// Malformed are references that this resolver can never resolve.
	Malformed []string
	// TextOnly says that the place holds text in UTF-8 only, and MaxValue how many bytes of it; 0 means any number.
	TextOnly bool
	MaxValue int
}

// Run holds a resolver to the contract of secrets.Resolver. subject is called once for each test.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	t.Helper()
	t.Run("ValueComesBackUnchanged", func(t *testing.T) {
		s := subject(t)
		for name, value := range map[string]string{
			"plain":    "hunter2",
			"space":    "  two words\t",
			"newline":  "ends with one\n",
			"lines":    "-----BEGIN KEY-----\nAAAA\nBBBB\n-----END KEY-----\n",
			"crlf":     "one\r\ntwo\r\n",
			"unicode":  "pässwörd ✓",
			"binary":   "\x00\x01\xfe\xff not utf-8 \xc3\x28",
			"template": "${HOME} $(id) %s {{.}} \"'`",
			"large":    strings.Repeat("0123456789abcdef", 4096),
		} {
			if s.TextOnly && !utf8.ValidString(value) {
				continue
			}
			if s.MaxValue > 0 {
				value = value[:min(len(value), s.MaxValue)]
			}
			ref := s.Put(t, name, value)
			got, err := s.Resolver.Resolve(t.Context(), ref)
			if err != nil {
				t.Errorf("resolve %s: %v", name, err)
				continue
			}
			if got.Reveal() != value {
				t.Errorf("resolve %s: got %d bytes %.40q, want %d bytes %.40q", name, len(got.Reveal()), got.Reveal(), len(value), value)
			}
		}
	})
	t.Run("ReplacedValueIsSeenAtOnce", func(t *testing.T) {
		s := subject(t)
		for _, value := range []string{"first", "second, which is longer", "3rd"} {
			ref := s.Put(t, "rotated", value)
			got, err := s.Resolver.Resolve(t.Context(), ref)
			if err != nil {
				t.Fatalf("resolve: %v", err)
			}
			if got.Reveal() != value {
				t.Errorf("got %q, want %q", got.Reveal(), value)
			}
		}
	})
	t.Run("EachNameHasItsOwnValue", func(t *testing.T) {
		s := subject(t)
		one, two := s.Put(t, "one", "value of one"), s.Put(t, "two", "value of two")
		for ref, want := range map[string]string{one: "value of one", two: "value of two"} {
			if got, err := s.Resolver.Resolve(t.Context(), ref); err != nil || got.Reveal() != want {
				t.Errorf("resolve %s: got %q, %v, want %q", ref, got.Reveal(), err, want)
			}
		}
	})
	t.Run("UnknownReferenceIsNotFound", func(t *testing.T) {
		s := subject(t)
		s.Put(t, "other", "a value that must not show")
		refused(t, s, s.Missing, workflow.ErrNotFound)
	})
	t.Run("ForbiddenReferenceIsForbidden", func(t *testing.T) {
		s := subject(t)
		if s.Forbidden == "" {
			t.Skip("this resolver has no reference that may not be read")
		}
		refused(t, s, s.Forbidden, workflow.ErrForbidden)
	})
	t.Run("MalformedReferenceIsInvalid", func(t *testing.T) {
		s := subject(t)
		for _, ref := range append([]string{"", ":", "no scheme", "unheard-of:NAME"}, s.Malformed...) {
			refused(t, s, ref, workflow.ErrInvalid)
		}
	})
	t.Run("LongReferenceIsCutInItsError", func(t *testing.T) {
		s := subject(t)
		_, err := s.Resolver.Resolve(t.Context(), strings.Repeat("x", 100_000))
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("got an error of %d bytes, want one of at most 1000", len(fmt.Sprint(err)))
		}
	})
	t.Run("EndedContextIsHonoured", func(t *testing.T) {
		s := subject(t)
		ref := s.Put(t, "ended", "value")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if got, err := s.Resolver.Resolve(ctx, ref); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v, want %v", got, err, context.Canceled)
		}
	})
	t.Run("ConcurrentCallsDoNotDisturbEachOther", func(t *testing.T) {
		s := subject(t)
		refs := map[string]string{}
		for _, name := range []string{"a", "b", "c", "d"} {
			refs[name] = s.Put(t, name, "value of "+name)
		}
		var wg sync.WaitGroup
		for name, ref := range refs {
			for range 8 {
				wg.Go(func() {
					if got, err := s.Resolver.Resolve(t.Context(), ref); err != nil || got.Reveal() != "value of "+name {
						t.Errorf("resolve %s: got %q, %v", name, got.Reveal(), err)
					}
				})
			}
		}
		wg.Wait()
	})
	t.Run("MuxFindsItByItsScheme", func(t *testing.T) {
		s := subject(t)
		ref := s.Put(t, "muxed", "value")
		scheme, _, _ := strings.Cut(ref, ":")
		got, err := secrets.Mux{scheme: s.Resolver}.Resolve(t.Context(), ref)
		if err != nil || got.Reveal() != "value" {
			t.Errorf("got %q, %v, want the value", got.Reveal(), err)
		}
	})
}

// refused checks that a reference is refused with a sentence that holds no value.
func refused(t *testing.T, s Subject, ref string, want error) {
	t.Helper()
	got, err := s.Resolver.Resolve(t.Context(), ref)
	if !errors.Is(err, want) {
		t.Errorf("resolve %q: got %v, want %v", ref, err, want)
		return
	}
	if !got.Empty() {
		t.Errorf("resolve %q: got a value beside the error", ref)
	}
	var sentence *workflow.Error
	if !errors.As(err, &sentence) || sentence.Message == "" {
		t.Errorf("resolve %q: %v is not a sentence for a person", ref, err)
	}
	if strings.Contains(err.Error(), "must not show") {
		t.Errorf("resolve %q: the error holds a value: %v", ref, err)
	}
}
