package embedded_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// line is a connection on which the requests are written by hand.
type line struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, s *embedded.Server, from string) line {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	scheme, address, _ := strings.Cut(s.URL(), "://")
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if scheme == "https" {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test made the certificate
	}
	return line{c, bufio.NewReader(c)}
}

// get sends a request with a token, if there is one, and returns its status; 0 where the connection is closed.
func (l line) get(t *testing.T, path, token string) int {
	t.Helper()
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	_, _ = fmt.Fprintf(l, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path, token)
	answer, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := bufio.NewReader(answer.Body).WriteTo(&strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}

// certificate writes one of a test server, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	made := server.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for name, block := range map[string]pem.Block{cert: {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// An address has a bound of connections on which no valid token came. What is known, what is closed, and other addresses
// are beside it.
func TestServer_OneAddressCannotTakeAllConnections(t *testing.T) {
	t.Run("http", func(t *testing.T) { boundsStrangers(t, embedded.ServerConfig{}) })
	t.Run("https", func(t *testing.T) {
		cert, key := certificate(t)
		boundsStrangers(t, embedded.ServerConfig{TLSCert: cert, TLSKey: key})
	})
}

func boundsStrangers(t *testing.T, cfg embedded.ServerConfig) {
	cfg.Data, cfg.Connections = dataDir(t), 3
	s, _ := serve(t, cfg)
	token, err := s.AdminToken()
	if err != nil {
		t.Fatal(err)
	}
	var open []line
	for range 3 {
		l := dial(t, s, "127.0.0.1")
		if got := l.get(t, "/healthz", ""); got != http.StatusOK {
			t.Fatalf("within the bound: got %d", got)
		}
		open = append(open, l)
	}
	if got := dial(t, s, "127.0.0.1").get(t, "/healthz", token); got != 0 {
		t.Errorf("beyond the bound: got %d", got)
	}
	if got := dial(t, s, "127.0.0.2").get(t, "/healthz", ""); got != http.StatusOK {
		t.Errorf("from another address: got %d", got)
	}
	if got := open[0].get(t, "/v1/whoami", "wrong"); got != http.StatusUnauthorized {
		t.Errorf("a wrong token: got %d", got)
	}
	if got := dial(t, s, "127.0.0.1").get(t, "/healthz", ""); got != 0 {
		t.Errorf("after a wrong token: got %d", got)
	}
	for range 2 { // the second time nothing is freed
		if got := open[0].get(t, "/v1/whoami", token); got != http.StatusOK {
			t.Errorf("a valid token: got %d", got)
		}
	}
	if got := dial(t, s, "127.0.0.1").get(t, "/healthz", ""); got != http.StatusOK {
		t.Errorf("beside one that is known: got %d", got)
	}
	if got := dial(t, s, "127.0.0.1").get(t, "/healthz", ""); got != 0 {
		t.Errorf("beyond the bound again: got %d", got)
	}
}

func TestServer_ConnectionsOfATrustedProxyAreNotCounted(t *testing.T) {
	s, _ := serve(t, embedded.ServerConfig{Data: dataDir(t), Connections: 1, TrustedProxies: []string{"127.0.0.1"}})
	for range 3 {
		if got := dial(t, s, "127.0.0.1").get(t, "/healthz", ""); got != http.StatusOK {
			t.Errorf("got %d", got)
		}
	}
}

func TestProxies_SayWhereARequestComesFrom(t *testing.T) {
	trusted := []string{"10.0.0.0/8", "fd00::7"}
	for _, tc := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:5", []string{"198.51.100.9"}, "192.0.2.1:5"}, // no proxy says it
		{"10.1.2.3:5", nil, "10.1.2.3:5"},
		{"10.1.2.3:5", []string{"198.51.100.9"}, "198.51.100.9:0"},
		{"10.1.2.3:5", []string{"203.0.113.5, 198.51.100.9"}, "198.51.100.9:0"}, // the first is invented
		{"10.1.2.3:5", []string{"203.0.113.5, 198.51.100.9 , 10.9.9.9"}, "198.51.100.9:0"},
		{"10.1.2.3:5", []string{"203.0.113.5", "198.51.100.9"}, "198.51.100.9:0"},
		{"10.1.2.3:5", []string{"10.1.1.1"}, "10.1.1.1:0"},
		{"10.1.2.3:5", []string{"198.51.100.9, unknown"}, "10.1.2.3:5"},
		{"[::ffff:10.1.2.3]:5", []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{"[fd00::7]:5", []string{"198.51.100.9"}, "198.51.100.9:0"},
		{"[fd00::8]:5", []string{"198.51.100.9"}, "[fd00::8]:5"},
		{"in-memory", []string{"198.51.100.9"}, "in-memory"},
	} {
		if got := embedded.SenderOf(trusted, tc.remote, tc.forwarded); got != tc.want {
			t.Errorf("%s with %q: got %s, want %s", tc.remote, tc.forwarded, got, tc.want)
		}
	}
}
