package standby

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A kind is the wildcard address that a listening socket has, in Go's word for the
// network. The kernel shares connections only among sockets of one kind
// (inet_reuseport_add_sock in net/ipv4/inet_hashtables.c).
type kind string

const (
	ip4  kind = "tcp4" // 0.0.0.0
	ip6  kind = "tcp6" // [::], IPv6 alone
	both kind = "tcp"  // [::], IPv4 too
)

// takes reports whether sockets of the kinds together take what a socket of kind k does.
func (k kind) takenBy(others []kind) bool {
	if slices.Contains(others, both) {
		return true
	}
	return (k == ip6 || slices.Contains(others, ip4)) && (k == ip4 || slices.Contains(others, ip6))
}

// A socket is one that the standby listens by.
type socket struct {
	kind     kind
	listener *net.TCPListener
	inode    uint32
	// first says that it began to listen before any of the proxy's: it has index 0
	// among them, and they have 1 to n. Otherwise they have 0 to n-1.
	first bool
}

func open(ctx context.Context, k kind, port uint16, transparent bool) (*socket, error) {
	sock := &socket{kind: k, first: true}
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
				return setTransparent(fd, k)
			}
			return nil
		})
	}}
	// A multipath socket, Go's default, refuses the program: operation not supported.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, string(k), fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	sock.listener = l.(*net.TCPListener)
	return sock, nil
}

// setTransparent lets a socket take connections to any address. One for both families
// takes IPv4 by the IPv4 option.
func setTransparent(fd int, k kind) error {
	if k != ip6 {
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
			return fmt.Errorf("IP_TRANSPARENT, which needs CAP_NET_ADMIN: %w", err)
		}
	}
	if k != ip4 {
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1); err != nil {
			return fmt.Errorf("IPV6_TRANSPARENT, which needs CAP_NET_ADMIN: %w", err)
		}
	}
	return nil
}

// noSuchFamily reports whether a socket could not be had because the machine, or this
// network namespace, has no IPv6.
func noSuchFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func (s *socket) Close() error { return s.listener.Close() }

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

// In classic BPF extensions are loads from negative offsets (linux/filter.h).
const random = 0xfffff000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM

// steer sends every new connection to one of the n sockets whose indices begin with
// first. An index that no socket has makes the kernel choose by hash among all.
func (s *socket) steer(first, n uint32) error {
	return s.control(func(fd int) error {
		program := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
			{Code: unix.BPF_ALU | unix.BPF_MOD | unix.BPF_K, K: n},
			{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: first},
			{Code: unix.BPF_RET | unix.BPF_A},
		}
		prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &prog)
	})
}

// hide takes the socket out of sight of new connections, which go to other sockets
// then: it is bound to a network device that does not exist. Connections that have begun
// go on, and are accepted. It takes no privilege, unlike a filter that drops SYNs
// (SO_ATTACH_FILTER on TCP: not permitted, seen on 6.18). Within a group that shares
// connections it has no effect: the kernel looks at the device of one of them alone.
func (s *socket) hide() error {
	return s.control(func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, math.MaxInt32)
	})
}

// originalDestination is the destination that the caller dialled: as connection tracking
// remembers it, or, where nothing was translated (TPROXY), the local address.
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	local := addrPort(c.LocalAddr())
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var dst netip.AddrPort
	err = control(raw, func(fd int) error {
		if local.Addr().Is4() {
			// Any call of x/sys with room for a sockaddr_in will do.
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
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) { // not tracked, or nothing tracks here
		return local, nil
	}
	return dst, err
}

// swap turns a port from the order of the network into ours, or back.
func swap(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// addrPort of a TCP address, IPv4 as such.
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
