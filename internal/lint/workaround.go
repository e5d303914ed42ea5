package lint

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// workarounds are what people wrote before there was an order: each with what it does
// not keep, and the annotation in its place.
func workarounds(s subject, b *builder) {
	for _, f := range s.reading.Found {
		if !slices.Contains([]startup.Mechanism{startup.Sleep, startup.HealthLoop, startup.BoundedLoop, startup.PostStartProbe}, f.Mechanism) {
			continue
		}
		m, ok := s.member(f.Container)
		if !ok {
			continue
		}
		edges := f.Edges
		if len(edges) == 0 && s.captured() && m.kind == startup.Plain {
			edges = s.edges([]string{m.Name})
		}
		c := clue{field: parsePath(f.Evidence.Field), evidence: f.Evidence.Text}
		switch {
		case len(edges) == 0 && f.Mechanism == startup.Sleep:
			c.code, c.severity = "sleep", finding.Note
			c.title = fmt.Sprintf("%s begins with %s, and nothing in the files says for whom it waits", m.Name, f.By)
			c.why = "a time is a guess: too short on a bad day, too long on all others"
			c.do = fmt.Sprintf("name what it waits for: %s.%s: NAME", podspec.EdgesAnnotation, m.Name)
			b.add(c)
			continue
		case len(edges) == 0:
			continue
		case s.blocks(m, f, edges[0]):
			c.code = "start-deadlock"
			c.title = fmt.Sprintf("%s waits for %s, which the kubelet starts only after %s is done waiting", m.Name, edges[0].From, m.Name)
			c.why, c.source = "the pod never starts: "+s.becauseOf(m), "kubelet v1.34.4 SyncPod step 8, computeInitContainerActions; exec hooks have no timeout (lifecycle/handlers.go)"
		default:
			s.describe(&c, f, edges[0])
		}
		c.do = fmt.Sprintf("ask for it instead: %s waits for %s%s", m.Name, edges[0].From, besideOther(edges[0].From))
		if without, err := podspec.Without(&s.Pod, f); err == nil {
			var meant []startup.Edge
			for _, e := range edges {
				meant = append(meant, s.reading.Meant(e))
			}
			c.fix = s.asking(without, meant)
		}
		b.add(c)
	}
}

// describe is what a work-around does not keep, in the words of its mechanism.
func (s *subject) describe(c *clue, f podspec.Found, e startup.Edge) {
	c.code = finding.Code(f.Mechanism)
	switch f.Mechanism {
	case startup.Sleep:
		c.title = fmt.Sprintf("%s begins with %s and hopes that %s is ready then", f.Container, f.By, e.From)
	case startup.HealthLoop:
		c.title = fmt.Sprintf("%s asks %s in a loop before its command (%s)", f.Container, e.From, f.By)
	case startup.BoundedLoop:
		c.code = finding.Code(startup.HealthLoop)
		c.title = fmt.Sprintf("%s asks %s a number of times before its command, and then goes on all the same (%s)", f.Container, e.From, f.By)
	default:
		c.title = fmt.Sprintf("the postStart of %s asks whether %s is ready (%s)", f.Container, e.From, f.By)
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

// blocks says whether the wait of m keeps the kubelet from ever starting the container
// that it waits for.
func (s *subject) blocks(m member, f podspec.Found, e startup.Edge) bool {
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
