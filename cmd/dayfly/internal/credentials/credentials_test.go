package credentials_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestFind_VariablesWinOverTheFile(t *testing.T) {
	home := t.TempDir()
	base := env(map[string]string{"HOME": home})
	if _, err := credentials.Find(base); !errors.Is(err, credentials.ErrNone) {
		t.Errorf("got %v, want ErrNone before anything is known", err)
	}
	for _, to := range []credentials.Target{
		{URL: "https://first.example.com", Token: redact.New("dfu_first")},
		{URL: "http://127.0.0.1:7331", Token: redact.New("dfu_second"), Data: "/srv/data"},
	} {
		path, err := credentials.Save(base, to)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
		}
	}
	for name, tc := range map[string]struct{ url, token, wantURL, wantToken string }{
		"the last one saved":           {"", "", "http://127.0.0.1:7331", "dfu_second"},
		"an address of the file":       {"https://first.example.com/", "", "https://first.example.com", "dfu_first"},
		"both variables":               {"https://other.example.com", "dfu_x", "https://other.example.com", "dfu_x"},
		"a token for the current one":  {"", "dfu_y", "http://127.0.0.1:7331", "dfu_y"},
		"no token for another address": {"https://other.example.com", "", "", ""},
	} {
		got, err := credentials.Find(env(map[string]string{"HOME": home, "DAYFLY_URL": tc.url, "DAYFLY_API_TOKEN": tc.token}))
		if tc.wantURL == "" {
			if err == nil || !strings.Contains(err.Error(), "dayfly login https://other.example.com") {
				t.Errorf("%s: got %v, %v, want a refusal that says how to log in", name, got.URL, err)
			}
			continue
		}
		if err != nil || got.URL != tc.wantURL || got.Token.Reveal() != tc.wantToken {
			t.Errorf("%s: got %s %s, %v, want %s %s", name, got.URL, got.Token.Reveal(), err, tc.wantURL, tc.wantToken)
		}
	}
}

func TestFind_FindsTheLocalDataDirectory(t *testing.T) {
	get := env(map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	local := credentials.Target{URL: "http://127.0.0.1:1", Token: redact.New("dfu_x"), Data: "/srv/data"}
	for _, want := range []credentials.Target{local, {URL: "https://x.example.com", Token: redact.New("dfu_y")}, local, {URL: local.URL, Token: local.Token}} {
		if _, err := credentials.Save(get, want); err != nil {
			t.Fatal(err)
		}
		if got, err := credentials.Find(get); err != nil || got != want {
			t.Errorf("got %s with data %q, %v, want %s with %q", got.URL, got.Data, err, want.URL, want.Data)
		}
	}
}

func TestFind_AFileThatOthersCanReadIsRefused(t *testing.T) {
	get := env(map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	path, err := credentials.Save(get, credentials.Target{URL: "https://x.example.com", Token: redact.New("dfu_x")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // the test is about the wrong mode
		t.Fatal(err)
	}
	if _, err := credentials.Find(get); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v, want a refusal that names the mode", err)
	}
}

func TestFind_ADamagedFileIsNotQuoted(t *testing.T) {
	get := env(map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	path, err := credentials.Path(get)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"tokens": {"x": "dfu_planted"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := credentials.Find(get); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("got %v, want a refusal without the token", err)
	}
	if _, err := credentials.Save(get, credentials.Target{URL: "https://x.example.com", Token: redact.New("y")}); err == nil {
		t.Error("a damaged file was overwritten")
	}
}

func TestCheckURL(t *testing.T) {
	for _, bad := range []string{"", "x", "ftp://x", "https://", "https://u:p@x", "https://x?a=b", "https://x#f", "http://[::1", "http://10.0.0.1", "http://x.example.com"} {
		if err := credentials.CheckURL("URL", bad); err == nil || !strings.HasPrefix(err.Error(), "URL: ") {
			t.Errorf("%q: got %v, want a refusal that names the field", bad, err)
		}
	}
	for _, good := range []string{"https://x.example.com", "http://127.0.0.1:7331", "http://localhost:1"} {
		if err := credentials.CheckURL("URL", good); err != nil {
			t.Error(err)
		}
	}
}
