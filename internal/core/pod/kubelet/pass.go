package kubelet

import "time"

// A pass is the present state of the pod's worker. The worker does one thing after the other: each pass
// (SyncPod) works off a list of tasks and may block in the middle.
// Source: pod_workers.go podWorkerLoop.
type pass struct {
	mode  mode
	tasks []task // remaining tasks; states share the slice
	begun bool   // the first task has begun
	acted bool   // the pass changed something that a relist will see
}

type mode int8

const (
	idle        mode = iota // between two passes
	syncing                 // in a pass
	terminating             // in the pass that stops the pod for good
	done
)

// A task is one step of a pass.
type task struct {
	kind taskKind
	i    int // index of the container; 0 if the task has none
}

type taskKind int

const (
	killPod   taskKind = iota // stop everything that runs
	killOne                   // stop container i
	makeBox                   // create the sandbox
	startInit                 // start container i; if that fails, end the pass
	startOne                  // start container i; if that fails, go on
)

func (p *pass) begin(tasks []task) { *p = pass{mode: syncing, tasks: tasks} }

func (p *pass) terminate() { *p = pass{mode: terminating} }

func (p *pass) endPod() { *p = pass{mode: done} }

// end ends the pass and keeps acted.
func (p *pass) end() { *p = pass{mode: idle, acted: p.acted} }

// current returns the task under way. There is always one while a container is starting.
func (p *pass) current() task { return p.tasks[0] }

// takeUp reports whether the current task had not begun yet, and marks it as begun.
func (p *pass) takeUp() bool {
	isNew := !p.begun
	p.begun = true
	return isNew
}

// next ends the current task.
func (p *pass) next() { p.tasks, p.begun = p.tasks[1:], false }

// giveUp drops all tasks.
func (p *pass) giveUp() { p.tasks, p.begun = nil, false }

// dropRest drops the tasks after the current one.
func (p *pass) dropRest() { p.tasks = p.tasks[:1] }

func (p *pass) act() { p.acted = true }

// Retry is how long the worker waits after a pass in which a task failed. Real kubelets add up to a half of
// it at random.
// Source: kubelet.go backOffPeriod.
const Retry = 10 * time.Second

// resync limits the wait for the end of a back-off. Source: kubelet.go resyncInterval.
const resync = time.Minute

// passDue returns when the next pass begins; never while a pass runs.
func (s *State) passDue() time.Duration {
	if s.pass.mode != idle {
		return never
	}
	return s.schedule.due()
}

// beginPass publishes the status and decides what to do. If the pod is deleted or has ended, the pass stops
// it for good instead.
// Source: kubelet.go SyncPod, SyncTerminatingPod, SyncTerminatedPod.
func (s *State) beginPass() {
	bound := s.schedule.begin(s.now)
	if s.ending.stage == stopped {
		s.endPod()
		return
	}
	s.publish()
	for i := range s.c {
		s.c[i].life.look()
	}
	switch {
	case bound:
		s.schedule.wakeAt(s.now)
		s.pass.begin(s.decide())
	case s.ending.deleted() || s.ending.stage == over:
		s.beginTerminating()
		return
	case s.ending.final != "":
		s.ending.reach(over)
		s.schedule.wakeAt(s.now)
		s.pass.begin(nil)
	default:
		s.pass.begin(s.decide())
	}
	s.drive()
}

// drive works off the tasks until one blocks.
func (s *State) drive() {
	for s.pass.mode == syncing && len(s.pass.tasks) > 0 {
		t := s.pass.current()
		if s.pass.takeUp() {
			s.begin(t)
		}
		if s.blocked(t) {
			return
		}
		if t.kind == killPod {
			// The sandbox of a pod stops last.
			// Source: kuberuntime_manager.go killPodWithSyncResult.
			s.sandboxLost()
		}
		s.pass.next()
	}
	switch {
	case s.pass.mode == syncing:
		s.endPass()
	case s.pass.mode == terminating && !s.stopping():
		s.terminated()
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
		s.pass.act()
		s.do(Action{Kind: CreateSandbox})
	case startInit, startOne:
		s.beginStart(t.i)
	}
}

// blocked reports whether the pass waits for the task to end.
func (s *State) blocked(t task) bool {
	switch t.kind {
	case killPod:
		return s.stopping()
	case makeBox:
		return s.sandbox.is != sandboxReady
	default:
		return s.c[t.i].start.step != notStarting || s.c[t.i].killing.stage != notKilling
	}
}

// failed records that the task under way failed. The pass goes on to the next task: this is why a hold fails
// open. Only a plain init container that cannot be started ends the pass.
// Source: kuberuntime_manager.go SyncPod steps 6 and 8.
func (s *State) failed(retry time.Duration) {
	s.schedule.retryAt(retry)
	if t := s.pass.current(); t.kind == startInit && s.spec.kind(t.i) == initial {
		s.pass.dropRest()
	}
}

// endPass ends the pass. The next look at the containers sees what the pass changed, and only then can
// another pass begin. In 1.36 a pass requests that look at once if it changed something and nothing failed.
// Source: pod_workers.go completeWork, podCache.GetNewerThan; v1.36.3 kubelet.go SyncPod (postSync),
// pleg/generic.go RequestRelist.
func (s *State) endPass() {
	v := s.spec.version
	fresh := v.relistAfter(s.now)
	if v.FreshAtOnce && s.pass.acted && s.schedule.retry == never {
		fresh = s.now
		s.schedule.changed(fresh)
	}
	s.pass.end()
	s.schedule.end(fresh)
}
