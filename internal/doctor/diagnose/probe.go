package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/diagnose/facts"
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
		s.elsewhere(f, c.Name, port)
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

// elsewhere changes a finding about a probe to whose port nothing listened, if the application's log says that it
// listens on others, or only on the loopback address.
func (s *subject) elsewhere(f *result.Finding, container, port string) {
	at, quote, local := s.ListensBeside(container, port)
	switch {
	case local:
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + fmt.Sprintf("; by its log, %s listens on the loopback address only", container)
		f.Evidence = append(f.Evidence, quote)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen on all addresses (0.0.0.0:%s): the kubelet asks the pod's own address", container, port)
	case at != "":
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + "; " + s.toOther(f, container, port, at, quote)
	}
}

// toOther says that a container listens on other ports than the one that a probe asks, in the rest of a finding and for
// its sentence.
func (s *subject) toOther(f *result.Finding, container, port, at string, quote evidence.Quote) string {
	f.Evidence = append(f.Evidence, quote)
	f.Disproof = fmt.Sprintf("a line of its log that says it listens on port %s", port)
	f.Remedy.Sentence = fmt.Sprintf("let the probes of %s, its containerPort and the Service's targetPort name port %s, or let it listen on %s", container, at, port)
	return fmt.Sprintf("by its log, %s listens on %s", container, at)
}

// asksElsewhere changes a finding about a container of whose probes no event is left, if one of them asks a port on
// which it does not listen by its log. It returns false if none does, or if the port may be of another container.
func (s *subject) asksElsewhere(f *result.Finding, container string, kinds ...string) bool {
	spec := s.Spec(container)
	for _, kind := range kinds {
		probe := states.ProbeOf(spec, kind)
		if probe == nil || probe.Exec != nil {
			continue
		}
		port, path := states.Probed("", probe, spec)
		n, _ := strconv.Atoi(port)
		if strings.HasPrefix(path, "/app-health/") || s.Declares(n, container) != "" || s.Proxy != nil && facts.ListensFor(s.Proxy.Name, n) != "" {
			continue
		}
		if at, quote, _ := s.ListensBeside(container, port); at != "" {
			f.Sentence += fmt.Sprintf(": its %s probe asks port %s; %s", kind, port, s.toOther(f, container, port, at, quote))
			return true
		}
	}
	return false
}
