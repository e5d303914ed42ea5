package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/base/wire"
)

// A nameserver answers over UDP and TCP, with the same addresses for every name unless act is set.
type nameserver struct {
	at      netip.AddrPort
	mu      sync.Mutex
	act     func(q query, tcp bool) []byte // nil: no answer
	queries []string                       // name and type, "tcp", "edns" and its size
	sources map[uint16]bool
	ids     map[uint16]bool
}

func (n *nameserver) handle(message []byte, from net.Addr, tcp bool) []byte {
	q, _, ok := parse(message, tcp)
	if !ok {
		return nil
	}
	n.mu.Lock()
	what := fmt.Sprintf("%s %s", q.parsed.Name, strings.TrimPrefix(q.parsed.Type.String(), "Type"))
	if tcp {
		what += " tcp"
	}
	if q.edns {
		what += fmt.Sprintf(" edns %d", q.size)
	}
	n.queries = append(n.queries, what)
	n.sources[originOf(from).address.Port()], n.ids[q.header.ID] = true, true
	act := n.act
	n.mu.Unlock()
	if act != nil {
		return act(q, tcp)
	}
	return upstreamAnswer(q)
}

// upstreamAnswer resolves every name.
func upstreamAnswer(q query) []byte {
	return q.answer(dnsmessage.RCodeSuccess, q.addresses(q.parsed.Name, []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}, time.Minute))
}

// set replaces the function that answers.
func (n *nameserver) set(act func(q query, tcp bool) []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.act = act
}

func (n *nameserver) received() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.queries)
}

// newNameserver listens at a loopback address.
func newNameserver(t testing.TB, at netip.AddrPort) (*nameserver, error) {
	n := &nameserver{at: at, sources: map[uint16]bool{}, ids: map[uint16]bool{}}
	p, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { p.Close() })
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			b := make([]byte, maxMessage)
			size, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			go func() {
				if answer := n.handle(b[:size], from, false); answer != nil {
					p.WriteTo(answer, from)
				}
			}()
		}
	}()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					m, err := readMessage(conn)
					if err != nil {
						return
					}
					if answer := n.handle(m, conn.RemoteAddr(), true); answer != nil {
						conn.Write(framed(answer))
					}
				}
			}()
		}
	}()
	return n, nil
}

// atSomePort tries ports until one is free. They are below the range from which the kernel chooses.
func atSomePort(t testing.TB, listen func(port uint16) error) {
	t.Helper()
	err := error(syscall.EADDRINUSE)
	for errors.Is(err, syscall.EADDRINUSE) {
		err = listen(20000 + rand.N[uint16](12000))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A rig is a server, its name servers, and a client.
type rig struct {
	*Server
	servers []*nameserver
	conf    string // path of the server's resolv.conf
}

// newRig starts a server with some name servers, at 127.0.0.2 and up.
func newRig(t testing.TB, names Resolver, servers int) *rig {
	t.Helper()
	r := &rig{conf: filepath.Join(t.TempDir(), "resolv.conf")}
	const head = "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:5\n"
	o := Options{Names: names, ResolvConf: r.conf}
	atSomePort(t, func(port uint16) error {
		o.upstream, r.servers = port, nil
		text := head
		for i := range servers {
			n, err := newNameserver(t, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)}), port))
			if err != nil {
				return err
			}
			r.servers = append(r.servers, n)
			text += "nameserver " + n.at.Addr().String() + "\n"
		}
		put(t, r.conf, text)
		return nil
	})
	atSomePort(t, func(port uint16) (err error) {
		o.Port = port
		r.Server, err = Listen(o)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// question returns a query; if size is not 0, it contains an EDNS record with that size.
func question(name string, kind dnsmessage.Type, size int) []byte {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 4711, RecursionDesired: true})
	b.StartQuestions()
	b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET})
	if size > 0 {
		b.StartAdditionals()
		var h dnsmessage.ResourceHeader
		h.SetEDNS0(size, 0, false)
		b.OPTResource(h, dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 65001, Data: []byte("kept")}}})
	}
	out, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return out
}

// send sends the server a message and returns its answer.
func (r *rig) send(t testing.TB, network string, message []byte) []byte {
	t.Helper()
	conn, err := net.Dial(network, r.addresses[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if network == "tcp" {
		message = framed(message)
	}
	if _, err := conn.Write(message); err != nil {
		t.Fatal(err)
	}
	answer, err := receive(conn, network)
	if err != nil {
		t.Fatalf("waiting for an answer: %v", err)
	}
	return answer
}

// text returns an answer's code, flags and records.
func text(raw []byte) string {
	var m dnsmessage.Message
	if len(raw) < headerSize {
		return fmt.Sprintf("%d bytes", len(raw))
	}
	if err := m.Unpack(raw); err != nil {
		return "broken: " + err.Error()
	}
	out := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	if m.ID != 4711 {
		out = append(out, "another ID")
	}
	if m.Truncated {
		out = append(out, "truncated")
	}
	for _, a := range m.Answers {
		name := a.Header.Name.String()
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, name+" A "+netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, name+" AAAA "+netip.AddrFrom16(b.AAAA).String())
		case *dnsmessage.CNAMEResource:
			out = append(out, name+" CNAME "+b.CNAME.String())
		default:
			out = append(out, name+" "+a.Header.Type.String())
		}
	}
	return strings.Join(out, "; ")
}

// resolverOf returns a Resolver that knows the given entries.
func resolverOf(entries map[string]wire.Answer) Resolver {
	return func(_ context.Context, names []string) (out []wire.Answer, _ error) {
		for _, n := range names {
			a, ok := entries[n]
			if !ok {
				a.TTL = 5 * time.Second
			}
			out = append(out, a)
		}
		return out, nil
	}
}

func known(alias string, addresses ...string) wire.Answer {
	a := wire.Answer{Known: true, Aliases: []string{alias}, TTL: 30 * time.Second}
	for _, s := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(s))
	}
	return a
}

func idOf(raw []byte) uint16 { return binary.BigEndian.Uint16(raw) }
