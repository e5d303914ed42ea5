package conns

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// A Gate shares a resource among clients by turns: of those that wait, each address is served
// once before any is served twice. An address that sends many requests delays its own.
type Gate struct {
	mu      sync.Mutex
	free    int64
	share   int64 // the most that one address may have
	has     map[netip.Addr]int64
	waiting map[netip.Addr][]*turn // of each address, the oldest first
	turns   []netip.Addr           // with a turn that waits; the next one first
}

// A turn is what one request has of a gate, or waits for.
type turn struct {
	address netip.Addr
	n       int64
	granted chan struct{} // closed
}

// NewGate returns a gate that one address may have a part of.
func NewGate(all, share int64) *Gate {
	return &Gate{free: all, share: share, has: map[netip.Addr]int64{}, waiting: map[netip.Addr][]*turn{}}
}

// Enter waits for n of the resource, which is no more than a share. Unless it returns an error,
// the caller must call leave.
func (g *Gate) Enter(ctx context.Context, address netip.Addr, n int64) (leave func(), err error) {
	t := &turn{address, n, make(chan struct{})}
	g.mu.Lock()
	if len(g.waiting[address]) == 0 {
		g.turns = append(g.turns, address)
	}
	g.waiting[address] = append(g.waiting[address], t)
	g.grant()
	g.mu.Unlock()
	select {
	case <-t.granted:
		return sync.OnceFunc(func() { g.leave(t) }), nil
	case <-ctx.Done():
		g.leave(t)
		return nil, ctx.Err()
	}
}

// leave gives back what t has, or ends its waiting.
func (g *Gate) leave(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-t.granted:
		g.free += t.n
		if g.has[t.address] -= t.n; g.has[t.address] == 0 {
			delete(g.has, t.address)
		}
	default:
		g.remove(slices.Index(g.turns, t.address), slices.Index(g.waiting[t.address], t))
	}
	g.grant()
}

// remove takes a waiting turn out; its address goes to the end of those that wait, or leaves
// them.
func (g *Gate) remove(at, i int) {
	address := g.turns[at]
	g.waiting[address] = slices.Delete(g.waiting[address], i, i+1)
	g.turns = slices.Delete(g.turns, at, at+1)
	if len(g.waiting[address]) > 0 {
		g.turns = append(g.turns, address)
	} else {
		delete(g.waiting, address)
	}
}

// Free is what none has now.
func (g *Gate) Free() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.free
}

// grant gives what is free to those whose turn it is. An address that has its share is passed
// over; one that wants more than is free is waited for, or it might wait for ever.
func (g *Gate) grant() {
	for at := 0; at < len(g.turns); {
		address := g.turns[at]
		t := g.waiting[address][0]
		switch {
		case g.has[address] > 0 && g.has[address]+t.n > g.share:
			at++
		case t.n > g.free:
			return
		default:
			g.free -= t.n
			g.has[address] += t.n
			g.remove(at, 0)
			close(t.granted)
			at = 0
		}
	}
}

// AddressOf is the address by which the client of a request is counted.
func AddressOf(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return block(a.Addr())
}
