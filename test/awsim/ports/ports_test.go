package ports_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/ports"
)

// A free port can be listened at, and is not one that the system hands out.
func TestFree_IsOutsideOfWhatTheSystemHandsOut(t *testing.T) {
	for range 20 {
		address, err := ports.Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := netip.MustParseAddrPort(address); !got.Addr().IsLoopback() || got.Port() >= 32768 {
			t.Errorf("got %s, want a port of the loopback below 32768", address)
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
}
