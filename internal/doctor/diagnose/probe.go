package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
)

// answered adds what a probe of a container got to the finding about it: in its sentence, its evidence and its remedy.
func (s *subject) answered(f *result.Finding, c *evidence.Container, kind string) {
	text := s.ProbeText(c.Name, kind)
	q, said := s.ProbedByAgent(c.Name)
	if said { // the kubelet sees only the agent's answer
		text = q.Text
		f.Evidence = append(f.Evidence, q)
	}
	i := slices.IndexFunc(states.Answers, func(a states.Answer) bool { return a.Form.MatchString(text) })
	if text == "" || i < 0 {
		return
	}
	probe := states.ProbeOf(s.Spec(c.Name), kind)
	port, path := states.Probed(text, probe, s.Spec(c.Name))
	status := ""
	if m := states.Answers[i].Form.FindStringSubmatch(text); len(m) > 1 {
		status = m[1]
	}
	if r, is := s.Relay(c.Name, port, path, status); is && !said {
		r.Explain(f, c.Name, status)
		return
	}
	timeout := int32(1)
	if probe != nil {
		timeout = max(probe.TimeoutSeconds, 1)
	}
	fill := strings.NewReplacer("{c}", c.Name, "{port}", cmp.Or(port, "of the probe"), "{path}", cmp.Or(path, "its path"), "{status}", status, "{timeout}", fmt.Sprintf("%d s", timeout))
	f.Sentence += ": " + fill.Replace(states.Answers[i].Says)
	f.Remedy.Sentence = cmp.Or(fill.Replace(states.Answers[i].Remedy), f.Remedy.Sentence)
	if states.RefusedProbe.MatchString(text) {
		if s.Proxy != nil && s.Capture.None == "" && !said { // the probe's connection may be captured
			f.Sentence = strings.Replace(f.Sentence, ": nothing listened on port "+port+" then", ": its connection to port "+port+" was refused", 1)
		}
		s.Elsewhere(f, c.Name, port)
	}
}

// unheard changes the finding about a helper that is not ready to one about the container that it asks, and which does
// not listen there.
func (s *subject) unheard(f *result.Finding, helper string) {
	u, is := s.Asks(helper)
	if !is {
		return
	}
	f.Sentence = fmt.Sprintf("%s is not ready, since it asks %s on port %d, where nothing listens", helper, u.Container, u.Port)
	f.Remedy.Sentence = fmt.Sprintf("see whether %s listens on port %d", u.Container, u.Port)
	f.Evidence = append(f.Evidence, u.Quotes...)
	if u.At != "" {
		f.Container = u.Container
		f.Sentence += fmt.Sprintf("; by its log, %s listens on %s", u.Container, u.At)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen on port %d (in Knative, $PORT has it), or set its containerPort to %s", u.Container, u.Port, u.At)
	}
}
