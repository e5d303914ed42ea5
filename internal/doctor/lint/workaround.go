package lint

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// workarounds finds sleeps, loops and hooks that people write to order containers. Each finding has the cases in
// which the work-around does not keep the order, and the annotation that replaces it.
func workarounds(s subject, b *builder) {
	for _, f := range s.reading.Found {
		if !slices.Contains(startup.WorkArounds, f.Mechanism) {
			continue
		}
		m, ok := s.member(f.Container)
		if !ok {
			continue
		}
		edges := f.Edges
		if len(edges) == 0 && s.captured() && m.kind == startup.Plain && !(f.Mechanism == startup.Sleep && m.offline()) {
			edges = s.edges([]string{m.Name})
		}
		c := clue{field: parsePath(f.Evidence.Field), evidence: f.Evidence.Text}
		switch {
		case len(edges) == 0 && f.Mechanism == startup.Sleep:
			if m.offline() {
				continue // it does nothing that could wait for something
			}
			c.code, c.severity = "fixed-sleep", finding.Note
			c.title = fmt.Sprintf("%s begins with %s, and the files do not show what it waits for", m.Name, f.By)
			c.why = "the time is a guess: sometimes too short, mostly too long"
			c.do = fmt.Sprintf("name what it waits for: %s.%s: NAME", contract.DependsOn, m.Name)
			b.add(c)
			continue
		case len(edges) == 0:
			continue
		case s.blocks(m, f, edges[0]):
			c.code = "start-deadlock"
			c.title = fmt.Sprintf("%s waits for %s, which the kubelet starts only after this wait of %s", m.Name, edges[0].From, m.Name)
			c.why, c.source = "the pod never starts: "+s.becauseOf(m), "kubelet v1.34.4 SyncPod step 8, computeInitContainerActions; exec hooks have no timeout (lifecycle/handlers.go)"
		default:
			s.describe(&c, f, edges[0])
		}
		c.do = fmt.Sprintf("request it by annotation: %s waits for %s%s", m.Name, edges[0].From, s.withOtherMesh(edges[0].From))
		if without, err := podspec.Without(&s.Pod, f); err == nil {
			var meant []startup.Edge
			for _, e := range edges {
				meant = append(meant, s.reading.Meant(e))
			}
			c.fix = s.requesting(without, meant)
		}
		b.add(c)
	}
}

// describe adds a title to a clue, and the cases in which the work-around does not keep its edge.
func (s *subject) describe(c *clue, f podstart.Found, e startup.Edge) {
	c.code = finding.Code(f.Mechanism)
	switch f.Mechanism {
	case startup.Sleep:
		c.code = "fixed-sleep"
		c.title = fmt.Sprintf("%s begins with %s instead of waiting until %s is ready", f.Container, f.By, e.From)
	case startup.HealthLoop:
		c.title = fmt.Sprintf("%s polls %s before its command (%s)", f.Container, e.From, f.By)
	case startup.BoundedLoop:
		c.code = finding.Code(startup.HealthLoop)
		c.title = fmt.Sprintf("%s polls %s a number of times before its command, and then continues anyway (%s)", f.Container, e.From, f.By)
	default:
		c.title = fmt.Sprintf("the postStart of %s checks whether %s is ready (%s)", f.Container, e.From, f.By)
	}
	var reasons, sources []string
	for _, l := range f.Mechanism.Keeps(s.plan.Expand(), e, s.on).Limits {
		reasons = append(reasons, l.Reason)
		if l.Source != "" {
			sources = append(sources, l.Source)
		}
	}
	c.why, c.source = strings.Join(reasons, "; "), strings.Join(sources, "; ")
}

// blocks reports whether the wait of m prevents the kubelet from ever starting the container that m waits for.
func (s *subject) blocks(m member, f podstart.Found, e startup.Edge) bool {
	from, listed := s.member(e.From)
	switch {
	case m.kind == startup.Init || m.kind == startup.Sidecar && f.Mechanism == startup.PostStartProbe:
		return !listed && s.kind() == startup.Plain || listed && from.at > m.at
	case f.Mechanism == startup.PostStartProbe && strings.Contains(f.Evidence.Field, ".exec"):
		return listed && from.at > m.at
	}
	return false
}

func (s *subject) becauseOf(m member) string {
	if m.kind == startup.Init {
		return "init containers run to their end, one after the other, before any other container"
	}
	return "a postStart that does not return keeps the kubelet from starting the next container"
}
