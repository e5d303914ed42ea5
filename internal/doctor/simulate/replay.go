package simulate

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Replay consists of a pod, its plan, and the transitions of a run that package verify has found.
type Replay struct {
	Pod        kubelet.Pod
	Plan       startup.Plan
	Kubernetes int // minor version; default: the newest supported
	Schedule   []gates.Move
}

// Limits of a replay. Without a limit, a made-up recording could take very long, because the kubelet's model makes
// probes in each simulated second. The runs that a search of a few minutes finds are far below these limits.
const (
	mostSteps = 100_000
	mostTime  = 24 * time.Hour
)

// Run makes exactly the transitions of the schedule. It fails if one of them is not possible at its position, because
// the schedule then belongs to another pod.
func (p Replay) Run() (Outcome, error) {
	s := Scenario{Pod: p.Pod, Plan: p.Plan, Behaviour: Behaviour{Kubernetes: p.Kubernetes}}
	if err := s.check(); err != nil {
		return Outcome{}, err
	}
	if len(p.Schedule) > mostSteps {
		return Outcome{}, fmt.Errorf("replaying a run: it has %d steps: must be at most %d", len(p.Schedule), mostSteps)
	}
	r := newRun(s)
	r.script(Behaviour{})
	r.step(r.queue[0].event) // the kubelet receives the pod
	for i, m := range p.Schedule {
		e := m.Event
		if err := r.impossible(m); err != nil {
			return Outcome{}, fmt.Errorf("replaying a run: step %d, %s %s %s at %s: %w", i+1, m.Kind, e.Container, e.Kind, e.At, err)
		}
		if m.Kind == gates.Observed {
			r.step(e)
		} else {
			r.note(m.Apply(&r.kubelet, &r.gates))
		}
		r.outcome.End = e.At
	}
	r.finish(r.outcome.End)
	return r.outcome, nil
}

// impossible returns an error with the reason why a transition cannot happen now, or nil if it can.
func (r *run) impossible(m gates.Move) error {
	e := m.Event
	name := e.Container
	due, later := r.kubelet.Next()
	is := func(reason string, holds bool) error {
		if holds {
			return nil
		}
		return fmt.Errorf("%s", reason)
	}
	switch {
	case e.At < r.kubelet.Now():
		return fmt.Errorf("that is before %s, the time of the step before", r.kubelet.Now())
	case e.At > mostTime:
		return fmt.Errorf("a run of more than %s is not replayed", mostTime)
	case e.Kind == kubelet.Tick && m.Kind == gates.Observed:
		return nil
	case later && e.At > due:
		return fmt.Errorf("the kubelet acts before, at %s", due)
	case m.Kind == gates.Released:
		return is("no gate of it is about to open", r.gates.Waits(name) && r.gates.MayRun(name, e.At))
	case m.Kind == gates.Recovered:
		return is("it cannot become healthy", r.gates.CanBeHealthy(name) && !r.gates.Healthy(name))
	case m.Kind == gates.Sickened:
		return is("it is not healthy", r.gates.Healthy(name))
	case m.Kind == gates.Notified:
		return is("there is nothing to notify it of", m.Edge != nil && slices.Contains(r.gates.Obligations(), gates.Obligation{Edge: *m.Edge, Enforced: true}))
	case m.Kind != gates.Observed:
		return fmt.Errorf("it is no kind of a step: must be observed, released, healthy, unhealthy or notified")
	case e.Kind == kubelet.Exited:
		return is("it does not run", r.kubelet.View(name).Running && (e.Code != 0 || r.gates.Runs(name)))
	case e.Kind == kubelet.Deleted:
		return is("the pod is deleted already", !r.gates.Deleted())
	case e.Kind == kubelet.SandboxDied:
		return nil
	}
	return r.unanswered(e)
}

// unanswered returns an error if an event is not a possible result of an open action of the kubelet. For example,
// while a container is unhealthy, its probe cannot succeed, and a hook that waits for its health cannot return.
func (r *run) unanswered(e kubelet.Event) error {
	for _, a := range r.kubelet.Open() {
		answer, answered := a.Answer(e.At, e.OK)
		if !answered || answer != e {
			continue
		}
		c, _ := r.Plan.Find(e.Container)
		probe, known := r.gates.Probe(a)
		switch {
		case a.Kind == kubelet.RunProbe && e.OK && !(known && probe):
			return fmt.Errorf("the probe cannot succeed")
		case a.Which == kubelet.PostStart && e.OK && c.Health == startup.PostStart && !r.gates.Healthy(e.Container):
			return fmt.Errorf("the hook waits for health")
		case a.Which == kubelet.PreStop && (a.Handler == kubelet.Sleep || e.OK) && e.At < a.At+a.Timeout:
			return fmt.Errorf("the hook sleeps until %s", a.At+a.Timeout)
		case a.Which == kubelet.PreStop && a.Handler == kubelet.Gate && e.OK && e.At < gates.HoldsUntil(r.Pod, r.kubelet, a) && r.gates.HoldsStop(e.Container):
			return fmt.Errorf("the hook waits for the containers that need %s", e.Container)
		}
		return nil
	}
	return fmt.Errorf("the kubelet waits for no such answer")
}
