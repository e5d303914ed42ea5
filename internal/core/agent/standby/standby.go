package standby

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
)

// Options of a Standby. The zero value of a field selects its default.
type Options struct {
	Port         uint16         // to listen on, by IPv4 and IPv6; required
	Relay        netip.AddrPort // the proxy's listener for the PROXY protocol; required, loopback
	CapturePorts []uint16       // connections to these ports on this machine are closed; default: those in package contract
	Transparent  bool           // connections come by TPROXY; needs CAP_NET_ADMIN

	// Max is the maximum number of connections that are held or relayed at a time; further ones are reset. Each
	// held connection costs a descriptor, some hundred bytes here, and the bytes that its caller has sent, in
	// the kernel: at most a receive window, 64 KiB by the default tcp_rmem. Default 4096, or a sixth of
	// RLIMIT_NOFILE if that is less: a relayed connection has two sockets and two pipes, which are six
	// descriptors.
	Max int

	// Sockets returns copies of the proxy's listening sockets. Default: no copies; then the
	// kernel resets the connections that a proxy has not accepted when it ends.
	Sockets Copies

	// Proof is called for each connection that is accepted, with its source and its original destination. It
	// reports whether the agent itself made the connection as a test, which ends then. Default: none is.
	Proof func(from, to netip.AddrPort) bool

	Log *slog.Logger // default: none
}

// Copies returns descriptors of the proxy's listening sockets: one for each of its workers 0 to
// n-1 on each of the addresses, as far as the proxy has them. It waits for the proxy until ctx
// ends, and then returns the descriptors that it got.
type Copies func(ctx context.Context, n int, addresses ...netip.AddrPort) (fds []int, err error)

var (
	// ErrNotListening means that the proxy has no listening socket on the port, or none on the
	// relay's port.
	ErrNotListening = errors.New("the proxy does not listen")
	// ErrClosed means that the standby was closed.
	ErrClosed = errors.New("the standby is closed")
)

// Counts counts the connections of a Standby.
type Counts struct {
	Held     int // connections that wait now
	Relaying int // connections that go through this process now

	Relayed uint64 // handed to the proxy's listener for the PROXY protocol
	Refused uint64 // reset because of Max
	Left    uint64 // closed by the caller while they waited
	Looped  uint64 // closed: addressed to a capture port itself
	Failed  uint64 // reset because the proxy could not be reached
}

// A Standby listens on a port of the proxy, beside the proxy's sockets or in their place.
type Standby struct {
	o     Options
	log   *slog.Logger
	ctx   context.Context
	watch *watch
	work  sync.WaitGroup // accept loops, dialers, relays, the watch

	released *queue        // connections to relay
	slots    chan struct{} // one for each relayed connection that waits for its first answer

	steering sync.Mutex // one Ready, Gone or Close at a time; locked before mu
	sockets  []*socket
	steered  time.Time
	attach   func(*socket, uint32, uint32) error
	// unsteered: this kernel has no steering, so a ready proxy gets proofs of capture too.
	unsteered atomic.Bool
	orphans   []*socket // copies of sockets that a proxy has closed, itself or by its end
	sharing   sharing

	lastQueue time.Duration // the constant lastQueue; longer in a test

	mu     sync.Mutex
	ready  bool
	closed bool
	life   int // number of calls of Ready, Gone and Hold; it identifies one life of the proxy
	held   map[int32]*held
	nextID int32
	warned map[string]bool // messages logged in this life
	counts Counts
}

// Listen begins to hold connections. When ctx ends, all connections are reset. The process
// must run as the proxy's user.
func Listen(ctx context.Context, o Options) (*Standby, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	w, err := newWatch()
	if err != nil {
		return nil, fmt.Errorf("watching connections that wait: %w", err)
	}
	s := &Standby{
		o: o, log: o.Log.With("port", o.Port), ctx: ctx, watch: w,
		released: newQueue(), slots: make(chan struct{}, inFlight), attach: (*socket).steer,
		lastQueue: lastQueue,
		held:      map[int32]*held{}, warned: map[string]bool{},
	}
	if err := s.listen(); err != nil {
		s.Close()
		return nil, err
	}
	s.work.Go(func() { w.run(s.noticed) })
	for range dialers {
		s.work.Go(s.dialAll)
	}
	context.AfterFunc(ctx, s.Close)
	return s, nil
}

