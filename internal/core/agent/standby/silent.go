package standby

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/sockets"
)

// SilentOptions are those of a Silent. The zero value of a field means its default.
type SilentOptions struct {
	Port    uint16         // on loopback; required
	Inspect netip.AddrPort // the proxy's listener for the PROXY protocol that detects TLS; required, loopback
	Reject  []uint16       // ports of the proxy itself: connections to them are closed

	// Max is how many connections there are at a time, silent or relayed. Beyond it the longest
	// silent one is reset. Default as in [Options].
	Max int

	// Greeting is how long the first bytes of an application are held back for a client that has
	// not been served in plain text before: its ClientHello may be late. Default 1s, which is
	// the first retransmission of a lost segment (RFC 6298) on a path of up to 300 ms.
	Greeting time.Duration

	Log *slog.Logger // default: none
}

// SilentCounts are the connections of a Silent.
type SilentCounts struct {
	Waiting  int // neither side has sent anything
	Relaying int // go through this process now

	Refused uint64 // reset because of Max
}

// A Silent takes the connections to the application on which the client is silent, though
// either side may be the one that sends first, and the client may send a ClientHello of the
// mesh. It connects to the application, and relays by what comes first:
//
//   - A ClientHello goes back to the proxy, complete, and the application's connection ends.
//   - Other bytes of the client, or its end, make it a connection in plain text.
//   - So do first bytes of the application.
type Silent struct {
	o        SilentOptions
	ctx      context.Context
	listener *net.TCPListener
	watch    *watch
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	nextID   int32
	pairs    map[int32]*pair
	order    *list.List                // of pairs, the longest silent first
	bySource map[netip.Addr]*list.List // likewise
	handed   map[netip.AddrPort]int    // how often connections went back to the proxy that have not ended, by client
	plain    remembered                // sources that were served in plain text
	total    int
	refused  uint64
	warned   bool
}

// A pair is a client's connection, from the proxy, and the one to the application.
type pair struct {
	id          int32
	client, app *net.TCPConn
	from, to    netip.AddrPort // of the client: its address and the one that it dialled

	inOrder, ofSource *list.Element
}

// headerTimeout bounds the wait for a header, which the proxy sends at once, and helloTimeout
// the one for the rest of a ClientHello, with lost segments. dialTimeout is for a connection
// within the pod, as long as the proxy's own: an application whose queue is full may accept it
// at the kernel's next try, after 1, 3 or 7 s.
const (
	headerTimeout = 10 * time.Second
	helloTimeout  = 30 * time.Second
	dialTimeout   = 10 * time.Second
)

// handBacks bounds how often a connection goes back to the proxy. Once is enough, unless a thread
// of the proxy got no processor between the connection and its first bytes: for as long as it
// waits for them it then takes it for silent again.
const handBacks = 3

// ListenSilent begins to take silent connections. When ctx ends, all of them end. The process
// must run as the proxy's user.
func ListenSilent(ctx context.Context, o SilentOptions) (*Silent, error) {
	if !o.Inspect.Addr().IsLoopback() || o.Inspect.Port() == 0 || o.Port == 0 {
		return nil, fmt.Errorf("silent connections: port %d, inspected at %s: both must be ports on loopback", o.Port, o.Inspect)
	}
	o.Max = cmp.Or(o.Max, defaultMax())
	o.Greeting = cmp.Or(o.Greeting, time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	w, err := newWatch()
	if err != nil {
		return nil, fmt.Errorf("watching silent connections: %w", err)
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(o.Port)})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("listening for silent connections: %w", err)
	}
	s := &Silent{
		o: o, ctx: ctx, listener: l, watch: w, pairs: map[int32]*pair{}, order: list.New(),
		bySource: map[netip.Addr]*list.List{}, handed: map[netip.AddrPort]int{},
	}
	s.work.Go(s.accept)
	s.work.Go(func() {
		w.run(func(id int32, _ bool) {
			if p := s.take(id); p != nil {
				s.work.Go(func() {
					defer s.left()
					s.decide(p)
				})
			}
		})
	})
	context.AfterFunc(ctx, s.close)
	return s, nil
}

