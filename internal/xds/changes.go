package xds

import "sync"

// changes asks each pair of views once for what differs, for all streams.
type changes struct {
	mu    sync.Mutex // of the list alone, for nanoseconds
	pairs [4]*difference
	next  int
}

// A difference is between two views. Few pairs are kept: each holds on to an old view.
type difference struct {
	old, new View

	once  sync.Once
	by    map[string]Change
	known bool
}

func (c *changes) between(old, view View) (map[string]Change, bool) {
	differ, ok := view.(Differ)
	if !ok {
		return nil, false
	}
	d := c.pair(old, view)
	d.once.Do(func() { d.by, d.known = differ.Since(old) })
	return d.by, d.known
}

func (c *changes) pair(old, view View) *difference {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.pairs {
		if d != nil && d.old == old && d.new == view {
			return d
		}
	}
	d := &difference{old: old, new: view}
	c.pairs[c.next] = d
	c.next = (c.next + 1) % len(c.pairs)
	return d
}
