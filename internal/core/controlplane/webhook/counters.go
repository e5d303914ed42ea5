package webhook

import (
	"maps"
	"sync"
	"time"

	"outrider.dev/internal/core/pod/inject/verdict"
)

// Counters contains the counts since the start of the process.
type Counters struct {
	Reviews  map[verdict.Code]uint64 // number of reviews by outcome
	Duration Histogram
}

// A Histogram counts durations. Bucket i counts durations up to Buckets[i], the last bucket all longer
// durations.
type Histogram struct {
	Counts [len(Buckets) + 1]uint64
	Sum    time.Duration
}

// Buckets are the upper bounds of the buckets in a [Histogram].
var Buckets = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second,
}

type counters struct {
	mu  sync.Mutex
	now Counters
}

func (c *counters) add(code verdict.Code, took time.Duration) {
	i := 0
	for i < len(Buckets) && took > Buckets[i] {
		i++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Reviews == nil {
		c.now.Reviews = map[verdict.Code]uint64{}
	}
	c.now.Reviews[code]++
	c.now.Duration.Counts[i]++
	c.now.Duration.Sum += took
}

func (w *Webhook) Counters() Counters {
	w.counters.mu.Lock()
	defer w.counters.mu.Unlock()
	out := w.counters.now
	out.Reviews = maps.Clone(out.Reviews)
	return out
}
