// Package relay stands between Envoy and the control plane. Envoy sends its discovery stream (ADS)
// to a Unix socket of the agent, which copies it to a connection to the control plane and back. A
// passive reader stores the resources that Envoy accepts. Unlike Envoy, the agent can tell a slow
// control plane from an unreachable one. There are three states:
//
//   - Connected: bytes are copied unchanged (through.go). The first use of a service waits as long
//     as the control plane takes.
//   - Unreachable for less than the grace period: Envoy's requests wait in the socket.
//   - Unreachable for longer: the agent responds (local.go), with the resources that Envoy has accepted
//     before (store.go), and with stand-ins for other names (standin.go). An Envoy that starts gets
//     the resources of the previous one.
//
// The listeners of an Envoy that leaves are not changed any more (hold.go).
//
// At each change between these states, the agent closes Envoy's connection. Envoy connects again
// within about 10 ms and subscribes again, with the versions that it has, so the agent keeps no
// state of subscriptions.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
)

const (
	// firstGrace is the time for which a new connection of Envoy waits for the first contact with the control
	// plane if the store is not complete. It is shorter than the 10 s after which Envoy gives up a connection
	// that does not respond to its pings.
	firstGrace = 8 * time.Second
	// spareTime is the time for which a connection to the control plane may stay unused. The control plane
	// closes a connection that is silent for 10 s.
	spareTime = 5 * time.Second
	// If connecting to the control plane takes farAway or longer, it counts as distant.
	farAway = 50 * time.Millisecond
	// maxConnections bounds the connections from Envoy. Usually there is one; a connection of the previous Envoy
	// may remain for a moment.
	maxConnections = 8
)

// Options configure a [Relay].
type Options struct {
	Socket  string      // path of the Unix socket for Envoy, made with mode 0600; required
	Address string      // of the control plane, host:port; required
	TLS     *tls.Config // nil: plaintext
	Store   string      // path of the file for accepted resources; required
	Key     string      // identifies the proxy; a file with another key is dropped

	// Changed is called with each state, in order. It must neither block nor call the Relay.
	Changed func(State)
	Log     *slog.Logger // required
}

// A State describes the connection to the control plane.
type State struct {
	Connected bool      // the control plane has sent something, and its stream has not ended
	Since     time.Time // time of the last change of Connected
	Err       error     // the reason why it is not connected; nil before the first failure
}

// A Relay copies Envoy's discovery stream, or responds to it while the control plane is unreachable.
type Relay struct {
	o        Options
	listener net.Listener
	store    *store
	places   chan struct{} // a semaphore for Envoy's connections
	dialing  chan struct{} // a semaphore with one place, so that all connections share the pauses between attempts
	usable   chan struct{} // closed when a certificate exists
	far      time.Duration // default farAway

	mu       sync.Mutex
	state    State
	met      bool // the control plane was reached before
	sessions tls.ClientSessionCache
	failures int      // attempts since the control plane last sent something
	spare    net.Conn // a connection to the control plane for Envoy's next stream; opened while the agent itself responded
	away     wire.Away
	leaving  leaving
	left     map[string]response // responses without an ACK on the last stream: Envoy may have accepted them
}

// Listen makes the socket. An Envoy that connects before [Relay.Serve] waits.
func Listen(o Options) (*Relay, error) {
	l, err := wire.ListenUnix(o.Socket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ADS socket: %w", err)
	}
	r := &Relay{
		o: o, listener: l,
		places: make(chan struct{}, maxConnections), dialing: make(chan struct{}, 1), usable: make(chan struct{}), far: farAway,
		state: State{Since: time.Now()}, away: wire.Away{Grace: contract.DefaultFirstUse},
	}
	r.store = openStore(o.Store, o.Key, o.Log)
	if r.store.away != nil {
		if away, err := wire.ParseAway(r.store.away); err == nil {
			r.away = away
		}
	}
	if o.TLS == nil {
		close(r.usable)
	} else {
		r.sessions = tls.NewLRUClientSessionCache(1)
	}
	return r, nil
}

// Usable must be called when the TLS configuration has a certificate.
func (r *Relay) Usable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.usable:
	default:
		close(r.usable)
	}
	r.sessions = tls.NewLRUClientSessionCache(1)
}

