package kubelet

import "time"

// A schedule determines when the pod's worker begins its next pass. Each of its times may be [never]. Source:
// pod_workers.go podWorkerLoop.
type schedule struct {
	wake   time.Duration // time for which a pass is requested
	retry  time.Duration // time of the pass that repeats a failed task
	fresh  time.Duration // no pass begins before this time, when the next relist reads the containers' state
	relist time.Duration // time of the next relist that will see a change
	first  time.Duration // time of the first pass, from which the periods of probes count
	bound  bool          // the pending pass was requested before the pod was deleted, and the deletion does not change it
	passes int           // passes that have begun; for tests
}

func newSchedule() schedule { return schedule{wake: never, retry: never, relist: never, first: never} }

func (q *schedule) wakeAt(t time.Duration) { q.wake = earlier(q.wake, t) }

func (q *schedule) retryAt(t time.Duration) { q.retry = earlier(q.retry, t) }

// changed records that the relist at the given time will see a change.
func (q *schedule) changed(relist time.Duration) { q.relist = earlier(q.relist, relist) }

// relisted requests a pass because a relist has seen a change. If a pass was waiting for this relist, that pass
// has already begun with the new data, and relisted requests another one. Source: pleg/generic.go Relist: the
// cache is set before the event is sent.
func (q *schedule) relisted(now time.Duration) {
	q.relist = never
	q.wakeAt(now)
}

func (q *schedule) requested() time.Duration { return earlier(q.wake, q.retry) }

// due returns the time at which the next pass begins, if none is under way. It returns [never] if none is
// requested.
func (q *schedule) due() time.Duration {
	if at := q.requested(); at != never {
		return max(at, q.fresh)
	}
	return never
}

// bind records that a deletion does not change the pending pass, if the pass is already due.
func (q *schedule) bind(now time.Duration) { q.bound = isDue(q.requested(), now) }

// unbind allows a deletion to change the pending pass, if there is one.
func (q *schedule) unbind() { q.bound = false }

// begin begins a pass, which serves all requests so far. It returns whether that pass was requested before the
// pod was deleted.
func (q *schedule) begin(now time.Duration) (bound bool) {
	bound = q.bound
	q.wake, q.retry, q.fresh, q.bound = never, never, 0, false
	if q.first == never {
		q.first = now
	}
	q.passes++
	return bound
}

// end ends a pass. The next pass waits until the containers' state is read again, at the time fresh.
func (q *schedule) end(fresh time.Duration) { q.fresh = fresh }
