package dns

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"outrider.dev/internal/base/wire"
)

// A Resolver resolves names of the mesh. It returns one answer for each name, in the order of names.
type Resolver func(ctx context.Context, names []string) ([]wire.Answer, error)

// A cache keeps the control plane's answers.
type cache struct {
	resolve Resolver
	counts  *counters

	mu      sync.Mutex
	entries map[string]*entry
	weight  int
	flights map[string]*flight
	recheck time.Time // after a failure: no query is sent before this time
}

// An entry is the cached answer for one queried name.
type entry struct {
	answer  wire.Answer
	expires time.Time
}

// maxWeight bounds the memory of a cache to a few megabytes.
const maxWeight = 32 << 10

func (e *entry) weight() int { return 8 + len(e.answer.Addresses) + len(e.answer.Aliases) }

// usable reports whether an expired entry may still be served.
func (e *entry) usable(now time.Time) bool {
	return e != nil && e.answer.Known && now.Before(e.expires.Add(maxStale))
}

// A flight is a query under way, shared by all callers that ask for the same name.
type flight struct {
	done  chan struct{} // closed after the fields below are set
	entry *entry        // nil: the query failed
}

func newCache(r Resolver, c *counters) *cache {
	return &cache{resolve: r, counts: c, entries: map[string]*entry{}, flights: map[string]*flight{}}
}

// lookup resolves name by the first known name among candidates, and returns the answer and its TTL. ok is
// false if the control plane did not answer.
func (c *cache) lookup(ctx context.Context, name string, candidates []string) (a wire.Answer, ttl time.Duration, ok bool) {
	c.mu.Lock()
	now := time.Now()
	had := c.entries[name]
	if had != nil && now.Before(had.expires) {
		c.mu.Unlock()
		c.counts.cached.Add(1)
		return had.answer, had.expires.Sub(now), true
	}
	if now.Before(c.recheck) {
		c.mu.Unlock()
		return c.stale(had, now)
	}
	f := c.flights[name]
	if f == nil && len(c.flights) >= maxQueries {
		c.mu.Unlock()
		return c.stale(had, now)
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[name] = f
		go c.fly(name, candidates, f)
	}
	c.mu.Unlock()
	var enough <-chan time.Time // nil: the flight's own time limit applies
	if had.usable(now) {
		enough = time.After(staleWait)
	}
	select {
	case <-f.done:
	case <-enough:
		return c.stale(had, time.Now())
	case <-ctx.Done():
		return wire.Answer{}, 0, false
	}
	if f.entry == nil {
		return c.stale(had, time.Now())
	}
	return f.entry.answer, f.entry.answer.TTL, true
}

// stale returns an expired answer while there is no fresh one (RFC 8767).
func (c *cache) stale(had *entry, now time.Time) (wire.Answer, time.Duration, bool) {
	if !had.usable(now) {
		return wire.Answer{}, 0, false
	}
	c.counts.stale.Add(1)
	return had.answer, staleTTL, true
}

// fly sends the query. It continues after the first caller's context ends: other callers may share
// it, and the answer is cached.
func (c *cache) fly(name string, candidates []string, f *flight) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	c.counts.queries.Add(1)
	answers, err := c.resolve(ctx, candidates)
	// A retry may succeed: at the pod's start the certificate may follow soon, and a control plane that is
	// being replaced is soon back.
	for pause := firstPause; err != nil && ctx.Err() == nil; pause *= 2 {
		select {
		case <-time.After(pause):
			answers, err = c.resolve(ctx, candidates)
		case <-ctx.Done():
		}
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, name)
	if err != nil {
		c.counts.unanswered.Add(1)
		c.recheck = now.Add(recheck)
	} else {
		c.recheck = time.Time{}
		f.entry = choose(answers, now)
		c.keep(name, f.entry, now)
	}
	close(f.done)
}

// choose returns the first positive answer, or else a negative one with the lowest TTL.
func choose(answers []wire.Answer, now time.Time) *entry {
	var out wire.Answer
	for i, a := range answers {
		if a.Known {
			out = a
			break
		}
		if i == 0 || a.TTL < out.TTL {
			out.TTL = a.TTL
		}
	}
	return &entry{answer: out, expires: now.Add(out.TTL)}
}

// keep adds an entry. If the cache is too large, it evicts expired entries, then random ones: map
// order suffices, since an eviction only costs latency.
func (c *cache) keep(name string, e *entry, now time.Time) {
	c.drop(name)
	c.entries[name] = e
	c.weight += e.weight()
	if c.weight <= maxWeight {
		return
	}
	for other, o := range c.entries {
		if now.After(o.expires) && !o.usable(now) {
			c.drop(other)
		}
	}
	for other := range c.entries {
		if c.weight <= maxWeight {
			return
		}
		if other != name {
			c.drop(other)
		}
	}
}

func (c *cache) drop(name string) {
	if e := c.entries[name]; e != nil {
		c.weight -= e.weight()
		delete(c.entries, name)
	}
}

// clear drops all entries.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.weight = map[string]*entry{}, 0
}

func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// shuffled returns a copy in random order, because applications take the first address.
func shuffled[T any](in []T) []T {
	out := append([]T(nil), in...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
