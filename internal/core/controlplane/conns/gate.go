package conns

import (
	"container/list"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// A Gate shares a resource among clients by turns: among the addresses that wait, each is served once before
// any is served twice. So an address that sends many requests delays only itself. The requests of one address
// may have several names: an API server sends requests for many namespaces. The names of an address also take
// turns.
//
// A gate is a semaphore with fair queues. The semaphore of golang.org/x/sync serves in the order of arrival.
// Even with another semaphore for each address in front of it, a client would wait for the whole share of
// every address that came first, instead of for one request of each.
type Gate struct {
	mu      sync.Mutex
	free    int64
	share   int64 // the maximum that one address may hold
	has     map[netip.Addr]int64
	waiting map[netip.Addr]*list.Element // addresses with waiting turns
	turns   *list.List                   // the *waiter of each address with waiting turns; the next address first
}

// A waiter is an address with waiting turns. They are grouped by name; the next name is first.
type waiter struct {
	address netip.Addr
	names   [][]*turn // none is empty
}

// A turn is the part of a gate that one request holds or waits for.
type turn struct {
	address netip.Addr
	name    string
	n       int64
	granted chan struct{} // closed when granted
}

// NewGate returns a gate that grants at most all units in total, and at most share of them to one address.
func NewGate(all, share int64) *Gate {
	return &Gate{free: all, share: share, has: map[netip.Addr]int64{}, waiting: map[netip.Addr]*list.Element{}, turns: list.New()}
}

// Enter waits for n units of the resource; n must not exceed the share of an address. It fails only if ctx
// ends. Otherwise the caller must call the returned function later.
func (g *Gate) Enter(ctx context.Context, address netip.Addr, n int64) (leave func(), err error) {
	return g.EnterFor(ctx, address, "", n)
}

// EnterFor does the same as Enter. The name groups requests of the address, for example by namespace.
func (g *Gate) EnterFor(ctx context.Context, address netip.Addr, name string, n int64) (leave func(), err error) {
	t := &turn{address, name, n, make(chan struct{})}
	g.mu.Lock()
	if g.waiting[address] == nil {
		g.waiting[address] = g.turns.PushBack(&waiter{address: address})
	}
	g.waiting[address].Value.(*waiter).add(t)
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

// leave returns the units that t holds. If t still waits, it is removed from the queue.
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
		g.remove(g.waiting[t.address], t)
	}
	g.grant()
}

// remove takes a waiting turn out of its queue. The turn's address moves to the end of the queue, or leaves
// the queue if it has no other turns. The turn's name does the same among the names of the address.
func (g *Gate) remove(e *list.Element, t *turn) {
	w := e.Value.(*waiter)
	w.remove(t)
	if len(w.names) == 0 {
		g.turns.Remove(e)
		delete(g.waiting, w.address)
		return
	}
	g.turns.MoveToBack(e)
}

func (w *waiter) index(name string) int {
	return slices.IndexFunc(w.names, func(turns []*turn) bool { return turns[0].name == name })
}

func (w *waiter) add(t *turn) {
	if i := w.index(t.name); i >= 0 {
		w.names[i] = append(w.names[i], t)
		return
	}
	w.names = append(w.names, []*turn{t})
}

func (w *waiter) next() *turn { return w.names[0][0] }

func (w *waiter) remove(t *turn) {
	i := w.index(t.name)
	turns := w.names[i]
	w.names = slices.Delete(w.names, i, i+1)
	if at := slices.Index(turns, t); len(turns) > 1 {
		w.names = append(w.names, slices.Delete(turns, at, at+1))
	}
}

// Free returns the number of units that are not held.
func (g *Gate) Free() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.free
}

// grant gives free units to the turns at the front of the queue. It skips an address that holds its share. If
// a turn needs more units than are free, grant stops, because smaller turns behind it could otherwise delay
// it for ever.
func (g *Gate) grant() {
	for e := g.turns.Front(); e != nil; {
		t := e.Value.(*waiter).next()
		switch has := g.has[t.address]; {
		case has > 0 && has+t.n > g.share:
			e = e.Next()
		case t.n > g.free:
			return
		default:
			g.free -= t.n
			g.has[t.address] = has + t.n
			g.remove(e, t)
			close(t.granted)
			e = g.turns.Front()
		}
	}
}

// AddressOf returns the address of a request's client, in the form in which the limits count it ([block]).
func AddressOf(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr)
	return block(a.Addr())
}
