package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

func TestServicesAgreeInAnyOrder(t *testing.T) {
	all := []mesh.Protocol{mesh.Unknown, mesh.TCP, mesh.ServerFirst, mesh.HTTP, mesh.HTTP2, mesh.GRPC, mesh.TLS}
	for _, a := range all {
		for _, b := range all {
			if mergeProtocols(a, b) != mergeProtocols(b, a) {
				t.Errorf("mergeProtocols(%q, %q) depends on the order", a, b)
			}
			for _, c := range all {
				if l, r := mergeProtocols(mergeProtocols(a, b), c), mergeProtocols(a, mergeProtocols(b, c)); l != r {
					t.Errorf("%q, %q, %q: %q or %q, by the order", a, b, c, l, r)
				}
			}
		}
	}
}

func TestWorkloadOfAnEndpoint(t *testing.T) {
	withPod := func(s *mesh.SliceSpec, name string) *mesh.SliceSpec {
		s.Endpoints[0].Pod = name
		return s
	}
	tests := map[string]struct {
		slice *mesh.SliceSpec
		want  string
	}{
		"the workload with the address": {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1"), "a"},
		"none":                          {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.9"), ""},
		"the pod that the slice names":  {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "192.168.0.1"), "node"), "node"},
		"not the pod, if the address is no more its own":       {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.9"), "a"), ""},
		"the workload with the address, if the pod is unknown": {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1"), "x"), "a"},
		"not a pod on its node's network, by its address":      {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "192.168.0.1"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := pod("shop", "node", "192.168.0.1")
			node.HostNetwork = true
			m := Mesh(mesh.Config{}, svc("shop", "web", "10.0.0.1", port("http", 80)), tt.slice, pod("shop", "a", "10.1.0.1"), node)
			if got := title(m.ByName("shop", "web").Endpoints[0].Workload); got != tt.want {
				t.Errorf("workload %q, want %q", got, tt.want)
			}
		})
	}
}

// [mesh.Endpoint.Kept] is set for an endpoint that is not ready if its pod has Kept set and is not
// terminating. This holds for endpoints from slices, which are updated later than pods, and for those from
// selectors.
func TestKeptEndpoints(t *testing.T) {
	tests := map[string]struct {
		change              func(*mesh.WorkloadSpec)
		bySlice, bySelector bool
	}{
		"no longer ready": {func(w *mesh.WorkloadSpec) { w.Ready, w.Kept = false, true }, true, true},
		"ready again":     {func(w *mesh.WorkloadSpec) { w.Kept = true }, true, false},
		"ready":           {func(*mesh.WorkloadSpec) {}, false, false},
		"not ready":       {func(w *mesh.WorkloadSpec) { w.Ready = false }, false, false},
		"terminating":     {func(w *mesh.WorkloadSpec) { w.Ready, w.Kept, w.Terminating = false, true, true }, false, false},
		"not there yet":   {nil, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			unready := slice("shop", "s", "sliced", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1")
			unready.Endpoints[0].Ready = false
			parts := []mesh.Part{svc("shop", "sliced", "10.0.0.1", port("http", 80)), unready, selecting(svc("shop", "selected", "10.0.0.2", port("http", 80)), "app", "a")}
			if tt.change != nil {
				w := pod("shop", "a", "10.1.0.1", "app", "a")
				tt.change(w)
				parts = append(parts, w)
			}
			m := Mesh(mesh.Config{}, parts...)
			if got := m.ByName("shop", "sliced").Endpoints[0].Kept; got != tt.bySlice {
				t.Errorf("by a slice: kept %t, want %t", got, tt.bySlice)
			}
			for _, e := range m.ByName("shop", "selected").Endpoints {
				if e.Kept != tt.bySelector {
					t.Errorf("by a selector: kept %t, want %t", e.Kept, tt.bySelector)
				}
			}
		})
	}
}

// A service in another namespace does not affect a pod: it determines neither the protocols of the pod's
// ports nor the clients that can see the pod.
func TestServicesOfOtherNamespacesHaveNoEffect(t *testing.T) {
	web := selecting(svc("shop", "web", "10.0.0.1", mesh.PortSpec{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}, Target: 8080}), "app", "b")
	b := New(mesh.Config{})
	b.Set(web, pod("shop", "b", "10.1.0.1", "app", "b"))
	before := b.Mesh().Pod("shop", "b")
	b.Set(svc("bank", "evil", "10.0.0.2", port("mysql", 3306)), slice("bank", "evil-1", "evil", mesh.SlicePort{Name: "mysql", Number: 8080}, "10.1.0.1"))
	m := b.Mesh()
	if got := m.Pod("shop", "b"); got != before {
		t.Errorf("the pod is another now: %+v", got)
	}
	if e := m.ByName("bank", "evil").Endpoints; len(e) != 1 || e[0].Workload != before {
		t.Errorf("endpoints of the other namespace's service: %+v, want the pod", e)
	}
	hosts := func() (out []string) {
		for _, s := range b.Mesh().ServicesOf(b.Mesh().Pod("shop", "b")) {
			out = append(out, s.Host)
		}
		return out
	}
	if got := hosts(); !slices.Equal(got, []string{"web.shop.svc.cluster.local"}) {
		t.Errorf("services in front of the pod: %v", got)
	}
	b.Set(pod("shop", "b", "10.1.0.1", "app", "b", "v", "2")) // the endpoint in the other namespace must refer to the new pod
	if e := b.Mesh().ByName("bank", "evil").Endpoints; e[0].Workload != b.Mesh().Pod("shop", "b") {
		t.Errorf("an old workload: %+v", e[0].Workload)
	}
	b.Delete(web.Key())
	if got := hosts(); got != nil || len(b.Mesh().Pod("shop", "b").Ports) > 0 {
		t.Errorf("without a service of its own: %v in front, ports %v", got, b.Mesh().Pod("shop", "b").Ports)
	}
}

