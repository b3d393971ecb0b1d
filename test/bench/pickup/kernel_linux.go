package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// inodeOf asks the kernel for the inode of a TCP socket of this machine, by its own address and that of its other end.
// (man 7 sock_diag.) To look for it in /proc/net/tcp takes as long as there are connections.
func inodeOf(local, remote net.Addr) (uint32, error) {
	from, ok1 := local.(*net.TCPAddr)
	to, ok2 := remote.(*net.TCPAddr)
	if !ok1 || !ok2 || from.IP.To4() == nil || to.IP.To4() == nil {
		return 0, errors.New("it is not a connection over IPv4")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	const header, request, inode = unix.NLMSG_HDRLEN, 56, unix.NLMSG_HDRLEN + 68
	b := make([]byte, header+request) // nlmsghdr, and inet_diag_req_v2
	host := binary.NativeEndian
	host.PutUint32(b, uint32(len(b)))
	host.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	host.PutUint16(b[6:], unix.NLM_F_REQUEST)
	in := b[header:]
	in[0], in[1] = unix.AF_INET, unix.IPPROTO_TCP
	host.PutUint32(in[4:], 0xffffffff)                    // in any state
	binary.BigEndian.PutUint16(in[8:], uint16(from.Port)) //nolint:gosec // a port
	binary.BigEndian.PutUint16(in[10:], uint16(to.Port))  //nolint:gosec // a port
	copy(in[12:], from.IP.To4())
	copy(in[28:], to.IP.To4())
	host.PutUint32(in[48:], 0xffffffff) // no cookie
	host.PutUint32(in[52:], 0xffffffff)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	out := make([]byte, 1024)
	n, _, err := unix.Recvfrom(fd, out, 0)
	if err != nil {
		return 0, err
	}
	if n < inode+4 || host.Uint16(out[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0, fmt.Errorf("the kernel does not know the connection from %s to %s", local, remote)
	}
	return host.Uint32(out[inode:]), nil
}

// threadTime is what this thread has used of a processor.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
