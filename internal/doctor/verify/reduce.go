package verify

import (
	"math"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// appendKey appends the key of a state to b. The search expands only one of the states with equal keys. So what the key
// leaves out is a reduction: a difference that no violation of the plan depends on. TestReducedSearchAgrees compares it
// with the full search.
func (s *search) appendKey(b []byte, n *node) []byte {
	faults := n.faults
	if n.gates.Deleted() && !s.full {
		faults = 0 // none happens after the deletion
	}
	outlook := kubelet.Outlook{FailedPulls: faults, Of: func(name string) kubelet.Prospect { return s.prospect(n, name) }}
	if s.full {
		outlook.FailedPulls = math.MaxInt
	}
	b = n.kubelet.AppendKey(b, outlook)
	b = n.gates.AppendKey(append(b, byte(faults)), n.kubelet.Now(), func(name string) bool { return s.healthMatters(n, name) })
	for _, at := range n.outlived {
		switch {
		case at == 0:
			b = append(b, 0)
		case at > n.kubelet.Now():
			b = append(b, 1) // it ended at this instant
		default:
			b = append(b, 2)
		}
	}
	return b
}

// faultsLeft reports whether a fault may still happen.
func (n *node) faultsLeft() bool { return n.faults > 0 && !n.gates.Deleted() }

// prospect returns what is known about the future of a container. Without another fault, a command that runs and is not
// found unhealthy ends only when it completes or the pod stops, and is then not started again. The exception is a container
// that must follow the restart of a dependency.
func (s *search) prospect(n *node, name string) kubelet.Prospect {
	v := n.kubelet.View(name)
	switch {
	case s.full:
		return kubelet.Open
	case v.Starting && !n.faultsLeft():
		return kubelet.Starts
	case v.Unsteady, !v.Started && !v.Patient:
		return kubelet.Open
	case v.Patient && n.gates.Waits(name):
		return kubelet.Succeeds
	case !n.gates.Alive(name), s.deletionIsTimed(n):
		return kubelet.Open
	case n.faultsLeft(), s.follows[name]:
		return kubelet.Succeeds
	default:
		return kubelet.LastRun
	}
}

// deletionIsTimed reports whether it can matter at which instant the pod is deleted: a container is being stopped or
// started, which takes a time that goes on in the deletion. The search deletes the pod at instants at which something
// happens, so the phases of all probes matter then.
func (s *search) deletionIsTimed(n *node) bool {
	return s.question.Promise == Stops && !n.gates.Deleted() && slices.ContainsFunc(slices.Concat(s.question.Pod.Init, s.question.Pod.Containers), func(c kubelet.Container) bool {
		return n.kubelet.View(c.Name).Unsteady
	})
}

// healthMatters reports whether it can still have an effect that a container is healthy, or becomes healthy.
func (s *search) healthMatters(n *node, name string) bool {
	if s.full {
		return true
	}
	if s.needed[name] && slices.ContainsFunc(s.edges, func(e startup.Edge) bool {
		return e.From == name && e.After == startup.Healthy && s.mayStart(n, e.To)
	}) {
		return true
	}
	if n.kubelet.Final() {
		return false
	}
	v := n.kubelet.View(name)
	return v.Unsteady || !v.Started || n.faultsLeft() || n.gates.Runs(name) && !n.gates.Alive(name)
}

// mayStart reports whether the command of a container may start from now on.
func (s *search) mayStart(n *node, name string) bool {
	if n.kubelet.Final() {
		return n.gates.Waits(name)
	}
	return s.prospect(n, name) != kubelet.LastRun
}

// mustFollow returns the containers that a gate ends when their dependency restarts.
func (s *search) mustFollow() map[string]bool {
	out := map[string]bool{}
	for _, e := range s.edges {
		if e.OnRestart == startup.RestartTo {
			out[e.To] = true
		}
	}
	return out
}

// watch notes which dependencies ended while the pod was stopping and a dependent container ran. The later end of that
// container violates the plan.
func (s *search) watch(n *node, happened startup.Timeline) {
	if s.question.Promise != Stops || !n.gates.Deleted() {
		return
	}
	for _, ev := range happened {
		if ev.What != startup.IsCompleted && ev.What != startup.HasFailed {
			continue
		}
		for i, e := range s.edges {
			if e.From != ev.Container || e.After == startup.Completed || !n.gates.Runs(e.To) || n.outlived != nil && n.outlived[i] > 0 {
				continue
			}
			if n.outlived == nil {
				n.outlived = make([]time.Duration, len(s.edges))
			} else {
				n.outlived = slices.Clone(n.outlived)
			}
			n.outlived[i] = ev.At + 1
		}
	}
}
