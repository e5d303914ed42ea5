package xds

import "sync"

// A diffCache computes the difference between two snapshots once for all streams.
type diffCache struct {
	mu    sync.Mutex // protects only the list, and is held for nanoseconds
	diffs [4]*diff
	next  int
}

// A diff is the difference between two snapshots. Only few are cached, because each keeps an old
// snapshot in memory.
type diff struct {
	old, new Snapshot

	once    sync.Once
	changes map[string]Change
	known   bool
}

func (c *diffCache) between(old, new Snapshot) (changes map[string]Change, known bool) {
	d := c.get(old, new)
	d.once.Do(func() { d.changes, d.known = new.Diff(old) })
	return d.changes, d.known
}

func (c *diffCache) get(old, new Snapshot) *diff {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.diffs {
		if d != nil && d.old == old && d.new == new {
			return d
		}
	}
	d := &diff{old: old, new: new}
	c.diffs[c.next] = d
	c.next = (c.next + 1) % len(c.diffs)
	return d
}
