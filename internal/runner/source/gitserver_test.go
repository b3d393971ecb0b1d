package source_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// needGit returns where git keeps its programs. The tests run against git's own servers.
func needGit(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Skip("git is not on this machine: ", err)
	}
	return strings.TrimSpace(string(out))
}

// repository is a bare repository that tests put commits into, file by file.
type repository struct {
	t    *testing.T
	dir  string
	repo *git.Repository
}

func newRepository(t *testing.T, dir string) *repository {
	t.Helper()
	repo, err := git.PlainInit(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	return &repository{t: t, dir: dir, repo: repo}
}

// entry is a file of a tree; a tree of its own has entries.
type entry struct {
	name    string
	mode    filemode.FileMode
	content string
	entries []entry
	hash    plumbing.Hash // where given, of a submodule
}

func (r *repository) object(kind plumbing.ObjectType, content []byte) plumbing.Hash {
	r.t.Helper()
	o := r.repo.Storer.NewEncodedObject()
	o.SetType(kind)
	w, err := o.Writer()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		r.t.Fatal(err)
	}
	hash, err := r.repo.Storer.SetEncodedObject(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return hash
}

// tree writes a tree byte by byte, so that a test can make one that git would not.
func (r *repository) tree(entries []entry) plumbing.Hash {
	r.t.Helper()
	var raw bytes.Buffer
	for _, e := range entries {
		hash := e.hash
		switch {
		case e.mode == filemode.Dir:
			hash = r.tree(e.entries)
		case hash.IsZero():
			hash = r.object(plumbing.BlobObject, []byte(e.content))
		}
		fmt.Fprintf(&raw, "%o %s\x00", uint32(e.mode), e.name)
		raw.Write(hash[:])
	}
	return r.object(plumbing.TreeObject, raw.Bytes())
}

// commit puts a commit on top of a branch.
func (r *repository) commit(branch string, entries ...entry) plumbing.Hash {
	r.t.Helper()
	who := object.Signature{Name: "Tester", Email: "tester@example.com", When: time.Unix(1_700_000_000, 0)}
	c := object.Commit{Author: who, Committer: who, Message: "change\n", TreeHash: r.tree(entries)}
	name := plumbing.NewBranchReferenceName(branch)
	if ref, err := r.repo.Reference(name, true); err == nil {
		c.ParentHashes = []plumbing.Hash{ref.Hash()}
	}
	o := r.repo.Storer.NewEncodedObject()
	if err := c.Encode(o); err != nil {
		r.t.Fatal(err)
	}
	hash, err := r.repo.Storer.SetEncodedObject(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.set(plumbing.NewHashReference(name, hash))
	return hash
}

// head is the commit that a branch is at.
func (r *repository) head(branch string) string {
	r.t.Helper()
	ref, err := r.repo.Reference(plumbing.NewBranchReferenceName(branch), true)
	if err != nil {
		r.t.Fatal(err)
	}
	return ref.Hash().String()
}

func (r *repository) set(ref *plumbing.Reference) {
	r.t.Helper()
	if err := r.repo.Storer.SetReference(ref); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) tag(name string, hash plumbing.Hash, annotated bool) {
	r.t.Helper()
	var options *git.CreateTagOptions
	if annotated {
		options = &git.CreateTagOptions{Message: "a release", Tagger: &object.Signature{Name: "Tester", Email: "tester@example.com"}}
	}
	if _, err := r.repo.CreateTag(name, hash, options); err != nil {
		r.t.Fatal(err)
	}
}

// option sets one setting of the server.
func (r *repository) option(section, key, value string) {
	r.t.Helper()
	c, err := r.repo.Config()
	if err != nil {
		r.t.Fatal(err)
	}
	c.Raw.SetOption(section, "", key, value)
	data, err := config.NewConfig(), error(nil)
	data.Raw = c.Raw
	if err = r.repo.SetConfig(data); err != nil {
		r.t.Fatal(err)
	}
}

// httpServer serves the repositories below dir with git's own program, to who has the token.
type httpServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	tokens   []string // that came with them
	asked    []string // bodies of those that ask for objects
}

func newHTTPServer(t *testing.T, dir, user, token string, tls bool) *httpServer {
	t.Helper()
	backend := &cgi.Handler{
		Path:   filepath.Join(needGit(t), "git-http-backend"),
		Stderr: io.Discard,
		Env:    []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir},
	}
	s := &httpServer{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		gotUser, gotToken, _ := req.BasicAuth()
		s.mu.Lock()
		s.requests = append(s.requests, req.Method+" "+req.URL.Path)
		s.tokens = append(s.tokens, gotToken)
		if req.Method == http.MethodPost {
			body, _ := io.ReadAll(req.Body)
			s.asked = append(s.asked, string(body))
			req.Body = io.NopCloser(bytes.NewReader(body))
		}
		s.mu.Unlock()
		if token != "" && (gotUser != user || gotToken != token) {
			w.Header().Set("WWW-Authenticate", "Basic")
			// A server that is not careful repeats what it was sent.
			http.Error(w, "wrong token "+gotToken+" of "+req.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	})
	s.Server = httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *httpServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// newKey makes a key pair, the private half in PEM form.
func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(pem.EncodeToMemory(block))
}

// sshServer serves the repositories below dir to one key, with git's own program.
type sshServer struct {
	addr       string
	knownHosts string
}

func newSSHServer(t *testing.T, dir string, allowed ssh.PublicKey) sshServer {
	t.Helper()
	needGit(t)
	hostKey, _ := newKey(t)
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if bytes.Equal(key.Marshal(), allowed.Marshal()) {
				return &ssh.Permissions{}, nil
			}
			return nil, fmt.Errorf("unknown key")
		},
	}
	config.AddHostKey(hostKey)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serveSSH(t, conn, config, dir) })
		}
	})
	addr := listener.Addr().String()
	return sshServer{addr: addr, knownHosts: knownhosts.Line([]string{knownhosts.Normalize(addr)}, hostKey.PublicKey())}
}

func serveSSH(t *testing.T, conn net.Conn, config *ssh.ServerConfig, dir string) {
	defer func() { _ = conn.Close() }()
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		for req := range requests {
			if req.Type != "exec" {
				_ = req.Reply(false, nil)
				continue
			}
			_ = req.Reply(true, nil)
			var command struct{ Value string }
			_ = ssh.Unmarshal(req.Payload, &command)
			path, _ := strings.CutPrefix(command.Value, "git-upload-pack ")
			path = filepath.Join(dir, strings.Trim(path, "'"))
			status := uint32(128)
			if _, err := os.Stat(path); err != nil {
				_, _ = io.WriteString(channel.Stderr(), "ERROR: Repository not found.\n")
			} else {
				cmd := exec.CommandContext(t.Context(), "git", "upload-pack", path)
				cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = channel, channel, channel.Stderr()
				if cmd.Run() == nil {
					status = 0
				}
			}
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
			_ = channel.Close()
		}
	}
}

// publicLine is a public key as known_hosts has it.
func publicLine(signer ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}
