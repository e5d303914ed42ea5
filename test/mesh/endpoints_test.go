package mesh

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// endpointStats are patterns of the metrics that the tests below read.
const endpointStats = `cluster\..*\.(upstream_cx_connect_timeout|outlier_detection\.ejections_.*)`

// Patterns of counters, for the sum over all clusters.
const (
	connectTimeouts = `cluster\..*\.upstream_cx_connect_timeout`
	ejections       = `cluster\..*\.outlier_detection\.ejections_enforced_total`
	ejected         = `cluster\..*\.outlier_detection\.ejections_active`
)

// A pair is a client with a proxy and two servers without one, behind one service.
type pair struct {
	*world
	client, a, b *pod
}

func newPair(t testing.TB) *pair {
	w := newWorld(t)
	s := &pair{world: w, client: w.pod("client", "client"), a: w.pod("a", "web"), b: w.pod("b", "web")}
	// Make the service first, so that its address is in the service range of the client's listener.
	w.service("web", "10.96.0.1", "web", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	s.client.stats = []string{endpointStats}
	s.client.proxied()
	return s
}

func (p *pod) web() []net.Listener {
	requests, bytes := p.listen(8080), p.listen(6379)
	go echo(requests, p.name)
	go repeat(bytes, p.name)
	return []net.Listener{requests, bytes}
}

// call makes one call on a new connection, and returns the name of the server, or "" if it failed.
func (s *pair) call(t testing.TB, protocol mesh.Protocol) string {
	t.Helper()
	got := ""
	if protocol == mesh.HTTP {
		if got = get(s.client.client(), "http://10.96.0.1:8080/"); strings.HasPrefix(got, "200 ") {
			got = got[len("200 "):]
		} else {
			t.Log(got)
			got = ""
		}
	} else if got = s.client.send("10.96.0.1:6379", "PING"); !strings.HasSuffix(got, " PING") {
		t.Log(got)
		got = ""
	}
	name, _, _ := strings.Cut(got, " ")
	return name
}

// calls makes n calls, and returns the number of answers by server; "" counts failed calls.
func (s *pair) calls(t testing.TB, protocol mesh.Protocol, n int) map[string]int {
	t.Helper()
	out := map[string]int{}
	for range n {
		out[s.call(t, protocol)]++
	}
	return out
}

// silence drops all packets to a pod, until recover is called.
func (p *pod) silence() { p.world.router.IP("route", "add", "blackhole", p.v4.String()+"/32") }
func (p *pod) recover() { p.world.router.IP("route", "del", "blackhole", p.v4.String()+"/32") }

// If the packets to one endpoint are lost, no call fails, and only few calls are delayed.
func TestSilentEndpoint(t *testing.T) {
	for _, protocol := range []mesh.Protocol{mesh.HTTP, mesh.TCP} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			s := newPair(t)
			s.a.web()
			s.b.web()
			// Silence the endpoint before the first call. A request that is already sent on an open
			// connection waits for its answer, because the application may be processing it.
			s.b.silence()
			got := s.calls(t, protocol, 60)
			if got[""] > 0 || got["a"] != 60 {
				t.Errorf("calls by server: %v; want all at a", got)
			}
			// Workers count the failures, and the main thread ejects the host a little later, so a few more
			// attempts may fail.
			s.eventually(t, "an ejection after each third wait for a connection", func() bool {
				waits, ejections := s.client.stat(connectTimeouts), s.client.stat(ejections)
				return ejections > 0 && waits <= 3*(ejections+1)
			})
			s.b.recover()
			s.eventually(t, "the endpoint is used again", func() bool { return s.call(t, protocol) == "b" })
		})
	}
}

// If one endpoint refuses connections, the other serves all calls.
func TestRefusingEndpoint(t *testing.T) {
	for _, protocol := range []mesh.Protocol{mesh.HTTP, mesh.TCP} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			s := newPair(t)
			s.a.web()
			if got := s.calls(t, protocol, 60); got[""] > 0 || got["a"] != 60 {
				t.Errorf("calls by server: %v; want all at a", got)
			}
		})
	}
}

