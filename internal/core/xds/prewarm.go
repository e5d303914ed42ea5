package xds

import (
	"cmp"
	"maps"
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

// A prewarmEntry has the names of one workload, and when each was used.
type prewarmEntry struct {
	names  map[string]uint64
	sorted []string // names; nil: not sorted since one was added
	used   uint64
}

// NewPrewarmCache returns an empty cache.
func NewPrewarmCache() *PrewarmCache {
	return &PrewarmCache{maxWorkloads: 5000, maxOfAccount: 256, maxNames: 256, entries: map[Workload]*prewarmEntry{}}
}

// Get returns the clusters of a workload, sorted. All callers share them: they must not be changed.
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

// Add notes that a workload uses clusters.
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
