package status

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// Limits of held requests, of open connections, and of concurrent scrapes. Each place has its own
// limits, so that other pods cannot use up the limits of the kubelet or of the pod itself. A
// connection costs some 25 KiB while its request is held.
var (
	heldLimit   = [places]int{outside: 64, onNode: 64, inside: 1024}
	openLimit   = [places]int{outside: 256, onNode: 256, inside: 2048}
	scrapeSlots = [places]int{outside: 8, onNode: 8, inside: 64}
)

// scrapesEach is the maximum number of concurrent scrapes of one client. Each scrape makes Envoy write all of
// its statistics.
const scrapesEach = 2

// connLimiter bounds the open connections. Over the limit, it closes the oldest connection of the
// client that has the most, so that one client cannot lock out the others.
type connLimiter struct {
	at      [places]connSet
	dropped atomic.Uint64
}

// A connSet holds the open connections of one place.
type connSet struct {
	mu    sync.Mutex
	limit int
	open  int
	by    map[string][]net.Conn // by peer.name; the oldest comes first
}

func newConnLimiter() *connLimiter {
	l := &connLimiter{}
	for i := range l.at {
		l.at[i] = connSet{limit: openLimit[i], by: map[string][]net.Conn{}}
	}
	return l
}

// follow counts the open connections. It is the ConnState callback of the http.Server.
func (s *Server) follow(conn net.Conn, state http.ConnState) {
	if state != http.StateNew && state != http.StateClosed {
		return
	}
	p := s.peerOf(conn)
	set := &s.conns.at[p.place]
	if state == http.StateClosed {
		set.remove(p.name, conn)
		return
	}
	if victim := set.add(p.name, conn); victim != nil {
		s.conns.dropped.Add(1)
		victim.Close()
	}
}

// add adds a connection. If the set was full, add removes another connection and returns it as the victim; the
// caller must close the victim.
func (s *connSet) add(client string, conn net.Conn) (victim net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.limit {
		most := ""
		for name, conns := range s.by {
			if d := len(conns) - len(s.by[most]); d > 0 || d == 0 && name < most {
				most = name
			}
		}
		victim = s.by[most][0]
		s.removeAt(most, 0)
	}
	s.by[client] = append(s.by[client], conn)
	s.open++
	return victim
}

func (s *connSet) remove(client string, conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.by[client], conn); i >= 0 { // otherwise add has removed it
		s.removeAt(client, i)
	}
}

func (s *connSet) removeAt(client string, i int) {
	s.by[client] = slices.Delete(s.by[client], i, i+1)
	if len(s.by[client]) == 0 {
		delete(s.by, client)
	}
	s.open--
}

// A slotLimiter bounds the concurrent requests of one kind, for each place and for each client.
type slotLimiter struct {
	limit   [places]int
	each    int // 0: no limit
	refused atomic.Uint64

	mu   sync.Mutex
	used [places]int
	by   map[string]int // by peer.name
}

func newSlotLimiter(limit [places]int, each int) *slotLimiter {
	return &slotLimiter{limit: limit, each: each, by: map[string]int{}}
}

// acquire takes a slot, if one is free.
func (l *slotLimiter) acquire(p peer) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used[p.place] >= l.limit[p.place] || l.each > 0 && p.place != inside && l.by[p.name] >= l.each {
		l.refused.Add(1)
		return nil, false
	}
	l.used[p.place]++
	l.by[p.name]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.used[p.place]--
		if l.by[p.name]--; l.by[p.name] == 0 {
			delete(l.by, p.name)
		}
	}, true
}
