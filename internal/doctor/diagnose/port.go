package diagnose

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/evidence"
)

// taken match the port on which a program could not listen, in the words of the usual runtimes.
var taken = regexp.MustCompile(`(?i)(?:address (?:is )?(?:already )?in use|EADDRINUSE|already being used|already in use|only one usage of each socket address)`)

// portOf matches a port in such a line.
var portOf = regexp.MustCompile(`(?i)(?:\bport[ =:(]*|:::|[\s\w\])*.]:)(\d{2,5})\b`)

// A listener is a port on which a proxy listens, whatever the pod declares.
type listener struct {
	port  int
	proxy string
	of    string
}

// listeners has the ports of the proxies of meshes. Source: istio.io (application requirements), linkerd.io (proxy
// configuration), kuma.io (data plane proxy), developer.hashicorp.com (consul-dataplane), docs.dapr.io (arguments and
// annotations).
var listeners = []listener{
	{15000, "istio-proxy", "its administration"}, {15001, "istio-proxy", "the capture of outbound calls"}, {15004, "istio-proxy", "its debugging"}, {15006, "istio-proxy", "the capture of inbound calls"},
	{15008, "istio-proxy", "HBONE"}, {15020, "istio-proxy", "its metrics and health"}, {15021, "istio-proxy", "its readiness"}, {15053, "istio-proxy", "DNS"}, {15090, "istio-proxy", "its statistics"},
	{15000, "outrider-proxy", "its administration"}, {15001, "outrider-proxy", "the capture of outbound calls"}, {15006, "outrider-proxy", "the capture of inbound calls"}, {15007, "outrider-proxy", "its capture"},
	{15016, "outrider-proxy", "its proofs of the capture"}, {15020, "outrider-proxy", "its metrics and health"}, {15021, "outrider-proxy", "its readiness"}, {15090, "outrider-proxy", "its statistics"},
	{4140, "linkerd-proxy", "the capture of outbound calls"}, {4143, "linkerd-proxy", "the capture of inbound calls"}, {4190, "linkerd-proxy", "taps"}, {4191, "linkerd-proxy", "its administration"},
	{15001, "kuma-sidecar", "the capture of outbound calls"}, {15006, "kuma-sidecar", "the capture of inbound calls"}, {9901, "kuma-sidecar", "its administration"}, {9902, "kuma-sidecar", "its readiness"},
	{15001, "consul-dataplane", "the capture of outbound calls"}, {19000, "consul-dataplane", "its administration"}, {20000, "consul-dataplane", "the capture of inbound calls"},
	{3500, "daprd", "its HTTP interface"}, {50001, "daprd", "its gRPC interface"}, {50002, "daprd", "calls of other pods"},
}

// portTaken changes the finding about a container that ended since another program listens on its port: the proxy, or a
// container that declares the port. It changes nothing if it ended for another reason, or nothing says who listens
// there.
func (s *subject) portTaken(f *Finding, c *evidence.Container, told evidence.Told) {
	port := takenPort(told)
	if port == 0 {
		return
	}
	whose, of := "", ""
	if i := slices.IndexFunc(listeners, func(l listener) bool {
		return s.Proxy != nil && c != s.Proxy && l.proxy == s.Proxy.Name && l.port == port
	}); i >= 0 {
		whose, of = s.Proxy.Name, listeners[i].of
	} else if other := s.declares(port, c.Name); other != "" {
		whose, of = other, "a port that it declares"
	}
	if whose == "" {
		return
	}
	f.Sentence = fmt.Sprintf("%s ended by itself: it could not listen on port %d, which %s has (%s)", c.Name, port, whose, of)
	f.Disproof = fmt.Sprintf("another program of the pod that listens on port %d", port)
	f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("let %s listen on another port: all containers of a pod share its network", c.Name)}
	if s.Proxy != nil && whose == s.Proxy.Name {
		f.Code = "proxy-port-conflict"
		f.Remedy.Sentence += fmt.Sprintf(", and %s needs port %d", whose, port)
	}
}

// takenPort returns the port on which a program could not listen; 0: it ended for another reason, or the port is not named.
func takenPort(told evidence.Told) int {
	for _, q := range told.Quotes {
		if !taken.MatchString(q.Text) {
			continue
		}
		all := portOf.FindAllStringSubmatch(q.Text, -1)
		slices.Reverse(all) // a time or the line of a source comes first
		for _, m := range all {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < 1<<16 {
				return n
			}
		}
	}
	return 0
}

// declares returns another container that declares a port, the proxy first; empty: none does.
func (s *subject) declares(port int, but string) string {
	declaring := func(name string) bool {
		spec := s.Spec(name)
		if spec == nil || name == but {
			return false
		}
		for _, p := range spec.Ports {
			if int(p.ContainerPort) == port {
				return true
			}
		}
		return false
	}
	if s.Proxy != nil && declaring(s.Proxy.Name) {
		return s.Proxy.Name
	}
	for _, c := range s.Containers {
		if declaring(c.Name) {
			return c.Name
		}
	}
	return ""
}

var absolute = regexp.MustCompile(`/[^\s;,?&'"()]+`)

// otherSocket adds to the finding about a container that did not find a file that another container listens on a unix
// socket in the same folder as one that its environment names, under another name.
func (s *subject) otherSocket(f *Finding, container string, told evidence.Told) {
	spec := s.Spec(container)
	if spec == nil || !strings.Contains(strings.ToLower(told.Text), "no such file") {
		return
	}
	for _, l := range s.Listens {
		if l.Container == container || l.Path == "" {
			continue
		}
		for _, e := range spec.Env {
			named := absolute.FindString(e.Value)
			if named == "" || s.listensOn(named) || path.Dir(named) != path.Dir(l.Path) {
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

// listensOn reports whether a container says that it listens on a unix socket, or on one in that folder.
func (s *subject) listensOn(named string) bool {
	return slices.ContainsFunc(s.Listens, func(l calls.Listen) bool {
		return l.Path != "" && (l.Path == named || strings.HasPrefix(l.Path, named+"/"))
	})
}
