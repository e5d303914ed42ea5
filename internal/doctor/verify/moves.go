package verify

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// describe returns a text that describes the fault of a move.
func describe(m gates.Move) string {
	e := m.Event
	switch {
	case m.Kind == gates.Sickened:
		return e.Container + " becomes unhealthy"
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

// make applies a move to a node.
func (s *search) make(n node, m gates.Move) (node, startup.Timeline) {
	happened := m.Apply(&n.kubelet, &n.gates)
	if m.Fault != "" {
		n.faults--
	}
	s.watch(&n, happened)
	return n, happened
}

// moves returns all transitions from a state, always in the same order.
func (s *search) moves(n node) []gates.Move {
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
	c.time(open)
	return c.out
}

// A collector gathers the moves from one state.
type collector struct {
	*search
	node   node
	now    time.Duration
	faulty bool // faults are allowed
	out    []gates.Move
}

func (c *collector) add(e kubelet.Event) {
	c.out = append(c.out, gates.Move{Kind: gates.Observed, Event: e})
}

// within adds a transition inside a container, which the kubelet does not see.
func (c *collector) within(kind gates.MoveKind, name string) {
	c.out = append(c.out, gates.Move{Kind: kind, Event: kubelet.Event{At: c.now, Container: name}})
}

func (c *collector) fault(f Fault, kind gates.MoveKind, e kubelet.Event) {
	if c.faulty && (len(c.bound.Only) == 0 || slices.Contains(c.bound.Only, f)) {
		c.out = append(c.out, gates.Move{Kind: kind, Event: e, Fault: string(f)})
	}
}

// atOnce adds the results of actions that take no time (SIGKILL and probes), and the return of a preStop sleep whose
// time is over. It returns true if it has added an event; no other event is tried then, which is a reduction.
func (c *collector) atOnce(open []kubelet.Action) bool {
	for _, a := range open {
		e, _ := a.Answer(c.now, true)
		switch a.Kind {
		case kubelet.Kill:
			c.add(e)
			return true
		case kubelet.RunHook:
			if sleeps(a) && c.now >= a.At+a.Timeout {
				c.add(e)
				return true
			}
		case kubelet.RunProbe:
			var answered bool
			if e.OK, answered = c.node.gates.Probe(a); !answered {
				continue // the probe has no result before the gate opens or the probe times out
			}
			c.add(e)
			if e.OK {
				e.OK = false
				c.fault(BadProbe, gates.Observed, e)
			}
			return true
		}
	}
	return false
}

// answers adds the success and the failure of an open action of the kubelet.
func (c *collector) answers(a kubelet.Action) {
	well, _ := a.Answer(c.now, true)
	badly, _ := a.Answer(c.now, false)
	switch {
	case a.Kind == kubelet.RunProbe:
		return // atOnce adds the results of probes
	case a.Kind == kubelet.Stop:
		c.stops(a, well)
		return
	case a.Kind == kubelet.RunHook && !c.hookReturns(a):
		if sleeps(a) {
			return // a sleep cannot return earlier or fail
		}
	default:
		c.add(well)
	}
	c.fault(badEnd[a.Kind], gates.Observed, badly)
}

// stops adds the end of a container after SIGTERM. A container that still waits before its command ends with code
// 143, because it has not completed.
func (c *collector) stops(a kubelet.Action, e kubelet.Event) {
	switch {
	case c.holdsStop(a), c.node.gates.IgnoresStop(e.Container):
		return
	case c.node.gates.Waits(e.Container):
		e.Code = 143
	}
	c.add(e)
}

// holdsStop reports whether a container keeps running for others: its gate does not pass SIGTERM on, or its preStop hook
// does not return.
func (c *collector) holdsStop(a kubelet.Action) bool {
	holds := a.Kind == kubelet.Stop && !c.question.Pod.PreStopWaits(a.Container) || a.Which == kubelet.PreStop && a.Handler == kubelet.Gate
	return holds && c.now < c.holdsUntil(a) && c.node.gates.HoldsStop(a.Container)
}

func (c *collector) holdsUntil(a kubelet.Action) time.Duration {
	return gates.HoldsUntil(c.question.Pod, c.node.kubelet, a)
}

var badEnd = map[kubelet.ActionKind]Fault{
	kubelet.CreateSandbox: NoSandbox,
	kubelet.Pull:          NoImage,
	kubelet.Start:         NoStart,
	kubelet.RunHook:       BadHook,
}

// hookReturns reports whether a hook may return now with success. A postStart hook that stands for health returns
// only when the container is healthy, and a preStop hook that waits for other containers only when they have ended. A
// preStop sleep never returns here, because atOnce adds its return.
func (c *collector) hookReturns(a kubelet.Action) bool {
	name := a.Container
	if a.Which == kubelet.PreStop {
		return !sleeps(a) && c.now >= a.At+a.Timeout && !c.holdsStop(a)
	}
	for _, e := range c.edges {
		if e.By == startup.PostStartProbe && e.To == name && !c.node.gates.Reached(e) {
			return false
		}
	}
	container, _ := c.question.Plan.Find(name)
	return container.Health != startup.PostStart || c.node.gates.Healthy(name)
}

// ends adds the ends of a container: its command may complete, if [search.mayFinish] contains the container, and it
// may crash. SIGKILL (out of memory) is a separate case if a gate publishes the container's state, because that gate
// is killed too and does not publish the end.
func (c *collector) ends(name string) {
	if c.finishes[name] && c.node.gates.Runs(name) && !(c.node.gates.Deleted() && c.awaited[name]) && !c.serves[name] {
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name})
	}
	c.fault(Crash, gates.Observed, kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: 1})
	if c.published[name] {
		c.fault(Kill, gates.Observed, kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: gates.Killed})
	}
}

