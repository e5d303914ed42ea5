package kubelet

import "time"

// An ending is how far the end of a pod has come.
type ending struct {
	stage endStage
	grace time.Duration // of the deletion; never: the pod is not deleted
	final Phase         // Succeeded or Failed, once that is known; not published before all has stopped
}

// An endStage is a step of the end. Each is a pass of its own, and waits for a fresh look at
// the containers.
// Source: pod_workers.go podWorkerLoop, completeSync, completeTerminating.
type endStage int8

const (
	living  endStage = iota
	over             // nothing more is to run: the next pass stops what does
	stopped          // nothing runs: the next pass is the last
)

func (e *ending) delete(grace time.Duration) { e.grace = grace }

func (e *ending) deleted() bool { return e.grace != never }

func (e *ending) reach(stage endStage) { e.stage = stage }

// settle notes the phase in which a pod ends. It never changes again.
func (e *ending) settle(p Phase) {
	if e.final == "" && p.over() {
		e.final = p
	}
}

// delete requests the end of the pod. A pass under way is not interrupted: a
// postStart hook that blocks also holds the deletion back. Nor is one that waits
// for a relist: what it is for was decided when it began to wait.
// Source: kubelet.go SyncPod calls the runtime with context.WithoutCancel;
// pod_workers.go podWorkerLoop calls startPodSync before GetNewerThan.
func (s *State) delete(grace time.Duration) {
	again := s.ending.deleted()
	if again && grace <= 0 {
		return
	}
	if grace <= 0 {
		grace = s.spec.grace
	}
	s.schedule.unbind()
	if !again && s.pass.mode == idle {
		s.schedule.bind(s.now)
	}
	s.ending.delete(grace)
	s.schedule.wakeAt(s.now)
}

func (s *State) beginTerminating() {
	s.pass.terminate()
	grace := s.spec.grace
	if s.ending.deleted() {
		grace = s.ending.grace
	}
	for i := range s.c {
		s.c[i].probes.stop()
	}
	s.beginKillAll(grace)
	s.drive()
}

// terminated: everything was stopped. The status, with the final phase, is sent
// now if the pass changed it, were it only that the sandbox is stopped; else with
// the last pass.
// Source: kubelet.go SyncTerminatingPod; status_manager.go updateStatusInternal,
// which drops a status that is like the one before.
func (s *State) terminated() {
	s.ending.reach(stopped)
	if had := s.sandbox.removed(); had || s.pass.acted {
		s.publish()
	}
	s.schedule.wakeAt(s.now)
	s.endPass()
}

// endPod: a pod that never came to a final phase has failed.
// Source: status_manager.go TerminatePod.
func (s *State) endPod() {
	s.publish()
	if s.ending.final == "" {
		s.ending.settle(Failed)
		s.publish()
	}
	s.pass.endPod()
	s.do(Action{Kind: End})
}
