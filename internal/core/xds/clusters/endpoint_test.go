package clusters

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds/names"
)

// pod returns an endpoint of the service web.
func pod(name, at string, change ...func(*mesh.WorkloadSpec)) *mesh.WorkloadSpec {
	s := &mesh.WorkloadSpec{Ready: true, Workload: mesh.Workload{
		Name: name, Namespace: "shop", Labels: map[string]string{"app": "web"}, Addresses: []netip.Addr{netip.MustParseAddr(at)},
	}}
	for _, f := range change {
		f(s)
	}
	return s
}

// web returns a port of the service web with these endpoints.
func web(traffic mesh.Traffic, pods ...mesh.Part) names.Target {
	b := build.New(mesh.Config{})
	b.Set(append(pods, &mesh.ServiceSpec{Name: "web", Namespace: "shop", Selector: map[string]string{"app": "web"}, Traffic: traffic,
		Ports: []mesh.PortSpec{{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}, Target: 80}}})...)
	s := b.Mesh().ByName("shop", "web")
	return names.Target{Service: s, Port: s.Port(80)}
}

// byPriority returns the addresses of the endpoints for a client at a place, by priority.
func byPriority(t names.Target, at mesh.Place) [][]string {
	return choosingFirst(t, at, netip.AddrPort{})
}

func choosingFirst(t names.Target, at mesh.Place, chosen netip.AddrPort) (out [][]string) {
	for _, l := range (Builder{}).Endpoints("web", EndpointsFor(t, t.Service.Relevant(at)), chosen).Endpoints {
		for int(l.Priority) >= len(out) {
			out = append(out, nil)
		}
		for _, e := range l.LbEndpoints {
			out[l.Priority] = append(out[l.Priority], e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
		}
	}
	return out
}

// If each node has an endpoint, assignments do not grow with the number of nodes: a client gets the endpoints on
// its node, and some others. A client on a node without an endpoint gets all endpoints.
func TestEndpointOnEachNode(t *testing.T) {
	const nodes = 300
	address := func(i int) string { return fmt.Sprintf("10.244.%d.%d", i/200, i%200+1) }
	node := func(i int) string { return fmt.Sprint("n", i) }
	var pods []mesh.Part
	for i := range nodes {
		pods = append(pods, pod(fmt.Sprint("web-", i), address(i), func(s *mesh.WorkloadSpec) { s.Node = node(i) }))
	}
	service, used := web(mesh.SameNode, pods...), map[string]bool{}
	for i := range nodes {
		got := byPriority(service, mesh.Place{Node: node(i)})
		if len(got) != 2 || !slices.Equal(got[0], []string{address(i)}) || len(got[1]) != maxFar || slices.Contains(got[1], address(i)) {
			t.Fatalf("%s: %q", node(i), got)
		}
		for _, a := range got[1] {
			used[a] = true
		}
	}
	if len(used) != nodes {
		t.Errorf("%d of %d endpoints are used by other nodes", len(used), nodes)
	}
	if got := byPriority(service, mesh.Place{Node: node(nodes)}); len(got) != 1 || len(got[0]) != nodes {
		t.Errorf("on a node without an endpoint: %q", got)
	}
}

// A client of a service with internalTrafficPolicy: Local has the endpoints on its node, by the rules of kube-proxy,
// and never one on another node.
func TestEndpointsOnTheNodeAlone(t *testing.T) {
	on := func(node string) func(*mesh.WorkloadSpec) { return func(s *mesh.WorkloadSpec) { s.Node = node } }
	unready := func(s *mesh.WorkloadSpec) { s.Ready = false }
	kept := func(s *mesh.WorkloadSpec) { s.Ready, s.Kept = false, true }
	leaves := func(s *mesh.WorkloadSpec) { s.Terminating = true }
	other := pod("other", "10.244.0.9", on("n2"))
	for name, tt := range map[string]struct {
		pods []mesh.Part
		want [][]string
	}{
		"ready":                           {[]mesh.Part{pod("a", "10.244.0.1", on("n1")), pod("b", "10.244.0.2", on("n1"), leaves)}, [][]string{{"10.244.0.1"}}},
		"terminating, and still serving":  {[]mesh.Part{pod("a", "10.244.0.1", on("n1"), leaves), pod("b", "10.244.0.2", on("n1"), kept)}, [][]string{{"10.244.0.1"}}},
		"ready before the kubelet's stop": {[]mesh.Part{pod("a", "10.244.0.1", on("n1"), kept)}, [][]string{{"10.244.0.1"}}},
		"of the other family":             {[]mesh.Part{pod("a", "fd44::1", on("n1"))}, [][]string{{"fd44::1"}}},
		"not ready":                       {[]mesh.Part{pod("a", "10.244.0.1", on("n1"), unready)}, nil},
		"none":                            {nil, nil},
	} {
		service := web(mesh.OnlyNode, append(tt.pods, other)...)
		if diff := cmp.Diff(tt.want, byPriority(service, mesh.Place{Node: "n1"})); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", name, diff)
		}
		if got := byPriority(service, mesh.Place{}); got != nil {
			t.Errorf("%s: a client whose node is not known has %q", name, got)
		}
	}
}

