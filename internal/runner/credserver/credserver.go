// Package credserver serves the credentials of a run's role to the engine, over an address of the task's loopback interface.
// A request must show the token of the step that is running. The protocol is that of
// AWS_CONTAINER_CREDENTIALS_FULL_URI, which the AWS SDKs speak. Nothing is written to disk, and a token is worth
// nothing after its step.
package credserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Credentials are those of the role.
type Credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	Expires                                    time.Time
}

// Config says which credentials a Server serves.
type Config struct {
	// Source returns credentials that are still valid for a while; it renews them. Required.
	Source func(context.Context) (Credentials, error)
	// Hide gets each secret value before it is sent, tokens included. Required.
	Hide func(values ...string)
	Log  *slog.Logger // nil means no log
}

const (
	path     = "/credentials"
	maxOpen  = 64 // connections at once: the engine can use up its own, and not the runner's descriptors
	slow     = 5 * time.Second
	answerIn = time.Minute // within which the source has answered
)

// Server serves the address. Its methods may be called concurrently.
type Server struct {
	cfg    Config
	server *http.Server
	done   chan struct{} // closed when the address is
	host   string        // HOST:PORT, which requests must name

	mu   sync.Mutex
	live map[[sha256.Size]byte]struct{} // hashes of the tokens of steps that are running
}

// Listen opens the address and serves it until Close.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the address of the role's credentials: %w", err)
	}
	s := &Server{cfg: cfg, host: listener.Addr().String(), done: make(chan struct{}), live: map[[sha256.Size]byte]struct{}{}}
	s.server = &http.Server{
		Handler: s, ReadTimeout: slow, WriteTimeout: answerIn + slow, IdleTimeout: slow, MaxHeaderBytes: 16 << 10,
		// A broken request of the engine is not worth a line.
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(netutil.LimitListener(listener, maxOpen)); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("the role's credentials are not served any more", "err", err)
		}
	}()
	return s, nil
}

// Close ends all tokens and closes the address; nothing answers there when it returns.
func (s *Server) Close() error {
	s.mu.Lock()
	clear(s.live)
	s.mu.Unlock()
	err := s.server.Close()
	<-s.done // a server that is closed before it began to serve closes the listener when it does begin
	return err
}

// Step makes a token for a step and returns the variables by which the engine's SDKs find the
// credentials. end makes the token worthless; it may be called again.
func (s *Server) Step() (env []string, end func()) {
	token := rand.Text() // 130 bits
	s.cfg.Hide(token)
	sum := sha256.Sum256([]byte(token))
	s.mu.Lock()
	s.live[sum] = struct{}{}
	s.mu.Unlock()
	return []string{
			"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://" + s.host + path,
			"AWS_CONTAINER_AUTHORIZATION_TOKEN=" + token,
		}, func() {
			s.mu.Lock()
			delete(s.live, sum)
			s.mu.Unlock()
		}
}

// ServeHTTP implements http.Handler. A request without a valid token learns nothing else. One for another host name
// is refused, which stops DNS rebinding: a browser that a name server has led here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case r.Host != s.host:
		refuse(w, http.StatusForbidden, "WrongHost", "use the address by its number")
		return
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, "InvalidMethod", "credentials can only be read")
		return
	case !s.admits(r.Header.Get("Authorization")):
		refuse(w, http.StatusForbidden, "InvalidToken", "the token is not that of a running step")
		return
	case r.URL.Path != path || r.URL.RawQuery != "":
		refuse(w, http.StatusNotFound, "InvalidPath", "there is nothing here")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerIn)
	defer cancel()
	got, err := s.cfg.Source(ctx)
	if err != nil {
		s.cfg.Log.Warn("credentials of the role not renewed", "err", err)
		refuse(w, http.StatusServiceUnavailable, "Unavailable", "the credentials of the role could not be renewed; try again")
		return
	}
	s.cfg.Hide(got.SecretAccessKey, got.SessionToken)
	write(w, http.StatusOK, map[string]string{
		"AccessKeyId": got.AccessKeyID, "SecretAccessKey": got.SecretAccessKey, "Token": got.SessionToken,
		"Expiration": got.Expires.UTC().Format(time.RFC3339),
	})
}

// admits compares a token with every live one, in constant time.
func (s *Server) admits(shown string) bool {
	sum := sha256.Sum256([]byte(shown))
	s.mu.Lock()
	defer s.mu.Unlock()
	found := 0
	for live := range s.live {
		found |= subtle.ConstantTimeCompare(sum[:], live[:])
	}
	return found == 1
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	write(w, status, map[string]string{"code": code, "message": message})
}

func write(w http.ResponseWriter, status int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
