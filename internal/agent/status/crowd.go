package status

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// What askers may take at a time: a connection costs some 25 KiB while its request is held.
// Those from within the pod have more, and the others cannot take it from them.
const (
	heldOutside, heldInside = 64, 1024
	openOutside, openInside = 256, 2048
)

// A crowd is who has connections. When there are too many, who has the most of them gives
// up its oldest: so the kubelet is heard however many a stranger opens.
type crowd struct {
	outside, inside room
	dropped         atomic.Uint64
}

// A room is one part of a crowd, with a limit of its own.
type room struct {
	mu    sync.Mutex
	limit int
	open  int
	by    map[string][]net.Conn // by who asks, the oldest first
}

func newCrowd() *crowd {
	return &crowd{
		outside: room{limit: openOutside, by: map[string][]net.Conn{}},
		inside:  room{limit: openInside, by: map[string][]net.Conn{}},
	}
}

// changed follows the connections of an http.Server.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateNew && state != http.StateClosed {
		return
	}
	p := peerOf(conn)
	r := &c.outside
	if p.inside {
		r = &c.inside
	}
	if state == http.StateClosed {
		r.leave(p.name, conn)
		return
	}
	if victim := r.enter(p.name, conn); victim != nil {
		c.dropped.Add(1)
		victim.Close()
	}
}

// enter returns the connection that is to make room.
func (r *room) enter(who string, conn net.Conn) (victim net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.limit {
		most := ""
		for name, conns := range r.by {
			if d := len(conns) - len(r.by[most]); d > 0 || d == 0 && name < most {
				most = name
			}
		}
		victim = r.by[most][0]
		r.remove(most, 0)
	}
	r.by[who] = append(r.by[who], conn)
	r.open++
	return victim
}

func (r *room) leave(who string, conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.by[who], conn); i >= 0 { // else it made room for another
		r.remove(who, i)
	}
}

func (r *room) remove(who string, i int) {
	r.by[who] = slices.Delete(r.by[who], i, i+1)
	if len(r.by[who]) == 0 {
		delete(r.by, who)
	}
	r.open--
}

// A hall is where requests are held, up to a number.
type hall struct {
	outside, inside chan struct{}
	refused         atomic.Uint64
}

func newHall() *hall {
	return &hall{outside: make(chan struct{}, heldOutside), inside: make(chan struct{}, heldInside)}
}

// enter says whether there is room for one more; it leaves by leave.
func (h *hall) enter(p peer) (leave func(), ok bool) {
	places := h.outside
	if p.inside {
		places = h.inside
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	default:
		h.refused.Add(1)
		return nil, false
	}
}