// Requests that exceed the timeout of their route do not cause the ejection of an endpoint that accepts connections.
func TestSlowApplicationIsNotEjected(t *testing.T) {
	s := newPair(t)
	s.a.web()
	s.b.web()
	s.route("slow", "web", 8080, mesh.Route{
		Timeout: 100 * time.Millisecond, Backends: []mesh.Backend{{Namespace: namespace, Name: "web", Port: 8080, Weight: 1}},
	})
	slow := func() string { return get(s.client.client(), "http://10.96.0.1:8080/slow") }
	s.eventually(t, "the route", func() bool { return strings.HasPrefix(slow(), "504 ") })
	for range 12 {
		if got := slow(); !strings.HasPrefix(got, "504 ") {
			t.Errorf("%s; want a time-out", got)
		}
	}
	if n := s.client.stat(ejections); n != 0 {
		t.Errorf("%d ejections", n)
	}
}

// The only endpoint of a service is never ejected, because no call could succeed without it.
func TestOnlyEndpointIsNotEjected(t *testing.T) {
	t.Parallel()
	s := newPair(t)
	s.service("web", "10.96.0.1", "alone", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	only := s.pod("only", "alone")
	for _, protocol := range []mesh.Protocol{mesh.HTTP, mesh.TCP} {
		if got := s.calls(t, protocol, 6); got[""] != 6 {
			t.Errorf("calls by server: %v; want none served", got)
		}
	}
	only.web()
	for _, protocol := range []mesh.Protocol{mesh.HTTP, mesh.TCP} {
		if got := s.calls(t, protocol, 3); got["only"] != 3 {
			t.Errorf("calls by server: %v; want all served", got)
		}
	}
	if n := s.client.stat(ejected); n != 0 {
		t.Errorf("%d endpoints are ejected", n)
	}
}

// Calls stay in the client's zone while an endpoint there works, and leave it when that endpoint is
// not ready, or silent.
func TestPreferClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &pair{world: w, client: w.pod("client", "client"), a: w.pod("a", "web"), b: w.pod("b", "web")}
	place := func(p *pod, zone string, ready bool) {
		spec := p.spec
		spec.Zone, spec.Ready = zone, ready
		p.spec = spec
		w.source.set(&spec)
	}
	place(s.client, "here", true)
	place(s.a, "here", true)
	place(s.b, "there", true)
	web := w.service("web", "10.96.0.1", "web", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	near := *web
	near.Traffic = mesh.SameZone
	w.source.set(&near)
	s.client.stats = []string{endpointStats}
	s.client.proxied()
	s.a.web()
	s.b.web()
	for _, protocol := range []mesh.Protocol{mesh.TCP, mesh.HTTP} {
		if got := s.calls(t, protocol, 30); got["a"] != 30 {
			t.Errorf("%s: calls by server: %v; want all in the zone", protocol, got)
		}
	}
	place(s.a, "here", false)
	for _, protocol := range []mesh.Protocol{mesh.TCP, mesh.HTTP} {
		// Repeat the calls, because Envoy's threads apply the change one after the other.
		process.EventuallyEqual(t, string(protocol)+": calls by server", map[string]int{"b": 10}, func() map[string]int { return s.calls(t, protocol, 10) }, s.envoys...)
	}
	s.a.silence()
	place(s.a, "here", true)
	s.eventually(t, "the silent endpoint was tried", func() bool { s.call(t, mesh.TCP); return s.client.stat(connectTimeouts) > 0 })
	for _, protocol := range []mesh.Protocol{mesh.TCP, mesh.HTTP} {
		if got := s.calls(t, protocol, 10); got["b"] != 10 {
			t.Errorf("%s, a silent endpoint in the zone: calls by server: %v; want all in the other one", protocol, got)
		}
	}
}

// placed changes the node and the readiness of a pod.
func (p *pod) placed(node string, ready bool) {
	spec := p.spec
	spec.Node, spec.Ready = node, ready
	p.spec = spec
	p.world.source.set(&spec)
}

// Clients of a service with internalTrafficPolicy: Local call the endpoint on their own node. If it goes while they
// call, calls fail at once and never reach the other node; when it comes back, calls succeed again.
func TestInternalTrafficPolicyLocal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	here := &pair{world: w, client: w.pod("client", "client"), a: w.pod("a", "web"), b: w.pod("b", "web")}
	there := &pair{world: w, client: w.pod("other", "client"), a: here.a, b: here.b}
	here.a.placed("n1", true)
	here.b.placed("n2", true)
	web := *w.service("web", "10.96.0.1", "web", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	web.Traffic = mesh.OnlyNode
	w.source.set(&web)
	here.a.web()
	here.b.web()
	here.client.placed("n1", true)
	there.client.placed("", true) // its node becomes known after its proxy has connected
	here.client.proxied()
	there.client.proxied()
	protocols := []mesh.Protocol{mesh.TCP, mesh.HTTP}
	for _, protocol := range protocols {
		if got := here.calls(t, protocol, 20); got["a"] != 20 {
			t.Errorf("%s: calls by server: %v; want all on the node", protocol, got)
		}
		if got := there.call(t, protocol); got != "" {
			t.Errorf("%s: a client whose node is not known reached %s", protocol, got)
		}
	}
	there.client.placed("n2", true)
	for _, protocol := range protocols {
		// Envoy's threads apply a change one after the other, so a first call says nothing about the next one.
		there.eventually(t, string(protocol)+": all calls are on the other node", func() bool { return there.calls(t, protocol, 20)["b"] == 20 })
	}
	// The endpoint goes and comes back while both protocols are called all the time.
	var reached [2]map[string]int
	var failing [2]atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{}, len(protocols))
	for i, protocol := range protocols {
		reached[i] = map[string]int{}
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					got := here.call(t, protocol)
					if reached[i][got]++; got == "" {
						failing[i].Add(1)
					}
				}
			}
		}()
	}
	for range 3 {
		before := [2]int64{failing[0].Load(), failing[1].Load()}
		here.a.placed("n1", false)
		here.eventually(t, "calls fail", func() bool { return failing[0].Load() > before[0]+5 && failing[1].Load() > before[1]+5 })
		here.a.placed("n1", true)
		here.eventually(t, "calls succeed", func() bool {
			return here.call(t, mesh.TCP) == "a" && here.call(t, mesh.HTTP) == "a"
		})
	}
	close(stop)
	for range protocols {
		<-done
	}
	for i, protocol := range protocols {
		if reached[i]["b"] > 0 || reached[i]["a"] == 0 {
			t.Errorf("%s: calls by server: %v; want none on the other node", protocol, reached[i])
		}
	}
	here.a.placed("n1", false)
	process.EventuallyEqual(t, "the answer says that no endpoint is ready", true, func() bool {
		return strings.Contains(get(here.client.client(), "http://10.96.0.1:8080/"), "503 outrider (outbound): 10.96.0.1:8080 at 10.96.0.1:8080: no endpoint is ready (UH")
	}, w.envoys...)
}

