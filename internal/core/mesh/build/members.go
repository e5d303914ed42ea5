package build

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/mesh"
)

// A member is an endpoint of a service, with the key of its workload. The workload itself may be computed later.
type member struct {
	mesh.Endpoint // the field Workload is unset
	workload      mesh.Key
}

// servicesOf returns the services that declare a workload's ports: those in the workload's namespace of which
// the workload is a member. Services in other namespaces do not count, because they may list any address.
func (b *Builder) servicesOf(id mesh.Key) []mesh.Key {
	var out []mesh.Key
	for n := range b.workloads.byID[id].services {
		if n.Namespace == id.Namespace {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, mesh.Key.Compare)
	return out
}

// hostsOf returns the hosts of a workload's services, sorted; nil if it has none.
func (b *Builder) hostsOf(id mesh.Key) *[]string {
	var hosts []string
	for _, n := range b.servicesOf(id) {
		hosts = append(hosts, b.config.Host(n.Namespace, n.Name))
	}
	if hosts == nil {
		return nil
	}
	slices.Sort(hosts)
	return &hosts
}

// members returns the members of a service. It separately returns the endpoints at ports of proxies, which
// are rejected.
func (b *Builder) members(n mesh.Key, s *service) (out, rejected []member) {
	switch {
	case s.spec == nil || s.spec.External != "":
		return nil, nil
	case s.sliced() && !b.sizes.fits(n):
		return nil, nil
	case s.sliced():
		out = b.fromSlices(n, s)
	default:
		out = b.fromSelector(n, s.spec)
	}
	// An endpoint is in two slices while it moves between them. The ready one of the two is sorted first, so
	// it is the one that remains. If only endpoints on the client's node count, and the nodes of the two differ, it is
	// on both, as kube-proxy prefers the one on its node.
	onNode := func(m member) string {
		if s.spec.Traffic == mesh.OnlyNode {
			return m.Node
		}
		return ""
	}
	slices.SortFunc(out, func(a, b member) int {
		return cmp.Or(compareEndpoints(a, b), cmp.Compare(onNode(a), onNode(b)), compareStates(a, b))
	})
	out = slices.CompactFunc(out, func(a, b member) bool { return compareEndpoints(a, b) == 0 && onNode(a) == onNode(b) })
	return slices.DeleteFunc(out, func(m member) bool {
		bad := b.isProxyPort(m)
		if bad {
			rejected = append(rejected, m)
		}
		return bad
	}), rejected
}

func compareEndpoints(a, b member) int {
	return cmp.Or(cmp.Compare(a.PortName, b.PortName), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// compareStates orders what slices say of one endpoint, so that the result does not depend on their names.
func compareStates(a, b member) int {
	return cmp.Or(
		mesh.CompareBool(b.Ready, a.Ready), mesh.CompareBool(b.Serving, a.Serving), mesh.CompareBool(b.Kept, a.Kept),
		cmp.Compare(a.Hostname, b.Hostname), mesh.CompareBool(a.Node == "", b.Node == ""), cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.ForZones, b.ForZones), cmp.Compare(a.ForNodes, b.ForNodes), a.workload.Compare(b.workload),
	)
}

func (b *Builder) fromSlices(n mesh.Key, s *service) []member {
	var out []member
	transports := make(map[string]mesh.Transport, len(s.spec.Ports))
	for _, p := range s.spec.Ports {
		transports[p.Name] = p.Protocol.Transport()
	}
	ofOthers := func(p mesh.SlicePort) bool { // as in kube-proxy
		t, named := transports[p.Name]
		return named && t != cmp.Or(p.Transport, mesh.OverTCP)
	}
	for _, slice := range s.sortedSlices() {
		ports := slices.DeleteFunc(slices.Clone(slice.Ports), ofOthers)
		for _, e := range slice.Endpoints {
			for _, addr := range e.Addresses {
				id := b.owner(n.Namespace, e.Pod, addr)
				kept := !e.Ready && !e.Serving && b.keeps(id)
				for _, p := range ports {
					out = append(out, member{
						Endpoint: mesh.Endpoint{PortName: p.Name, Addr: addr, Port: p.Number, Ready: e.Ready, Serving: e.Serving, Kept: kept, Node: e.Node, Zone: e.Zone, ForZones: hint(e.ForZones), ForNodes: hint(e.ForNodes), Hostname: e.Hostname},
						workload: id,
					})
				}
			}
		}
	}
	return out
}

// keeps reports whether a workload was ready a moment ago. It is for workloads that are not ready in an
// EndpointSlice.
func (b *Builder) keeps(id mesh.Key) bool {
	w := b.workloads.spec(id)
	return w != nil && w.Kept && !w.Terminating
}

// hint joins names into the form of [Endpoint.ForZones].
func hint(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ",") + ","
}

// owner returns the workload at an address. It is the pod that the slice names, if that pod still has the
// address; a StatefulSet's new pod has the same name, but another address. If the slice names no pod, or an
// unknown one, the owner is the pod with the address; if there is no such pod, a Host with the address in the
// service's namespace.
func (b *Builder) owner(namespace, pod string, addr netip.Addr) mesh.Key {
	if pod != "" {
		id := mesh.Key{Kind: mesh.KindPod, Namespace: namespace, Name: pod}
		if w := b.workloads.spec(id); w != nil {
			if len(w.Addresses) > 0 && !slices.Contains(w.Addresses, addr) {
				return mesh.Key{}
			}
			return id
		}
	}
	return cmp.Or(b.addresses.resident(mesh.Location{Addr: addr}), b.addresses.resident(mesh.Location{Namespace: namespace, Addr: addr}))
}

// fromSelector returns the members that the EndpointSlice controller would select.
func (b *Builder) fromSelector(n mesh.Key, spec *mesh.ServiceSpec) []member {
	if len(spec.Selector) == 0 {
		return nil
	}
	var out []member
	v4, v6 := families(spec)
	// any order: the caller sorts the members
	for id, w := range b.workloads.selected(n.Namespace, false, spec.Selector) {
		e := mesh.Endpoint{Ready: spec.PublishNotReady || w.Ready && !w.Terminating, Serving: w.Ready && w.Terminating, Kept: w.Kept && !w.Ready && !w.Terminating, Node: w.Node, Zone: w.Zone}
		if w.Subdomain == n.Name {
			e.Hostname = w.Hostname
		}
		for _, p := range spec.Ports {
			if e.PortName, e.Port = p.Name, target(&p, w); e.Port == 0 {
				continue
			}
			for _, e.Addr = range w.Addresses {
				if e.Addr.Is4() && v4 || e.Addr.Is6() && v6 {
					out = append(out, member{e, id})
				}
			}
		}
	}
	return out
}

// families returns the address families of a service's endpoints: its own, or otherwise those of its
// addresses, or otherwise both.
func families(s *mesh.ServiceSpec) (v4, v6 bool) {
	v4, v6 = s.IPv4, s.IPv6
	if v4 || v6 {
		return v4, v6
	}
	for _, a := range s.Addresses {
		v4, v6 = v4 || a.Is4(), v6 || a.Is6()
	}
	if v4 || v6 {
		return v4, v6
	}
	return true, true
}

// target returns the port of w to which p leads; 0 if w does not have a port with that name and transport.
func target(p *mesh.PortSpec, w *mesh.WorkloadSpec) uint16 {
	switch {
	case p.TargetName != "":
		return w.NamedPorts[mesh.NamedPort{Name: p.TargetName, Transport: p.Protocol.Transport()}]
	case p.Target != 0:
		return p.Target
	}
	return p.Number
}

// portsByWorkload returns the ports, sorted by number, that s declares for each member's workload. The list
// is empty for a workload that s reaches only by UDP or SCTP or at ports of the proxy.
func (s *service) portsByWorkload() map[mesh.Key][]mesh.AppPort {
	if len(s.members) == 0 {
		return nil
	}
	protocol := make(map[string]mesh.Protocol, len(s.spec.Ports))
	for _, p := range s.spec.Ports {
		protocol[p.Name] = p.Protocol
	}
	out := make(map[mesh.Key][]mesh.AppPort, len(s.members))
	for _, m := range s.members {
		if m.workload == (mesh.Key{}) {
			continue
		}
		ports := out[m.workload]
		if protocol[m.PortName].Captured() {
			ports = addPort(ports, m.Port, protocol[m.PortName])
		}
		out[m.workload] = ports
	}
	return out
}

// addPort adds a port to a list that is sorted by number. If the list has the port already, its protocols are
// merged. Ports of the proxy are ignored.
func addPort(ports []mesh.AppPort, number uint16, p mesh.Protocol) []mesh.AppPort {
	if slices.Contains(mesh.ProxyPorts, number) {
		return ports
	}
	i, found := slices.BinarySearchFunc(ports, number, func(p mesh.AppPort, n uint16) int { return cmp.Compare(p.Number, n) })
	if !found {
		return slices.Insert(ports, i, mesh.AppPort{Number: number, Protocol: p})
	}
	ports[i].Protocol = mergeProtocols(ports[i].Protocol, p)
	return ports
}

// mergeProtocols combines the protocols that two services declare for a port of one workload. The
// result does not depend on their order.
func mergeProtocols(a, b mesh.Protocol) mesh.Protocol {
	switch {
	case a == b:
		return a
	case a == mesh.ServerFirst || b == mesh.ServerFirst:
		return mesh.ServerFirst // waiting for the client's bytes could take for ever
	case a == mesh.GRPC && b == mesh.HTTP2 || a == mesh.HTTP2 && b == mesh.GRPC:
		return mesh.HTTP2
	}
	return mesh.Unknown
}
