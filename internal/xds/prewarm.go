package xds

import (
	"slices"
	"sync"
)

// A PrewarmCache holds the clusters that the pods of each workload subscribed to, so that
// its next pod gets them with the first response. Proxies that reconnect subscribe again
// and so fill the cache of a control plane that starts.
type PrewarmCache struct {
	maxWorkloads int // the least recently used one is evicted
	maxOfAccount int // workloads of one service account, which names them itself; likewise
	maxNames     int // of one workload; likewise

	mu      sync.Mutex
	entries map[Workload]*prewarmEntry
	clock   uint64
}

// A prewarmEntry has the names of one workload, the most recently used last.
type prewarmEntry struct {
	names []string
	used  uint64
}

// NewPrewarmCache returns an empty cache.
func NewPrewarmCache() *PrewarmCache {
	return &PrewarmCache{maxWorkloads: 5000, maxOfAccount: 256, maxNames: 256, entries: map[Workload]*prewarmEntry{}}
}

// Get returns the clusters of a workload, sorted.
func (c *PrewarmCache) Get(w Workload) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[w]
	if e == nil {
		return nil
	}
	c.clock++
	e.used = c.clock
	return slices.Sorted(slices.Values(e.names))
}

// Add notes that a workload uses clusters.
func (c *PrewarmCache) Add(w Workload, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[w]
	if e == nil {
		sameAccount := func(x Workload) bool { return x.Namespace == w.Namespace && x.ServiceAccount == w.ServiceAccount }
		c.evict(c.maxOfAccount, sameAccount)
		c.evict(c.maxWorkloads, func(Workload) bool { return true })
		e = &prewarmEntry{}
		c.entries[w] = e
	}
	c.clock++
	e.used = c.clock
	for _, name := range names {
		if i := slices.Index(e.names, name); i >= 0 {
			e.names = slices.Delete(e.names, i, i+1)
		}
		e.names = append(e.names, name)
	}
	if over := len(e.names) - c.maxNames; over > 0 {
		e.names = slices.Delete(e.names, 0, over)
	}
}

// evict makes room for one workload of some, of which there may be most.
func (c *PrewarmCache) evict(most int, of func(Workload) bool) {
	var oldest Workload
	n, least := 0, uint64(0)
	for w, e := range c.entries {
		if !of(w) {
			continue
		}
		n++
		if least == 0 || e.used < least {
			oldest, least = w, e.used
		}
	}
	if n >= most {
		delete(c.entries, oldest)
	}
}
