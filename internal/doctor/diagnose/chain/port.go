package chain

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// PortTaken changes the finding about a container that ended since another program listens on its port: the proxy, or a
// container that declares the port. It changes nothing if it ended for another reason, or nothing says who listens
// there.
func (s *Case) PortTaken(f *result.Finding, c *evidence.Container, told evidence.Told) {
	port, form := facts.TakenPort(told), "%s ended by itself: it could not listen on port %d, which %s has (%s)"
	if port == 0 && facts.IsTaken(told) { // its log does not name the port
		form = "%s ended by itself: it could not listen on a port that is taken, most likely %d, which %s has (%s)"
		port, _ = s.samePort(c.Name)
	}
	if port == 0 {
		return
	}
	whose, of := s.Declares(port, c.Name), "a port that it declares"
	if s.Proxy != nil && c != s.Proxy {
		if known := facts.ListensFor(s.Proxy.Name, port); known != "" {
			whose, of = s.Proxy.Name, known
		}
	}
	if whose == "" {
		return
	}
	f.Sentence = fmt.Sprintf(form, c.Name, port, whose, of)
	f.Disproof = fmt.Sprintf("another program of the pod that listens on port %d", port)
	f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("let %s listen on another port: all containers of a pod share its network", c.Name)}
	if s.Proxy != nil && whose == s.Proxy.Name {
		f.Code = "proxy-port-conflict"
		f.Remedy.Sentence += fmt.Sprintf(", and %s needs port %d", whose, port)
	}
}

// SamePort adds to the finding about a container that ended, and of which no log is there, that another one declares a port
// that it declares, too: only one of them can listen there.
func (s *Case) SamePort(f *result.Finding, container string) {
	if port, other := s.samePort(container); port > 0 {
		f.Sentence += fmt.Sprintf("; both it and %s declare port %d, where only one of them can listen", other, port)
		f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "ports of %s and of %s: %d", container, other, port))
	}
}

// samePort returns the first TCP port of a container that another one declares, too, and that; 0: there is none.
func (s *Case) samePort(container string) (port int, other string) {
	if spec := s.Spec(container); spec != nil {
		for _, p := range spec.Ports {
			if other := s.Declares(int(p.ContainerPort), container); other != "" && p.Protocol != corev1.ProtocolUDP {
				return int(p.ContainerPort), other
			}
		}
	}
	return 0, ""
}

var absolute = regexp.MustCompile(`/[^\s;,?&'"()]+`)

// OtherSocket adds to the finding about a container that did not find a file that another container listens on a unix
// socket in the same folder as one that its environment names, under another name.
func (s *Case) OtherSocket(f *result.Finding, container string, told evidence.Told) {
	spec := s.Spec(container)
	if spec == nil || !strings.Contains(strings.ToLower(told.Text), "no such file") {
		return
	}
	if m, is := s.NotMounted(spec); is && strings.HasPrefix(absolute.FindString(told.Text)+m.File, m.File) {
		f.Sentence = fmt.Sprintf("%s ended by itself: %s names %s, which is not in it: it does not mount volume %s, which %s mounts at %s (%s)", container, m.Variable, m.File, m.Volume, m.By, m.At, told.Text)
		f.Remedy.Sentence = fmt.Sprintf("mount volume %s at %s in %s too", m.Volume, m.At, container)
	}
	for _, l := range s.Listens {
		if l.Container == container || l.Path == "" {
			continue
		}
		for _, e := range spec.Env {
			named := absolute.FindString(e.Value)
			if named == "" || s.ListensOn(named) || path.Dir(named) != path.Dir(l.Path) {
				continue
			}
			f.Sentence = fmt.Sprintf("%s ended by itself: %s names the socket %s, and %s listens on %s", container, e.Name, named, l.Container, l.Path)
			f.Evidence = append(f.Evidence, l.Quote)
			f.Disproof = fmt.Sprintf("a line of %s that it listens on %s", l.Container, named)
			f.Remedy.Sentence = fmt.Sprintf("set %s to %s", e.Name, l.Path)
			return
		}
	}
}
