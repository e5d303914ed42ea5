package kubelet

import "time"

// A worker does one thing after the other for its pod: it runs passes (SyncPod),
// each of which works off a list of tasks and may block in the middle.
// Source: pod_workers.go podWorkerLoop.
type worker struct {
	mode  mode
	tasks []task        // what is left of the pass under way; the first may have begun
	wake  time.Duration // the next pass is due then; never: none is
	fresh time.Duration // and cannot begin before, for lack of a fresh look at the containers
	retry time.Duration // a task failed: try again then
	acted bool          // the pass under way changed something that a relist will see
	bound bool          // the pass that waits was requested before the pod was deleted
}

type mode int

const (
	idle        mode = iota // between two passes
	syncing                 // in a pass
	terminating             // in the pass that stops the pod for good
	done
)

// An ending is how far the end of a pod has come. Each step is a pass of its own,
// and waits for a fresh look at the containers.
// Source: pod_workers.go podWorkerLoop, completeSync, completeTerminating.
type ending int

const (
	living  ending = iota
	over           // nothing more is to run: the next pass stops what does
	stopped        // nothing runs: the next pass is the last
)

// A task is one step of a pass.
type task struct {
	kind  taskKind
	i     int // the container; 0 if the task has none
	begun bool
}

type taskKind int

const (
	killPod   taskKind = iota // stop all that runs
	killOne                   // stop container i
	makeBox                   // create the sandbox
	startInit                 // start container i; if that fails, give the pass up
	startOne                  // start container i; if that fails, go on
)

// Retry is how long the worker waits after a pass in which something failed.
// Real kubelets add up to a half. Source: kubelet.go backOffPeriod.
const Retry = 10 * time.Second

// resync bounds the wait for the end of a back-off. Source: kubelet.go resyncInterval.
const resync = time.Minute

// wakeAt requests a pass at t.
func (s *State) wakeAt(t time.Duration) { s.worker.wake = earlier(s.worker.wake, t) }

// wakeTime is when the next pass begins; never while one runs.
func (s *State) wakeTime() time.Duration {
	if s.worker.mode != idle {
		return never
	}
	at := earlier(s.worker.wake, s.worker.retry)
	if at == never {
		return never
	}
	return max(at, s.worker.fresh)
}

// changed notes that something is new in the runtime: the next relist sees it.
func (s *State) changed() { s.relist = earlier(s.relist, s.spec.version.relistAfter(s.now)) }

// relisted: what a relist has seen requests a pass. One that waited for this
// relist has begun already, with the new look, and there will be another one.
// Source: pleg/generic.go Relist: the cache is set before the event is sent.
func (s *State) relisted() {
	s.relist = never
	s.wakeAt(s.now)
}

// beginPass publishes the status and decides what to do; a deleted pod, and one
// that is over, is stopped for good instead.
// Source: kubelet.go SyncPod, SyncTerminatingPod, SyncTerminatedPod.
func (s *State) beginPass() {
	s.passes++
	bound := s.worker.bound
	s.worker = worker{mode: syncing, wake: never, retry: never}
	if s.ending == stopped {
		s.endPod()
		return
	}
	if s.probing == never {
		s.probing = s.now
	}
	s.publish()
	for i := range s.c {
		s.c[i].known = s.c[i].finishedAt
	}
	switch {
	case bound:
		s.wakeAt(s.now)
		s.worker.tasks = s.decide()
	case s.deleted != never || s.ending == over:
		s.beginTerminating()
		return
	case s.final != "":
		s.ending = over
		s.wakeAt(s.now)
	default:
		s.worker.tasks = s.decide()
	}
	s.drive()
}

// drive works off the tasks until one blocks.
func (s *State) drive() {
	for s.worker.mode == syncing && len(s.worker.tasks) > 0 {
		if t := &s.worker.tasks[0]; !t.begun {
			t.begun = true
			s.begin(*t)
		}
		if s.blocked(s.current()) {
			return
		}
		s.boxStopped(s.current())
		s.worker.tasks = s.worker.tasks[1:]
	}
	switch {
	case s.worker.mode == syncing:
		s.endPass()
	case s.worker.mode == terminating && !s.stopping():
		s.terminated()
	}
}

// boxStopped: the sandbox of a pod stops last.
// Source: kuberuntime_manager.go killPodWithSyncResult.
func (s *State) boxStopped(t task) {
	if t.kind == killPod && s.sandbox == sandboxReady {
		s.sandbox = deadSandbox
		s.changed()
	}
}

