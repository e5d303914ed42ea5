package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A siblingCause is a row of the table of reasons why no container listened at an address of its own pod.
type siblingCause struct {
	is func(*siblingCall) bool
	do func(*subject, *result.Finding, *siblingCall)
}

// A siblingCall is a call that was refused at an address of its own pod.
type siblingCall struct {
	calls.Call
	serves  *evidence.Container // the container that is set to listen there; nil: none is
	run     *evidence.Run       // its last run that started before the call; nil: none did, or that is not known
	deleted bool                // the pod is being deleted
	up      bool                // its log says that it listened before the call
	said    *evidence.Quote     // the line by which it says that it listens; nil: it has none
}

// siblingCauses has the remedies for calls to the own pod; the first that fits counts. The order of the containers is a
// remedy only where the order is the fault.
var siblingCauses = []siblingCause{
	{func(c *siblingCall) bool { return c.serves == nil }, (*subject).nothingListens},
	{func(c *siblingCall) bool { return c.deleted && c.ended() }, func(s *subject, f *result.Finding, c *siblingCall) {
		s.remedy(f, remedies.Stop, c.serves.Name, f.Container, c.To.Port)
	}},
	{(*siblingCall).failed, (*subject).seeItsEnd},
	{(*siblingCall).early, func(s *subject, f *result.Finding, c *siblingCall) {
		if r := c.serves.Run(0); r != nil && r.Started.Known() && c.At.Known() {
			f.Sentence = fmt.Sprintf("%s called its own pod at %s before %s listened there", f.Container, c.To, c.serves.Name)
			f.Evidence = append(f.Evidence, s.Quote(r.Started, "%s started", c.serves.Name))
		} else if c.said != nil {
			f.Sentence = fmt.Sprintf("%s called its own pod at %s, most likely before %s listened there", f.Container, c.To, c.serves.Name)
			f.Evidence, f.Confidence = append(f.Evidence, *c.said), result.Likely
			if c.said.At.Compare(c.At) == evidence.After {
				f.Sentence = strings.Replace(f.Sentence, "most likely ", "", 1)
			}
		}
		s.remedy(f, s.startPurpose(), c.serves.Name, f.Container, c.To.Port)
	}},
	{func(*siblingCall) bool { return true }, func(s *subject, f *result.Finding, c *siblingCall) {
		f.Remedy = finding.Remedy{
			Sentence: fmt.Sprintf("see whether %s listens at %s: it is set to, and ran", c.serves.Name, c.To),
			Command:  s.Kubectl("logs %s -c %s --timestamps", s.Object.Name, c.serves.Name),
		}
	}},
}

// sibling sets the remedy of a finding about a call that was refused at an address of the own pod.
func (s *subject) sibling(f *result.Finding, y calls.Call) {
	c := &siblingCall{Call: y, serves: s.listensAt(y), deleted: s.Deleted()}
	if c.serves != nil {
		said, says := s.ListensAt(c.serves.Name, y.To.Port)
		if says {
			c.said = &said
		}
		c.up = said.At.Compare(y.At) == evidence.Before
		for i, r := range c.serves.Runs {
			if r.Started.Compare(y.At) == evidence.Before || !y.At.Known() && s.before(r, y) {
				c.run = &c.serves.Runs[i]
			}
		}
	}
	i := slices.IndexFunc(siblingCauses, func(r siblingCause) bool { return r.is(c) })
	siblingCauses[i].do(s, f, c)
}

// helperFirst sets the remedy of a finding about a call to a helper that was not up yet.
func (s *subject) helperFirst(f *result.Finding, y calls.Call) {
	if c := s.notYetUp(y); c != nil {
		s.remedy(f, s.startPurpose(), c.Name, f.Container, y.To.Port)
	}
}

// before reports whether a run started before the run that made a call whose time is not known.
func (s *subject) before(r evidence.Run, y calls.Call) bool {
	caller := s.Container(y.Container).Run(y.Run)
	return caller != nil && r.Started.Compare(caller.Started) == evidence.Before
}

