package kubelet

import (
	"slices"
	"time"
)

// A State is the kubelet's state of a pod. Use New to make one: the zero value is not valid. Each part is
// changed only by its own methods, in the file of its type.
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

// never means that a time does not come.
const never = time.Duration(-1)

// New returns the state of a pod that the kubelet has not seen yet: it waits for Added.
func New(p Pod, v Version) State {
	spec := newSpec(p, v)
	c := slices.Repeat([]container{{life: newLife(), killing: notKilled(), probes: newProbes()}}, len(spec.containers))
	return State{spec: spec, schedule: newSchedule(), ending: ending{grace: never}, status: Status{Phase: Pending}, c: c}
}

func (s *State) name(i int) string { return s.spec.containers[i].Name }

// anySeen reports whether the runtime knows any of the containers.
func anySeen(cs []container) bool {
	return slices.ContainsFunc(cs, func(c container) bool { return c.life.run != absent })
}

// plains returns the plain containers.
func (s *State) plains() []container { return s.c[s.spec.inits:] }

// plainRuns reports whether any plain container runs.
func (s *State) plainRuns() bool {
	return slices.ContainsFunc(s.plains(), func(c container) bool { return c.life.run == running })
}

// changed records a change in the runtime, which the next relist sees.
func (s *State) changed() { s.schedule.changed(s.spec.version.relistAfter(s.now)) }
