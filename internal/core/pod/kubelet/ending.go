package kubelet

import "time"

// An ending is the state of a pod's termination.
type ending struct {
	stage endStage
	grace time.Duration // grace period of the deletion; never if the pod is not deleted
	final Phase         // Succeeded or Failed as soon as it is known; it is published only when everything has stopped
}

// An endStage is a step of the termination. Each step is a separate pass, which begins only when the kubelet has
// read the containers' state again.
// Source: pod_workers.go podWorkerLoop, completeSync, completeTerminating.
type endStage int8

const (
	living  endStage = iota
	over             // no container is to run any more: the next pass stops those that still run
	stopped          // no container runs: the next pass is the last one
)

func (e *ending) delete(grace time.Duration) { e.grace = grace }

func (e *ending) deleted() bool { return e.grace != never }

func (e *ending) reach(stage endStage) { e.stage = stage }

// settle records the final phase of the pod. Later calls do not change it.
func (e *ending) settle(p Phase) {
	if e.final == "" && p.over() {
		e.final = p
	}
}

// delete requests the termination of the pod. It does not interrupt a pass under way, so a postStart hook that
// blocks also delays the deletion. If a pass is due but waits for a relist, delete does not change that pass
// either: its type was determined when the wait began.
// Source: kubelet.go SyncPod calls the runtime with context.WithoutCancel; pod_workers.go podWorkerLoop calls
// startPodSync before GetNewerThan.
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

// terminated ends the pass that has stopped everything. If the pass changed anything, even if it only stopped the
// sandbox, the status with the final phase is published now; otherwise the last pass publishes it.
// Source: kubelet.go SyncTerminatingPod; status_manager.go updateStatusInternal, which drops a status that equals
// the previous one.
func (s *State) terminated() {
	s.ending.reach(stopped)
	if had := s.sandbox.removed(); had || s.pass.acted {
		s.publish()
	}
	s.schedule.wakeAt(s.now)
	s.endPass()
}

// endPod handles the last pass. If the pod has no final phase, it becomes Failed. Source: status_manager.go
// TerminatePod.
func (s *State) endPod() {
	s.publish()
	if s.ending.final == "" {
		s.ending.settle(Failed)
		s.publish()
	}
	s.pass.endPod()
	s.do(Action{Kind: End})
}
