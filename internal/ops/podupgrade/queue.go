package podupgrade

import (
	"slices"
	"sync"
)

// A queue gives out candidates in their order, but at a time no more than a quarter of the pods of
// a workload, or one: the callers of a service wait while none of its pods is ready. A quarter is
// what a Deployment has unavailable by default.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	due     []Candidate
	room    map[string]int // by workload: how many more may be given out
	stopped bool
}

// newQueue makes one of those that are due among all.
func newQueue(all, due []Candidate) *queue {
	q := &queue{due: slices.Clone(due), room: map[string]int{}}
	q.changed = sync.NewCond(&q.mu)
	for _, c := range all {
		q.room[c.workload]++
	}
	for w, n := range q.room { // any order: each is set for itself
		q.room[w] = max(1, n/4)
	}
	return q
}

// next waits for a candidate that may be replaced now. There is none after stop.
func (q *queue) next() (c Candidate, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; !q.stopped && len(q.due) > 0; q.changed.Wait() {
		i := slices.IndexFunc(q.due, func(c Candidate) bool { return q.room[c.workload] > 0 })
		if i < 0 {
			continue
		}
		c = q.due[i]
		q.due = slices.Delete(q.due, i, i+1)
		q.room[c.workload]--
		return c, true
	}
	return c, false
}

// done says that a candidate needs its place no more.
func (q *queue) done(c Candidate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room[c.workload]++
	q.changed.Broadcast()
}

// stop keeps what is left.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}
