package podupgrade

import (
	"slices"
	"sync"
)

// A queue hands out candidates in order. At any time at most a quarter of a workload's pods are handed
// out, but at least one, because callers of a service must wait while none of its pods is ready. A
// Deployment's default for unavailable pods is a quarter too.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	due     []Candidate
	room    map[string]int // by workload: how many more candidates may be handed out
	stopped bool
}

// newQueue returns a queue of the due candidates; all determines the size of each workload.
func newQueue(all, due []Candidate) *queue {
	q := &queue{due: slices.Clone(due), room: map[string]int{}}
	q.changed = sync.NewCond(&q.mu)
	for _, c := range all {
		q.room[c.workload]++
	}
	for w, n := range q.room { // any order: the entries are independent
		q.room[w] = max(1, n/4)
	}
	return q
}

// next waits for a candidate that may be replaced now. After stop it returns none.
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

// done gives back the slot of a candidate.
func (q *queue) done(c Candidate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room[c.workload]++
	q.changed.Broadcast()
}

// stop hands out no further candidates.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}
