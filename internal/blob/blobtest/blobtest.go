// Package blobtest holds every implementation of blob.Store to the promises of package blob.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Run holds a store, which is empty, to the contract.
func Run(t *testing.T, s blob.Store) {
	t.Helper()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	t.Run("ComesBackWhole", func(t *testing.T) {
		for name, body := range map[string][]byte{
			"a": every, "a-b/c_d/0001/0f": []byte("x"), "empty/one": nil, "large": bytes.Repeat(every, blob.Max/len(every)),
			strings.Repeat("n", 200): every,
		} {
			for range 2 { // a repeat is the same blob
				if err := s.Put(t.Context(), name, body); err != nil {
					t.Fatalf("put %.20s: %v", name, err)
				}
			}
			if got, err := s.Get(t.Context(), name); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%.20s: got %d bytes, %v, want %d", name, len(got), err, len(body))
			}
		}
	})
	t.Run("AbsentIsNotFound", func(t *testing.T) {
		for _, name := range []string{"nobody", "x/y/nobody"} {
			if got, err := s.Get(t.Context(), name); !errors.Is(err, workflow.ErrNotFound) {
				t.Errorf("%s: got %d bytes, %v, want not found", name, len(got), err)
			}
		}
	})
	t.Run("ABadNameIsRefused", func(t *testing.T) {
		for _, name := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "a b", "A", "a.b", "ü", strings.Repeat("n", 201)} {
			if err := s.Put(t.Context(), name, every); !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("put %q: %v, want it refused", name, err)
			}
			if _, err := s.Get(t.Context(), name); !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("get %q: %v, want it refused", name, err)
			}
		}
		if err := s.Put(t.Context(), "toolarge", make([]byte, blob.Max+1)); !errors.Is(err, workflow.ErrTooLarge) {
			t.Errorf("too large: %v, want it refused", err)
		}
	})
	t.Run("ManyAtOnce", func(t *testing.T) {
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				name := fmt.Sprintf("many/%d/x", n%5)
				if err := s.Put(t.Context(), name, every); err != nil {
					t.Error(err)
				}
				if got, err := s.Get(t.Context(), name); err != nil || !bytes.Equal(got, every) {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
			})
		}
		all.Wait()
	})
	t.Run("EndedContext", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Put(ctx, "late", every); err == nil {
			t.Error("a put after the end was done")
		}
		if _, err := s.Get(t.Context(), "late"); !errors.Is(err, workflow.ErrNotFound) {
			t.Errorf("got %v, want not found", err)
		}
	})
}
