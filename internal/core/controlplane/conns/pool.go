package conns

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
)

// A pool contains the connections without an identity, before or after their handshake, grouped by
// address. If there are too many, the first address of the heap loses its oldest connection. A heap
// makes that fast: in a flood it happens at each connection, with thousands of addresses.
type pool struct {
	most   int
	n      int // number of connections
	groups map[netip.Addr]*group
	order  []*group // the heap
}

// A group is the connections of one address in a pool.
type group struct {
	address *address
	slots   []*slot // oldest first
	index   int     // position in the heap
}

func newPool(most int) *pool { return &pool{most: most, groups: map[netip.Addr]*group{}} }

// add counts a connection, and returns the connection to close if the pool is too full.
func (p *pool) add(s *slot) (extra *slot) {
	s.pool = p
	p.n++
	g := p.groups[s.from]
	if g == nil {
		g = &group{address: s.address, slots: []*slot{s}}
		p.groups[s.from] = g
		heap.Push(p, g)
	} else {
		g.slots = append(g.slots, s)
		heap.Fix(p, g.index)
	}
	if p.n > p.most {
		extra = p.order[0].slots[0]
	}
	return extra
}

func (p *pool) remove(s *slot) {
	s.pool = nil
	p.n--
	g := p.groups[s.from]
	i := slices.Index(g.slots, s)
	if g.slots = slices.Delete(g.slots, i, i+1); len(g.slots) > 0 {
		heap.Fix(p, g.index)
		return
	}
	heap.Remove(p, g.index)
	delete(p.groups, s.from)
}

// changed restores the order of the heap when an address becomes authenticated.
func (p *pool) changed(from netip.Addr) {
	if g := p.groups[from]; g != nil {
		heap.Fix(p, g.index)
	}
}

// Len and the methods below implement [heap.Interface].
func (p *pool) Len() int { return len(p.order) }

// Less puts the address that loses a connection first: the one with the most connections; among equals,
// one that is not authenticated; among those, the one with the oldest connection. A new connection thus
// has time to identify itself, even if each address has only one.
func (p *pool) Less(i, j int) bool {
	a, b := p.order[i], p.order[j]
	if a.address.authenticated != b.address.authenticated && len(a.slots) == len(b.slots) {
		return b.address.authenticated
	}
	return cmp.Or(len(b.slots)-len(a.slots), cmp.Compare(a.slots[0].number, b.slots[0].number)) < 0
}

func (p *pool) Swap(i, j int) {
	p.order[i], p.order[j] = p.order[j], p.order[i]
	p.order[i].index, p.order[j].index = i, j
}

// Push appends a group.
func (p *pool) Push(g any) {
	g.(*group).index = len(p.order)
	p.order = append(p.order, g.(*group))
}

// Pop removes the last group.
func (p *pool) Pop() any {
	last := p.order[len(p.order)-1]
	p.order[len(p.order)-1] = nil
	p.order = p.order[:len(p.order)-1]
	return last
}
