package verify

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/model/gates"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// A move is one transition.
type move struct {
	kind  moveKind
	event kubelet.Event // of one that the kubelet sees
	name  string
	edge  startup.Edge // of notify
	fault Fault        // empty: none
}

type moveKind int

const (
	observed  moveKind = iota // by the kubelet
	release                   // the gate of a container opens
	healthy                   // a container becomes healthy
	unhealthy                 // or no longer is
	notify                    // a gate notifies its container that From has restarted
)

func (m move) String() string {
	e := m.event
	switch {
	case m.kind == unhealthy:
		return m.name + " becomes unhealthy"
	case m.kind != observed:
		return m.name
	case e.Kind == kubelet.SandboxDied:
		return "the sandbox dies"
	case e.Kind == kubelet.SandboxReady:
		return "the sandbox cannot be made"
	case e.Kind == kubelet.Exited && e.Code == gates.Killed:
		return e.Container + " is killed"
	case e.Kind == kubelet.Exited:
		return e.Container + " crashes"
	case e.Kind == kubelet.Pulled:
		return "the image of " + e.Container + " is missing"
	case e.Kind == kubelet.Started:
		return e.Container + " cannot be started"
	case e.Kind == kubelet.ProbeAnswered:
		return fmt.Sprintf("the %s probe of %s fails", e.Which, e.Container)
	default:
		return fmt.Sprintf("%s of %s fails", e.Which, e.Container)
	}
}

// make applies a move.
func (s *search) make(n node, m move) (node, startup.Timeline) {
	now := n.kubelet.Now()
	var happened startup.Timeline
	switch m.kind {
	case release:
		n.gates, happened = n.gates.Release(m.name, now)
	case healthy, unhealthy:
		n.gates, happened = n.gates.SetHealth(m.name, m.kind == healthy, now)
	case notify:
		n.gates, happened = n.gates.Notify(m.edge, now)
	default:
		before := n.kubelet
		after, actions := before.Step(m.event)
		n.kubelet = after
		n.gates, happened = n.gates.Follow(m.event, kubelet.Happened(before, m.event, actions))
	}
	if m.fault != "" {
		n.faults--
	}
	return n, happened
}

// moves returns all transitions from a state, always in the same order.
func (s *search) moves(n node) []move {
	c := &collector{search: s, node: n, now: n.kubelet.Now()}
	c.faulty = n.faults > 0 && !n.gates.Deleted() && (!s.bound.Settled || n.gates.RanOnce())
	open := n.kubelet.Open()
	if c.atOnce(open) {
		return c.out
	}
	for _, a := range open {
		c.answers(a)
	}
	for _, name := range n.kubelet.Running() {
		c.ends(name)
		c.health(name)
		c.gate(name)
	}
	c.obligations()
	c.pod()
	c.time()
	return c.out
}

// A collector gathers the moves from one state.
type collector struct {
	*search
	node   node
	now    time.Duration
	faulty bool // a fault may happen
	out    []move
}

func (c *collector) add(e kubelet.Event) { c.out = append(c.out, move{event: e}) }

func (c *collector) fault(f Fault, m move) {
	if c.faulty && (len(c.bound.Only) == 0 || slices.Contains(c.bound.Only, f)) {
		m.fault = f
		c.out = append(c.out, m)
	}
}

// atOnce: SIGKILL takes no time, and neither does a probe. While one of them is due nothing
// else happens. It is a reduction.
func (c *collector) atOnce(open []kubelet.Action) bool {
	for _, a := range open {
		e, _ := a.Answer(c.now, true)
		switch a.Kind {
		case kubelet.Kill:
			c.add(e)
			return true
		case kubelet.RunProbe:
			var answered bool
			if e.OK, answered = c.node.gates.Probe(a); !answered {
				continue // until the gate opens, or the probe's time is over
			}
			c.add(e)
			if e.OK {
				e.OK = false
				c.fault(BadProbe, move{event: e})
			}
			return true
		}
	}
	return false
}

// answers: an action of the kubelet succeeds, or fails.
func (c *collector) answers(a kubelet.Action) {
	well, _ := a.Answer(c.now, true)
	badly, _ := a.Answer(c.now, false)
	switch {
	case a.Kind == kubelet.RunProbe:
		return // atOnce answers all that have an answer
	case a.Kind == kubelet.Stop:
		c.stops(well)
		return
	case a.Kind == kubelet.RunHook && a.Which == kubelet.PostStart && !c.hookReturns(a.Container):
	default:
		c.add(well)
	}
	c.fault(badEnd[a.Kind], move{event: badly})
}

