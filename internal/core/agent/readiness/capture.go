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

// Capture proves by behaviour, without NET_ADMIN, that connections of one family come to the
// proxy.
//
// A listener on the capture ports is required: the standby is one. Check before Envoy takes
// over, or it will pass what the proof opens on to an unassigned address. That is also
// why the app's gate does not make the proof, though it could as the app: a gate may begin
// long after Envoy.
type Capture struct {
	Inbound  bool // connections to the pod are captured
	Outbound bool // connections of the app are captured; proved where this process may act as another user
	IPv6     bool // by IPv6, rather than IPv4
}

const otherUser = 65534 // a user that is captured

// Notes, where a proof cannot be made.
const (
	NotProved        = "outbound proved at init only: this process cannot act as the app"
	OnlyEnvoyListens = "proved at init only: without a standby only Envoy could accept the proof"
	NoRoute          = "IPv6 not proved: there is no route by it, so nothing can go past the proxy"
)

// Captures is a [Check] of them all, one after the other. The notes are put together.
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

// Addresses of the two proofs. The proxy's own connection to an address of the pod other
// than the first of the loopback network is an inbound one to the rules; the outbound ones
// are unassigned (RFC 5737, RFC 3849).
var proofs = map[bool]struct{ inbound, outbound netip.Addr }{
	false: {netip.MustParseAddr(contract.ProofInbound), netip.MustParseAddr(contract.ProofOutbound)},
	true:  {netip.MustParseAddr(contract.ProofInbound6), netip.MustParseAddr(contract.ProofOutbound6)},
}

// Check is a [Check] of CaptureRules.
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
