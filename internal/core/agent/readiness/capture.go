package readiness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
)

// Capture proves that connections of one IP family reach the proxy. It makes connections, so it
// does not need NET_ADMIN.
//
// It needs a listener on the capture ports, for example the standby. Call Check before Envoy takes
// over: Envoy would pass the test connections on to an unassigned address. For the same reason
// the app's gate does not check capture, although it has the app's user: a gate may begin long
// after Envoy.
type Capture struct {
	Inbound  bool // connections to the pod are captured
	Outbound bool // connections of the app are captured; checked only if this process may act as another user
	IPv6     bool // IPv6 instead of IPv4
}

const otherUser = 65534 // a user whose connections are captured

// Notes for proofs that cannot be made.
const (
	NotProved        = "outbound proved at init only: this process cannot act as the app"
	OnlyEnvoyListens = "proved at init only: without a standby only Envoy could accept the proof"
	NoRoute          = "IPv6 not proved: there is no route by it, so nothing can go past the proxy"
)

// Captures returns a [Check] that runs all checks of list, one after the other, and joins their
// notes.
func Captures(list ...Capture) Check {
	return func(ctx context.Context) (string, error) {
		var notes []string
		for _, c := range list {
			note, err := c.Check(ctx)
			if err != nil {
				return "", err
			}
			if note != "" && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		return strings.Join(notes, "; "), nil
	}
}

// Addresses of the two proofs. The rules treat the proxy's own connection to an address of the
// pod as inbound, unless it is the first address of the loopback network. The outbound addresses
// are unassigned (RFC 5737, RFC 3849).
var proofs = map[bool]struct{ inbound, outbound netip.Addr }{
	false: {netip.MustParseAddr(contract.ProofInbound), netip.MustParseAddr(contract.ProofOutbound)},
	true:  {netip.MustParseAddr(contract.ProofInbound6), netip.MustParseAddr(contract.ProofOutbound6)},
}

// Check makes the connections. It is the [Check] function for the condition CaptureRules.
func (c Capture) Check(ctx context.Context) (note string, err error) {
	to := proofs[c.IPv6]
	if c.Inbound {
		switch err := inboundProof(ctx, netip.AddrPortFrom(to.inbound, contract.ProbePort)); {
		case c.IPv6 && errors.Is(err, unix.ENETUNREACH):
			return NoRoute, nil
		case err != nil:
			return "", err
		}
	}
	if !c.Outbound {
		return "", nil
	}
	target := netip.AddrPortFrom(to.outbound, contract.ProbePort).String()
	switch err := dialAs(ctx, otherUser, target); {
	case err == nil:
		return "", nil
	case errors.Is(err, unix.EPERM):
		return NotProved, nil
	default:
		return "", fmt.Errorf("outbound: a connection to %s did not come to the proxy: %w", target, reason(err))
	}
}

// inboundProof connects, as the proxy's user, to an address and port without a listener. The
// connection succeeds only if it is redirected.
func inboundProof(ctx context.Context, to netip.AddrPort) error {
	var d net.Dialer
	if to.Addr().Is6() {
		// The kernel would choose the source address ::6. The proxy uses it for its connections to
		// the app, which are never captured.
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

// reason strips the addresses that package net adds to an error.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// dialAs connects with a socket of another user. The rules match the owner of a socket, which is
// the file system UID of the thread that made it. dialAs returns EPERM if this process may not
// change its user.
func dialAs(ctx context.Context, uid int, address string) error {
	if uid == os.Getuid() {
		return unix.EPERM // the proxy's own user is never captured
	}
	network, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer network.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread with its UID ends with the goroutine
		done <- func() error {
			if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
			unix.Setfsuid(uid)
			if now, _ := unix.SetfsuidRetUid(-1); now != uid {
				return unix.EPERM
			}
			// For a literal address, package net makes the socket on the calling thread.
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

// dieAtFirstRouter limits a packet to one hop, so that it does not leave the node if it is not
// redirected. A redirected packet meets no router.
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
