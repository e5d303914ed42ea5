package kubelet

import (
	"slices"
	"time"
)

// A State is the kubelet's state of a pod. Use [New] to create one: the zero value is invalid. Only the methods
// of a part change that part; they are in the file of its type.
type State struct {
	spec     *spec
	now      time.Duration
	schedule schedule
	pass     pass
	sandbox  sandbox
	ending   ending
	status   Status      // the published status
	c        []container // in the order of spec.containers: init containers first
	out      []Action    // actions of the step under way
}

// A container is the kubelet's state of one container.
type container struct {
	life    life
	start   start
	killing killing
	probes  probes
	shown   shown
}

// never is the time of an event that will not happen.
const never = time.Duration(-1)

// New returns the initial state of a pod, which the kubelet has not received yet. Its first event is Added.
func New(p Pod, v Version) State {
	spec := newSpec(p, v)
	c := slices.Repeat([]container{{life: newLife(), killing: notKilled(), probes: newProbes()}}, len(spec.containers))
	for i := range c {
		c[i].start.crashes.kept = v.KeepsBackOff
	}
	return State{spec: spec, schedule: newSchedule(), ending: ending{grace: never}, status: Status{Phase: Pending}, c: c}
}

func (s *State) name(i int) string { return s.spec.containers[i].Name }

// anySeen reports whether any of the containers was started, as far as the runtime knows.
func anySeen(cs []container) bool {
	return slices.ContainsFunc(cs, func(c container) bool { return c.life.run != absent })
}

// plains returns the regular containers: all except the init containers.
func (s *State) plains() []container { return s.c[s.spec.inits:] }

// plainRuns reports whether any regular container runs.
func (s *State) plainRuns() bool {
	return slices.ContainsFunc(s.plains(), func(c container) bool { return c.life.run == running })
}

// changed records that the next relist will see a change in the runtime.
func (s *State) changed() { s.schedule.changed(s.spec.version.relistAfter(s.now)) }
