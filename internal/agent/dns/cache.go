package dns

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"outrider.dev/internal/wire"
)

// A Resolver resolves names of the mesh: one answer for each, in their order.
type Resolver func(ctx context.Context, names []string) ([]wire.Answer, error)

// A cache keeps what the control plane said.
type cache struct {
	resolve Resolver
	counts  *counters

	mu      sync.Mutex
	entries map[string]*entry
	weight  int
	flights map[string]*flight
	recheck time.Time // it failed: no query before
}

// An entry is the answer for one name as it was queried.
type entry struct {
	answer wire.Answer
	until  time.Time
}

// maxWeight bounds the memory of a cache, to some megabytes.
const maxWeight = 32 << 10

func (e *entry) weight() int { return 8 + len(e.answer.Addresses) + len(e.answer.Aliases) }

// does says whether an entry whose time is up is still better than none.
func (e *entry) does(now time.Time) bool {
	return e != nil && e.answer.Known && now.Before(e.until.Add(stale))
}

// A flight is a query under way. Equal queries wait for it, too.
type flight struct {
	done  chan struct{} // closed after the fields below are set
	entry *entry        // nil: it failed
}

func newCache(r Resolver, c *counters) *cache {
	return &cache{resolve: r, counts: c, entries: map[string]*entry{}, flights: map[string]*flight{}}
}

// lookup returns what name stands for, asking for the candidates in their order, and for
// how long it may be kept. False: it is not known now; it may be of the mesh or not.
func (c *cache) lookup(ctx context.Context, name string, candidates []string) (wire.Answer, time.Duration, bool) {
	c.mu.Lock()
	now := time.Now()
	had := c.entries[name]
	if had != nil && now.Before(had.until) {
		c.mu.Unlock()
		c.counts.cached.Add(1)
		return had.answer, had.until.Sub(now), true
	}
	if now.Before(c.recheck) {
		c.mu.Unlock()
		return c.old(had, now)
	}
	f := c.flights[name]
	if f == nil && len(c.flights) >= maxQuestions {
		c.mu.Unlock()
		return c.old(had, now)
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[name] = f
		go c.fly(name, candidates, f)
	}
	c.mu.Unlock()
	var enough <-chan time.Time // a flight ends by itself
	if had.does(now) {
		enough = time.After(impatience)
	}
	select {
	case <-f.done:
	case <-enough:
		return c.old(had, time.Now())
	case <-ctx.Done():
		return wire.Answer{}, 0, false
	}
	if f.entry == nil {
		return c.old(had, time.Now())
	}
	return f.entry.answer, f.entry.answer.TTL, true
}

// old is an answer whose time is up, while there is no better one (RFC 8767).
func (c *cache) old(had *entry, now time.Time) (wire.Answer, time.Duration, bool) {
	if !had.does(now) {
		return wire.Answer{}, 0, false
	}
	c.counts.stale.Add(1)
	return had.answer, staleTTL, true
}

// fly sends the query. It is not tied to the first caller: others may wait, and the answer is
// good for the next.
func (c *cache) fly(name string, candidates []string, f *flight) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.counts.asked.Add(1)
	answers, err := c.resolve(ctx, candidates)
	// At the pod's start the certificate may come in a moment, and a control plane that is
	// replaced is back in another.
	for pause := again; err != nil && ctx.Err() == nil; pause *= 2 {
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

// choose takes the first answer of a name that is known; if none is, that.
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
	return &entry{answer: out, until: now.Add(out.TTL)}
}

// keep adds an entry. If the cache is too large, it evicts expired entries, then random
// ones: map order is a good enough choice, and no answer depends on it but by its latency.
func (c *cache) keep(name string, e *entry, now time.Time) {
	c.drop(name)
	c.entries[name] = e
	c.weight += e.weight()
	if c.weight <= maxWeight {
		return
	}
	for other, o := range c.entries {
		if now.After(o.until) && !o.does(now) {
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

// forget drops everything: what a name is completed to has changed.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.weight = map[string]*entry{}, 0
}

func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// shuffled is a copy in another order: apps take the first.
func shuffled[T any](in []T) []T {
	out := append([]T(nil), in...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