// A chosen endpoint has a priority of its own, and so has the one that replaces it while it is ejected. The others are
// few, because there is an assignment for each endpoint that can be chosen.
func TestChosenEndpoint(t *testing.T) {
	at := func(i int) string { return fmt.Sprintf("10.244.1.%d", i) }
	of := func(from, to int) (out []string) {
		for i := from; i < to; i++ {
			out = append(out, at(i))
		}
		return out
	}
	in := func(zone string, from, to int) (out []mesh.Part) {
		for i := from; i < to; i++ {
			out = append(out, pod(fmt.Sprint("web-", i), at(i), func(s *mesh.WorkloadSpec) { s.Zone = zone }))
		}
		return out
	}
	for name, tt := range map[string]struct {
		pods   []mesh.Part
		chosen int
		want   [][]string
	}{
		"the only one":       {in("a", 10, 11), 10, [][]string{of(10, 11)}},
		"one of two":         {in("a", 10, 12), 11, [][]string{of(11, 12), of(10, 11)}},
		"one of three":       {in("a", 10, 13), 11, [][]string{of(11, 12), of(12, 13), of(10, 11)}},
		"one of many":        {in("a", 10, 40), 15, [][]string{of(15, 16), of(16, 17), of(17, 27)}},
		"one in the zone":    {append(in("a", 10, 12), in("b", 20, 40)...), 10, [][]string{of(10, 11), of(11, 12), of(20, 30)}},
		"not in the zone":    {append(in("a", 10, 12), in("b", 20, 22)...), 20, [][]string{of(10, 12), of(20, 22)}},
		"one that is unused": {in("a", 10, 12), 99, [][]string{of(10, 12)}},
	} {
		got := choosingFirst(web(mesh.SameZone, tt.pods...), mesh.Place{Zone: "a"}, netip.MustParseAddrPort(at(tt.chosen)+":80"))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: endpoints by priority (-want +got):\n%s", name, diff)
		}
	}
}

// Endpoints that were ready before a restart of the kubelet get traffic only if there are no other endpoints.
func TestKeptEndpointsAreTheLast(t *testing.T) {
	unready := func(s *mesh.WorkloadSpec) { s.Ready = false }
	kept := func(s *mesh.WorkloadSpec) { s.Ready, s.Kept = false, true }
	leaves := func(s *mesh.WorkloadSpec) { s.Terminating = true }
	for name, tt := range map[string]struct {
		pods []mesh.Part
		want []string
	}{
		"no other":        {[]mesh.Part{pod("a", "10.244.0.1", kept), pod("b", "10.244.0.2", kept), pod("c", "10.244.0.3", unready)}, []string{"10.244.0.1", "10.244.0.2"}},
		"a ready one":     {[]mesh.Part{pod("a", "10.244.0.1", kept), pod("b", "10.244.0.2")}, []string{"10.244.0.2"}},
		"one that leaves": {[]mesh.Part{pod("a", "10.244.0.1", kept), pod("b", "10.244.0.2", leaves)}, []string{"10.244.0.2"}},
	} {
		if diff := cmp.Diff([][]string{tt.want}, byPriority(web("", tt.pods...), mesh.Place{})); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", name, diff)
		}
	}
}

// While all endpoints are terminating, those near the client are not preferred, as with kube-proxy: there are few, and
// they soon go.
func TestTerminatingEndpointsAreNotNear(t *testing.T) {
	in := func(zone string) func(*mesh.WorkloadSpec) {
		return func(w *mesh.WorkloadSpec) { w.Node, w.Zone, w.Terminating = "n-"+zone, zone, true }
	}
	a, b := pod("a", "10.244.0.1", in("a")), pod("b", "10.244.0.2", in("b"))
	for traffic, at := range map[mesh.Traffic]mesh.Place{mesh.SameZone: {Zone: "b"}, mesh.SameNode: {Node: "n-b", Zone: "b"}} {
		if diff := cmp.Diff([][]string{{"10.244.0.1", "10.244.0.2"}}, sorted(byPriority(web(traffic, a, b), at))); diff != "" {
			t.Errorf("%s, all terminating (-want +got):\n%s", traffic, diff)
		}
		ready := pod("c", "10.244.0.3", in("b"), func(w *mesh.WorkloadSpec) { w.Terminating = false })
		far := pod("d", "10.244.0.4", in("a"), func(w *mesh.WorkloadSpec) { w.Terminating = false })
		if diff := cmp.Diff([][]string{{"10.244.0.3"}, {"10.244.0.4"}}, byPriority(web(traffic, a, b, ready, far), at)); diff != "" {
			t.Errorf("%s, two ready (-want +got):\n%s", traffic, diff)
		}
	}
}

// sorted sorts the addresses of each priority, which are grouped by zone.
func sorted(priorities [][]string) [][]string {
	for _, addresses := range priorities {
		slices.Sort(addresses)
	}
	return priorities
}
