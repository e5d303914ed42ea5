package conns

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Options of a listener. The zero value of a field means its default.
type Options struct {
	// TLS is the server's configuration. If it is nil, the listener does not use TLS, and all connections
	// from one address count as one client.
	TLS *tls.Config
	// Identify returns the identity of a client that has sent a certificate; required with TLS.
	Identify func(tls.ConnectionState) (string, error)
	// Proxies is the maximum number of proxies of one identity that may connect from one address; default
	// [DefaultProxies].
	Proxies int
	// Rate is the maximum number of connections that one address may open per second; default 50.
	Rate int
	// Opening reports whether a call of this method belongs to the opening stage of its connection. The stage
	// then lasts until [Settled] is called. If Opening is nil, the stage ends with the handshake.
	Opening func(method string) bool
	// Unidentified is for a server whose clients need no identity. It removes the limits of time and bytes
	// for connections without an identity; the number of such connections stays limited.
	Unidentified bool
	Log          *slog.Logger // default: none

	handshake time.Duration // default handshakeTimeout
	anonymous time.Duration // default anonymousLife
	slow      time.Duration // default slowOpening
}

// DefaultProxies suffices if each proxy has its own address. It is more than one, because streams over a
// broken network still count for 40 s.
const DefaultProxies = 8

// Counters are the numbers of open and refused connections of a listener.
type Counters struct {
	Anonymous, Identified int64 // currently open
	Refused               [len(reasons)]int64
}

// A Reason is the reason why a connection was closed.
type Reason int

// Reasons for closing a connection.
const (
	TooFast        Reason = iota // the address opens too many connections in a short time
	TooMany                      // there are too many connections without an identity, in total
	Handshake                    // the handshake failed or took too long
	ClientFull                   // the client has too many connections
	CallsTooFast                 // the client makes too many calls in a short time
	TooMuch                      // the client sends too many bytes without an identity
	ClosedByClient               // the client closed the connection while it waited
)

var reasons = [...]string{"rate", "anonymous", "handshake", "client", "calls", "bytes", "gone"}

func (r Reason) String() string { return reasons[r] }

// A Listener accepts connections and hands each to one of two servers.
type Listener struct {
	o                     Options
	from                  net.Listener
	identified, anonymous *queue
	warn                  rate.Sometimes
	opening               [2]*Gate // slots for connections that are opening; the second gate is for authenticated addresses
	handshakes            [2]*Gate // processors for handshakes; the second gate is for authenticated addresses
	reads                 *Gate    // bytes from connections without an identity

	mu            sync.Mutex
	counters      Counters
	addresses     map[netip.Addr]*address
	before, after *pool  // connections without an identity, before and after the handshake
	admitted      uint64 // number of connections admitted so far
	clients       map[clientKey]*client
}

// New returns a listener that accepts connections from l once Serve is called. It replaces unset options by
// their defaults.
func New(l net.Listener, o Options) *Listener {
	o.Proxies = cmp.Or(o.Proxies, DefaultProxies)
	o.Rate = cmp.Or(o.Rate, addressRate)
	o.handshake = cmp.Or(o.handshake, handshakeTimeout)
	o.anonymous = cmp.Or(o.anonymous, anonymousLife)
	o.slow = cmp.Or(o.slow, slowOpening)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	processors := int64(runtime.GOMAXPROCS(0))
	half := max(1, processors/2) // if all processors are busy, the runtime polls the network only every 10 ms
	bytes := processors * int64(o.Proxies) * readBytes
	if o.TLS != nil {
		o.TLS = byTurns(o.TLS)
	}
	receiveBuffer(l, helloBuffer)
	opening := processors * openingPerProcessor
	return &Listener{
		opening:    [2]*Gate{NewGate(opening, opening/4), NewGate(opening, opening/4)},
		handshakes: [2]*Gate{NewGate(half, max(1, half/2)), NewGate(processors, half)}, reads: NewGate(bytes, bytes/2),
		before: newPool(maxWaiting), after: newPool(maxAnonymous),
		o: o, from: l, identified: newQueue(l), anonymous: newQueue(l), warn: rate.Sometimes{Interval: time.Second},
		addresses: map[netip.Addr]*address{}, clients: map[clientKey]*client{},
	}
}

// byTurns returns a configuration that makes a handshake wait for its turn once the client's first message
// has arrived, before the server computes anything for it.
func byTurns(from *tls.Config) *tls.Config {
	out := from.Clone()
	out.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := h.Conn.(*transport).hello(); err != nil || from.GetConfigForClient == nil {
			return nil, err
		}
		return from.GetConfigForClient(h)
	}
	return out
}

// Identified returns a listener for the connections whose client certificate [Options.Identify] accepts;
// without TLS, for all connections.
func (l *Listener) Identified() net.Listener { return l.identified }

// Anonymous returns a listener for the connections without a client certificate.
func (l *Listener) Anonymous() net.Listener { return l.anonymous }

// Close ends Serve. It does not close accepted connections, which belong to the servers.
func (l *Listener) Close() error {
	l.identified.Close()
	l.anonymous.Close()
	return l.from.Close()
}

