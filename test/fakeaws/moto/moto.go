// Package moto starts moto_server, somebody else's fake AWS, so that what is held against ours can be held
// against an independent one too. What moto gets wrong is named where it is used.
package moto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/dayfly-dev/dayfly/test/fakeaws/wire"
)

// patience is how long a start may take on a busy machine.
const patience = time.Minute

// ErrMissing says that there is no moto_server on this machine.
var ErrMissing = errors.New("moto_server is not on PATH (pip install 'moto[server]')")

// Start runs a moto_server until the test ends and returns the configuration of a client of it. Where
// there is none on this machine, the test is skipped.
func Start(t testing.TB) aws.Config {
	t.Helper()
	cfg, stop, err := Run(t.Context())
	if errors.Is(err, ErrMissing) {
		t.Skip("no second opinion on AWS: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return cfg
}

// Run starts a moto_server and returns the configuration of a client of it, and what ends it. Where there is none
// on this machine, the error is ErrMissing.
func Run(ctx context.Context) (cfg aws.Config, stop func(), err error) {
	path, err := exec.LookPath("moto_server")
	if errors.Is(err, exec.ErrNotFound) {
		return cfg, nil, ErrMissing
	}
	if err != nil {
		return cfg, nil, err
	}
	// A port that was free a moment ago: moto cannot be handed a socket.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return cfg, nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return cfg, nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return cfg, nil, err
	}
	var output bytes.Buffer
	cmd := exec.Command(path, "-H", host, "-p", port) //nolint:noctx // stop ends it, with all that it starts
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return cfg, nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		close(exited)
	}()
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	}
	if err := await(ctx, address, exited); err != nil {
		stop()
		return cfg, nil, fmt.Errorf("%w\n%s", err, output.String())
	}
	return aws.Config{
		Region: wire.Region, BaseEndpoint: aws.String("http://" + address),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
	}, stop, nil
}

// await waits until something answers at an address.
func await(ctx context.Context, address string, exited <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-exited:
			return errors.New("moto_server ended at once")
		case <-end:
			return fmt.Errorf("moto_server does not answer at %s after %s", address, patience)
		}
	}
}