// stops: a container ends some time after SIGTERM. One that still waits has not completed.
func (c *collector) stops(e kubelet.Event) {
	switch {
	case c.node.gates.HoldsStop(e.Container), c.node.gates.IgnoresStop(e.Container):
		return
	case c.node.gates.Waits(e.Container):
		e.Code = 143
	}
	c.add(e)
}

var badEnd = map[kubelet.ActionKind]Fault{
	kubelet.CreateSandbox: NoSandbox,
	kubelet.Pull:          NoImage,
	kubelet.Start:         NoStart,
	kubelet.RunHook:       BadHook,
}

// hookReturns: a postStart that stands for health returns when there is health.
func (c *collector) hookReturns(name string) bool {
	for _, e := range c.edges {
		if e.By == startup.PostStartProbe && e.To == name && !c.node.gates.Reached(e) {
			return false
		}
	}
	container, _ := c.question.Plan.Find(name)
	return container.Health != startup.PostStart || c.node.gates.Healthy(name)
}

// ends: a command may complete, if it is one that does; every command may crash; and
// SIGKILL (out of memory) ends a gate too, which then does not publish the end.
func (c *collector) ends(name string) {
	if c.finishes[name] && c.node.gates.Runs(name) {
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name})
	}
	c.fault(Crash, move{event: kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: 1}})
	if c.published[name] {
		c.fault(Kill, move{event: kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: gates.Killed}})
	}
}

// health: a container becomes healthy sooner or later, or never.
func (c *collector) health(name string) {
	switch {
	case !c.observed[name]:
	case c.node.gates.Healthy(name):
		c.fault(Unhealthy, move{kind: unhealthy, name: name})
	case c.node.gates.CanBeHealthy(name):
		c.out = append(c.out, move{kind: healthy, name: name})
	}
}

func (c *collector) gate(name string) {
	switch {
	case !c.node.gates.Waits(name):
	case c.node.gates.GivesUp(name, c.now):
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: 1})
	case c.node.gates.MayRun(name, c.now):
		c.out = append(c.out, move{kind: release, name: name})
	}
}

// obligations: when a dependency restarted, its gates notify their containers, or end them.
func (c *collector) obligations() {
	for _, o := range c.node.gates.Obligations() {
		switch {
		case !o.Enforced:
		case o.Edge.OnRestart == startup.RestartTo:
			c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: o.Edge.To, Code: 1})
		default:
			c.out = append(c.out, move{kind: notify, name: o.Edge.To, edge: o.Edge})
		}
	}
}

// pod: it may be deleted, and its sandbox may die.
func (c *collector) pod() {
	if c.question.Promise == Stops && !c.node.gates.Deleted() {
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Deleted})
	}
	if len(c.node.kubelet.Running()) > 0 {
		c.fault(NoSandbox, move{event: kubelet.Event{At: c.now, Kind: kubelet.SandboxDied}})
	}
}

// time passes until something is due.
func (c *collector) time() {
	at, ok := c.node.kubelet.Next()
	if wait, waits := c.node.gates.Next(c.now); waits && (!ok || wait < at) {
		at, ok = wait, true
	}
	if ok {
		c.add(kubelet.Event{At: at, Kind: kubelet.Tick})
	}
}

// healthMatters returns the containers that an edge, a probe or a hook needs healthy.
func (s *search) healthMatters() map[string]bool {
	out := map[string]bool{}
	for _, e := range s.edges {
		if e.After == startup.Healthy {
			out[e.From] = true
		}
	}
	for _, c := range append(append([]kubelet.Container(nil), s.question.Pod.Init...), s.question.Pod.Containers...) {
		in, _ := s.question.Plan.Find(c.Name)
		if c.Startup.Handler != "" || c.Liveness.Handler != "" || in.Health == startup.PostStart && c.PostStart != "" {
			out[c.Name] = true
		}
	}
	return out
}

// mayFinish returns the containers that the kubelet does not always restart. For the others
// exit code 0 is like a crash.
func (s *search) mayFinish() map[string]bool {
	out := map[string]bool{}
	finishes := func(c kubelet.Container, restart kubelet.RestartPolicy) {
		out[c.Name] = c.Restart != kubelet.Always && restart != kubelet.Always && restart != ""
	}
	for _, c := range s.question.Pod.Init {
		finishes(c, kubelet.Never)
	}
	for _, c := range s.question.Pod.Containers {
		finishes(c, s.question.Pod.Restart)
	}
	return out
}

// recordIsRead returns the containers with a published record that a gate reads. Whether
// another record is stale does not matter.
func (s *search) recordIsRead() map[string]bool {
	out := map[string]bool{}
	for _, e := range s.edges {
		if e.By == startup.Gate {
			out[e.From] = true
		}
	}
	return out
}
