package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type fixed map[string]string

func (f fixed) Resolve(_ context.Context, ref string) (redact.String, error) {
	switch v, ok := f[ref]; {
	case !ok:
		return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no %s", ref)
	case v == "away":
		return redact.String{}, fmt.Errorf("disk: %w", secrets.ErrUnavailable)
	default:
		return redact.New(v), nil
	}
}

// R6: values reach the runner as they are, and nothing else does.
func TestBundle_CarriesWhatWasNamed(t *testing.T) {
	from := fixed{"file:a": "value\x00\xff\n", "file:b": "unnamed", "file:c": "away"}
	b := secrets.NewBundle(t.Context(), from, []string{"file:a", "file:c", "file:d"}, map[string]string{"REGION": "here"})
	if text := fmt.Sprintf("%v %+v %#v", b, b, b); strings.Contains(text, "value") {
		t.Errorf("it prints %s", text)
	}
	var pipe bytes.Buffer
	if err := b.Write(&pipe); err != nil {
		t.Fatal(err)
	}
	cut := pipe.Bytes()[:pipe.Len()-3]
	if _, err := secrets.ReadBundle(bytes.NewReader(cut)); err == nil || strings.Contains(err.Error(), "value") {
		t.Errorf("a cut bundle: got %v, want an error without a value", err)
	}
	got, err := secrets.ReadBundle(&pipe)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := got.Resolve(t.Context(), "file:a"); err != nil || v.Reveal() != from["file:a"] {
		t.Errorf("got %q, %v", v.Reveal(), err)
	}
	for ref, want := range map[string]error{"file:b": workflow.ErrForbidden, "file:c": secrets.ErrUnavailable, "file:d": workflow.ErrNotFound} {
		if _, err := got.Resolve(t.Context(), ref); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", ref, err, want)
		}
	}
	if v, ok := got.Getenv("REGION"); !ok || v != "here" {
		t.Errorf("got %q, %v", v, ok)
	}
	if _, ok := got.Getenv("HOME"); ok {
		t.Error("it has a variable that nobody gave it")
	}
}

// Whoever writes a reference of a kind that this runner has not is told which ones it has.
func TestMux_SaysWhatItHas(t *testing.T) {
	for want, m := range map[string]secrets.Mux{
		"it has none":                   {},
		"it has file:NAME and env:NAME": {"file": fixed{}, "env": fixed{}},
		"it has env:NAME and the ARN of a secret in Secrets Manager": {"env": fixed{}, "arn": fixed{}},
	} {
		if _, err := m.Resolve(t.Context(), "vault:a"); !errors.Is(err, workflow.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %q at its end", err, want)
		}
	}
}
