package simulate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/startup"
)

// A Scenario consists of a pod, its plan, and the behaviour of its environment and its containers.
type Scenario struct {
	Pod       kubelet.Pod
	Plan      startup.Plan // edges by a gate, a loop or a sleep are kept by the simulation, others only by the Pod
	Behaviour Behaviour
}

// PodOf returns the pod that a plan describes. A container whose health comes from a probe or a hook gets a probe or
// hook of the kind exec; probes run once a second.
func PodOf(p startup.Plan) kubelet.Pod {
	var pod kubelet.Pod
	for _, c := range p.Containers {
		k := kubelet.Container{Name: c.Name}
		everySecond := kubelet.Probe{Handler: kubelet.Exec, Period: time.Second, Failures: 60}
		switch c.Health {
		case startup.StartupProbe:
			k.Startup = everySecond
		case startup.ReadinessProbe:
			k.Readiness = everySecond
		case startup.PostStart:
			k.PostStart = kubelet.Exec
		}
		switch c.Kind {
		case startup.Init:
			pod.Init = append(pod.Init, k)
		case startup.Sidecar:
			k.Restart = kubelet.Always
			pod.Init = append(pod.Init, k)
		default:
			pod.Containers = append(pod.Containers, k)
			if pod.Restart == "" {
				pod.Restart = policies[c.Restart]
			}
		}
	}
	return pod
}

var policies = map[startup.Restart]kubelet.RestartPolicy{
	startup.Always: kubelet.Always, startup.OnFailure: kubelet.OnFailure, startup.Never: kubelet.Never,
}

// An Outcome is the result of a simulation.
type Outcome struct {
	Timeline   startup.Timeline    `json:"timeline"`
	Pulls      []chart.Pull        `json:"pulls,omitempty"`
	Shown      []Shown             `json:"shown"`
	Violations []startup.Violation `json:"violations"`
	End        time.Duration       `json:"end"`  // end of the simulation
	Over       bool                `json:"over"` // nothing runs at the end, and nothing will be started again
}

// Shown is the pod's status that the API shows from a given time on.
type Shown struct {
	At time.Duration `json:"at"`
	kubelet.Status
}

func (s Shown) String() string {
	is := func(b bool, yes, no string) string {
		if b {
			return yes
		}
		return no
	}
	return fmt.Sprintf("%8.3fs %s, %s, %s, %s", s.At.Seconds(), s.Phase, is(s.HasIP, "IP", "no IP"),
		is(s.Initialized, "initialized", "initializing"), is(s.Ready, "ready", "not ready"))
}

// Restarts returns the number of restarts of all containers.
func (o Outcome) Restarts() int {
	n := 0
	for _, e := range o.Timeline {
		if e.What == startup.IsStarted && e.Incarnation > 0 {
			n++
		}
	}
	return n
}

// Refused returns the number of refused calls.
func (o Outcome) Refused() int {
	n := 0
	for _, e := range o.Timeline {
		if e.What == startup.IsRefused {
			n++
		}
	}
	return n
}

// check returns an error if the pod, the plan and the behaviour do not have the same containers.
func (s Scenario) check() error {
	inPod := map[string]bool{}
	for _, c := range append(append([]kubelet.Container(nil), s.Pod.Init...), s.Pod.Containers...) {
		inPod[c.Name] = true
	}
	for _, c := range s.Plan.Containers {
		if !inPod[c.Name] {
			return fmt.Errorf("simulating a pod: the plan's container %q is not in it", c.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inPod)) {
		if _, i := s.Plan.Find(name); i < 0 {
			return fmt.Errorf("simulating a pod: its container %q is not in the plan", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Behaviour.Containers)) {
		c := s.Behaviour.Containers[name]
		for _, n := range append(c.names(), name) {
			if !inPod[n] {
				return fmt.Errorf("simulating a pod: its behaviour names %q, which is not in it", n)
			}
		}
	}
	return nil
}

// Chart returns the outcome as a chart, with a lane for each container of the plan.
func (o Outcome) Chart(p startup.Plan) chart.Chart {
	var names []string
	for _, c := range p.Containers {
		names = append(names, c.Name)
	}
	return chart.New(names, o.Timeline, o.Pulls, o.Violations)
}
