package forward

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// syslog is a receiver of messages of RFC 5424: framed by their length over a stream (RFC 6587), one in each datagram
// otherwise. No answer says that it has kept them.
type syslog struct {
	network string // tcp, tls, udp or unix
	address string
}

// priority is the facility log audit (13) with the severity informational (6).
const priority = 13*8 + 6

func (s syslog) send(ctx context.Context, _ string, lines [][]byte, seal api.Seal) (err error) {
	conn, stream, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to syslog: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("bound the time of syslog: %w", err)
		}
	}
	host, _ := os.Hostname()
	for _, line := range lines {
		m := message(cmp.Or(host, "-"), seal.At, bytes.TrimSuffix(line, []byte("\n")))
		if stream {
			m = append(fmt.Appendf(nil, "%d ", len(m)), m...)
		}
		if _, err := conn.Write(m); err != nil {
			return fmt.Errorf("write to syslog: %w", err)
		}
	}
	return nil
}

// dial connects. A socket of this machine is one for datagrams, or else for a stream.
func (s syslog) dial(ctx context.Context) (conn net.Conn, stream bool, err error) {
	var plain net.Dialer
	switch s.network {
	case "tls":
		conn, err = (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext(ctx, "tcp", s.address)
		return conn, true, err
	case "unix":
		if conn, err = plain.DialContext(ctx, "unixgram", s.address); err == nil {
			return conn, false, nil
		}
		conn, err = plain.DialContext(ctx, "unix", s.address)
		return conn, true, err
	}
	conn, err = plain.DialContext(ctx, s.network, s.address)
	return conn, s.network == "tcp", err
}

// message is one message of RFC 5424.
func message(host string, at time.Time, body []byte) []byte {
	return fmt.Appendf(nil, "<%d>1 %s %s dayfly - audit - %s", priority, at.UTC().Format("2006-01-02T15:04:05.000000Z"), host, body)
}
