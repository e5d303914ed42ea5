package conns

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
)

// A pool has the connections without an identity before their handshake, or after it, by their
// addresses: a heap, whose first address loses its oldest connection when there are too many. It is asked at
// each connection of a flood, from as many addresses as there is room for.
type pool struct {
	most   int
	n      int // connections
	groups map[netip.Addr]*group
	order  []*group // the heap
}

// A group has the connections of one address in a pool.
type group struct {
	address *address
	slots   []*slot // oldest first
	index   int     // in the heap
}

func newPool(most int) *pool { return &pool{most: most, groups: map[netip.Addr]*group{}} }

// add counts a connection, and returns the one that has to be closed for it, if any.
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

// changed is called when an address becomes authenticated.
func (p *pool) changed(from netip.Addr) {
	if g := p.groups[from]; g != nil {
		heap.Fix(p, g.index)
	}
}

// Len is part of [heap.Interface], as are the methods below.
func (p *pool) Len() int { return len(p.order) }

// Less orders by who loses a connection: the address with most; of several one that is not
// authenticated, and of those the one with the oldest connection: a new one has time to identify
// itself, also where each address has one.
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

// Pop removes the last one.
func (p *pool) Pop() any {
	last := p.order[len(p.order)-1]
	p.order[len(p.order)-1] = nil
	p.order = p.order[:len(p.order)-1]
	return last
}
