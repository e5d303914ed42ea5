package podupgrade

import (
	"slices"
	"sync"
)

// A queue hands out candidates in order. At most a quarter of the pods of a workload are handed out at the same time
// (or one, if that is more), so that the other pods can serve requests meanwhile. A quarter is also a Deployment's
// default for unavailable pods.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	due     []Candidate
	room    map[string]int // number of further candidates that may be handed out, by workload
	stopped bool
}

// newQueue returns a queue of the candidates in due. The candidates in all determine the size of each workload.
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

// next waits for a candidate that may be replaced now. It returns false if there is none left, or after a call of
// [queue.stop].
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

// done records that the replacement of a candidate has ended, so that another candidate of its workload may follow.
func (q *queue) done(c Candidate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room[c.workload]++
	q.changed.Broadcast()
}

// stop causes [queue.next] to return no further candidates.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	q.changed.Broadcast()
}