// Serve serves Envoy until ctx ends.
func (r *Relay) Serve(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var connections sync.WaitGroup
	defer func() {
		end()
		connections.Wait()
		r.store.close()
	}()
	defer context.AfterFunc(ctx, func() { r.listener.Close() })()
	for {
		select {
		case r.places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		c, err := r.listener.Accept()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		connections.Go(func() {
			defer func() { <-r.places }()
			r.serve(ctx, c.(*net.UnixConn))
		})
	}
}

// State returns the current state. It may be called from any goroutine.
func (r *Relay) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Kept returns the number of stored resources and the size of their file in bytes.
func (r *Relay) Kept() (resources int, bytes int64) { return r.store.count() }

// serve serves one connection of Envoy.
func (r *Relay) serve(ctx context.Context, envoy *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer envoy.Close()
	if server := r.take(); server != nil {
		r.through(ctx, envoy, server)
		return
	}
	reached := make(chan net.Conn, 1)
	var reaching sync.WaitGroup
	reaching.Go(func() {
		if c := r.reach(ctx); c != nil {
			reached <- c
		}
	})
	defer func() { // a connection to the control plane that came too late is kept for Envoy's next connection
		cancel()
		reaching.Wait()
		select {
		case c := <-reached:
			r.keep(c)
		default:
		}
	}()
	gone := make(chan struct{})
	watched := awaitHangup(envoy, gone)
	select {
	case server := <-reached:
		watched()
		r.through(ctx, envoy, server)
	case <-time.After(time.Until(r.respondAt())):
		watched()
		r.lost(errNoAnswer)
		local(ctx, r, envoy, reached)
	case <-gone:
	case <-ctx.Done():
	}
}

var (
	errNoAnswer      = errors.New("it does not answer")
	errNoCertificate = errors.New("there is no certificate yet")
)

// respondAt returns the time from which on the agent responds to a new connection of Envoy. Until
// then Envoy waits for the control plane.
func (r *Relay) respondAt() time.Time {
	complete := r.store.complete()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !complete && !r.met:
		return time.Now().Add(firstGrace)
	case r.state.Connected || r.state.Err == nil:
		return time.Now().Add(r.away.Grace)
	}
	return r.state.Since.Add(r.away.Grace)
}

// connected records that the control plane has sent something.
func (r *Relay) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures, r.met = 0, true
	r.change(State{Connected: true})
}

// lost records that the control plane cannot be reached, or that its connection has ended.
func (r *Relay) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == errNoAnswer && r.state.Err != nil {
		return // the error of the last attempt has more detail
	}
	select {
	case <-r.usable:
	default:
		err = errNoCertificate
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it closed the connection")
	}
	// Other proxies have lost the control plane at the same moment, so do not retry at once.
	r.failures = max(r.failures, 1)
	r.change(State{Err: err})
}

func (r *Relay) change(s State) {
	old := r.state
	s.Since = old.Since
	if s.Connected != old.Connected {
		s.Since = time.Now()
	}
	r.state = s
	if s.Connected != old.Connected || s.Err != nil && (old.Err == nil || s.Err.Error() != old.Err.Error()) {
		r.o.Changed(s)
	}
}

// reach tries until it has a connection to the control plane, which it returns. It returns nil when
// ctx ends.
func (r *Relay) reach(ctx context.Context) net.Conn {
	select {
	case r.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-r.dialing }()
	for {
		r.mu.Lock()
		n := r.failures
		r.failures++
		r.mu.Unlock()
		var pause time.Duration
		if n > 0 {
			select { // without a certificate, only the first attempt is made
			case <-r.usable:
			case <-ctx.Done():
				return nil
			}
			pause = rand.N(min(contract.ControlPlaneRetryMax, contract.ControlPlaneRetryBase<<min(n-1, 16)))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		c, err := r.dial(ctx)
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			return nil
		}
		r.lost(err)
	}
}

// dial connects to the control plane. It opens the TCP connection before there is a certificate, which saves a
// round trip. If opening took long, it also starts the TLS handshake before there is a certificate, which saves
// another round trip. With a near control plane, an early handshake would save little, and would occupy a slot
// for handshakes there.
func (r *Relay) dial(ctx context.Context) (net.Conn, error) {
	began := time.Now()
	c, err := (&net.Dialer{Timeout: contract.ControlPlaneConnectTimeout, Control: oneSYNMore}).DialContext(ctx, "tcp", r.o.Address)
	if err != nil {
		return nil, err
	}
	if time.Since(began) < r.far {
		if err := r.awaitUsable(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	if r.o.TLS == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, contract.ControlPlaneConnectTimeout)
	defer cancel()
	config := r.o.TLS.Clone()
	config.NextProtos = []string{"h2"}
	r.mu.Lock()
	config.ClientSessionCache = r.sessions
	r.mu.Unlock()
	// The roots arrive together with the certificate.
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if err := r.awaitUsable(ctx); err != nil {
			return err
		}
		return r.o.TLS.VerifyConnection(s)
	}
	secure := tls.Client(c, config)
	err = secure.HandshakeContext(ctx)
	if err == nil && secure.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("it does not speak HTTP/2")
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return secure, nil
}

// awaitUsable waits for the certificate, but at most for spareTime: then the control plane might close the
// connection.
func (r *Relay) awaitUsable(ctx context.Context) error {
	select {
	case <-r.usable:
		return nil
	case <-time.After(spareTime):
		return errNoCertificate
	case <-ctx.Done():
		return ctx.Err()
	}
}

// oneSYNMore sets TCP_SYNCNT to 1, so that the kernel repeats a SYN only once. If no host has the address (a
// lost node), connecting then fails after 3 s.
func oneSYNMore(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_SYNCNT, 1) })
	return errors.Join(err, failed)
}

// keep stores a connection to the control plane for Envoy's next connection, but at most for spareTime.
func (r *Relay) keep(c net.Conn) {
	r.mu.Lock()
	old := r.spare
	r.spare = c
	r.mu.Unlock()
	if old != nil {
		old.Close()
	}
	time.AfterFunc(spareTime, func() {
		r.mu.Lock()
		mine := r.spare == c
		if mine {
			r.spare = nil
		}
		r.mu.Unlock()
		if mine {
			c.Close()
		}
	})
}

// take returns the stored connection, or nil.
func (r *Relay) take() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.spare
	r.spare = nil
	return c
}