// Neither a service nor a policy can declare a port of the proxy as a port of the application.
func TestPortsOfTheProxy(t *testing.T) {
	b := New(mesh.Config{})
	proxied := pod("shop", "b", "10.1.0.1", "app", "b")
	proxied.Proxied = true
	web := selecting(svc("shop", "web", "10.0.0.1", mesh.PortSpec{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}, Target: contract.InboundPort}), "app", "b")
	b.Set(web, proxied, svc("bank", "evil", "10.0.0.2", port("http", 80)),
		slice("bank", "evil-1", "evil", mesh.SlicePort{Name: "http", Number: contract.OutboundPort}, "10.1.0.1", "10.1.0.9"),
		&mesh.PolicySpec{Namespace: "shop", Name: "p", Mode: mesh.ModeStrict, Selector: map[string]string{"app": "b"}, Ports: map[uint16]mesh.Mode{contract.InboundPort: mesh.ModeDisable}})
	m := b.Mesh()
	if got := m.Pod("shop", "b").Ports; len(got) > 0 {
		t.Errorf("ports of the pod: %v", got)
	}
	if e := m.ByName("shop", "web").Endpoints; len(e) > 0 {
		t.Errorf("endpoints: %v", e)
	}
	if e := m.ByName("bank", "evil").Endpoints; len(e) != 1 || e[0].Addr != addr("10.1.0.9") {
		t.Errorf("endpoints: %v, want the one that is no proxy's", e)
	}
	if got := b.Conflicts(); len(got) != 2 {
		t.Errorf("conflicts: %v", got)
	}
	bare := pod("shop", "b", "10.1.0.1", "app", "b")
	b.Set(bare)
	if e := b.Mesh().ByName("shop", "web").Endpoints; len(e) != 1 || len(b.Conflicts()) > 0 {
		t.Errorf("without a proxy there: endpoints %v, conflicts %v", e, b.Conflicts())
	}
}

// An endpoint that is in two slices with different nodes is on both for a service with internalTrafficPolicy: Local.
// Otherwise it is one endpoint, whatever the names of the slices.
func TestEndpointInTwoSlices(t *testing.T) {
	on := func(name, node string) *mesh.SliceSpec {
		s := slice("shop", name, "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1")
		s.Endpoints[0].Node = node
		return s
	}
	for name, slices := range map[string][]mesh.Part{"in order": {on("s1", "n1"), on("s2", "n2"), on("s3", "")}, "turned": {on("s1", ""), on("s2", "n2"), on("s3", "n1")}} {
		for traffic, want := range map[mesh.Traffic]string{mesh.OnlyNode: "1 1 3", mesh.SameNode: "1 0 1"} {
			web := svc("shop", "web", "10.0.0.1", port("http", 80))
			web.Traffic = traffic
			s := Mesh(mesh.Config{}, append(slices, web)...).ByName("shop", "web")
			count := func(node string) (n int) {
				for _, e := range s.Reachable(mesh.Place{Node: node}) {
					if e.Node == node {
						n++
					}
				}
				return n
			}
			if got := fmt.Sprint(count("n1"), count("n2"), " ", len(s.Endpoints)); strings.Join(strings.Fields(got), " ") != want {
				t.Errorf("%s, %s: %s endpoints on n1, on n2 and in all, want %s", name, traffic, got, want)
			}
		}
	}
}
