package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxRefs       = 64 << 20 // bytes of a list of branches and tags
	handshakeTime = 30 * time.Second
	lastWords     = 5 * time.Second // the time that a server has to say why it refused
)

var errTooMuch = errors.New("the server sent too much")

// limited ends a stream that is longer than it may be.
type limited struct {
	r         io.Reader
	remaining int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.remaining <= 0 {
		return 0, errTooMuch
	}
	if int64(len(p)) > l.remaining {
		p = p[:l.remaining]
	}
	n, err := l.r.Read(p)
	l.remaining -= int64(n)
	return n, err
}

// limitedTransport bounds every answer of a server.
type limitedTransport struct{ next http.RoundTripper }

func (t limitedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	limit := int64(maxRefs)
	if req.Method == http.MethodPost && res.StatusCode == http.StatusOK {
		limit = maxBytes
	}
	body := res.Body
	res.Body = struct {
		io.Reader
		io.Closer
	}{&limited{body, limit}, body}
	return res, nil
}

// httpRemote speaks git over https with a client of its own. Redirects are followed only where
// git follows them, never from https to http, and the token stays with its own origin.
func httpRemote(a address, g api.GitSource, token string, caPEM []byte) (func(context.Context) (remote, error), error) {
	base, err := trusting(caPEM)
	if err != nil {
		return nil, err
	}
	client := githttp.NewClient(&http.Client{Transport: limitedTransport{base}})
	endpoint, err := transport.NewEndpoint(a.String())
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.git.url", "%s is not a git URL", quote(a.String()))
	}
	var auth transport.AuthMethod
	if token != "" {
		user := g.Username
		if user == "" {
			user = defaultUsername
		}
		auth = &githttp.BasicAuth{Username: user, Password: token}
	}
	return func(context.Context) (remote, error) {
		return client.NewUploadPackSession(endpoint, auth)
	}, nil
}

// sshRemote speaks git over ssh. It reads no file of the user: the key comes from a secret, the
// host's keys from the workspace, and another host is refused. The transport of go-git bounds neither the answer of a
// server nor the time of the handshake, so the session is our own.
func sshRemote(a address, g api.GitSource, key, temp string) (func(context.Context) (remote, error), error) {
	signer, err := ssh.ParsePrivateKey([]byte(withLineEnd(key)))
	if err != nil {
		why := "holds no private key in PEM form"
		if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
			why = "holds a key with a passphrase, which a runner cannot type; use a key without one"
		}
		return nil, fmt.Errorf("%w: source.git.ssh_key_ref: %s %s", ErrCredential, quote(g.SSHKeyRef), why)
	}
	file := filepath.Join(temp, "known_hosts")
	if err := os.WriteFile(file, []byte(withLineEnd(g.KnownHosts)), 0o600); err != nil {
		return nil, fmt.Errorf("write known_hosts: %w", err)
	}
	known, err := gitssh.NewKnownHostsDb(file)
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.git.known_hosts", "known_hosts cannot be read: %s", strings.ReplaceAll(err.Error(), file, "known_hosts"))
	}
	host := a.host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "22")
	}
	algorithms := known.HostKeyAlgorithms(host)
	if len(algorithms) == 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.git.known_hosts", "known_hosts has no line for %s: add those that `ssh-keyscan` prints, and check them", a.host)
	}
	config := &ssh.ClientConfig{
		User: a.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: known.HostKeyCallback(), HostKeyAlgorithms: algorithms,
	}
	return func(ctx context.Context) (remote, error) { return dialSSH(ctx, host, a, config) }, nil
}

// withLineEnd restores the last line end, which a secret may have lost and PEM needs.
func withLineEnd(s string) string { return strings.TrimRight(s, "\r\n ") + "\n" }

// sshSession is git-upload-pack at the other end of one connection. The connection is closed when
// the context ends, which ends every read and write.
type sshSession struct {
	conn   net.Conn
	client *ssh.Client
	wait   func() error
	in     io.WriteCloser
	out    *limited
	errs   *head
	ended  sync.Once
}

