// Command demo plays the parts of scripts/demo that a shell cannot play. Without arguments it is a server that keeps the
// states of the engines' backend "http", each under its path: it prints its address, and serves until it is interrupted.
// With the id of a run it is a person who looks at that run in the console, signed in with the link of standard input.
// With host and a directory it is a git host with pipelines; with ask and an address it prints what is there.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

func run(ctx context.Context) error {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "host":
		return host(ctx, os.Args[2])
	case len(os.Args) > 2 && os.Args[1] == "ask":
		return ask(ctx, os.Args[2])
	case len(os.Args) > 1:
		link, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		address, err := browse(ctx, strings.TrimSpace(string(link)), os.Args[1])
		if err == nil {
			fmt.Fprintln(os.Stdout, address)
		}
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr())
	s := &http.Server{Handler: &states{docs: map[string][]byte{}}, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

type states struct {
	mu   sync.Mutex
	docs map[string][]byte
}

// ServeHTTP implements http.Handler.
func (s *states) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch doc := s.docs[r.URL.Path]; {
	case r.Method == http.MethodPost:
		s.docs[r.URL.Path] = body
	case doc == nil:
		http.NotFound(w, r)
	default:
		_, _ = w.Write(doc)
	}
}
