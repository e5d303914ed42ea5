package status

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// Limits of held requests and of open connections: a connection costs some 25 KiB while its
// request is held. Clients within the pod have their own, higher limits.
const (
	heldOutside, heldInside = 64, 1024
	openOutside, openInside = 256, 2048
)

// connLimiter bounds the open connections. Over the limit, the oldest connection of the
// client that has most of them is closed: so one client cannot lock out the kubelet.
type connLimiter struct {
	outside, inside connSet
	dropped         atomic.Uint64
}

// A connSet is the open connections by client, with one limit.
type connSet struct {
	mu    sync.Mutex
	limit int
	open  int
	by    map[string][]net.Conn // by peer.name, the oldest first
}

func newConnLimiter() *connLimiter {
	return &connLimiter{
		outside: connSet{limit: openOutside, by: map[string][]net.Conn{}},
		inside:  connSet{limit: openInside, by: map[string][]net.Conn{}},
	}
}

// changed follows the connections of an http.Server.
func (l *connLimiter) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateNew && state != http.StateClosed {
		return
	}
	p := peerOf(conn)
	set := &l.outside
	if p.inside {
		set = &l.inside
	}
	if state == http.StateClosed {
		set.remove(p.name, conn)
		return
	}
	if victim := set.add(p.name, conn); victim != nil {
		l.dropped.Add(1)
		victim.Close()
	}
}

// add returns the connection to close if the set was full.
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
	if i := slices.Index(s.by[client], conn); i >= 0 { // else add has removed it
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

// waitLimiter bounds the requests that are held.
type waitLimiter struct {
	outside, inside chan struct{}
	refused         atomic.Uint64
}

func newWaitLimiter() *waitLimiter {
	return &waitLimiter{outside: make(chan struct{}, heldOutside), inside: make(chan struct{}, heldInside)}
}

// acquire takes a slot for a held request, if one is free.
func (l *waitLimiter) acquire(p peer) (release func(), ok bool) {
	slots := l.outside
	if p.inside {
		slots = l.inside
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	default:
		l.refused.Add(1)
		return nil, false
	}
}
