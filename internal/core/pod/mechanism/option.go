package mechanism

import (
	"fmt"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// An Option is a mechanism for an edge, with its guarantees in this pod.
type Option struct {
	By     startup.Mechanism
	Answer startup.Answer
	Health startup.Health // the report that lets the dependent container start, in the pod as it would be written
}

// WhyNot returns the reason why the mechanism cannot be used; empty if it can.
func (o Option) WhyNot() string {
	for _, l := range o.Answer.Limits {
		if l.Fatal {
			return l.Reason
		}
	}
	return ""
}

// A moved identifies a change of the plan: the container with the first index becomes a sidecar, listed before
// the container with the second index.
type moved struct {
	from, to int
	holds    bool // it holds back the following containers until it is healthy
}

// option returns the guarantees of m for e in the pod as it would be written. The mechanism that e names is the
// requested one.
func (c *chooser) option(e startup.Edge, m startup.Mechanism) Option {
	requested := e.By
	e.By = m
	from, answer, reason := c.asWritten(e, requested)
	if deadlock := c.deadlocks[startup.Edge{From: e.From, To: e.To, By: m}]; deadlock != "" {
		reason = deadlock
	}
	if reason != "" {
		answer = startup.Answer{Limits: []startup.Limit{{Code: "not-in-this-pod", Fatal: true, Reason: reason}}}
	}
	return Option{By: m, Answer: answer, Health: from.Health}
}

// asWritten returns the container e.From and the guarantees of e's mechanism, both in the pod as podspec.Write
// would write it for this edge. If Write would refuse the edge, it returns the reason.
func (c *chooser) asWritten(e startup.Edge, requested startup.Mechanism) (startup.Container, startup.Answer, string) {
	from, at := c.judge.Find(e.From)
	to, toAt := c.judge.Find(e.To)
	if at < 0 || toAt < 0 {
		return startup.Container{}, startup.Answer{}, fmt.Sprintf("the pod does not have both %s and %s", e.From, e.To)
	}
	if at == toAt {
		return startup.Container{}, startup.Answer{}, e.From + " cannot wait for itself"
	}
	f := c.pod.Facts[e.From]
	if lacksHook(f, e) {
		return startup.Container{}, startup.Answer{}, e.From + " has a postStart hook of its own, and a container can have one only"
	}
	judge := c.judge
	switch e.By {
	case startup.Gate:
		if reason := c.noGate(e, requested); reason != "" {
			return startup.Container{}, startup.Answer{}, reason
		}
	case startup.Native:
		if from.Kind == startup.Plain && !f.Proxy && c.pod.Start != startup.Native && requested != startup.Native {
			return startup.Container{}, startup.Answer{}, fmt.Sprintf("%s is a container of the application: it becomes a sidecar only if you ask for it (%s: native)", e.From, contract.Start)
		}
		judge = c.asSidecar(e, at, toAt)
	case startup.Hold:
		if reason := noHold(e, from, to); reason != "" {
			return startup.Container{}, startup.Answer{}, reason
		}
		two := startup.Plan{Containers: []startup.Container{to, from}} // the other containers have no influence
		judge = movedBefore(two, 1, 0, startup.Plain, f, startup.Healthy).Judge(c.on)
	}
	from, _ = judge.Find(e.From)
	return from, judge.Keeps(e.By, e), ""
}

// noHold returns the reason why podspec.Write would refuse a hold for the edge; empty if it would not.
func noHold(e startup.Edge, from, to startup.Container) string {
	if from.Kind != startup.Plain || to.Kind != startup.Plain {
		return fmt.Sprintf("%s and %s are not both plain containers", e.From, e.To)
	}
	if e.After != startup.Healthy {
		return podstart.HoldNeedsHealth(e.After)
	}
	return ""
}

// lacksHook reports whether the edge needs a postStart hook that waits in the container e.From, but that
// container already has another postStart hook.
func lacksHook(f podstart.Fact, e startup.Edge) bool {
	needs := e.By == startup.Hold || e.By == startup.Native && e.After == startup.Healthy && !f.Starts
	return needs && f.Hooked
}

// asSidecar returns the judge of the plan in which the container e.From becomes a sidecar. The parameters from
// and to are the indexes of the containers.
func (c *chooser) asSidecar(e startup.Edge, from, to int) *startup.Judge {
	key := moved{from, to, e.After == startup.Healthy}
	if list := c.plan.Containers; list[from].Kind == startup.Plain && list[to].Kind == startup.Plain {
		key.to = -1 // at the end of the init list, before all regular containers
	}
	if c.moved[key] == nil {
		written := movedBefore(c.plan, from, to, startup.Sidecar, c.pod.Facts[e.From], e.After)
		c.moved[key] = written.Judge(c.on)
	}
	return c.moved[key]
}

// noGate returns the reason why podspec.Write would refuse a gate for the edge; empty if it would not.
func (c *chooser) noGate(e startup.Edge, requested startup.Mechanism) string {
	switch missing := missingCommands(c.pod, e); {
	case slices.Contains(missing, e.To):
		return fmt.Sprintf("the command of %s is not in the pod spec, and %s", e.To, notLookedUp(c.pod, e.To))
	case len(missing) > 0:
		return fmt.Sprintf("the command of %s is not in the pod spec, so nothing can publish its state", e.From)
	}
	return c.firstProcess(e, requested)
}

// firstProcess returns the reason why a gate is not suitable for the edge: the command of one of the containers
// must be process 1, which a gate would be instead. It is empty if neither command requires that, or if a gate is
// requested explicitly.
func (c *chooser) firstProcess(e startup.Edge, requested startup.Mechanism) string {
	if requested == startup.Gate || c.pod.Start == startup.Gate {
		return ""
	}
	for _, name := range []string{e.To, e.From} {
		if c.pod.Facts[name].First && !c.pod.Facts[name].Proxy {
			return fmt.Sprintf("the command of %s has to be process 1, and that is the gate: ask for it (%s: gate) if this one need not be", name, contract.Start)
		}
	}
	return ""
}

// notLookedUp returns the reason why a command is not known from the image.
func notLookedUp(r podstart.Reading, name string) string {
	switch why := r.Unknown[name]; {
	case why != "":
		return "it is not known from its image: " + why
	case r.Unknown != nil:
		return "it is not known from its image"
	}
	return "looking it up in the image is opt-in"
}