func (s *State) begin(t task) {
	switch t.kind {
	case killPod:
		s.beginKillAll(s.spec.grace)
	case killOne:
		s.beginKill(t.i, s.graceAfterProbe(t.i), false)
	case makeBox:
		s.forgetInits()
		s.worker.acted = true
		s.do(Action{Kind: CreateSandbox})
	case startInit, startOne:
		s.beginStart(t.i)
	}
}

// blocked reports whether the pass waits for the task.
func (s *State) blocked(t task) bool {
	switch t.kind {
	case killPod:
		return s.stopping()
	case makeBox:
		return s.sandbox != sandboxReady
	default:
		return s.c[t.i].step != notStarting || s.c[t.i].killing.stage != notKilling
	}
}

// failed notes that the task under way failed. The pass goes on to
// the next one: this is why a hold fails open. Only a plain init container that
// cannot be started ends the pass.
// Source: kuberuntime_manager.go SyncPod steps 6 and 8.
func (s *State) failed(t task, retry time.Duration) {
	s.worker.retry = earlier(s.worker.retry, retry)
	if t.kind == startInit && s.spec.kind(t.i) == initial {
		s.worker.tasks = s.worker.tasks[:1]
	}
}

// current is the task under way. There is one whenever a container is starting.
func (s *State) current() task { return s.worker.tasks[0] }

// endPass: what the pass changed is seen, and a further pass possible, at the
// next look at the containers. In 1.36 a pass requests one at once if it has done
// something and nothing failed.
// Source: pod_workers.go completeWork, podCache.GetNewerThan; v1.36.3 kubelet.go
// SyncPod (postSync), pleg/generic.go RequestRelist.
func (s *State) endPass() {
	v := s.spec.version
	s.worker.mode, s.worker.tasks = idle, nil
	s.worker.fresh = v.relistAfter(s.now)
	if v.FreshAtOnce && s.worker.acted && s.worker.retry == never {
		s.worker.fresh, s.relist = s.now, s.now
	}
}

// sandboxAnswered: the sandbox is there, with its IP, or could not be made.
func (s *State) sandboxAnswered(ok bool) {
	making := s.worker.mode == syncing && len(s.worker.tasks) > 0 && s.current().kind == makeBox
	if !making || s.sandbox == sandboxReady {
		return
	}
	if ok {
		s.sandbox, s.address = sandboxReady, true
		s.changed()
	} else {
		s.worker.retry, s.worker.tasks = s.now+Retry, nil
	}
	s.drive()
}

// forgetInits: in a new sandbox the init containers have never run.
// Source: kuberuntime_manager.go SyncPod step 2 (purgeInitContainers).
func (s *State) forgetInits() {
	for i := range s.c {
		c := &s.c[i]
		c.here = false
		if i < s.spec.inits {
			*c = container{incarnation: c.incarnation, finishedAt: never, known: never, shown: c.shown, crashes: c.crashes, pulls: c.pulls, killing: c.killing}
			c.resetProbes()
		}
	}
}

// delete requests the end of the pod. A pass under way is not interrupted: a
// postStart hook that blocks also holds the deletion back. Nor is one that waits
// for a relist: what it is for was decided when it began to wait.
// Source: kubelet.go SyncPod calls the runtime with context.WithoutCancel;
// pod_workers.go podWorkerLoop calls startPodSync before GetNewerThan.
func (s *State) delete(grace time.Duration) {
	if s.deleted != never && grace <= 0 {
		return
	}
	if grace <= 0 {
		grace = s.spec.grace
	}
	requested := earlier(s.worker.wake, s.worker.retry)
	s.worker.bound = s.deleted == never && s.worker.mode == idle && s.due(requested)
	s.deleted = grace
	s.wakeAt(s.now)
}

func (s *State) beginTerminating() {
	s.worker.mode = terminating
	grace := s.spec.grace
	if s.deleted != never {
		grace = s.deleted
	}
	s.stopProbing()
	s.beginKillAll(grace)
	s.drive()
}

// terminated: everything was stopped. The status, with the final phase, is sent
// now if the pass changed it, were it only that the sandbox is stopped; else with
// the last pass.
// Source: kubelet.go SyncTerminatingPod; status_manager.go updateStatusInternal,
// which drops a status that is like the one before.
func (s *State) terminated() {
	changed := s.worker.acted || s.sandbox == sandboxReady
	s.ending, s.sandbox = stopped, deadSandbox
	if changed {
		s.publish()
	}
	s.wakeAt(s.now)
	s.endPass()
}

// endPod: a pod that never came to a final phase has failed.
// Source: status_manager.go TerminatePod.
func (s *State) endPod() {
	s.publish()
	if s.final == "" {
		s.final = Failed
		s.publish()
	}
	s.worker = worker{mode: done, wake: never, retry: never}
	s.do(Action{Kind: End})
}
