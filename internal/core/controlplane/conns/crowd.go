package conns

import (
	"cmp"
	"container/heap"
	"slices"
)

// A crowd is the connections without an identity before their handshake, or after it, by their
// addresses: a heap, whose first address loses its oldest connection when there are too many.
type crowd struct {
	after   bool // the handshake
	most    int
	n       int // connections
	origins []*origin
}

// A group is the connections of one address in a crowd.
type group struct {
	places []*place // oldest first
	index  int      // in the heap
}

func (c *crowd) of(o *origin) *group {
	if c.after {
		return &o.after
	}
	return &o.before
}

// add counts a connection, and returns the one that has to be closed for it, if any.
func (c *crowd) add(p *place) (extra *place) {
	p.crowd = c
	c.n++
	g := c.of(p.origin)
	g.places = append(g.places, p)
	if len(g.places) == 1 {
		heap.Push(c, p.origin)
	} else {
		heap.Fix(c, g.index)
	}
	if c.n > c.most {
		extra = c.of(c.origins[0]).places[0]
	}
	return extra
}

func (c *crowd) remove(p *place) {
	p.crowd = nil
	c.n--
	g := c.of(p.origin)
	i := slices.Index(g.places, p)
	g.places = slices.Delete(g.places, i, i+1)
	if len(g.places) == 0 {
		heap.Remove(c, g.index)
	} else {
		heap.Fix(c, g.index)
	}
}

// changed is called when an origin becomes known.
func (c *crowd) changed(o *origin) {
	if g := c.of(o); len(g.places) > 0 {
		heap.Fix(c, g.index)
	}
}

// Len is part of [heap.Interface], as are the methods below.
func (c *crowd) Len() int { return len(c.origins) }

// Less orders by who loses a connection: the address with most; of several one that is not
// known, and of those the one with the oldest connection: a new one has time to identify itself,
// also where each address has one.
func (c *crowd) Less(i, j int) bool {
	a, b := c.origins[i], c.origins[j]
	of, than := c.of(a).places, c.of(b).places
	known := func(o *origin) int {
		if o.known {
			return 1
		}
		return 0
	}
	return cmp.Or(len(than)-len(of), known(a)-known(b), cmp.Compare(of[0].number, than[0].number)) < 0
}

func (c *crowd) Swap(i, j int) {
	c.origins[i], c.origins[j] = c.origins[j], c.origins[i]
	c.of(c.origins[i]).index, c.of(c.origins[j]).index = i, j
}

// Push appends an origin.
func (c *crowd) Push(o any) {
	c.of(o.(*origin)).index = len(c.origins)
	c.origins = append(c.origins, o.(*origin))
}

// Pop removes the last one.
func (c *crowd) Pop() any {
	last := c.origins[len(c.origins)-1]
	c.origins[len(c.origins)-1] = nil
	c.origins = c.origins[:len(c.origins)-1]
	return last
}
