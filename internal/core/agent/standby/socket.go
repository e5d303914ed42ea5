package standby

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/sockets"
)

// A family is an IP family. Its value is a network of package net ("tcp4" or "tcp6"), and its
// sockets listen on the wildcard address. The kernel distributes connections only among sockets of
// the same family (inet_reuseport_add_sock in net/ipv4/inet_hashtables.c).
type family string

const (
	ip4 family = "tcp4" // 0.0.0.0
	ip6 family = "tcp6" // [::], IPv6 only
)

// count returns the number of sockets in list that listen on the family's wildcard address.
func (f family) count(list []sockets.Socket) (n int) {
	wildcard := netip.IPv4Unspecified()
	if f == ip6 {
		wildcard = netip.IPv6Unspecified()
	}
	for _, s := range list {
		if s.Local.Addr() == wildcard {
			n++
		}
	}
	return n
}

// A socket is a listening socket of the standby, or a copy of the proxy's.
type socket struct {
	family   family
	listener *net.TCPListener
	inode    uint32
}

func open(ctx context.Context, f family, port uint16, transparent bool) (*socket, error) {
	sock := &socket{family: f}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error {
			var stat unix.Stat_t
			if err := unix.Fstat(fd, &stat); err != nil {
				return err
			}
			sock.inode = uint32(stat.Ino)
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
				return fmt.Errorf("SO_REUSEPORT: %w", err)
			}
			if transparent {
				return setTransparent(fd, f)
			}
			return nil
		})
	}}
	// Multipath TCP, Go's default, does not support the program that [socket.steer] attaches (EOPNOTSUPP).
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, string(f), fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	sock.listener = l.(*net.TCPListener)
	return sock, nil
}

// setTransparent lets a socket accept connections to any address.
func setTransparent(fd int, f family) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if f == ip6 {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("IP_TRANSPARENT, which needs CAP_NET_ADMIN: %w", err)
	}
	return nil
}

func (s *socket) Close() error { return s.listener.Close() }

// control calls f with the descriptor.
func (s *socket) control(f func(fd int) error) error {
	raw, err := s.listener.SyscallConn()
	if err != nil {
		return err
	}
	return control(raw, f)
}

func control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// Classic BPF has its extensions at negative load offsets (linux/filter.h).
const (
	random   = 0xfffff000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM: a random number
	ipHeader = 0xfff00000      // SKF_NET_OFF: the IP header begins here
)

// steer attaches a program that sends each new connection to one of n sockets at random: those
// with the indexes first to first+n-1. If no socket has the chosen index, the kernel chooses
// among all sockets by hash. Proofs that capture works always go to the first socket, the standby's: Envoy
// would pass them on.
func (s *socket) steer(first, n uint32) error {
	return s.control(func(fd int) error {
		program := append(s.family.proofToStandby(),
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K, K: n},
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: first},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_A})
		prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &prog)
	})
}

// proofToStandby returns the beginning of a program: for a packet with [contract.ProofHops] and
// [contract.ProofClass] it ends with index 0.
func (f family) proofToStandby() []unix.SockFilter {
	hops, class := uint32(8), []unix.SockFilter{ // of IPv4: each field is a byte
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipHeader + 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: contract.ProofClass, Jf: 3},
	}
	if f == ip6 { // the class is in the middle of the first two bytes
		hops, class = 7, []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: ipHeader},
			{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x0ff0},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: contract.ProofClass << 4, Jf: 3},
		}
	}
	return append(class,
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ipHeader + hops},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: contract.ProofHops, Jf: 1},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
}

// originalDestination returns the destination that the caller dialled: the one in the
// connection tracking table, or the local address if nothing was translated (TPROXY).
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	local := addrPort(c.LocalAddr())
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var dst netip.AddrPort
	err = control(raw, func(fd int) error {
		if local.Addr().Is4() {
			// x/sys has no call for this option. The result of this call has room for a sockaddr_in.
			v, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
			if err != nil {
				return err
			}
			sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&v.Multiaddr))
			dst = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), swap(sa.Port))
			return nil
		}
		v, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST) // IP6T_SO_ORIGINAL_DST is the same number
		if err != nil {
			return err
		}
		dst = netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), swap(v.Addr.Port))
		return nil
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) { // not tracked, or no connection tracking here
		return local, nil
	}
	return dst, err
}

// swap converts a port between network and host byte order.
func swap(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// addrPort converts a TCP address; IPv4-mapped addresses become IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// here reports whether an address is one of this machine's.
func here(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(list, func(l net.Addr) bool {
		p, err := netip.ParsePrefix(l.String())
		return err == nil && p.Addr() == a
	})
}
