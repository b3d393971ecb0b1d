package outbound_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/outbound"
)

const setting = "private_deliveries of the agent"

func private(t testing.TB, list ...string) outbound.Private {
	t.Helper()
	p, err := outbound.ReadPrivate(list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(t *testing.T, c *http.Client, address string) (status int, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestReadPrivate_AMistakeNamesTheEntry(t *testing.T) {
	for _, entry := range []string{"", "https://id.example.com", "host:443", "*.example.com", "10.0.0.0/40", "a b"} {
		if _, err := outbound.ReadPrivate([]string{"id.example.internal", entry}); err == nil || !strings.Contains(err.Error(), `"`+entry+`"`) {
			t.Errorf("%q: got %v", entry, err)
		}
	}
}

func TestClient_CallsAPrivateAddressOnlyIfItIsListed(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(here.Close)
	port := here.URL[strings.LastIndex(here.URL, ":"):]
	t.Setenv("HTTP_PROXY", here.URL) // must not matter
	for name, c := range map[string]struct {
		host   string
		listed []string
		ok     bool
	}{
		"by network":                   {"127.0.0.1", []string{"127.0.0.0/8"}, true},
		"by address":                   {"127.0.0.1", []string{" 127.0.0.1 "}, true},
		"by mapped address":            {"[::ffff:127.0.0.1]", []string{"127.0.0.1"}, true},
		"by name":                      {"localhost", []string{"LOCALHOST"}, true},
		"nothing is listed":            {"127.0.0.1", nil, false},
		"another network":              {"127.0.0.1", []string{"10.0.0.0/8"}, false},
		"a name leads to a private":    {"localhost", []string{"example.com"}, false},
		"a name's address, not itself": {"127.0.0.1", []string{"localhost"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := get(t, private(t, c.listed...).Client(outbound.Limits{Setting: setting}), "http://"+c.host+port)
			switch {
			case c.ok && (err != nil || body != "hello"):
				t.Errorf("got %q, %v", body, err)
			case !c.ok && (!errors.Is(err, outbound.ErrRefused) || !strings.Contains(err.Error(), setting)):
				t.Errorf("got %q, %v, want a refusal that names the setting", body, err)
			}
		})
	}
}

func TestClient_FollowsSoManyRedirectsWithinOneHost(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect to another host was followed") }))
	t.Cleanup(other.Close)
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rest := strings.TrimPrefix(r.URL.Path, "/"); rest {
		case "":
			_, _ = io.WriteString(w, "end")
		case "away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		default:
			http.Redirect(w, r, "/"+rest[1:], http.StatusFound)
		}
	}))
	t.Cleanup(here.Close)
	for _, c := range []struct {
		path   string
		follow int
		status int
		fails  bool
	}{
		{"/", 0, 200, false},
		{"/x", 0, 302, false},
		{"/away", 0, 302, false},
		{"/xx", 2, 200, false},
		{"/xxx", 2, 0, true},
		{"/away", 2, 0, true},
	} {
		status, _, err := get(t, private(t, "127.0.0.1").Client(outbound.Limits{Setting: setting, Redirects: c.follow}), here.URL+c.path)
		if status != c.status || (err != nil) != c.fails {
			t.Errorf("%s with %d: got %d, %v", c.path, c.follow, status, err)
		}
	}
}

// What is sent may hold a credential.
func TestClient_SendsNothingWithoutTLSButToThisMachine(t *testing.T) {
	for _, address := range []string{"http://git.example.internal/", "http://10.1.2.3/", "ftp://git.example.internal/"} {
		_, _, err := get(t, private(t, "git.example.internal", "10.0.0.0/8").Client(outbound.Limits{Setting: setting}), address)
		if !errors.Is(err, outbound.ErrRefused) {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

// A name may lead elsewhere when it is called than when it was written down: only the connection tells. Check looks no
// name up, and knows this one in small letters only.
func TestClient_ANameIsCheckedWhereItLeads(t *testing.T) {
	here := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(here.Close)
	port := here.URL[strings.LastIndex(here.URL, ":"):]
	for list, refused := range map[string]bool{"10.0.0.0/8": true, "127.0.0.0/8": false} {
		c := private(t, list).Client(outbound.Limits{Setting: setting})
		_, _, err := get(t, c, "https://LocalHost"+port)
		if err == nil {
			t.Fatal("the certificate of a stranger was taken")
		}
		if errors.Is(err, outbound.ErrRefused) != refused {
			t.Errorf("with %s: got %v", list, err)
		}
	}
}

func TestClient_AnAnswerIsBounded(t *testing.T) {
	var size int
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", size)) }))
	t.Cleanup(here.Close)
	c := private(t, "127.0.0.1").Client(outbound.Limits{Setting: setting, Body: 5000})
	for size = range 2 {
		if _, body, err := get(t, c, here.URL); err != nil || len(body) != size {
			t.Errorf("%d bytes: got %d, %v", size, len(body), err)
		}
	}
	size = 5000
	if _, body, err := get(t, c, here.URL); err != nil || len(body) != size {
		t.Errorf("as many as may be: got %d, %v", len(body), err)
	}
	size = 5001
	if _, body, err := get(t, c, here.URL); !errors.Is(err, outbound.ErrLong) || len(body) != 5000 {
		t.Errorf("one more: got %d, %v", len(body), err)
	}
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(func() { close(hang); slow.Close() })
	if _, _, err := get(t, private(t, "127.0.0.1").Client(outbound.Limits{Setting: setting, Timeout: 50 * time.Millisecond}), slow.URL); err == nil {
		t.Error("an answer that never comes was waited for")
	}
}

func TestCheck_RefusesWhatAClientWouldNotCall(t *testing.T) {
	p := private(t, "127.0.0.1", "git.example.internal", "10.1.0.0/16")
	for address, ok := range map[string]bool{
		"https://git.example.com/x?y=1":    true,
		"https://git.example.internal":     true,
		"https://10.1.2.3":                 true,
		"http://127.0.0.1:8080":            true,
		"https://8.8.8.8":                  true,
		"https://[2606:4700:4700::1111]":   true,
		"http://git.example.com":           false,
		"http://git.example.internal":      false,
		"http://10.1.2.3":                  false,
		"https://10.2.2.3":                 false,
		"https://169.254.169.254":          false,
		"https://[fd00:ec2::254]":          false,
		"https://[::1]":                    false,
		"https://[fe80::1%25eth0]":         false,
		"https://[::ffff:10.0.0.1]":        false,
		"https://[64:ff9b::a00:1]":         false,
		"https://[64:ff9b::808:808]":       true,
		"https://100.64.0.1":               false,
		"https://0.0.0.0":                  false,
		"https://localhost":                false,
		"https://224.0.0.1":                false,
		"https://198.18.0.1":               false,
		"https://[2001:db8::1]":            false,
		"https://[2002:a00:1::1]":          false,
		"ftp://git.example.com":            false,
		"https:":                           false,
		"git.example.com":                  false,
		"https://255.255.255.255":          false,
		"https://[::ffff:169.254.169.254]": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Check("the address of a receiver", setting, u)
		if (err == nil) != ok {
			t.Errorf("%s: got %v", address, err)
		}
	}
	u, _ := url.Parse("https://10.2.2.3")
	if err := p.Check("the address of a receiver", setting, u); err == nil || !strings.Contains(err.Error(), setting) {
		t.Errorf("got %v, want the setting", err)
	}
}
