package diagnose

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podspec"
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
	serves  *evidence.Container // the container that is set to listen there, or may listen there; nil: none does
	known   bool                // it is set to
	spec    *corev1.Container   // its specification
	run     *evidence.Run       // its last run that started before the call; nil: none did, or that is not known
	deleted bool                // the pod is being deleted
	up      bool                // its log says that it listened before the call
	said    *evidence.Quote     // the line by which it says that it listens; nil: it has none
	after   bool                // the kubelet starts it only when its caller, an init container, has ended
}

// siblingCauses has the remedies for calls to the own pod; the first that fits counts. The order of the containers is a
// remedy only where the order is the fault.
var siblingCauses = []siblingCause{
	{func(c *siblingCall) bool { return c.serves == nil }, (*subject).nothingListens},
	{func(c *siblingCall) bool { return c.after }, (*subject).comesAfter},
	{func(c *siblingCall) bool { return c.deleted && c.ended() }, func(s *subject, f *result.Finding, c *siblingCall) {
		s.remedy(f, remedies.Stop, c.serves.Name, f.Container, c.To.Port)
	}},
	{(*siblingCall).failed, (*subject).seeItsEnd},
	{(*siblingCall).early, func(s *subject, f *result.Finding, c *siblingCall) {
		r := c.run
		if r == nil {
			r = c.serves.Run(0)
		}
		if r != nil && r.Started.Known() && c.At.Known() {
			f.Sentence = fmt.Sprintf("%s called its own pod at %s before %s listened there", f.Container, c.To, c.serves.Name)
			f.Evidence = append(f.Evidence, s.Quote(r.Started, "%s started", c.serves.Name))
			if c.said != nil && c.said.At.Compare(c.At) == evidence.After {
				f.Evidence = append(f.Evidence, *c.said)
			}
		} else if c.said != nil {
			f.Sentence = fmt.Sprintf("%s called its own pod at %s, most likely before %s listened there", f.Container, c.To, c.serves.Name)
			f.Evidence, f.Confidence = append(f.Evidence, *c.said), result.Likely
			if c.said.At.Compare(c.At) == evidence.After {
				f.Sentence = strings.Replace(f.Sentence, "most likely ", "", 1)
			}
		}
		s.remedy(f, s.startPurpose(), c.serves.Name, f.Container, c.To.Port)
	}},
	{func(c *siblingCall) bool { return !c.known }, func(s *subject, f *result.Finding, c *siblingCall) {
		f.Remedy.Sentence = fmt.Sprintf("see whether %s listens at %s, or where: the evidence does not show it; call that address, or set %s to listen at this one", c.serves.Name, c.To, c.serves.Name)
		f.Remedy.Command = s.Kubectl("logs %s -c %s --timestamps", s.Object.Name, c.serves.Name)
	}},
	{(*siblingCall).byTCP, func(s *subject, f *result.Finding, c *siblingCall) {
		f.Sentence = fmt.Sprintf("%s calls the unix socket %s, and %s is not set to listen at one", f.Container, c.To, c.serves.Name)
		f.Remedy.Sentence = fmt.Sprintf("set the host of %s to 127.0.0.1, where %s listens on TCP, or have that listen at a unix socket (--unix-socket=FOLDER)", f.Container, c.serves.Name)
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
	c := &siblingCall{Call: y, serves: s.Listener(y), deleted: s.Deleted()}
	if set, q := s.beside.SetToListen(y.To.Port, y.Container); set != nil && set == c.serves {
		f.Evidence = append(f.Evidence, q)
	}
	if c.known = c.serves != nil; !c.known {
		c.serves = s.MayListen(y)
	}
	if c.serves != nil {
		c.spec, c.after = s.Spec(c.serves.Name), s.startsAfter(c.serves.Name, y.Container)
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
	if c.serves != nil && !c.known && f.Confidence == result.Certain {
		f.Confidence = result.Likely
	}
}

// startsAfter reports whether a container starts only when an init container has ended.
func (s *subject) startsAfter(name, init string) bool {
	at := func(name string) int {
		return slices.IndexFunc(s.Object.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	}
	own, other := at(init), at(name)
	return own >= 0 && s.Container(init).Kind == startup.Init && (other < 0 || other > own)
}

// comesAfter sets the remedy for an init container that calls one that starts after it: it never gets an answer.
func (s *subject) comesAfter(f *result.Finding, c *siblingCall) {
	f.Sentence = fmt.Sprintf("init container %s called its own pod at %s, where %s can listen only when %s has ended", f.Container, c.To, c.serves.Name, f.Container)
	f.Remedy.Sentence = fmt.Sprintf("make %s a native sidecar (restartPolicy: Always and a startup probe) before %s in initContainers, or let %s call what does not run in its own pod; to try again does not help", c.serves.Name, f.Container, f.Container)
	if c.serves.Kind == startup.Sidecar {
		f.Remedy.Sentence = fmt.Sprintf("move %s, which is a native sidecar, before %s in initContainers, with a startup probe; to try again does not help", c.serves.Name, f.Container)
	}
}

// byTCP reports whether a call went to a unix socket, and the program that is set to serve it listens on TCP alone.
func (c *siblingCall) byTCP() bool {
	return c.To.Network == doctor.Unix && c.spec != nil && podspec.Socket(c.spec) == "" && podspec.HasSocket(c.spec)
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
	is := "is set to listen there, does not"
	if !c.known {
		is = "most likely should listen there, does not run"
	}
	f.Sentence += fmt.Sprintf(": %s, which %s: %s", c.serves.Name, is, why)
	f.Remedy.Sentence = fmt.Sprintf("see first why %s, which %s: %s; the order of the containers is not the cause", c.serves.Name, is, why)
}

// nothingListens sets the remedy for an address at which no container is set to listen.
func (s *subject) nothingListens(f *result.Finding, c *siblingCall) {
	f.Remedy.Sentence = fmt.Sprintf("correct the address that %s calls, or have a container listen there: none of the pod is known to listen at %s", f.Container, c.To)
	var ports []string
	for _, o := range s.Containers {
		if p := s.PortsKnown(o.Name); len(p) > 0 && o.Name != f.Container && o.Kind != startup.Init {
			ports = append(ports, fmt.Sprintf("%s: %s", o.Name, strings.Join(p, ", ")))
		}
	}
	if len(ports) > 0 {
		f.Remedy.Sentence += " (" + strings.Join(ports, "; ") + ")"
	}
}

// Listener returns the container of the pod that is set to listen where a call went, by its specification, its log or a
// configuration beside the pod; nil: none is known to be.
func (s *subject) Listener(y calls.Call) *evidence.Container {
	if c := s.Case.Listener(y); c != nil {
		return c
	}
	c, _ := s.beside.SetToListen(y.To.Port, y.Container)
	return c
}
