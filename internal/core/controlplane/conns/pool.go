package conns

import (
	"cmp"
	"net/netip"
	"slices"
)

// A pool contains the connections without an identity, before or after their handshake.
type pool struct {
	most  int
	n     int                    // number of connections
	slots map[netip.Addr][]*slot // connections by address, the oldest first
}

func newPool(most int) *pool { return &pool{most: most, slots: map[netip.Addr][]*slot{}} }

func (p *pool) add(s *slot) {
	s.pool = p
	p.n++
	p.slots[s.from] = append(p.slots[s.from], s)
}

func (p *pool) remove(s *slot) {
	s.pool = nil
	p.n--
	all := p.slots[s.from]
	i := slices.Index(all, s)
	if p.slots[s.from] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(p.slots, s.from)
	}
}

// excess returns the connections to close if the pool is too full. It takes the oldest connection of the
// address with the most, and so on. Among addresses with the same number, it takes those first that are not
// authenticated, and among these the oldest connection; so a new connection has time to identify itself even
// if each address has only one. It also takes another sixteenth of the pool, because in a flood it is called
// again and again, with thousands of addresses.
func (p *pool) excess() []*slot {
	if p.n <= p.most {
		return nil
	}
	type ranked struct {
		*slot
		rank int // position among the connections of its address; the newest has 1
	}
	all := make([]ranked, 0, p.n)
	for _, slots := range p.slots { // any order: sorted below
		for i, s := range slots {
			all = append(all, ranked{s, len(slots) - i})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(b.rank-a.rank, a.address.queue()-b.address.queue(), cmp.Compare(a.number, b.number))
	})
	var out []*slot
	for _, s := range all[:p.n-p.most+p.most/16] {
		out = append(out, s.slot)
	}
	return out
}
