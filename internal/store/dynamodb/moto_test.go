package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// moto is one moto_server for all tests of this package, started by the first that asks for it.
var moto struct {
	once sync.Once
	cmd  *exec.Cmd
	url  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if moto.cmd != nil {
		_ = syscall.Kill(-moto.cmd.Process.Pid, syscall.SIGKILL)
		_ = moto.cmd.Wait()
	}
	os.Exit(code) //nolint:forbidigo // the code is that of the tests
}

// motoURL returns the address of moto, and skips the test where it is not on this machine.
func motoURL(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the second DynamoDB is compared with in the long run only: moto takes a minute")
	}
	moto.once.Do(func() { moto.err = startMoto(context.Background()) })
	if errors.Is(moto.err, exec.ErrNotFound) {
		t.Skip("no second DynamoDB to compare with: moto_server is not on this machine")
	}
	if moto.err != nil {
		t.Fatal(moto.err)
	}
	return moto.url
}

func startMoto(ctx context.Context) error {
	path, err := exec.LookPath("moto_server")
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(addr)
	moto.url = "http://" + addr
	moto.cmd = exec.Command(path, "-H", host, "-p", port) //nolint:noctx // TestMain ends it, with all that it starts
	moto.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := moto.cmd.Start(); err != nil {
		return err
	}
	for began := time.Now(); ; {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if time.Since(began) > 60*time.Second {
			return fmt.Errorf("moto_server did not answer for a minute: %w", err)
		}
		timer := time.NewTimer(20 * time.Millisecond)
		<-timer.C
	}
}

// awsConfig is that of a client of moto.
func awsConfig(url string, transport http.RoundTripper) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(url),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}
}
