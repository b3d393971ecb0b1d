package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/task"
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

// passGate reads the data of a gate, which is closed then.
func passGate(t *testing.T, came []byte) (*task.Bundle, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(r.Fd())) // the runner closes its own
	if _, werr := w.Write(came); errors.Join(err, werr, w.Close(), r.Close()) != nil {
		t.Fatal(err, werr)
	}
	env := task.Environment{Gate: strconv.Itoa(fd), Bundled: true}.Variables()
	return task.PassGate(func(name string) string { return env[name] })
}

// R6: values reach the runner as they are, and nothing else does.
func TestBundle_CarriesWhatWasNamed(t *testing.T) {
	from := fixed{"file:a": "value\x00\xff\n", "file:b": "unnamed", "file:c": "away"}
	b := secrets.NewBundle(t.Context(), from, []string{"file:a", "file:c", "file:d"}, map[string]string{"REGION": "here"})
	if text := fmt.Sprintf("%v %+v %#v", b, b, b); strings.Contains(text, "value") {
		t.Errorf("it prints %s", text)
	}
	var pipe bytes.Buffer
	if err := task.OpenGate(&pipe, &b); err != nil {
		t.Fatal(err)
	}
	cut := pipe.Bytes()[:pipe.Len()-3]
	if _, err := passGate(t, cut); err == nil || strings.Contains(err.Error(), "value") {
		t.Errorf("a cut bundle: got %v, want an error without a value", err)
	}
	handed, err := passGate(t, pipe.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%v %+v %#v", handed, *handed, *handed); strings.Contains(text, "value") {
		t.Errorf("it prints %s", text)
	}
	got := secrets.Bundle{Bundle: *handed}
	if v, err := got.Resolve(t.Context(), "file:a"); err != nil || v.Reveal() != from["file:a"] {
		t.Errorf("got %q, %v", v.Reveal(), err)
	}
	for ref, want := range map[string]error{"file:b": workflow.ErrForbidden, "file:c": secrets.ErrUnavailable, "file:d": workflow.ErrNotFound} {
		if _, err := got.Resolve(t.Context(), ref); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", ref, err, want)
		}
	}
	if v, ok := got.Env["REGION"]; !ok || v != "here" {
		t.Errorf("got %q, %v", v, ok)
	}
	if _, ok := got.Env["HOME"]; ok {
		t.Error("it has a variable that nobody gave it")
	}
}

// The error for a reference of an unknown kind names the kinds that this runner has.
func TestMux_SaysWhatItHas(t *testing.T) {
	for want, m := range map[string]secrets.Mux{
		"it has none":                   {},
		"it has file:NAME and env:NAME": {"file": fixed{}, "env": fixed{}},
		"it has env:NAME and the ARN of a secret in Secrets Manager or of a parameter in Systems Manager": {"env": fixed{}, "arn": fixed{}},
	} {
		if _, err := m.Resolve(t.Context(), "vault:a"); !errors.Is(err, workflow.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %q at its end", err, want)
		}
	}
}