// Counts returns the current counts.
func (s *Silent) Counts() SilentCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SilentCounts{Waiting: len(s.pairs), Relaying: s.total - len(s.pairs), Refused: s.refused}
}

// Wait returns when ctx has ended, and the last connection.
func (s *Silent) Wait() { s.work.Wait() }

func (s *Silent) close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for _, p := range s.pairs {
		s.forget(p)
		p.reset()
	}
	s.mu.Unlock()
	s.watch.Close()
}

func (s *Silent) accept() {
	for {
		c, err := s.listener.AcceptTCP()
		switch {
		case err == nil && s.admit():
			s.work.Go(func() {
				if err := s.begin(c); err != nil {
					s.o.Log.Debug("a silent connection ends", "error", err)
					reset(c)
					s.left()
				}
			})
		case err == nil:
			reset(c)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, most likely; there is no event for a free one
			s.o.Log.Warn("silent connections cannot be accepted", "error", err)
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// admit counts one more connection. If there are too many, it resets the longest silent one,
// or refuses the new one if none is silent.
func (s *Silent) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	if s.total <= s.o.Max {
		return true
	}
	s.refused++
	s.warn("too many silent connections: the longest silent are reset", "max", s.o.Max)
	if oldest := s.order.Front(); oldest != nil {
		p := oldest.Value.(*pair)
		s.forget(p)
		p.reset()
		s.total--
		return true
	}
	s.total--
	return false
}

// left counts one connection less.
func (s *Silent) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
}

// warn logs once. It is called with mu locked.
func (s *Silent) warn(message string, args ...any) {
	if !s.warned {
		s.warned = true
		s.o.Log.Warn(message, args...)
	}
}

// begin takes a connection from the proxy and connects to the application.
func (s *Silent) begin(c *net.TCPConn) error {
	peer, err := sockets.Find(addrPort(c.RemoteAddr()), addrPort(c.LocalAddr()))
	if err != nil || peer.UID != uint32(os.Getuid()) {
		// Another process of the pod. By a header it would connect as the proxy.
		return fmt.Errorf("it is one of user %d, not the proxy's: %v", peer.UID, err)
	}
	c.SetReadDeadline(time.Now().Add(headerTimeout))
	from, to, err := readHeader(c)
	if err != nil {
		return err
	}
	c.SetReadDeadline(time.Time{})
	if !here(to.Addr()) || slices.Contains(s.o.Reject, to.Port()) {
		return fmt.Errorf("%s is not a port of the application", to)
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1, LocalAddr: passSource(to.Addr())}
	app, err := d.DialContext(s.ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return s.keep(&pair{client: c, app: app.(*net.TCPConn), from: from, to: to})
}

// passSource is the address from which the proxy connects to its application: connections from
// there are not captured.
func passSource(to netip.Addr) net.Addr {
	from := contract.ProofInbound
	if to.Is6() {
		from = contract.ProofInbound6
	}
	return &net.TCPAddr{IP: net.ParseIP(from)}
}

// keep watches a pair until one side sends or ends. A source has at most half of the room.
func (s *Silent) keep(p *pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.handed[p.from] >= handBacks {
		// The proxy detected no TLS in a complete ClientHello that was handed back.
		reset(p.app)
		return fmt.Errorf("the connection from %s was handed back %d times, or all end", p.from, handBacks)
	}
	source := s.bySource[p.from.Addr()]
	if source == nil {
		source = list.New()
		s.bySource[p.from.Addr()] = source
	}
	if source.Len() >= max(1, s.o.Max/2) {
		oldest := source.Front().Value.(*pair)
		s.forget(oldest)
		oldest.reset()
		s.total--
		s.refused++
		s.bySource[p.from.Addr()] = source
	}
	s.nextID++
	p.id = s.nextID
	s.pairs[p.id] = p
	p.inOrder, p.ofSource = s.order.PushBack(p), source.PushBack(p)
	for _, c := range []*net.TCPConn{p.client, p.app} {
		if err := s.watch.add(c, p.id, unix.EPOLLIN); err != nil {
			s.forget(p)
			reset(p.app)
			return err
		}
	}
	return nil
}

// take is for the first event of a pair: it is watched no longer.
func (s *Silent) take(id int32) *pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pairs[id]
	if p != nil {
		s.forget(p)
		s.watch.remove(p.client)
		s.watch.remove(p.app)
	}
	return p
}

// forget removes a pair from those that are silent. It is called with mu locked.
func (s *Silent) forget(p *pair) {
	delete(s.pairs, p.id)
	s.order.Remove(p.inOrder)
	source := s.bySource[p.from.Addr()]
	if source.Remove(p.ofSource); source.Len() == 0 {
		delete(s.bySource, p.from.Addr())
	}
}

func (p *pair) reset() {
	reset(p.client)
	reset(p.app)
}

// decide relays a pair by what came first. It looks at the sockets: an event may be for both.
func (s *Silent) decide(p *pair) {
	stop := context.AfterFunc(s.ctx, p.reset)
	defer stop()
	first, err := peek(p.client, 1, time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) { // the application has sent, or ended
		first, err = s.afterGreeting(p)
	}
	switch {
	case err != nil:
		p.reset()
	case mayBeHello(first):
		s.handBack(p)
	default:
		join(p.client, p.app, func() {})
	}
}

// afterGreeting holds the application's first bytes back for a while. It returns what the
// client has sent then: nothing, mostly.
func (s *Silent) afterGreeting(p *pair) ([]byte, error) {
	greeting, err := peek(p.app, 1, time.Time{})
	if err != nil || len(greeting) == 0 || s.isPlain(p.from.Addr(), false) {
		return nil, err
	}
	first, err := peek(p.client, 1, time.Now().Add(s.o.Greeting))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		first, err = nil, nil
	}
	if !mayBeHello(first) { // a client that gives up while it waits is not kept waiting again
		s.isPlain(p.from.Addr(), true)
	}
	return first, err
}