// health adds the event that a container becomes healthy, which may happen at any time or never, or the fault that it
// becomes unhealthy.
func (c *collector) health(name string) {
	switch {
	case !c.observed[name] || !c.healthMatters(&c.node, name):
	case c.node.gates.Healthy(name):
		c.fault(Unhealthy, gates.Sickened, kubelet.Event{At: c.now, Container: name})
	case c.node.gates.CanBeHealthy(name):
		c.within(gates.Recovered, name)
	}
}

func (c *collector) gate(name string) {
	switch {
	case !c.node.gates.Waits(name):
	case c.node.gates.GivesUp(name, c.now):
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: name, Code: 1})
	case c.node.gates.MayRun(name, c.now):
		c.within(gates.Released, name)
	}
}

// obligations adds the moves of gates whose dependency has restarted: they notify their commands, or end them.
func (c *collector) obligations() {
	for _, o := range c.node.gates.Obligations() {
		switch {
		case !o.Enforced:
		case o.Edge.OnRestart == startup.RestartTo:
			c.add(kubelet.Event{At: c.now, Kind: kubelet.Exited, Container: o.Edge.To, Code: 1})
		default:
			c.within(gates.Notified, o.Edge.To)
			c.out[len(c.out)-1].Edge = &o.Edge
		}
	}
}

// pod adds the deletion of the pod and the death of its sandbox.
func (c *collector) pod() {
	if c.question.Promise == Stops && !c.node.gates.Deleted() {
		c.add(kubelet.Event{At: c.now, Kind: kubelet.Deleted})
	}
	if len(c.node.kubelet.Running()) > 0 {
		c.fault(NoSandbox, gates.Observed, kubelet.Event{At: c.now, Kind: kubelet.SandboxDied})
	}
}

// time adds the move in which time passes until the next time at which the kubelet, a gate or a sleep acts.
func (c *collector) time(open []kubelet.Action) {
	at, ok := c.node.kubelet.Next()
	if wait, waits := c.node.gates.Next(c.now); waits && (!ok || wait < at) {
		at, ok = wait, true
	}
	wake := func(t time.Duration) {
		if t > c.now && (!ok || t < at) {
			at, ok = t, true
		}
	}
	for _, a := range open {
		if a.Which == kubelet.PreStop {
			wake(a.At + a.Timeout)
		}
		if c.holdsStop(a) {
			wake(c.holdsUntil(a))
		}
	}
	if ok && !c.outlastsGrace(at) && !c.outlastsHolds(open, at) {
		c.add(kubelet.Event{At: at, Kind: kubelet.Tick})
	}
}

// sleeps reports whether an open action is a preStop sleep.
func sleeps(a kubelet.Action) bool { return a.Which == kubelet.PreStop && a.Handler == kubelet.Sleep }

