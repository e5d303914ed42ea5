package kubelet

import "time"

// A pass is the state of the pod's worker. The worker does one thing at a time: each pass (SyncPod) executes a
// list of tasks, and a task may block it.
// Source: pod_workers.go podWorkerLoop.
type pass struct {
	mode  mode
	tasks []task // tasks that are not finished; states share the slice
	begun bool   // the first of them has begun
	acted bool   // the pass made a change that a relist will see
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
	startInit                 // start init container i; if that fails, end the pass
	startOne                  // start container i; if that fails, continue with the next task
)

func (p *pass) begin(tasks []task) { *p = pass{mode: syncing, tasks: tasks} }

func (p *pass) terminate() { *p = pass{mode: terminating} }

func (p *pass) endPod() { *p = pass{mode: done} }

// end ends the pass. It keeps the field acted.
func (p *pass) end() { *p = pass{mode: idle, acted: p.acted} }

// current returns the task under way. There is always one while a container is starting.
func (p *pass) current() task { return p.tasks[0] }

// takeUp marks the current task as begun. It returns true if it had not begun before.
func (p *pass) takeUp() bool {
	isNew := !p.begun
	p.begun = true
	return isNew
}

// next ends the current task.
func (p *pass) next() { p.tasks, p.begun = p.tasks[1:], false }

// giveUp removes all tasks.
func (p *pass) giveUp() { p.tasks, p.begun = nil, false }

// dropRest removes the tasks after the current one.
func (p *pass) dropRest() { p.tasks = p.tasks[:1] }

func (p *pass) act() { p.acted = true }

// Retry is the delay of the next pass after a pass in which a task failed. A real kubelet adds a random time of
// up to half of it.
// Source: kubelet.go backOffPeriod.
const Retry = 10 * time.Second

// resync is the maximum of the delay until a container in back-off is tried again.
// Source: kubelet.go resyncInterval.
const resync = time.Minute

// passDue returns the time at which the next pass begins. It returns [never] while a pass is under way.
func (s *State) passDue() time.Duration {
	if s.pass.mode != idle {
		return never
	}
	return s.schedule.due()
}

// beginPass publishes the status and determines the tasks of the pass. If the pod is deleted or has ended, the
// pass terminates it instead.
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

// drive executes the tasks until one blocks.
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
			// The sandbox is stopped after all containers.
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

// blocked reports whether the task is still under way, so that the pass must wait.
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

// failed records that the current task failed, and requests another pass. The present pass continues with the
// next task, so a failed hold does not stop the other containers from starting. Only a failed start of a regular
// init container ends the pass. Source: kuberuntime_manager.go SyncPod steps 6 and 8.
func (s *State) failed(retry time.Duration) {
	s.schedule.retryAt(retry)
	if t := s.pass.current(); t.kind == startInit && s.spec.kind(t.i) == initial {
		s.pass.dropRest()
	}
}

// endPass ends the pass. The next pass begins only after a relist, which sees what this pass changed. In 1.36 the
// pass requests that relist at once if it changed something and nothing failed.
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