func (o *Options) complete() error {
	if o.Port == 0 {
		return errors.New("standby: no port to listen on")
	}
	if !o.Relay.Addr().IsLoopback() || o.Relay.Port() == 0 {
		// On another address, any client could claim any source with a PROXY header.
		return fmt.Errorf("standby: relay address %s is not a port on loopback", o.Relay)
	}
	if len(o.CapturePorts) == 0 {
		o.CapturePorts = []uint16{contract.OutboundPort, contract.InboundPort}
	}
	o.Max = cmp.Or(o.Max, defaultMax())
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Proof == nil {
		o.Proof = func(_, _ netip.AddrPort) bool { return false }
	}
	return nil
}

func defaultMax() int {
	const most = 4096
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return most
	}
	return int(min(most, max(1, limit.Cur/6)))
}

// listen opens a socket for each family that the machine has.
func (s *Standby) listen() error {
	var missing []error
	for _, f := range []family{ip4, ip6} {
		sock, err := open(s.ctx, f, s.o.Port, s.o.Transparent)
		switch {
		case errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL):
			missing = append(missing, err)
			s.log.Info("standby leaves a family out", "reason", err)
			continue
		case err != nil:
			return fmt.Errorf("standby listening on port %d (%s): %w", s.o.Port, f, err)
		}
		s.sockets = append(s.sockets, sock)
		// A proxy's socket gets nothing until Ready, not even a proof of capture.
		if err := s.attach(sock, 0, 1); err != nil {
			s.log.Info("this kernel does not steer", "family", f, "reason", err)
			s.unsteered.Store(true)
		}
		s.work.Go(func() { s.accept(sock) })
		s.log.Info("standby listens", "family", f)
	}
	if len(s.sockets) == 0 {
		return errors.Join(missing...)
	}
	return nil
}

// Ready is called when the proxy listens: for the first time, again, or on other sockets
// than before. It relays every held connection and steers every new one to the proxy. It
// returns ErrNotListening if the proxy does not listen.
func (s *Standby) Ready() error {
	s.steering.Lock()
	defer s.steering.Unlock()
	if s.isClosed() {
		return ErrClosed
	}
	s.retire()
	s.mu.Lock()
	clear(s.warned) // warnings of the previous life
	s.mu.Unlock()
	workers, err := s.steerAll()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.ready = true
	s.life++
	n := len(s.held)
	for _, h := range s.inOrder() {
		s.release(h)
	}
	s.mu.Unlock()
	s.log.Info("handed over to the proxy", "held", n, "sockets", workers)
	s.share()
	return nil
}

// Gone is called when the proxy has died. From now on the standby holds new connections, and
// those that the proxy has not accepted.
func (s *Standby) Gone() {
	s.steering.Lock()
	defer s.steering.Unlock()
	defer func() { s.adopt(s.sharing.end()) }() // after ready is set to false
	s.mu.Lock()
	s.ready = false
	clear(s.warned)
	s.life++
	s.mu.Unlock()
	s.log.Info("proxy gone, connections wait")
}

// Close stops listening and resets held connections. Relayed connections go on: call Wait
// to wait for their ends, or end the context of Listen to reset them.
func (s *Standby) Close() {
	s.steering.Lock()
	defer s.steering.Unlock()
	s.mu.Lock()
	s.closed = true // from now on release puts nothing into the queue
	s.released.close()
	for _, h := range s.held {
		s.drop(h)
	}
	s.mu.Unlock()
	for _, fd := range s.sharing.end() {
		unix.Close(fd)
	}
	for _, sock := range append(s.sockets, s.orphans...) {
		sock.Close()
	}
	s.sockets, s.orphans = nil, nil
	s.watch.Close()
}

// Wait returns when the standby is closed and its last connection has ended.
func (s *Standby) Wait() { s.work.Wait() }

// Counts returns the current counts.
func (s *Standby) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Held = len(s.held)
	return c
}

// Accepts reports whether every proof that capture works comes to the standby, and none to the proxy.
func (s *Standby) Accepts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && (!s.ready || !s.unsteered.Load())
}

func (s *Standby) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// accept accepts connections until the socket is closed.
func (s *Standby) accept(sock *socket) {
	for {
		c, err := sock.listener.AcceptTCP()
		switch {
		case err == nil:
			s.take(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors, most likely. The connection stays in the kernel's queue;
			// there is no event for a free descriptor.
			s.warnOnce("standby cannot accept", "error", err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// warnOnce logs a warning only once in a life of the proxy, because its cause may affect every connection.
func (s *Standby) warnOnce(message string, args ...any) {
	s.mu.Lock()
	warned := s.warned[message]
	s.warned[message] = true
	s.mu.Unlock()
	if !warned {
		s.log.Warn(message, args...)
	}
}
