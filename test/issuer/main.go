// Command issuer serves an OpenID Connect provider for tests and demonstrations on this machine. It prints its address
// on standard output and approves its one user at once, so it must not be reachable by others.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "issuer:", err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("issuer", flag.ContinueOnError)
	port := flags.Int("port", 0, "port on 127.0.0.1; 0 takes a free one")
	client := flags.String("client", "dayfly-cli", "id of its one public client")
	user := flags.String("user", `{"sub":"alice","email":"alice@example.com","groups":["platform"]}`, "claims of its one user, as JSON")
	pending := flags.Int("pending", 1, "how often a device's poll is told to wait")
	sign := flags.String("sign", "", "sign a token with these claims (JSON, beside the usual ones; null leaves one out)")
	file := flags.String("file", "", "with -sign: write that token into this file; default print it after the address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := provider.New("ES256", "RS256")
	p.ClientID, p.Pending = *client, *pending
	if err := json.Unmarshal([]byte(*user), &p.User); err != nil {
		return fmt.Errorf("-user: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	p.URL = "http://" + l.Addr().String()
	said := p.URL + "\n"
	if *sign != "" {
		with := map[string]any{}
		if err := json.Unmarshal([]byte(*sign), &with); err != nil {
			return fmt.Errorf("-sign: %w", err)
		}
		token := p.Token("RS256", with) + "\n"
		if *file == "" {
			said += token
		} else if err := os.WriteFile(*file, []byte(token), 0o600); err != nil {
			return err
		}
	}
	_, _ = io.WriteString(out, said)
	server := &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