func (l *Listener) Counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counters
}

// Serve accepts connections until Close. After a temporary error, such as too many open files, it tries
// again.
func (l *Listener) Serve() error {
	for wait := time.Duration(0); ; {
		c, err := l.from.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			l.o.Log.Warn("accepting a connection", "error", err)
			time.Sleep(wait)
			continue
		}
		wait = 0
		if s := l.admit(c); s != nil {
			go l.handshake(s)
		}
	}
}

// admit counts a new connection. If its address opens connections too fast, it closes the connection and
// returns nil.
func (l *Listener) admit(raw net.Conn) *slot {
	remote := addressOf(raw.RemoteAddr())
	s := &slot{listener: l, raw: raw, from: block(remote)}
	s.open, s.free = context.WithCancel(context.Background())
	l.mu.Lock()
	o := l.stateOf(s.from)
	if !o.rate.Allow() {
		l.counters.Refused[TooFast]++
		l.mu.Unlock()
		raw.Close()
		l.log(TooFast, remote, fmt.Sprintf("%d connections a second are accepted from one address", l.o.Rate))
		return nil
	}
	s.address = o
	l.admitted++
	s.number = l.admitted
	excess := l.count(l.before, s)
	l.mu.Unlock()
	l.evict(excess, l.before)
	return s
}

// count adds a connection to a pool, and returns the connections to close because the pool is too full.
func (l *Listener) count(in *pool, s *slot) []*slot {
	l.counters.Anonymous++
	in.add(s)
	excess := in.excess()
	for _, extra := range excess {
		extra.evicted = true
		l.uncount(extra)
	}
	l.counters.Refused[TooMany] += int64(len(excess))
	return excess
}

// evict closes connections that [Listener.count] returned for a pool.
func (l *Listener) evict(excess []*slot, of *pool) {
	what := "wait for their handshake"
	if of == l.after {
		what = "without a certificate are served"
	}
	for _, s := range excess {
		s.leave()
		l.log(TooMany, s.from, fmt.Sprintf("%d connections %s; this one was the oldest of the address that has most", of.most, what))
	}
}

// established counts a connection whose handshake ended without an identity. The connection is closed after a
// while, unless it proves an identity or its server needs none.
func (l *Listener) established(s *slot) {
	l.mu.Lock()
	var excess []*slot
	if l.uncount(s) {
		excess = l.count(l.after, s)
		if !l.o.Unidentified {
			s.expiry = time.AfterFunc(l.o.anonymous, s.leave)
		}
	}
	l.mu.Unlock()
	l.evict(excess, l.after)
}

// queueOf returns the index of the gate at which a connection waits.
func (l *Listener) queueOf(s *slot) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.address.queue()
}

// stateOf returns the state for an address, and creates it if necessary. If there are too many states, it
// removes those of addresses without connections: first those with their full burst, which are as good as new
// ones; those of authenticated addresses last.
func (l *Listener) stateOf(a netip.Addr) *address {
	o := l.addresses[a]
	if o == nil {
		burst := max(addressBurst, l.o.Proxies*connectionsPerProxy)
		for _, removable := range []func(*address) bool{
			func(o *address) bool { return !o.authenticated && o.rate.Tokens() >= float64(burst) },
			func(o *address) bool { return !o.authenticated },
			func(*address) bool { return true },
		} {
			if len(l.addresses) >= maxIdle+len(l.before.slots)+len(l.after.slots) { // maxIdle of them have no connections
				maps.DeleteFunc(l.addresses, func(a netip.Addr, o *address) bool {
					return l.before.slots[a] == nil && l.after.slots[a] == nil && removable(o)
				})
			}
		}
		o = &address{
			limiters: newLimiters(l.o.Proxies, rate.NewLimiter(anonymousCallRate, max(anonymousCallBurst, burst))),
			rate:     rate.NewLimiter(rate.Limit(l.o.Rate), burst),
		}
		l.addresses[a] = o
	}
	return o
}

// begin waits until the client has sent something, and then until an opening slot is free. So a silent client
// occupies no slot. begin fails for a client that has closed its connection, so that the server does no work
// for it.
func (l *Listener) begin(s *slot) error {
	s.raw.SetReadDeadline(time.Now().Add(l.o.handshake))
	if err := awaitBytes(s.raw); err != nil {
		return fmt.Errorf("waiting for the client's first bytes: %w", err)
	}
	s.raw.SetReadDeadline(time.Time{})
	leave, err := l.opening[l.queueOf(s)].Enter(s.open, s.from, 1)
	if err != nil {
		return err
	}
	opening, settle := context.WithTimeout(s.open, l.o.slow)
	context.AfterFunc(opening, leave)
	s.settle = settle
	if closedByClient(s.raw) {
		return errClosedByClient
	}
	return nil
}