// A client of a service with sessionAffinity: ClientIP stays with its endpoint for both protocols, whatever others
// come and go, and after a reconnect to the control plane; if its endpoint goes, it stays with another one.
func TestSessionAffinity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &pair{world: w, client: w.pod("client", "client"), a: w.pod("a", "web"), b: w.pod("b", "web")}
	web := *w.service("web", "10.96.0.1", "web", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	web.Affinity = true
	s.b.placed("", false)
	w.source.set(&web)
	s.a.web()
	s.b.web()
	s.client.proxied()
	stays := func(what, at string) {
		t.Helper()
		for _, protocol := range []mesh.Protocol{mesh.TCP, mesh.HTTP} {
			// Envoy's threads apply a change one after the other.
			s.eventually(t, fmt.Sprintf("%s, %s: all calls are at %s", what, protocol, at), func() bool { return s.calls(t, protocol, 30)[at] == 30 })
		}
	}
	// again lets a pod go and come back while the control plane restarts in between.
	again := func(p *pod) {
		t.Helper()
		p.placed("", false)
		s.client.knows(t, p, false)
		w.down()
		w.up()
		p.placed("", true)
		s.client.knows(t, p, true)
	}
	stays("the only endpoint", "a")
	s.b.placed("", true)
	s.client.knows(t, s.b, true)
	stays("another one comes", "a")
	again(s.b)
	stays("it comes after a reconnect", "a")
	s.a.placed("", false)
	stays("the endpoint goes", "b")
	again(s.a)
	stays("it comes back after a reconnect", "b")
}

// knows waits until the Envoy of p has, or no longer has, a pod as an endpoint.
func (p *pod) knows(t *testing.T, other *pod, want bool) {
	t.Helper()
	p.world.eventually(t, fmt.Sprintf("%s has %s as an endpoint: %t", p.name, other.name, want), func() bool {
		out, err := p.admin.Get(context.Background(), "/clusters", "")
		return err == nil && strings.Contains(string(out), "::"+other.v4.String()+":8080::") == want
	})
}
