package runner

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecretsOf(t *testing.T) { // R6
	for _, c := range []struct {
		variable string
		want     []string // none: it is shown
	}{
		// Public names.
		{"AWS_REGION=eu-west-1", nil}, {"LANG=en_US.UTF-8", nil}, {"LC_ALL=de_DE@euro", nil}, {"AWS_ACCOUNT_ID=123456789012", nil},
		{"AWS_ROLE_ARN=arn:aws:iam::123456789012:role/x", nil}, {"PATH=/usr/bin:/bin", nil}, {"TZ=Europe/Berlin", nil}, {"USER=jan", nil},
		// Public forms.
		{"REGION=eu-west-1", nil}, {"R=us-gov-west-1", nil}, {"R=europe-west4", nil}, {"R=us-east-1a", nil}, {"ON=true", nil}, {"N=42", nil}, {"N=-1.5", nil},
		{"WAIT=90s", nil}, {"SIZE=512MiB", nil}, {"LEVEL=DEBUG", nil}, {"EMPTY=", nil}, {"EMPTY=  ", nil},
		{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", nil}, {"DIRS=/a/b-c:/d", nil}, {"CONFIG=~/.config/x", nil}, {"HERE=./x", nil},
		{"HOST=db.internal.example.com", nil}, {"HOST=localhost:5432", nil}, {"URL=https://registry.example.com/v1/modules", nil},
		{"HTTP_PROXY=http://proxy.example.com:3128", nil}, {"NO_PROXY=localhost,127.0.0.1, 10.0.0.0/8,.corp,*.example.com", nil},
		// Secret names, whatever the value.
		{"API_KEY=abcd1234", []string{"abcd1234"}}, {"MY_TOKEN=true", []string{"true"}}, {"DB_PASSWORD=/etc/x", []string{"/etc/x"}},
		{"PGPWD=localhost", []string{"localhost"}}, {"SENTRY_DSN=https://sentry.example.com/1", []string{"https://sentry.example.com/1"}},
		{"AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", []string{"AKIAIOSFODNN7EXAMPLE"}},
		// A password or a key within.
		{"HTTPS_PROXY=http://jan:pa%20ss@proxy:3128", []string{"jan:pa%20ss", "jan:pa ss", "pa%20ss", "pa ss", "http://jan:pa%20ss@proxy:3128"}},
		{"U=https://ghp_1234@example.com/x", []string{"ghp_1234", "ghp_1234", "https://ghp_1234@example.com/x"}},
		{"DATABASE=postgres://app:a/b?c#d@e@db/x", []string{"app:a/b?c#d@e", "a/b?c#d@e", "postgres://app:a/b?c#d@e@db/x"}},
		{"LANG=https://a:word@b", []string{"a:word", "word", "https://a:word@b"}},
		{"LIST=https://a.example.com,https://a:word@b", []string{"a:word", "word", "https://a.example.com,https://a:word@b"}},
		{"HOOK=https://example.com/x?a=1&access_token=abcd", []string{"abcd", "https://example.com/x?a=1&access_token=abcd"}},
		{"CONN=Server=db;User=app;Password=pa55", []string{"pa55", "Server=db;User=app;Password=pa55"}},
		{"CONN=host=db password='pa55'", []string{"pa55", "host=db password='pa55'"}},
		// Everything else.
		{"THING=hunter22", []string{"hunter22"}}, {"ENVIRONMENT=production", []string{"production"}}, {"ID=1234567", []string{"1234567"}},
		{"URL=https://example.com/?q=1", []string{"https://example.com/?q=1"}}, {"U=https://x@", []string{"x", "x", "https://x@"}},
		{"MAIL=jan@example.com", []string{"jan@example.com"}}, {"J=" + `{"a":"b"}`, []string{`{"a":"b"}`}},
		{"HOOK=https://hooks.example.com/services/T00/B00/abcdefgh1234567890abcd", []string{"https://hooks.example.com/services/T00/B00/abcdefgh1234567890abcd"}},
		{"P=/wJalrXUtnFEMI/K7MDENG/bPxRfiCY", []string{"/wJalrXUtnFEMI/K7MDENG/bPxRfiCY"}}, {"T=eyJhbGciOiJIUzI1NiJ9.e30.abc", []string{"eyJhbGciOiJIUzI1NiJ9.e30.abc"}},
		{"M=-----BEGIN KEY-----\nabc\n-----END KEY-----", []string{"-----BEGIN KEY-----\nabc\n-----END KEY-----"}}, {"W=true hunter22", []string{"true hunter22"}},
	} {
		name, value, _ := strings.Cut(c.variable, "=")
		got := secretsOf(name, value)
		if diff := cmp.Diff(c.want, got.values); diff != "" || got.reason == "" {
			t.Errorf("%s (%s): %s", c.variable, got.reason, diff)
		}
	}
}

// Whatever stands in a secret, some of its own is masked.
func FuzzSecretsOf(f *testing.F) {
	f.Add("NAME", "https://a:b@c/d?e=f")
	f.Add("API_KEY", " x ")
	f.Fuzz(func(t *testing.T, name, value string) {
		got := secretsOf(name, value)
		if value = strings.TrimSpace(value); len(got.values) > 0 && !slices.Contains(got.values, value) || got.reason == "" {
			t.Errorf("got %q (%s)", got.values, got.reason)
		}
		if patterns().secret.MatchString(name) && value != "" && len(got.values) == 0 {
			t.Errorf("%s is shown", name)
		}
	})
}

func TestMask_HidesForwardedVariables(t *testing.T) {
	hide := Mask([]string{"hunter22"}, []string{"PROXY=http://jan:pa55word@proxy:1", "REGION=eu-west-1", `DOC={"in":"document"}`})
	if got, want := hide("hunter22 pa55word eu-west-1 document"), "*** *** eu-west-1 ***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