// handshake does the TLS handshake and passes the connection to its server.
func (l *Listener) handshake(s *slot) {
	if err := l.begin(s); err != nil {
		l.fail(s, err)
		return
	}
	t := &transport{Conn: s.raw, slot: s, established: l.o.TLS == nil}
	if l.o.TLS == nil {
		l.identify(&Conn{Conn: t, slot: s}, "", time.Time{})
		return
	}
	ctx, cancel := context.WithTimeout(s.open, l.o.handshake)
	defer cancel()
	secure := tls.Server(t, l.o.TLS)
	err := secure.HandshakeContext(ctx)
	t.done()
	t.established = true
	if err != nil {
		l.fail(s, err)
		return
	}
	c, state := &Conn{Conn: secure, slot: s}, secure.ConnectionState()
	switch {
	case !slices.Contains(l.o.TLS.NextProtos, "http/1.1") && state.NegotiatedProtocol != "h2":
		l.refuse(s, Handshake, "the client does not speak HTTP/2 (ALPN h2)")
	case len(state.PeerCertificates) == 0:
		l.established(s)
		l.opened(s)
		l.anonymous.add(c)
	default:
		identity, err := l.o.Identify(state)
		if err != nil {
			l.refuse(s, Handshake, err.Error())
			return
		}
		l.identify(c, identity, state.PeerCertificates[0].NotAfter)
	}
}

// opened prepares a connection for its server.
func (l *Listener) opened(s *slot) {
	if l.o.Opening == nil {
		s.settle()
	}
	receiveBuffer(s.raw, socketBuffer)
}

// identify counts a connection for its client instead of its address, and closes it when the client's
// certificate expires. The server would not close it: it checks a certificate only when a call begins, but
// streams have no end, and later calls use the same connection. A zero notAfter means no expiry.
func (l *Listener) identify(c *Conn, identity string, notAfter time.Time) {
	err := l.join(c.slot, identity, notAfter)
	if err == nil {
		l.opened(c.slot)
		l.identified.add(c)
		return
	}
	c.settle()
	if l.o.TLS != nil { // without TLS the protocol may not be HTTP/2
		c.goAway(err.Error())
	}
	l.refuse(c.slot, ClientFull, err.Error())
}

// join counts a connection for its client, and closes it at notAfter. It returns an error if the client has
// the maximum number of connections, or if the connection has another identity already.
func (l *Listener) join(s *slot, identity string, notAfter time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if has := s.client.Load(); has != nil {
		if has.identity != identity {
			return fmt.Errorf("the connection is of %q; for %q open another one", has.identity, identity)
		}
		return nil
	}
	key := clientKey{identity, s.from}
	one := l.clients[key]
	if one == nil {
		if len(l.clients) >= maxIdle+int(l.counters.Identified) { // maxIdle of them have no connections
			maps.DeleteFunc(l.clients, func(_ clientKey, c *client) bool { return c.connections == 0 })
		}
		one = newClient(identity, l.o.Proxies)
		l.clients[key] = one
	}
	if most := l.o.Proxies * connectionsPerProxy; one.connections >= most {
		return fmt.Errorf("%d connections of %q from one address are served; see --proxies-per-address", most, identity)
	}
	if l.uncount(s) {
		s.address.authenticated = true
		one.connections++
		s.client.Store(one)
		if s.expiry != nil {
			s.expiry.Stop()
		}
		if !notAfter.IsZero() {
			s.expiry = time.AfterFunc(time.Until(notAfter), s.leave)
		}
		l.counters.Identified++
	}
	return nil
}

// uncount removes a connection from those without an identity. It returns false if the connection is not
// among them, for example because it was closed.
func (l *Listener) uncount(s *slot) bool {
	if s.pool == nil {
		return false
	}
	s.pool.remove(s)
	l.counters.Anonymous--
	return true
}

// release removes a closed connection from the counts.
func (l *Listener) release(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if c := s.client.Load(); !l.uncount(s) && c != nil {
		c.connections--
		l.counters.Identified--
	}
}

// fail closes a connection whose handshake failed. It does not count an evicted connection again as a
// refusal.
func (l *Listener) fail(s *slot, err error) {
	l.mu.Lock()
	evicted := s.evicted
	l.mu.Unlock()
	switch {
	case evicted:
	case errors.Is(err, errClosedByClient):
		l.refuse(s, ClosedByClient, err.Error())
	default:
		l.refuse(s, Handshake, err.Error())
	}
}

func (l *Listener) refuse(s *slot, why Reason, text string) {
	s.leave()
	l.note(why, s.from, text)
}

// note counts a refusal, and logs it.
func (l *Listener) note(why Reason, from netip.Addr, text string) {
	l.mu.Lock()
	l.counters.Refused[why]++
	l.mu.Unlock()
	l.log(why, from, text)
}

// log writes a warning, at most once per second; the counters are complete. It ignores a connection that its
// client closed, because that was not refused.
func (l *Listener) log(why Reason, from netip.Addr, text string) {
	if why == ClosedByClient {
		return
	}
	l.warn.Do(func() {
		l.o.Log.Warn("connection refused", "reason", why.String(), "from", from.String(), "detail", text)
	})
}

func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{} // the client of a Unix socket has no address
}
