package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/wire"
)

// A fakePlane is a control plane that has one answer.
type fakePlane struct {
	mu     sync.Mutex
	calls  int
	takes  time.Duration
	fault  error
	answer wire.Answer
}

func (p *fakePlane) resolve(ctx context.Context, names []string) ([]wire.Answer, error) {
	p.mu.Lock()
	p.calls++
	takes, fault, answer := p.takes, p.fault, p.answer
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []wire.Answer{answer}, fault
}

func (p *fakePlane) set(change func(*fakePlane)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *fakePlane) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// seen is the result of one look-up, and its duration.
type seen struct {
	First string // the first address; "unknown", or "unanswered"
	TTL   time.Duration
	Took  time.Duration
}

func lookUp(c *cache, name string) seen {
	began := time.Now()
	a, ttl, ok := c.lookup(context.Background(), name, []string{name})
	out := seen{TTL: ttl, Took: time.Since(began)}
	switch {
	case !ok:
		out.First = "unanswered"
	case !a.Known:
		out.First = "unknown"
	case len(a.Addresses) > 0:
		out.First = a.Addresses[0].String()
	}
	return out
}

// inTime runs f with a cache and a control plane on a virtual clock.
func inTime(t *testing.T, f func(*testing.T, *cache, *fakePlane)) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakePlane{takes: time.Millisecond, answer: known("a", "10.0.0.1")}
		f(t, newCache(p.resolve, &counters{}), p)
		time.Sleep(2 * queryTimeout) // queries under way end in this time
	})
}

func want(t *testing.T, what string, got, want seen) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const ms = time.Millisecond

func TestAnswersAreCachedForTheirTTL(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		want(t, "first", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
		p.set(func(p *fakePlane) { p.answer = known("a", "10.0.0.2") })
		time.Sleep(29 * time.Second)
		want(t, "a second before it expires", lookUp(c, "a"), seen{"10.0.0.1", time.Second, 0})
		time.Sleep(time.Second)
		want(t, "after it has expired", lookUp(c, "a"), seen{"10.0.0.2", 30 * time.Second, ms})
		if p.count() != 2 {
			t.Errorf("%d calls, want 2", p.count())
		}
	})
}

func TestANegativeAnswerExpiresSoon(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.answer = wire.Answer{TTL: 5 * time.Second} })
		want(t, "first", lookUp(c, "a"), seen{"unknown", 5 * time.Second, ms})
		p.set(func(p *fakePlane) { p.answer = known("a", "10.0.0.1") })
		time.Sleep(4 * time.Second)
		want(t, "before it expires", lookUp(c, "a"), seen{"unknown", time.Second, 0})
		time.Sleep(time.Second)
		want(t, "after it has expired", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
	})
}

func TestEqualQueriesShareOneFlight(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.takes = 500 * ms })
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { want(t, "one of a hundred", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 500 * ms}) })
		}
		all.Wait()
		if p.count() != 1 {
			t.Errorf("%d calls, want 1", p.count())
		}
	})
}

func TestACancelledCallerDoesNotEndTheQuery(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.takes = 500 * ms })
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		go c.lookup(ctx, "a", []string{"a"})
		time.Sleep(200 * ms)
		want(t, "a later caller", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 300 * ms})
	})
}

func TestAControlPlaneWithoutAnAnswer(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.takes = time.Hour })
		want(t, "the first waits", lookUp(c, "a"), seen{"unanswered", 0, queryTimeout})
		want(t, "the next does not", lookUp(c, "b"), seen{"unanswered", 0, 0})
		time.Sleep(recheck)
		p.set(func(p *fakePlane) { p.takes = ms })
		want(t, "it is queried again", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
	})
}

func TestAFailedQueryIsRepeated(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.fault = errors.New("no certificate yet") })
		go func() {
			time.Sleep(100 * ms)
			p.set(func(p *fakePlane) { p.fault = nil })
		}()
		// Calls begin at 0, and 25, 50 and 100 ms after each failed call. A call takes 1 ms.
		want(t, "the first", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 179 * ms})
	})
}

func TestStaleAnswersWithoutAControlPlane(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		lookUp(c, "a")
		p.set(func(p *fakePlane) { p.fault = errors.New("connection refused") })
		time.Sleep(31 * time.Second)
		want(t, "the first waits briefly", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, staleWait})
		time.Sleep(queryTimeout)
		want(t, "the next does not wait", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, 0})
		time.Sleep(maxStale - time.Minute)
		want(t, "much later", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, staleWait})
		time.Sleep(time.Minute)
		want(t, "after an hour", lookUp(c, "a"), seen{"unanswered", 0, queryTimeout})
		p.set(func(p *fakePlane) { p.fault, p.answer = nil, known("a", "10.0.0.9") })
		time.Sleep(recheck)
		want(t, "after the fault", lookUp(c, "a"), seen{"10.0.0.9", 30 * time.Second, ms})
	})
}

func TestTheCacheIsBounded(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		many := known("a")
		for range wire.MaxAddresses {
			many.Addresses = append(many.Addresses, netip.MustParseAddr("10.0.0.1"))
		}
		for i := range 6000 {
			if i == 3000 {
				p.set(func(p *fakePlane) { p.answer = many })
			}
			if i < 3000 || i%100 == 0 {
				lookUp(c, fmt.Sprint("a", i))
			}
			sum := 0
			for _, e := range c.entries {
				sum += e.weight()
			}
			if sum != c.weight || sum > maxWeight {
				t.Fatalf("after %d names: weight %d, counted as %d; at most %d", i, sum, c.weight, maxWeight)
			}
		}
		if len(c.entries) < 20 {
			t.Errorf("only %d names are cached", len(c.entries))
		}
	})
}

func TestExpiredEntriesAreEvictedFirst(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, p *fakePlane) {
		p.set(func(p *fakePlane) { p.answer = wire.Answer{TTL: 5 * time.Second} })
		for i := range 3000 {
			lookUp(c, fmt.Sprint("gone", i))
		}
		time.Sleep(10 * time.Second)
		p.set(func(p *fakePlane) { p.answer = known("a", "10.0.0.1") })
		for i := range 1500 {
			lookUp(c, fmt.Sprint("new", i))
		}
		for i := range 1500 {
			if c.entries[fmt.Sprint("new", i)] == nil {
				t.Fatalf("new%d was evicted before an expired entry", i)
			}
		}
	})
}
