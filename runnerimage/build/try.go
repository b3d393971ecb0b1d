package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// inside is the argument with which this program runs in the container, where it tries TLS.
const inside = "inside"

// A public store of CAs has more roots than this.
const fewRoots = 100

// try runs an image in the local Docker engine, as a task's user and without a network: its shell, its runner with
// dayfly-policy, its engine, and TLS with its certificates against a server in the container. Where the engine cannot run
// programs of the image's architecture, it says so, and that is not an error.
func try(ctx context.Context, image string, out io.Writer) error {
	var c config
	arch, err := c.run(ctx, nil, "docker", "image", "inspect", "-f", "{{.Architecture}}", image)
	if err != nil {
		return err
	}
	in := func(args ...string) (string, error) {
		as := fmt.Sprintf("%d:%[1]d", docker.DefaultUID)
		return c.run(ctx, nil, "docker", append([]string{
			"run", "--rm", "--network", "none", "--platform", "linux/" + arch, "--read-only", "--user", as, "--cap-drop", "ALL",
			"--security-opt", "no-new-privileges", "--tmpfs", "/tmp:mode=1777", "--env", "CHECKPOINT_DISABLE=1", "--entrypoint",
		}, args...)...)
	}
	said, err := in("/bin/sh", image, "-c", `echo ok >/tmp/written && echo ok >"$`+task.Name("WorkDir")+`/written" && cat /tmp/written`)
	if err != nil && strings.Contains(err.Error(), "exec format error") && arch != runtime.GOARCH {
		fmt.Fprintf(out, "try %s: nothing was run, because this Docker engine runs no programs for %s\n", image, arch)
		return nil
	}
	if err != nil || said != "ok" {
		return fmt.Errorf("try %s: its shell says %q: %w", image, said, err)
	}
	fmt.Fprintf(out, "try %s: the shell runs, and writes to /tmp and the work directory\n", image)
	said, err = in("/bin/sh", image, "-c", `set -e
		echo "runner $(/usr/local/bin/runner version)"
		echo "dayfly-policy $(/usr/local/bin/dayfly-policy version)"
		"$(command -v terraform || command -v tofu)" version | head -n 1
		git --version 2>/dev/null || echo no git`)
	if err != nil {
		return fmt.Errorf("try %s: its programs: %w", image, err)
	}
	fmt.Fprintf(out, "try %s: %s\n", image, strings.ReplaceAll(said, "\n", ", "))
	if said, err = c.tryInside(ctx, image, arch); err != nil {
		return fmt.Errorf("try %s: %w", image, err)
	}
	fmt.Fprintf(out, "try %s: %s\n", image, said)
	return nil
}

// tryInside runs this program in a container of the image. It is copied and not mounted, so that the Docker engine may
// be on another machine.
func (c config) tryInside(ctx context.Context, image, arch string) (said string, err error) {
	temp, err := os.MkdirTemp("", "dayfly-try-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	program := filepath.Join(temp, "try")
	if _, err := c.run(ctx, []string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}, "go", "build", "-C", "runnerimage/build", "-buildvcs=false", "-trimpath", "-o", program, "."); err != nil {
		return "", err
	}
	container, err := c.run(ctx, nil, "docker", "create", "--network", "none", "--platform", "linux/"+arch, "--cap-drop", "ALL", "--entrypoint", "/try", image, inside)
	if err != nil {
		return "", err
	}
	defer func() {
		_ = exec.CommandContext(context.WithoutCancel(ctx), "docker", "rm", "-f", container).Run() // also after an interrupt
	}()
	if _, err := c.run(ctx, nil, "docker", "cp", program, container+":/try"); err != nil {
		return "", err
	}
	return c.run(ctx, nil, "docker", "start", "-a", container)
}

// tryTrust runs in the container. The certificates of the image must be a whole store, a server whose CA is not among
// them must be refused, and the same server must be trusted once its CA is added.
func tryTrust(ctx context.Context, out io.Writer) error {
	var found int
	for _, file := range layers.Bundles() {
		if b, err := os.ReadFile(file); err == nil {
			found = len(layers.Certificates(b))
			break
		}
	}
	if found <= fewRoots {
		return fmt.Errorf("its bundle holds %d CA certificates, and a whole one has more than %d: name a BASE with ca-certificates, or leave the bundle out of EXTRA", found, fewRoots)
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		return fmt.Errorf("read its CA certificates: %w", err)
	}
	certificate, err := selfSigned(time.Now())
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	defer func() { _ = server.Close() }()
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write([]byte("ok")) // this makes the handshake; the client sees the result
			_ = connection.Close()
		}
	}()
	dial := func() error {
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS12}}
		connection, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
		if err == nil {
			_ = connection.Close()
		}
		return err
	}
	var unknown x509.UnknownAuthorityError
	if err := dial(); !errors.As(err, &unknown) {
		return fmt.Errorf("TLS to a server of an unknown CA ends with %w, and not with its refusal", err)
	}
	trusted.AddCert(certificate.Leaf)
	if err := dial(); err != nil {
		return fmt.Errorf("TLS to a server of a CA that was added: %w", err)
	}
	fmt.Fprintf(out, "TLS: %d CA certificates; a server of another CA is refused, and trusted once its CA is added\n", found)
	return nil
}

// selfSigned makes the certificate of a server on localhost, which is its own CA.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA of this trial"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
