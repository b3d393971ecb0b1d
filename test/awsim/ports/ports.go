// Package ports finds TCP ports for servers that cannot be handed a socket, and for those that come back at their
// address after a while. A port of the range that the system hands out would be another's by then: that of any socket
// of any process, or of a caller of the very server, whose connection then meets itself.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports are below those that Linux, macOS and Windows hand out by themselves.
const (
	first = 15000
	last  = 29999
	tries = 100
)

// Free returns an address of this machine's loopback at which no process listens.
func Free(ctx context.Context) (address string, err error) {
	var all []error
	for range tries {
		port := strconv.Itoa(first + rand.IntN(last-first+1)) //nolint:gosec // no secret: any port will do
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			all = append(all, err)
			continue
		}
		return l.Addr().String(), l.Close()
	}
	return "", fmt.Errorf("no free port in %d tries: %w", tries, errors.Join(all...))
}
