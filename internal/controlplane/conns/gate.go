package conns

import (
	"container/list"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// A Gate shares a resource among clients by turns: of those that wait, each address is served
// once before any is served twice. An address that sends many requests delays its own. Those of
// one address may be for several, as an API server's are for namespaces: these take turns likewise.
type Gate struct {
	mu      sync.Mutex
	free    int64
	share   int64 // the most that one address may have
	has     map[netip.Addr]int64
	waiting map[netip.Addr]*list.Element // in turns
	served  map[subject]int              // the number of the last turn of each subject of an address that waits
	number  int                          // of turns so far
	turns   *list.List                   // the turns of each address that wait; the next address first
}

// A turn is what one request has of a gate, or waits for.
type turn struct {
	subject
	n       int64
	granted chan struct{} // closed
}

// A subject is whom a request of an address is for.
type subject struct {
	address netip.Addr
	name    string
}

// NewGate returns a gate that one address may have a part of.
func NewGate(all, share int64) *Gate {
	return &Gate{free: all, share: share, has: map[netip.Addr]int64{}, waiting: map[netip.Addr]*list.Element{}, served: map[subject]int{}, turns: list.New()}
}

// Enter waits for n of the resource, which is no more than a share. Unless it returns an error,
// the caller must call leave.
func (g *Gate) Enter(ctx context.Context, address netip.Addr, n int64) (leave func(), err error) {
	return g.EnterFor(ctx, address, "", n)
}

// EnterFor is Enter for one of several whom an address sends requests for.
func (g *Gate) EnterFor(ctx context.Context, address netip.Addr, name string, n int64) (leave func(), err error) {
	t := &turn{subject{address, name}, n, make(chan struct{})}
	g.mu.Lock()
	if e := g.waiting[address]; e != nil {
		e.Value = append(e.Value.([]*turn), t)
	} else {
		g.waiting[address] = g.turns.PushBack([]*turn{t})
	}
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
		e := g.waiting[t.address]
		g.remove(e, slices.Index(e.Value.([]*turn), t))
	}
	g.grant()
}

// remove takes a waiting turn out; its address goes to the end of those that wait, or leaves
// them.
func (g *Gate) remove(e *list.Element, i int) {
	turns := e.Value.([]*turn)
	address := turns[i].address
	if len(turns) == 1 {
		g.turns.Remove(e)
		delete(g.waiting, address)
		maps.DeleteFunc(g.served, func(s subject, _ int) bool { return s.address == address })
		return
	}
	g.number++
	g.served[turns[i].subject] = g.number
	e.Value = slices.Delete(turns, i, i+1)
	g.turns.MoveToBack(e)
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
	for e := g.turns.Front(); e != nil; {
		turns := e.Value.([]*turn)
		i := g.next(turns)
		t := turns[i]
		switch has := g.has[t.address]; {
		case has > 0 && has+t.n > g.share:
			e = e.Next()
		case t.n > g.free:
			return
		default:
			g.free -= t.n
			g.has[t.address] = has + t.n
			g.remove(e, i)
			close(t.granted)
			e = g.turns.Front()
		}
	}
}

// next is which of an address's turns comes next: the first of the subject that was served longest ago.
func (g *Gate) next(turns []*turn) int {
	next := 0
	for i, t := range turns {
		if g.served[t.subject] < g.served[turns[next].subject] {
			next = i
		}
	}
	return next
}

// AddressOf is the address by which the client of a request is counted.
func AddressOf(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return block(a.Addr())
}