func dialSSH(ctx context.Context, host string, a address, config *ssh.ClientConfig) (_ remote, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTime, fmt.Errorf("%s did not answer within %s", a.host, handshakeTime))
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	s := &sshSession{conn: conn, errs: &head{}}
	stop := s.closeOn(ctx)
	defer func() {
		stop()
		if err != nil {
			_ = s.Close()
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	c, channels, requests, err := ssh.NewClientConn(conn, host, config)
	if err != nil {
		return nil, explainSSH(a, err)
	}
	s.client = ssh.NewClient(c, channels, requests)
	session, err := s.client.NewSession()
	if err != nil {
		return nil, fmt.Errorf("open ssh session: %w", err)
	}
	if s.in, err = session.StdinPipe(); err != nil {
		return nil, fmt.Errorf("open ssh session: %w", err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open ssh session: %w", err)
	}
	s.out = &limited{out, maxRefs}
	session.Stderr = s.errs
	s.wait = session.Wait
	if err := session.Start("git-upload-pack " + shellQuote(a.path)); err != nil {
		return nil, fmt.Errorf("start git-upload-pack: %w", err)
	}
	return s, nil
}

func explainSSH(a address, err error) error {
	if k, ok := errors.AsType[*knownhosts.KeyError](err); ok {
		if len(k.Want) == 0 {
			return workflow.Refuse(workflow.ErrForbidden, "source.git.known_hosts", "known_hosts has no key of %s", a.host)
		}
		return workflow.Refuse(workflow.ErrForbidden, "source.git.known_hosts", "%s shows another key than known_hosts has: either the host changed its key, or somebody intercepts the connection", a.host)
	}
	if _, ok := errors.AsType[*knownhosts.RevokedError](err); ok {
		return workflow.Refuse(workflow.ErrForbidden, "source.git.known_hosts", "%s shows a key that known_hosts marks as revoked", a.host)
	}
	if strings.Contains(err.Error(), "unable to authenticate") {
		return fmt.Errorf("%w: %w", transport.ErrAuthorizationFailed, err)
	}
	return err
}

// AdvertisedReferencesContext reads the references of the server.
func (s *sshSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	defer s.closeOn(ctx)()
	adv := packp.NewAdvRefs()
	if err := adv.Decode(s.out); err != nil {
		if errors.Is(err, packp.ErrEmptyAdvRefs) {
			return nil, transport.ErrEmptyRemoteRepository
		}
		return nil, s.explain(err)
	}
	if adv.IsEmpty() {
		return nil, transport.ErrEmptyRemoteRepository
	}
	transport.FilterUnsupportedCapabilities(adv.Capabilities)
	return adv, nil
}

// UploadPack asks for objects. The response ends with the context.
func (s *sshSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	stop := s.closeOn(ctx)
	res, err := s.uploadPack(req)
	if err != nil {
		stop()
		return nil, s.explain(err)
	}
	return res, nil
}

func (s *sshSession) uploadPack(req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := req.UploadRequest.Encode(&buf); err != nil {
		return nil, err
	}
	if err := req.UploadHaves.Encode(&buf, true); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(&buf).EncodeString("done\n"); err != nil {
		return nil, err
	}
	if _, err := s.in.Write(buf.Bytes()); err != nil {
		return nil, err
	}
	if err := s.in.Close(); err != nil {
		return nil, err
	}
	s.out.remaining = maxBytes
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(struct {
		io.Reader
		io.Closer
	}{s.out, s}); err != nil {
		return nil, err
	}
	return res, nil
}

// closeOn closes the connection when ctx ends, until the returned function is called.
func (s *sshSession) closeOn(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.conn.Close() })
}

// explain adds the error output of the server.
func (s *sshSession) explain(err error) error {
	// Its error stream may lag behind: all of it is there when the program has ended.
	_ = s.conn.SetDeadline(time.Now().Add(lastWords))
	_ = s.wait()
	said := s.errs.first()
	lower := strings.ToLower(said)
	switch {
	case strings.Contains(lower, "not found"), strings.Contains(lower, "does not exist"), strings.Contains(lower, "not appear to be a git repository"):
		return transport.ErrRepositoryNotFound
	case said != "":
		return fmt.Errorf("%w (the server said %s)", err, quote(said))
	default:
		return err
	}
}

// Close ends the conversation.
func (s *sshSession) Close() error {
	s.ended.Do(func() {
		if s.client != nil {
			_ = s.client.Close()
		}
		_ = s.conn.Close()
	})
	return nil
}

// head keeps the beginning of a stream.
type head struct {
	mu  sync.Mutex
	buf []byte
}

func (h *head) Write(p []byte) (int, error) {
	const limit = 4 << 10
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf = append(h.buf, p[:min(len(p), limit-len(h.buf))]...)
	return len(p), nil
}

// first returns the first line that says something.
func (h *head) first() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(string(h.buf)) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// shellQuote makes one word for the shell at the other end.
func shellQuote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}
