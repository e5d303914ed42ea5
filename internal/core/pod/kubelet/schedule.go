package kubelet

import "time"

// A schedule says when the pod's worker begins its next pass. Each of its times may be never.
// Source: pod_workers.go podWorkerLoop.
type schedule struct {
	wake   time.Duration // a pass is requested for this time
	retry  time.Duration // a task failed: try again at this time
	fresh  time.Duration // no pass begins earlier, because the look at the containers is outdated
	relist time.Duration // the next relist that will see something new
	first  time.Duration // the first pass, from which the clocks of the probes run
	bound  bool          // the waiting pass was requested before the pod was deleted
	passes int           // passes that have begun; for tests
}

func newSchedule() schedule { return schedule{wake: never, retry: never, relist: never, first: never} }

func (q *schedule) wakeAt(t time.Duration) { q.wake = earlier(q.wake, t) }

func (q *schedule) retryAt(t time.Duration) { q.retry = earlier(q.retry, t) }

// changed records that the given relist will see something new.
func (q *schedule) changed(relist time.Duration) { q.relist = earlier(q.relist, relist) }

// relisted requests a pass because a relist has seen something new. A pass that waited for this relist has
// already begun with the new look, and another pass follows.
// Source: pleg/generic.go Relist: the cache is set before the event is sent.
func (q *schedule) relisted(now time.Duration) {
	q.relist = never
	q.wakeAt(now)
}

func (q *schedule) requested() time.Duration { return earlier(q.wake, q.retry) }

// due returns when the next pass begins if none is under way.
func (q *schedule) due() time.Duration {
	if at := q.requested(); at != never {
		return max(at, q.fresh)
	}
	return never
}

// bind fixes the purpose of the waiting pass if that pass is already due.
func (q *schedule) bind(now time.Duration) { q.bound = isDue(q.requested(), now) }

// unbind lets the waiting pass, if there is one, decide when it begins what to do.
func (q *schedule) unbind() { q.bound = false }

// begin begins a pass, for everything requested until now. It reports whether the purpose of the pass was
// fixed before the pod was deleted.
func (q *schedule) begin(now time.Duration) (bound bool) {
	bound = q.bound
	q.wake, q.retry, q.fresh, q.bound = never, never, 0, false
	if q.first == never {
		q.first = now
	}
	q.passes++
	return bound
}

// end ends a pass. The next one waits for a fresh look at the containers.
func (q *schedule) end(fresh time.Duration) { q.fresh = fresh }