// ended reports whether the run of the sibling had ended at the time of the call, as far as the clocks say.
func (c *siblingCall) ended() bool {
	return c.run != nil && c.run.Finished.Known() && c.run.Finished.Compare(c.At) != evidence.After
}

// failed reports whether the sibling fails by itself: its last run before the call failed, or it cannot run.
func (c *siblingCall) failed() bool {
	bad := c.run != nil && c.run.Exit != nil && *c.run.Exit != 0 && c.ended()
	return bad || c.serves.Waiting != nil && c.serves.Waiting.Reason != "PodInitializing" && c.serves.Waiting.Reason != "ContainerCreating"
}

// early reports whether the call came before the sibling could listen: it had not started, or only just.
func (c *siblingCall) early() bool {
	if c.run == nil {
		return !c.up
	}
	_, most, ok := c.At.Since(c.run.Started)
	return !ok || most < facts.Settled
}

// seeItsEnd sets the remedy for a sibling that fails by itself.
func (s *subject) seeItsEnd(f *result.Finding, c *siblingCall) {
	why := "it does not run"
	switch w := c.serves.Waiting; {
	case c.run != nil && c.run.Exit != nil:
		why = "it ended (" + facts.ExitText(*c.run) + ")"
	case w != nil && w.Reason != "":
		why = "it waits (" + w.Reason + ")"
	}
	f.Remedy = finding.Remedy{Command: s.Kubectl("describe pod %s", s.Object.Name)}
	if last := c.serves.Last(); last != nil {
		f.Remedy = s.SeeLog(c.serves.Name, last.Number)
	}
	f.Remedy.Sentence = fmt.Sprintf("see first why %s, which is set to listen there, does not: %s; the order of the containers is not the cause", c.serves.Name, why)
}

// nothingListens sets the remedy for an address at which no container is set to listen.
func (s *subject) nothingListens(f *result.Finding, c *siblingCall) {
	f.Remedy.Sentence = fmt.Sprintf("correct the address that %s calls, or have a container listen there: none of the pod is known to listen at %s", f.Container, c.To)
	var ports []string
	for _, o := range s.Containers {
		if spec := s.Spec(o.Name); spec != nil && o.Name != f.Container && o.Kind != startup.Init {
			if p := facts.PortsOf(spec); len(p) > 0 {
				ports = append(ports, fmt.Sprintf("%s: %s", o.Name, strings.Join(p, ", ")))
			}
		}
	}
	if len(ports) > 0 {
		f.Remedy.Sentence += " (" + strings.Join(ports, "; ") + ")"
	}
}

// listensAt returns the container of the pod that is set to listen where a call went, and nil if none is.
func (s *subject) listensAt(y calls.Call) *evidence.Container {
	port := fmt.Sprint(y.To.Port)
	for _, c := range s.Containers {
		spec := s.Spec(c.Name)
		if spec == nil || c.Name == y.Container || c.Kind == startup.Init || c.Kind == evidence.Ephemeral {
			continue
		}
		if c == s.Proxy && slices.Contains(s.upstreamPorts(), port) {
			return c
		}
		_, says := s.ListensAt(c.Name, y.To.Port)
		if says || y.To.Network == doctor.Unix && facts.ListensIn(spec, y.To.Host) || y.To.Port > 0 && slices.Contains(facts.PortsOf(spec), port) {
			return c
		}
	}
	return nil
}

// upstreamPorts returns the ports at which Consul's proxy listens for the services that an annotation names: name:port,
// with more parts behind it. Source: developer.hashicorp.com/consul/docs/k8s/annotations-and-labels.
func (s *subject) upstreamPorts() (out []string) {
	for one := range strings.SplitSeq(s.Object.Annotations["consul.hashicorp.com/connect-service-upstreams"], ",") {
		parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(one), "prepared_query:"), ":")
		if len(parts) > 1 {
			out = append(out, parts[1])
		}
	}
	return out
}
