package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// A member is an endpoint before its workload is computed.
type member struct {
	Endpoint // without Workload
	workload workloadID
}

// updateMembers computes the members of a service. It marks the workloads whose ports
// change, and adds to changed those that got the service or lost it.
func (b *Builder) updateMembers(n name, changed set[workloadID]) {
	s := b.services[n]
	s.members, s.proxyPorts = b.members(n, s)
	old, next := s.workloadPorts, s.portsByWorkload()
	for id := range old {
		if _, still := next[id]; !still {
			delete(b.workload(id).services, n)
			changed.add(id)
		}
	}
	for id, ports := range next {
		was, had := old[id]
		if had && slices.Equal(ports, was) {
			continue
		}
		w := b.workload(id)
		if !had {
			w.services.add(n)
			changed.add(id)
		}
	}
	s.workloadPorts = next
}

// servicesOf returns the services that declare a workload's ports: those of its own
// namespace that have it as a member. Services elsewhere may list any address.
func (b *Builder) servicesOf(id workloadID) []name {
	var out []name
	for n := range b.workloads[id].services {
		if n.namespace == id.namespace {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

// updateServicesOf lists the services of a workload.
func (b *Builder) updateServicesOf(id workloadID, e *edit[workloadID, *[]string]) {
	names := b.servicesOf(id)
	if len(names) == 0 {
		e.delete(id)
		return
	}
	hosts := make([]string, len(names))
	for i, n := range names {
		hosts[i] = b.config.host(n.namespace, n.name)
	}
	slices.Sort(hosts)
	e.set(id, &hosts)
}

// members returns those of a service, and the endpoints at ports of proxies.
func (b *Builder) members(n name, s *service) (out, rejected []member) {
	switch {
	case s.spec == nil || s.spec.External != "":
		return nil, nil
	case len(s.slices) > 0 && !b.fits(n):
		return nil, nil
	case len(s.slices) > 0:
		out = b.fromSlices(n, s)
	default:
		out = b.fromSelector(n, s.spec)
	}
	slices.SortFunc(out, compareMembers)
	// Slices may repeat an endpoint while it moves from one to another. The ready one is
	// sorted first.
	out = slices.CompactFunc(out, func(a, b member) bool {
		return a.PortName == b.PortName && a.Addr == b.Addr && a.Port == b.Port
	})
	return slices.DeleteFunc(out, func(m member) bool {
		bad := b.isProxyPort(m)
		if bad {
			rejected = append(rejected, m)
		}
		return bad
	}), rejected
}

func compareMembers(a, b member) int {
	return cmp.Or(
		cmp.Compare(a.PortName, b.PortName), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port),
		compareBool(b.Ready, a.Ready), compareBool(b.Serving, a.Serving), compareBool(b.Kept, a.Kept),
		cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Zone, b.Zone), a.workload.compare(b.workload),
	)
}

func (b *Builder) fromSlices(n name, s *service) []member {
	var out []member
	for _, slice := range s.sortedSlices() {
		for _, e := range slice.Endpoints {
			for _, addr := range e.Addresses {
				id := b.owner(n.namespace, e.Pod, addr)
				kept := !e.Ready && !e.Serving && b.keeps(id)
				for _, p := range slice.Ports {
					out = append(out, member{
						Endpoint: Endpoint{PortName: p.Name, Addr: addr, Port: p.Number, Ready: e.Ready, Serving: e.Serving, Kept: kept, Node: e.Node, Zone: e.Zone, ForZones: hint(e.ForZones), ForNodes: hint(e.ForNodes), Hostname: e.Hostname},
						workload: id,
					})
				}
			}
		}
	}
	return out
}

// keeps reports whether a workload that an EndpointSlice calls unready was ready a moment ago.
func (b *Builder) keeps(id workloadID) bool {
	w := b.workloads[id]
	return w != nil && w.spec != nil && w.spec.Kept && !w.spec.Terminating
}

// hint returns names in the form of [Endpoint.ForZones].
func hint(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ",") + ","
}

// owner returns the workload at an address: the pod that the slice names, if it still has
// the address (a StatefulSet's pod keeps its name and changes its address), else the
// workload with the address: a pod, or a Host of the service's namespace.
func (b *Builder) owner(namespace, pod string, addr netip.Addr) workloadID {
	if pod != "" {
		id := workloadID{namespace, pod, false}
		if w := b.workloads[id]; w != nil && w.spec != nil {
			if len(w.spec.Addresses) > 0 && !slices.Contains(w.spec.Addresses, addr) {
				return workloadID{}
			}
			return id
		}
	}
	if id := cmp.Or(b.resident(location{addr: addr}), b.resident(location{namespace, addr})); id != nil {
		return *id
	}
	return workloadID{}
}

// fromSelector does the same as the EndpointSlice controller.
func (b *Builder) fromSelector(n name, spec *ServiceSpec) []member {
	if len(spec.Selector) == 0 {
		return nil
	}
	var out []member
	v4, v6 := spec.families()
	// any order: members sorts.
	for id := range b.byLabel[selectorKey(n.namespace, spec.Selector)] {
		w := b.workloads[id].spec
		if !selects(spec.Selector, w.Labels) {
			continue
		}
		e := Endpoint{Ready: (w.Ready || spec.PublishNotReady) && !w.Terminating, Serving: w.Ready && w.Terminating, Kept: w.Kept && !w.Ready && !w.Terminating, Node: w.Node, Zone: w.Zone}
		if w.Subdomain == n.name {
			e.Hostname = w.Hostname
		}
		for _, p := range spec.Ports {
			if e.PortName, e.Port = p.Name, p.target(w); e.Port == 0 {
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

// families returns those of the endpoints' addresses.
func (s *ServiceSpec) families() (v4, v6 bool) {
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

// target returns the port of w for p; 0 if w has none of that name.
func (p *PortSpec) target(w *WorkloadSpec) uint16 {
	switch {
	case p.TargetName != "":
		return w.NamedPorts[p.TargetName]
	case p.Target != 0:
		return p.Target
	}
	return p.Number
}

// portsByWorkload returns the ports that s declares of each member's workload, by number;
// none for one that is a member by UDP or by a port of proxies alone.
func (s *service) portsByWorkload() map[workloadID][]AppPort {
	if len(s.members) == 0 {
		return nil
	}
	protocol := make(map[string]Protocol, len(s.spec.Ports))
	for _, p := range s.spec.Ports {
		protocol[p.Name] = p.Protocol
	}
	out := make(map[workloadID][]AppPort, len(s.members))
	for _, m := range s.members {
		if m.workload == (workloadID{}) {
			continue
		}
		ports := out[m.workload]
		if protocol[m.PortName] != UDP {
			ports = addPort(ports, m.Port, protocol[m.PortName])
		}
		out[m.workload] = ports
	}
	return out
}

// addPort adds a port to a list sorted by number, or merges its protocol. Ports of the proxy
// are left out.
func addPort(ports []AppPort, number uint16, p Protocol) []AppPort {
	if slices.Contains(ProxyPorts, number) {
		return ports
	}
	i, found := slices.BinarySearchFunc(ports, number, func(p AppPort, n uint16) int { return cmp.Compare(p.Number, n) })
	if !found {
		return slices.Insert(ports, i, AppPort{Number: number, Protocol: p})
	}
	ports[i].Protocol = mergeProtocols(ports[i].Protocol, p)
	return ports
}
