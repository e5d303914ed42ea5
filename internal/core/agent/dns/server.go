package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Options configure a [Server]. The zero value of a field means its default, unless the field is
// required.
type Options struct {
	Port   uint16   // on the loopback addresses of both families; required
	Domain string   // of the mesh's services; default "cluster.local"
	Names  Resolver // resolves names of the mesh; default: none, all queries are forwarded

	ResolvConf string       // default "/etc/resolv.conf"
	Log        *slog.Logger // default: none

	upstream uint16 // port of name servers; default 53
}

func (o Options) withDefaults() Options {
	o.Domain = strings.ToLower(strings.Trim(cmp.Or(o.Domain, "cluster.local"), "."))
	o.ResolvConf = cmp.Or(o.ResolvConf, "/etc/resolv.conf")
	o.upstream = cmp.Or(o.upstream, 53)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Server is the DNS proxy.
type Server struct {
	o       Options
	counts  counters
	cache   *cache // nil: no control plane
	conf    *confFile
	forward *forwarder

	packets   []*net.UDPConn
	listeners []net.Listener
	addresses []netip.AddrPort

	slots chan struct{} // one for each query under way
}

// loopbacks are the addresses to which the capture rules redirect queries.
var loopbacks = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// Listen binds the port over UDP and TCP, for each address family of the machine.
func Listen(o Options) (*Server, error) {
	s := &Server{o: o.withDefaults(), slots: make(chan struct{}, maxQueries)}
	if o.Names != nil {
		s.cache = newCache(o.Names, &s.counts)
	}
	s.conf = &confFile{path: s.o.ResolvConf, port: s.o.upstream, own: func(a netip.AddrPort) bool { return slices.Contains(s.addresses, a) },
		changed: s.searchChanged}
	s.forward = newForwarder(s.conf)
	for _, a := range loopbacks {
		err := s.bind(netip.AddrPortFrom(a, s.o.Port))
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			continue // the machine lacks this family
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	if len(s.addresses) == 0 {
		return nil, errors.New("listening for DNS: the machine has no loopback address")
	}
	return s, nil
}

func (s *Server) bind(at netip.AddrPort) error {
	p, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("listening for DNS: %w", err)
	}
	s.packets = append(s.packets, p)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("listening for DNS: %w", err)
	}
	s.listeners = append(s.listeners, l)
	s.addresses = append(s.addresses, at)
	return nil
}

// Close closes the sockets. Serve then returns.
func (s *Server) Close() error {
	var errs []error
	for _, p := range s.packets {
		errs = append(errs, p.Close())
	}
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Serve answers until ctx ends, or a socket fails.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(s.packets)+len(s.listeners))
	var tasks sync.WaitGroup
	for _, p := range s.packets {
		tasks.Go(func() { failed <- s.servePackets(ctx, p) })
	}
	for _, l := range s.listeners {
		tasks.Go(func() { failed <- s.serveConnections(ctx, l) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	s.Close()
	tasks.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// servePackets answers over UDP. It answers a query beyond the limit with a failure at once, so
// that the client does not wait.
func (s *Server) servePackets(ctx context.Context, p *net.UDPConn) error {
	var work sync.WaitGroup
	defer work.Wait()
	buffer := make([]byte, maxQuery)
	for {
		n, from, err := p.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		message := slices.Clone(buffer[:n])
		select {
		case s.slots <- struct{}{}:
		default:
			s.counts.refused.Add(1)
			if q, _, ok := parse(message, false); ok {
				p.WriteToUDPAddrPort(q.fail(dnsmessage.RCodeServerFailure), from)
			}
			continue
		}
		work.Go(func() {
			defer func() { <-s.slots }()
			if answer := s.answer(ctx, message, origin{false, unmapped(from)}); answer != nil {
				p.WriteToUDPAddrPort(answer, from) // the client may be gone
			}
		})
	}
}

// serveConnections answers over TCP.
func (s *Server) serveConnections(ctx context.Context, l net.Listener) error {
	var work sync.WaitGroup
	defer work.Wait()
	connections := make(chan struct{}, maxConnections)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		select {
		case connections <- struct{}{}:
		default:
			s.counts.refused.Add(1)
			conn.Close()
			continue
		}
		work.Go(func() {
			defer func() { <-connections }()
			s.converse(ctx, conn)
		})
	}
}

// converse answers the queries of one connection.
func (s *Server) converse(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	from := originOf(conn.RemoteAddr())
	from.tcp = true
	for {
		conn.SetDeadline(time.Now().Add(idle))
		message, err := readMessage(conn)
		if err != nil {
			return
		}
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		answer := s.answer(ctx, message, from)
		<-s.slots
		if answer == nil {
			return
		}
		conn.SetDeadline(time.Now().Add(idle))
		if _, err := conn.Write(framed(answer)); err != nil {
			return
		}
	}
}
