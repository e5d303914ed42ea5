package mesh

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/process"
)

// A measured is a pair of pods with an Envoy each, and the results of the rounds of a benchmark.
type measured struct {
	client, server *pod
	rate, cpu      []float64 // calls per second, and processor time of both Envoys per call in µs
}

// measure adds a round, in which the function load makes calls and returns their number.
func (m *measured) measure(b *testing.B, load func() int) {
	b.Helper()
	before, began := m.spent(b), time.Now()
	n := load()
	took, after := time.Since(began), m.spent(b)
	m.rate = append(m.rate, float64(n)/took.Seconds())
	m.cpu = append(m.cpu, float64((after-before).Microseconds())/float64(n))
}

// spent returns the processor time that both Envoys have used.
func (m *measured) spent(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, p := range []*pod{m.client, m.server} {
		one := process.Spent(p.envoy.PID())
		if one == 0 {
			b.Fatal(p.envoy.End())
		}
		sum += one
	}
	return sum
}

// during makes calls from concurrent callers for a duration, and returns their number. A call that fails fails the
// benchmark, which ends then.
func during(b *testing.B, callers int, d time.Duration, call func()) int {
	b.Helper()
	end := time.Now().Add(d)
	var n atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) && !b.Failed() {
				call()
				n.Add(1)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return int(n.Load())
}
