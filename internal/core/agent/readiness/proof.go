package readiness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
)

// Limits of one connection. On the pod's own loopback interface the kernel completes a handshake before it returns
// from connect(2), whatever else runs, and repeats a SYN after a second: so only one SYN is sent.
const (
	handshakeLimit = 900 * time.Millisecond
	acceptLimit    = 10 * time.Second // the agent may get no processor time
)

// attempt makes a connection on a way, and a control if that does not arrive.
func (c *Capture) attempt(ctx context.Context, w *way) result {
	to := w.destination()
	p := c.begin(w, to)
	defer p.end()
	switch {
	case errors.Is(p.err, unix.EADDRINUSE):
		return result{unknown, fmt.Sprintf("%s: a connection to %s cannot be tried: another program has port %d", w, to, contract.ProbePort)}
	case (w.six || w.outbound) && unrouted(p.err):
		return result{noRoute, fmt.Sprintf("%s: a connection to %s cannot be tried: %v", w, to, p.err)}
	case p.fd < 0 || unrouted(p.err):
		return result{unknown, fmt.Sprintf("%s: a connection to %s cannot be tried: %v", w, to, p.err)}
	case p.err == nil && p.arrives(ctx, time.Second):
		return result{verdict: arrived}
	}
	control := c.begin(w, c.control(w))
	defer control.end()
	if control.err != nil {
		return result{unknown, fmt.Sprintf("%s: a connection to the proxy's port itself fails: %v", w, control.err)}
	}
	if !control.arrives(ctx, acceptLimit) {
		return result{unknown, fmt.Sprintf("%s: neither a connection to %s nor one to the proxy's port itself was accepted: the machine is busy", w, to)}
	}
	if p.arrives(ctx, 0) { // before the control
		return result{verdict: arrived}
	}
	why := "another program accepted it"
	if p.err != nil {
		why = p.err.Error()
	}
	return result{absent, fmt.Sprintf("%s: a connection to %s did not come to the proxy: %s", w, to, why)}
}

// An answerError is the answer to a packet that was sent, for example that a router let it die.
type answerError struct{ errno unix.Errno }

func (e *answerError) Error() string { return e.errno.Error() }

// answer returns the error of a connection whose packets were sent; nil for 0.
func answer(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return &answerError{errno}
}

// unrouted reports whether nothing was sent, because there is no route, or one of the kind unreachable, prohibit
// (EACCES) or blackhole (EINVAL).
func unrouted(err error) bool {
	return slices.ContainsFunc([]error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.EACCES, unix.EINVAL},
		func(e error) bool { return errors.Is(err, e) })
}

// control returns the address of the proxy's port itself, which no rule redirects.
func (c *Capture) control(w *way) netip.AddrPort {
	port, host := c.o.Inbound, netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if w.outbound {
		port = c.o.Outbound
	}
	if w.six {
		host = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(host, port)
}

// A proof is one connection.
type proof struct {
	fd     int // -1: there is no socket that could connect
	err    error
	seen   chan struct{}
	forget func()
}

// begin opens a connection to an address.
func (c *Capture) begin(w *way, to netip.AddrPort) *proof {
	p := &proof{fd: -1, seen: make(chan struct{}, 1), forget: func() {}}
	p.err = func() error {
		fd, from, err := w.socket(to)
		if err != nil {
			return err
		}
		p.fd = fd
		e := endsOf(from, to)
		c.mu.Lock()
		c.expects[e] = p.seen
		c.mu.Unlock()
		p.forget = func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.expects, e)
		}
		return connect(fd, to)
	}()
	return p
}

// arrives waits until the standby has accepted the connection.
func (p *proof) arrives(ctx context.Context, limit time.Duration) bool {
	if limit == 0 {
		return len(p.seen) > 0
	}
	select {
	case <-p.seen:
		return true
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return false
}

// end resets the connection, so that connection tracking forgets it.
func (p *proof) end() {
	p.forget()
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// socket returns a socket for a connection, and its source port. The rules know an outbound proof by its source port.
// For the destination ::6 the kernel would choose ::6 as source, from which the proxy calls the app: that is never
// captured.
func (w *way) socket(to netip.AddrPort) (fd int, from uint16, err error) {
	six := to.Addr().Is6()
	family, port := unix.AF_INET, 0
	if six {
		family = unix.AF_INET6
	}
	if contract.OutboundProof(to.Addr()) {
		port = contract.ProbePort
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP); err != nil {
		return -1, 0, err
	}
	level, hops, class := unix.IPPROTO_IP, unix.IP_TTL, unix.IP_TOS
	var source unix.Sockaddr = &unix.SockaddrInet4{Port: port}
	if six {
		level, hops, class = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_TCLASS
		local := &unix.SockaddrInet6{Port: port}
		if !w.outbound {
			local.Addr = netip.IPv6Loopback().As16()
		}
		source = local
	}
	err = errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, level, hops, contract.ProofHops),
		unix.SetsockoptInt(fd, level, class, contract.ProofClass),
		unix.Bind(fd, source))
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		from = uint16(name.Port)
	case *unix.SockaddrInet6:
		from = uint16(name.Port)
	}
	return fd, from, nil
}

// connect waits for the end of a handshake. It blocks a thread, which is idle meanwhile.
func connect(fd int, to netip.AddrPort) error {
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port()), Addr: [4]byte(to.Addr().AsSlice())}
	if to.Addr().Is6() {
		addr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	err := unix.Connect(fd, addr)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for until := time.Now().Add(handshakeLimit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(max(0, time.Until(until).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("no answer")
		}
		failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil {
			err = answer(unix.Errno(failed))
		}
		return err
	}
}

// destination returns the destination of the next proof. It differs from those before: connection tracking remembers
// for two minutes where a packet with the same addresses and ports went, even if the rules change. Outbound, the ports of
// now and those for rules of an older release take turns until one works.
func (w *way) destination() netip.AddrPort {
	var to netip.Addr
	port := uint16(contract.ProbePort)
	if w.outbound && w.tries%2 == 1 {
		port = contract.OldProofPort
	}
	switch {
	case !w.outbound && w.six:
		to = contract.ProofInbound6
	case !w.outbound:
		to = contract.ProofInbound
	case w.six:
		a := contract.ProofOutbound6.Addr().As16()
		n := rand.Uint64()
		for i := range 8 {
			a[8+i] = byte(n >> (8 * i))
		}
		to = netip.AddrFrom16(a)
	default:
		const hosts = 254
		w.last++
		a := contract.ProofOutbound.Addr().As4()
		a[3] = byte(1 + w.last%hosts)
		return netip.AddrPortFrom(netip.AddrFrom4(a), port+uint16(w.last/hosts%contract.ProofPorts))
	}
	return netip.AddrPortFrom(to, port)
}

// Arrived is called for each connection that the standby accepts. It reports whether this Capture made the connection.
func (c *Capture) Arrived(from, to netip.AddrPort) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, ok := c.expects[endsOf(from.Port(), to)]
	if ok {
		select {
		case seen <- struct{}{}:
		default:
		}
	}
	return ok
}

// endsOf returns what tells a proof from other connections. All outbound proofs have one source port and, once they are
// redirected, one destination, so that address translation gives some of them another source port: each has an
// original destination of its own instead.
func endsOf(from uint16, to netip.AddrPort) ends {
	if contract.OutboundProof(to.Addr()) {
		from = 0
	}
	return ends{from, to}
}
