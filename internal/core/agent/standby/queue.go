package standby

import "sync"

// A queue hands released connections to the dialers, in order. It needs no limit, because Options.Max limits
// the connections. It takes no memory while it is empty, which it is for nearly all of a pod's life.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	list    []released
	closed  bool
}

func newQueue() *queue {
	q := &queue{}
	q.changed.L = &q.mu
	return q
}

func (q *queue) put(r released) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, r)
	q.changed.Signal()
}

// take waits for a connection. It returns false when the queue is closed and empty.
func (q *queue) take() (r released, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 {
		if q.closed {
			return r, false
		}
		q.list = nil
		q.changed.Wait()
	}
	r, q.list = q.list[0], q.list[1:]
	return r, true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}
