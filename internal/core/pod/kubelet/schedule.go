package kubelet

import "time"

// A schedule is when the pod's worker begins its next pass. Each time may be never.
// Source: pod_workers.go podWorkerLoop.
type schedule struct {
	wake   time.Duration // a pass is requested for then
	retry  time.Duration // a task failed: try again then
	fresh  time.Duration // no pass begins before, for lack of a fresh look at the containers
	relist time.Duration // the next one that will see something new
	first  time.Duration // pass; the clocks of the probes run since then
	bound  bool          // the pass that waits was requested before the pod was deleted
	passes int           // that have begun; for tests
}

func newSchedule() schedule { return schedule{wake: never, retry: never, relist: never, first: never} }

func (q *schedule) wakeAt(t time.Duration) { q.wake = earlier(q.wake, t) }

func (q *schedule) retryAt(t time.Duration) { q.retry = earlier(q.retry, t) }

// changed: a relist will see something new.
func (q *schedule) changed(relist time.Duration) { q.relist = earlier(q.relist, relist) }

// relisted: what a relist has seen requests a pass. One that waited for this
// relist has begun already, with the new look, and there will be another one.
// Source: pleg/generic.go Relist: the cache is set before the event is sent.
func (q *schedule) relisted(now time.Duration) {
	q.relist = never
	q.wakeAt(now)
}

func (q *schedule) requested() time.Duration { return earlier(q.wake, q.retry) }

// due is when the next pass begins, if none is under way.
func (q *schedule) due() time.Duration {
	if at := q.requested(); at != never {
		return max(at, q.fresh)
	}
	return never
}

// bind notes what the pass that waits is for: if it is due, that is decided already.
func (q *schedule) bind(now time.Duration) { q.bound = isDue(q.requested(), now) }

// unbind: the pass that waits, if one does, is for whatever there is to do then.
func (q *schedule) unbind() { q.bound = false }

// begin begins a pass, for all that was requested until now. It reports whether what the
// pass is for was decided before the pod was deleted.
func (q *schedule) begin(now time.Duration) (bound bool) {
	bound = q.bound
	q.wake, q.retry, q.fresh, q.bound = never, never, 0, false
	if q.first == never {
		q.first = now
	}
	q.passes++
	return bound
}

// end ends a pass: the next one waits for a fresh look.
func (q *schedule) end(fresh time.Duration) { q.fresh = fresh }