// outlastsGrace reports whether a grace period is over at that time, for one of the containers on which the order of
// stops depends. The kubelet then no longer keeps the order: it sends SIGTERM to all sidecars, and SIGKILL up to two
// seconds later. The model assumes that no container takes so long (see [omitsSlowStop]). Containers that ignore
// SIGTERM are the exception, because they certainly take the whole grace period.
func (c *collector) outlastsGrace(at time.Duration) bool {
	if c.question.Promise != Stops || !c.node.gates.Deleted() {
		return false
	}
	return slices.ContainsFunc(c.slowStops, func(name string) bool {
		end, stops := c.node.kubelet.GraceEnd(name)
		return stops && at >= end && !c.node.gates.IgnoresStop(name)
	})
}

// outlastsHolds reports whether at that time a gate or a preStop hook no longer waits for others that still run. The model
// assumes that none takes so long (see [omitsLateStop]), except for those that certainly do.
func (c *collector) outlastsHolds(open []kubelet.Action, at time.Duration) bool {
	return slices.ContainsFunc(open, func(a kubelet.Action) bool {
		return at >= c.holdsUntil(a) && c.holdsStop(a) && !slices.ContainsFunc(c.node.gates.HeldBy(a.Container), func(name string) bool {
			return c.late[name] || c.node.gates.IgnoresStop(name)
		})
	})
}

// heldFor returns the containers for which gates and preStop hooks keep others running, except those in late, for which
// they do not do so to the end.
func heldFor(p startup.Plan, late map[string]bool) (out []string) {
	for _, e := range p.Expand().Edges {
		if from, _ := p.Find(e.From); e.By == startup.Gate && e.After != startup.Completed && !from.LeavesFirst() {
			out = append(out, e.To)
		}
	}
	for _, c := range p.Containers {
		out = append(out, c.Outlives...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return late[name] })
}

// slowStops returns the containers that, by the plan, must end before other containers, and whose stop takes an
// unknown time: containers with a preStop hook of unknown length, sidecars, and the containers for which these
// sidecars wait. The stop of other containers has a known end: SIGKILL at the end of the grace period, or the end of
// a preStop sleep. A grace period that is too short for an order is over before any container has stopped, so that of
// none it is assumed that it ends in time.
func slowStops(q Question) (out []string) {
	if !q.Pod.OrdersStops() {
		return nil
	}
	edges := q.Plan.Expand().Edges
	first := func(name string) bool {
		return slices.ContainsFunc(edges, func(e startup.Edge) bool { return e.To == name && e.After != startup.Completed })
	}
	for i, c := range q.Pod.Init {
		if c.Restart != kubelet.Always || !first(c.Name) {
			continue
		}
		for _, waited := range slices.Concat(q.Pod.Init[i:], q.Pod.Containers) {
			out = append(out, waited.Name)
		}
	}
	for _, c := range q.Pod.Containers {
		if first(c.Name) && c.PreStop != kubelet.NoHandler && c.PreStop != kubelet.Sleep {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	late := gates.OutlastGrace(q.Pod, q.Plan) // containers that certainly take the whole grace period
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return late[name] })
}

// healthObserved returns the containers whose health has an effect, on an edge, a probe or a hook.
func (s *search) healthObserved() map[string]bool {
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

// from returns the dependencies of the edges that have one of the conditions.
//
// Two kinds of them may not complete in the search, because that counts as a crash: containers that must outlive
// others, while the pod stops (if they end by themselves, no mechanism can help), and containers that must be
// healthy.
func (s *search) from(conditions ...startup.Condition) map[string]bool {
	out := map[string]bool{}
	for _, e := range s.edges {
		if slices.Contains(conditions, e.After) {
			out[e.From] = true
		}
	}
	return out
}

// mayFinish returns the containers that may complete. For containers that the kubelet always restarts, and for those
// in [Question.Endless], exit code 0 counts as a crash.
func (s *search) mayFinish() map[string]bool {
	out := map[string]bool{}
	finishes := func(c kubelet.Container, restart kubelet.RestartPolicy) {
		out[c.Name] = c.Restart != kubelet.Always && restart != kubelet.Always && restart != "" && !slices.Contains(s.question.Endless, c.Name)
	}
	for _, c := range s.question.Pod.Init {
		finishes(c, kubelet.Never)
	}
	for _, c := range s.question.Pod.Containers {
		finishes(c, s.question.Pod.Restart)
	}
	return out
}

// recordIsRead returns the containers whose published state a gate of another container reads. Stale states of all
// other containers have no effect.
func (s *search) recordIsRead() map[string]bool {
	out := map[string]bool{}
	for _, e := range s.edges {
		if e.By == startup.Gate {
			out[e.From] = true
		}
	}
	return out
}