// isPlain reports whether a source was served in plain text before, and notes that it was.
func (s *Silent) isPlain(source netip.Addr, now bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now {
		s.plain.add(source)
	}
	return s.plain.has(source)
}

// handBack gives a ClientHello to the proxy, whole, so that it has nothing to wait for.
func (s *Silent) handBack(p *pair) {
	hello, err := readHello(p.client, time.Now().Add(helloTimeout))
	switch {
	case err != nil:
		p.reset()
		return
	case hello == nil:
		join(p.client, p.app, func() {})
		return
	}
	p.app.Close()
	s.mu.Lock()
	s.handed[p.from]++
	s.plain.remove(p.from.Addr())
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if s.handed[p.from]--; s.handed[p.from] == 0 {
			delete(s.handed, p.from)
		}
		s.mu.Unlock()
	}()
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	up, err := d.DialTCP(s.ctx, "tcp", netip.AddrPort{}, s.o.Inspect)
	if err != nil {
		reset(p.client)
		return
	}
	defer context.AfterFunc(s.ctx, func() { reset(up) })()
	if _, err := up.Write(append(header(p.from, p.to), hello...)); err != nil {
		reset(p.client)
		reset(up)
		return
	}
	join(p.client, up, func() {})
}

// maxRemembered bounds each of the two generations of sources that are remembered: a source is
// an address of the cluster, and 8 KiB of them are enough for most nodes' callers.
const maxRemembered = 512

// remembered is a set of the latest addresses.
type remembered struct{ new, old map[netip.Addr]bool }

func (r *remembered) has(a netip.Addr) bool { return r.new[a] || r.old[a] }

func (r *remembered) add(a netip.Addr) {
	if len(r.new) >= maxRemembered {
		r.old, r.new = r.new, nil
	}
	if r.new == nil {
		r.new = map[netip.Addr]bool{}
	}
	r.new[a] = true
}

func (r *remembered) remove(a netip.Addr) {
	delete(r.new, a)
	delete(r.old, a)
}
