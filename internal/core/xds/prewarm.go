package xds

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// A PrewarmCache records the clusters to which the pods of each workload subscribed, so that its next
// pod gets them with the first response. Proxies that reconnect subscribe again, and thus fill the
// cache of a control plane that starts.
type PrewarmCache struct {
	maxWorkloads int // beyond it the least recently used one is evicted
	maxOfAccount int // workloads of one service account, whose pods choose the names; the least recently used one is evicted
	maxNames     int // names of one workload; the least recently used one is evicted

	mu      sync.Mutex
	entries map[Workload]*prewarmEntry
	clock   uint64
}

// A prewarmEntry contains the names of one workload, and when each was last used.
type prewarmEntry struct {
	names  map[string]uint64
	sorted []string // the names in order; nil: they must be sorted again
	used   uint64
}

// NewPrewarmCache returns an empty cache.
func NewPrewarmCache() *PrewarmCache {
	return &PrewarmCache{maxWorkloads: 5000, maxOfAccount: 256, maxNames: 256, entries: map[Workload]*prewarmEntry{}}
}

// Get returns the clusters of a workload, sorted. Callers share the slice and must not change it.
func (c *PrewarmCache) Get(w Workload) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[w]
	if e == nil {
		return nil
	}
	c.clock++
	e.used = c.clock
	if e.sorted == nil {
		e.sorted = slices.Sorted(maps.Keys(e.names))
	}
	return e.sorted
}

// Add records that a workload uses clusters.
func (c *PrewarmCache) Add(w Workload, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[w]
	if e == nil {
		sameAccount := func(x Workload) bool { return x.Namespace == w.Namespace && x.ServiceAccount == w.ServiceAccount }
		c.evict(c.maxOfAccount, sameAccount)
		c.evict(c.maxWorkloads, func(Workload) bool { return true })
		e = &prewarmEntry{names: map[string]uint64{}}
		c.entries[w] = e
	}
	for _, name := range names {
		if _, ok := e.names[name]; !ok {
			e.sorted = nil
		}
		c.clock++
		e.names[name] = c.clock
	}
	c.clock++
	e.used = c.clock
	if over := len(e.names) - c.maxNames; over > 0 {
		oldest := slices.SortedFunc(maps.Keys(e.names), func(a, b string) int { return cmp.Compare(e.names[a], e.names[b]) })
		for _, name := range oldest[:over] {
			delete(e.names, name)
		}
	}
}

// evict counts the workloads that a function selects. If their number has reached the limit, it removes
// the least recently used one of them.
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
