package kubelet

import "time"

// An ending is the progress of a pod's end.
type ending struct {
	stage endStage
	grace time.Duration // the deletion's grace period; never: the pod is not deleted
	final Phase         // Succeeded or Failed, once known; published only when everything has stopped
}

// An endStage is a step of the end. Each step is a pass of its own, which waits for a fresh look at the
// containers.
// Source: pod_workers.go podWorkerLoop, completeSync, completeTerminating.
type endStage int8

const (
	living  endStage = iota
	over             // nothing more is to run: the next pass stops what still runs
	stopped          // nothing runs: the next pass is the last
)

func (e *ending) delete(grace time.Duration) { e.grace = grace }

func (e *ending) deleted() bool { return e.grace != never }

func (e *ending) reach(stage endStage) { e.stage = stage }

// settle records the phase in which a pod ends. It never changes again.
func (e *ending) settle(p Phase) {
	if e.final == "" && p.over() {
		e.final = p
	}
}

// delete requests the end of the pod. It does not interrupt a pass under way, so a postStart hook that
// blocks also delays the deletion. Nor does it change a pass that is due and waits for a relist: the purpose
// of that pass was fixed when the wait began.
// Source: kubelet.go SyncPod calls the runtime with context.WithoutCancel; pod_workers.go podWorkerLoop
// calls startPodSync before GetNewerThan.
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

// terminated ends the pass that has stopped everything. It publishes the status with the final phase now if
// the pass changed anything, even if only the sandbox was stopped; otherwise the last pass publishes it.
// Source: kubelet.go SyncTerminatingPod; status_manager.go updateStatusInternal, which drops a status that
// equals the previous one.
func (s *State) terminated() {
	s.ending.reach(stopped)
	if had := s.sandbox.removed(); had || s.pass.acted {
		s.publish()
	}
	s.schedule.wakeAt(s.now)
	s.endPass()
}

// endPod ends the pod. A pod that never reached a final phase has failed.
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
