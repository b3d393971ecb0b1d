// Package moto starts moto_server, somebody else's fake AWS, so that what is held against ours can be held
// against an independent one too. What moto gets wrong is named where it is used.
package moto

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// patience is how long a start may take on a busy machine.
const patience = 4 * time.Minute

// ErrMissing says that there is no moto_server on this machine, or none that runs.
var ErrMissing = errors.New("there is no moto_server that runs (pip install 'moto[server]')")

// errEnded is a server that ended at once: its port is in use, or it is only a name on PATH and does not run.
var errEnded = errors.New("moto_server ended at once")

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

// UnderTest is the variable with the address of another server (LocalStack, a moto elsewhere, AWS), which Run then
// returns in place of a moto_server: AWS_UNDER_TEST=http://127.0.0.1:4566, or https://sqs.eu-west-1.amazonaws.com. The
// usual AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION count.
const UnderTest = "AWS_UNDER_TEST"

// Run starts a moto_server and returns the configuration of a client of it, and what ends it. Where there is none
// on this machine, the error is ErrMissing.
func Run(ctx context.Context) (cfg aws.Config, stop func(), err error) {
	if address := os.Getenv(UnderTest); address != "" {
		cfg = awsim.ClientConfig(address, sigv4.Credentials{
			AccessKeyID: cmp.Or(os.Getenv("AWS_ACCESS_KEY_ID"), wire.Account), SecretAccessKey: cmp.Or(os.Getenv("AWS_SECRET_ACCESS_KEY"), "test"),
			SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
		})
		cfg.Region = cmp.Or(os.Getenv("AWS_REGION"), cfg.Region)
		return cfg, func() {}, nil
	}
	path, err := exec.LookPath("moto_server")
	if err != nil {
		return cfg, nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	for range 3 { // its port was free a moment ago, and moto cannot be handed a socket
		if cfg, stop, err = start(ctx, path); !errors.Is(err, errEnded) {
			return cfg, stop, err
		}
	}
	return cfg, nil, fmt.Errorf("%w: %w", ErrMissing, err)
}

func start(ctx context.Context, path string) (cfg aws.Config, stop func(), err error) {
	address, err := ports.Free(ctx)
	if err != nil {
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
	stop = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	})
	if err := await(ctx, address, exited); err != nil {
		stop()
		return cfg, nil, fmt.Errorf("%w\n%s", err, output.String())
	}
	return awsim.ClientConfig("http://"+address, sigv4.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret"}), stop, nil
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
			return errEnded
		case <-end:
			return fmt.Errorf("moto_server does not answer at %s after %s", address, patience)
		}
	}
}
