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

	"outrider.dev/internal/wire"
)

// A desk is a control plane of a test.
type desk struct {
	mu     sync.Mutex
	asked  int
	takes  time.Duration
	fault  error
	answer wire.Answer
}

func (d *desk) resolve(ctx context.Context, names []string) ([]wire.Answer, error) {
	d.mu.Lock()
	d.asked++
	takes, fault, answer := d.takes, d.fault, d.answer
	d.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []wire.Answer{answer}, fault
}

func (d *desk) set(change func(*desk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// seen is what came of one look-up, and how long it took.
type seen struct {
	First string // its first address; "unknown", or "unanswered"
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

// inTime runs f with a cache and a desk on a virtual clock.
func inTime(t *testing.T, f func(*testing.T, *cache, *desk)) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{takes: time.Millisecond, answer: known("a", "10.0.0.1")}
		f(t, newCache(d.resolve, &counters{}), d)
		time.Sleep(2 * patience) // questions on their way end
	})
}

func want(t *testing.T, what string, got, want seen) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const ms = time.Millisecond

func TestAnswersAreKeptForTheirTime(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		want(t, "at first", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
		d.set(func(d *desk) { d.answer = known("a", "10.0.0.2") })
		time.Sleep(29 * time.Second)
		want(t, "a second before its end", lookUp(c, "a"), seen{"10.0.0.1", time.Second, 0})
		time.Sleep(time.Second)
		want(t, "a change, after its time", lookUp(c, "a"), seen{"10.0.0.2", 30 * time.Second, ms})
		if d.count() != 2 {
			t.Errorf("asked %d times, want 2", d.count())
		}
	})
}

func TestANegativeAnswerExpiresSoon(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.answer = wire.Answer{TTL: 5 * time.Second} })
		want(t, "at first", lookUp(c, "a"), seen{"unknown", 5 * time.Second, ms})
		d.set(func(d *desk) { d.answer = known("a", "10.0.0.1") })
		time.Sleep(4 * time.Second)
		want(t, "within its time", lookUp(c, "a"), seen{"unknown", time.Second, 0})
		time.Sleep(time.Second)
		want(t, "after it", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
	})
}

func TestEqualQueriesShareOneFlight(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.takes = 500 * ms })
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { want(t, "one of many", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 500 * ms}) })
		}
		all.Wait()
		if d.count() != 1 {
			t.Errorf("asked %d times, want once", d.count())
		}
	})
}

func TestACancelledCallerDoesNotEndTheQuery(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.takes = 500 * ms })
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		go c.lookup(ctx, "a", []string{"a"})
		time.Sleep(200 * ms)
		want(t, "who came later", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 300 * ms})
	})
}

func TestAControlPlaneThatIsSilent(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.takes = time.Hour })
		want(t, "the first waits so long", lookUp(c, "a"), seen{"unanswered", 0, patience})
		want(t, "the next does not wait", lookUp(c, "b"), seen{"unanswered", 0, 0})
		time.Sleep(recheck)
		d.set(func(d *desk) { d.takes = ms })
		want(t, "it is asked again", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, ms})
	})
}

func TestAControlPlaneThatComesInAMoment(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.fault = errors.New("no certificate yet") })
		go func() {
			time.Sleep(100 * ms)
			d.set(func(d *desk) { d.fault = nil })
		}()
		// Asked at 0, and 25, 50, 100 ms after each failure, which takes 1 ms.
		want(t, "the first", lookUp(c, "a"), seen{"10.0.0.1", 30 * time.Second, 179 * ms})
	})
}

func TestOldAnswersWhileTheControlPlaneIsGone(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		lookUp(c, "a")
		d.set(func(d *desk) { d.fault = errors.New("connection refused") })
		time.Sleep(31 * time.Second)
		want(t, "the first does not wait for long", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, impatience})
		time.Sleep(patience)
		want(t, "the next not at all", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, 0})
		time.Sleep(stale - time.Minute)
		want(t, "much later", lookUp(c, "a"), seen{"10.0.0.1", staleTTL, impatience})
		time.Sleep(time.Minute)
		want(t, "after its last hour", lookUp(c, "a"), seen{"unanswered", 0, patience})
		d.set(func(d *desk) { d.fault, d.answer = nil, known("a", "10.0.0.9") })
		time.Sleep(recheck)
		want(t, "when it is back", lookUp(c, "a"), seen{"10.0.0.9", 30 * time.Second, ms})
	})
}

func TestTheMemoryIsBounded(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		many := known("a")
		for range wire.MaxAddresses {
			many.Addresses = append(many.Addresses, netip.MustParseAddr("10.0.0.1"))
		}
		for i := range 6000 {
			if i == 3000 {
				d.set(func(d *desk) { d.answer = many })
			}
			if i < 3000 || i%100 == 0 {
				lookUp(c, fmt.Sprint("a", i))
			}
			sum := 0
			for _, e := range c.entries {
				sum += e.weight()
			}
			if sum != c.weight || sum > maxWeight {
				t.Fatalf("after %d names: weight %d, kept as %d; at most %d", i, sum, c.weight, maxWeight)
			}
		}
		if len(c.entries) < 20 {
			t.Errorf("only %d names are kept", len(c.entries))
		}
	})
}

func TestWhatIsTooOldGoesFirst(t *testing.T) {
	inTime(t, func(t *testing.T, c *cache, d *desk) {
		d.set(func(d *desk) { d.answer = wire.Answer{TTL: 5 * time.Second} })
		for i := range 3000 {
			lookUp(c, fmt.Sprint("gone", i))
		}
		time.Sleep(10 * time.Second)
		d.set(func(d *desk) { d.answer = known("a", "10.0.0.1") })
		for i := range 1500 {
			lookUp(c, fmt.Sprint("new", i))
		}
		for i := range 1500 {
			if c.entries[fmt.Sprint("new", i)] == nil {
				t.Fatalf("new%d was dropped for one whose time is up", i)
			}
		}
	})
}
