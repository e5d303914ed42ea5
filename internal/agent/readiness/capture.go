package readiness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Capture proves by behaviour, without NET_ADMIN, that connections come to the proxy. The
// zero value of a field means its default.
//
// Somebody must listen on the capture ports: the standby does. Ask before Envoy takes
// over, or it will pass what the proof opens on to an address that is nobody's.
type Capture struct {
	Inbound  bool // connections to the pod are captured
	Outbound bool // connections of the app are captured

	IPv6 bool // by IPv6, rather than IPv4

	// As opens the outbound proof as somebody who is captured: the gate, in the app's
	// place. Default: a socket of user Other, where this process may make one.
	As    func(ctx context.Context, address string) error
	Other int // default 65534, nobody

	// To is an address that is captured; nobody's, so that nobody is bothered if it is not.
	// Default: one for documentation, for rules that take every address.
	To netip.Addr

	// Uncaptured is a port on which nobody listens. Default 15002, Istio's for the purpose.
	Uncaptured uint16
}

// NotProved is the note where no proof of outbound capture can be made from here.
const NotProved = "outbound proved at init only: this process cannot act as the app"

// Addresses of the two proofs. The proxy's own connection to an address of the pod other
// than the first of the loopback network is an inbound one to the rules; the outbound ones
// are nobody's (RFC 5737, RFC 3849).
var proofs = map[bool]struct{ inbound, outbound netip.Addr }{
	false: {netip.MustParseAddr("127.0.0.6"), netip.MustParseAddr("192.0.2.1")},
	true:  {netip.MustParseAddr("::6"), netip.MustParseAddr("2001:db8::1")},
}

// Check is a [Check] of CaptureRules.
func (c Capture) Check(ctx context.Context) (note string, err error) {
	port := c.Uncaptured
	if port == 0 {
		port = 15002
	}
	to := proofs[c.IPv6]
	if c.Inbound {
		if err := inboundProof(ctx, netip.AddrPortFrom(to.inbound, port)); err != nil {
			return "", err
		}
	}
	if !c.Outbound {
		return "", nil
	}
	as := c.As
	if as == nil {
		other := c.Other
		if other == 0 {
			other = 65534
		}
		as = func(ctx context.Context, address string) error { return dialAs(ctx, other, address) }
	}
	if c.To.IsValid() {
		to.outbound = c.To
	}
	target := netip.AddrPortFrom(to.outbound, port).String()
	switch err := as(ctx, target); {
	case err == nil:
		return "", nil
	case errors.Is(err, unix.EPERM):
		return NotProved, nil
	default:
		return "", fmt.Errorf("outbound: a connection to %s did not come to the proxy: %w", target, reason(err))
	}
}

// inboundProof connects, as the proxy's user, where only a redirect finds a listener.
func inboundProof(ctx context.Context, to netip.AddrPort) error {
	var d net.Dialer
	if to.Addr().Is6() {
		// By itself the kernel would come from ::6, and what comes from there is what the proxy
		// sends to the app: never captured.
		d.LocalAddr = &net.TCPAddr{IP: net.IPv6loopback}
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		conn.Close()
		return nil
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("inbound: a connection to %s was not redirected: refused", to)
	}
	return fmt.Errorf("inbound: a connection to %s did not come to the proxy: %w", to, reason(err))
}

// reason is err without the addresses that net puts around it.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// dialAs connects with a socket of another user; the owner matches of the rules look at
// the file system id of the socket's maker. EPERM is a process that may not.
func dialAs(ctx context.Context, uid int, address string) error {
	if uid == os.Getuid() {
		return unix.EPERM // it is the proxy's own, which is never captured
	}
	network, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer network.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread and its ids end with the goroutine
		done <- func() error {
			if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
			unix.Setfsuid(uid)
			if now, _ := unix.SetfsuidRetUid(-1); now != uid {
				return unix.EPERM
			}
			// net makes the socket of a literal address on the calling thread.
			d := net.Dialer{Control: dieAtFirstRouter}
			conn, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				conn.Close()
			}
			return err
		}()
	}()
	return <-done
}

// dieAtFirstRouter keeps a packet that nothing redirects near: a redirected one never
// meets a router.
func dieAtFirstRouter(network, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		if network == "tcp6" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1)
		}
	})
	return errors.Join(control, err)
}
