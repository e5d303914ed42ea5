package mesh

import (
	"cmp"
	"net/netip"
	"slices"
)

// A member is an endpoint before its workload is known as a value.
type member struct {
	Endpoint // without Workload
	workload workloadID
}

// gather computes who the members of a service are, and notes the workloads to which it
// now sends something else, and those that it came to stand before or no longer does.
func (b *Builder) gather(n name, behind set[workloadID]) {
	s := b.services[n]
	s.members, s.misled = b.members(n, s)
	sends := s.sendsTo()
	for id, ports := range s.sends {
		if slices.Equal(ports, sends[id]) {
			continue
		}
		w := b.workload(id)
		if sends[id] == nil {
			delete(w.behind, n)
			behind.add(id)
		}
	}
	for id, ports := range sends {
		if slices.Equal(ports, s.sends[id]) {
			continue
		}
		w := b.workload(id)
		if s.sends[id] == nil {
			w.behind.add(n)
			behind.add(id)
		}
	}
	s.sends = sends
}

// inFront are the services that say something about a workload: those of its own
// namespace that have it as a member. Those of others may write down any address.
func (b *Builder) inFront(id workloadID) []name {
	var out []name
	for n := range b.workloads[id].behind {
		if n.namespace == id.namespace {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, compareNames)
	return out
}

// renewBehind lists the services in front of a workload anew.
func (b *Builder) renewBehind(id workloadID, e *edit[workloadID, *[]string]) {
	names := b.inFront(id)
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

// members returns those of a service, and what would be some but for its ports.
func (b *Builder) members(n name, s *service) (out, misled []member) {
	switch {
	case s.spec == nil || s.spec.External != "":
		return nil, nil
	case len(s.slices) > 0:
		out = b.fromSlices(n, s)
	default:
		out = b.fromSelector(n, s.spec)
	}
	slices.SortFunc(out, compareMembers)
	// Slices may repeat an endpoint while it moves from one to another. Sorted, the
	// better word about it comes first.
	out = slices.CompactFunc(out, func(a, b member) bool {
		return a.PortName == b.PortName && a.Addr == b.Addr && a.Port == b.Port
	})
	return slices.DeleteFunc(out, func(m member) bool {
		bad := b.misleads(m)
		if bad {
			misled = append(misled, m)
		}
		return bad
	}), misled
}

func compareMembers(a, b member) int {
	return cmp.Or(
		cmp.Compare(a.PortName, b.PortName), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port),
		compareBool(b.Ready, a.Ready), compareBool(b.Serving, a.Serving),
		cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.Zone, b.Zone), a.workload.compare(b.workload),
	)
}

func (b *Builder) fromSlices(n name, s *service) []member {
	var out []member
	for _, slice := range s.sortedSlices() {
		for _, e := range slice.Endpoints {
			for _, addr := range e.Addresses {
				id := b.owner(n.namespace, e.Pod, addr)
				for _, p := range slice.Ports {
					out = append(out, member{
						Endpoint: Endpoint{PortName: p.Name, Addr: addr, Port: p.Number, Ready: e.Ready, Serving: e.Serving, Zone: e.Zone, Hostname: e.Hostname},
						workload: id,
					})
				}
			}
		}
	}
	return out
}

// owner finds what runs at an address: the pod that the slice names, if the address is
// still its own (a StatefulSet's pod keeps its name and changes its address), else who
// has the address.
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
	if id := least(b.atAddress[addr], workloadID.compare); id != nil {
		return *id
	}
	return workloadID{}
}

// fromSelector does what the EndpointSlice controller would.
func (b *Builder) fromSelector(n name, spec *ServiceSpec) []member {
	if len(spec.Selector) == 0 {
		return nil
	}
	var out []member
	v4, v6 := spec.families()
	for id := range b.byLabel[handle(n.namespace, spec.Selector)] {
		w := b.workloads[id].spec
		if !selects(spec.Selector, w.Labels) {
			continue
		}
		e := Endpoint{Ready: (w.Ready || spec.PublishNotReady) && !w.Terminating, Serving: w.Ready && w.Terminating, Zone: w.Zone}
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

// families of the addresses of s's endpoints.
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

// target is the port of w that p leads to; 0 if w has none of that name.
func (p *PortSpec) target(w *WorkloadSpec) uint16 {
	switch {
	case p.TargetName != "":
		return w.NamedPorts[p.TargetName]
	case p.Target != 0:
		return p.Target
	}
	return p.Number
}

// sendsTo returns the ports of each workload that s sends to, by number.
func (s *service) sendsTo() map[workloadID][]AppPort {
	if len(s.members) == 0 {
		return nil
	}
	protocol := make(map[string]Protocol, len(s.spec.Ports))
	for _, p := range s.spec.Ports {
		protocol[p.Name] = p.Protocol
	}
	out := make(map[workloadID][]AppPort, len(s.members))
	for _, m := range s.members {
		if m.workload != (workloadID{}) && protocol[m.PortName] != UDP {
			out[m.workload] = addPort(out[m.workload], m.Port, protocol[m.PortName])
		}
	}
	return out
}

// addPort adds a port to those sorted by number, or what is said of it to what is said
// already. One of the proxy's is none of the application's.
func addPort(ports []AppPort, number uint16, p Protocol) []AppPort {
	if slices.Contains(ProxyPorts, number) {
		return ports
	}
	i, found := slices.BinarySearchFunc(ports, number, func(p AppPort, n uint16) int { return cmp.Compare(p.Number, n) })
	if !found {
		return slices.Insert(ports, i, AppPort{Number: number, Protocol: p})
	}
	ports[i].Protocol = agree(ports[i].Protocol, p)
	return ports
}
