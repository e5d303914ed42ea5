// Package networks finds the networks of services' virtual addresses, from the addresses alone. They are
// updated with each change of a service or workload, at a cost that depends on the change.
package networks

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/mesh"
)

// Blocks count the virtual addresses of services, and the addresses of workloads, by block.
type Blocks struct{ virtual, workloads map[netip.Prefix]int }

// A block is a network with one of these prefix lengths. The largest network that a cluster uses for services (a
// /12, or an IPv6 /108) has 256 or 16 of them. If there are many services, every block contains some, and
// together they form one network.
const blockBits4, blockBits6 = 20, 112

func blockOf(a netip.Addr) netip.Prefix {
	bits := blockBits4
	if a.Is6() {
		bits = blockBits6
	}
	p, _ := a.WithZone("").Prefix(bits)
	return p
}

// After returns the counts as they are after the changes. It does not change n.
func (n Blocks) After(services []mesh.Change[mesh.Service], workloads []mesh.Change[mesh.Workload]) Blocks {
	if len(services)+len(workloads) == 0 {
		return n
	}
	out := Blocks{maps.Clone(n.virtual), maps.Clone(n.workloads)}
	if n.virtual == nil {
		out = Blocks{map[netip.Prefix]int{}, map[netip.Prefix]int{}}
	}
	count(out.virtual, services, func(s *mesh.Service) []netip.Addr { return s.Addresses })
	count(out.workloads, workloads, func(w *mesh.Workload) []netip.Addr { return w.Addresses })
	return out
}

// count updates how many addresses each block contains.
func count[T any](in map[netip.Prefix]int, changes []mesh.Change[T], addresses func(*T) []netip.Addr) {
	add := func(object *T, by int) {
		if object == nil {
			return
		}
		for _, a := range addresses(object) {
			block := blockOf(a.Unmap())
			if in[block] += by; in[block] == 0 {
				delete(in, block)
			}
		}
	}
	for _, c := range changes {
		add(c.Old, -1)
		add(c.New, 1)
	}
}

// Services returns networks that contain the virtual addresses of all services: whole blocks, or single addresses
// if the block also contains a workload's address. If these would be too many, larger networks are used, which
// may include workloads.
func (n Blocks) Services(m *mesh.Mesh) []netip.Prefix {
	var out []netip.Prefix
	mixed := false
	for block := range n.virtual { // any order: merged sorts them
		if n.workloads[block] == 0 {
			out = append(out, block)
		} else {
			mixed = true
		}
	}
	if mixed {
		for _, s := range m.Services() {
			for _, a := range s.Addresses {
				if a = a.Unmap(); n.workloads[blockOf(a)] > 0 {
					out = append(out, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	for out = merged(out); len(out) > wire.MaxServiceNetworks; out = merged(out) {
		for i, p := range out {
			out[i] = parent(p)
		}
	}
	return out
}

// merged returns the same set of addresses as the smallest number of networks, sorted.
func merged(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1 && out[n-2].Bits() == out[n-1].Bits() && parent(out[n-2]) == parent(out[n-1]); n = len(out) {
			out = append(out[:n-2], parent(out[n-1]))
		}
	}
	return out
}

func parent(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr(), max(0, p.Bits()-1)).Masked()
}

func serviceNetworkBits(a netip.Addr) int {
	if a.Is4() {
		return 12
	}
	return 108
}

// ServiceNetworks are the networks of the services' virtual addresses.
type ServiceNetworks struct {
	within map[netip.Prefix]serviceNetwork // by the /12 or, for IPv6, the /108 that contains them
	Ranges []netip.Prefix                  // as used in listeners
}

type serviceNetwork struct {
	smallest netip.Prefix // contains all blocks
	first    netip.Prefix // the /16 or, for IPv6, the /112 of the lowest block
}

// ServiceNetworks computes the networks from the blocks of virtual addresses. The ranges lie within the networks
// of the mesh.
func (n Blocks) ServiceNetworks(of []netip.Prefix) ServiceNetworks {
	out := ServiceNetworks{within: map[netip.Prefix]serviceNetwork{}}
	for block := range n.virtual { // any order: the smallest network and the lowest block do not depend on it
		within, _ := block.Addr().Prefix(serviceNetworkBits(block.Addr()))
		first, _ := block.Addr().Prefix(serviceNetworkBits(block.Addr()) + 4)
		found, ok := out.within[within]
		if !ok {
			found = serviceNetwork{block, first}
		}
		for !found.smallest.Contains(block.Addr()) {
			found.smallest = parent(found.smallest)
		}
		if first.Addr().Less(found.first.Addr()) {
			found.first = first
		}
		out.within[within] = found
	}
	for within, n := range out.within { // any order: the ranges are sorted below
		out.Ranges = append(out.Ranges, inside(of, n.first)...)
		if n.smallest.Bits() < n.first.Bits() {
			out.Ranges = append(out.Ranges, inside(of, within)...)
		}
	}
	slices.SortFunc(out.Ranges, netip.Prefix.Compare)
	out.Ranges = slices.Compact(out.Ranges)
	out.Ranges = out.Ranges[:min(len(out.Ranges), maxServiceRanges)]
	return out
}

// Contains reports whether an address is in the network of services: the smallest network that contains
// all blocks of their addresses, within a /12 or, for IPv6, a /108, the largest networks that Kubernetes
// uses for services.
func (s ServiceNetworks) Contains(a netip.Addr) bool {
	within, _ := a.Prefix(serviceNetworkBits(a))
	n, ok := s.within[within]
	return ok && n.smallest.Contains(a)
}

// InRange reports whether an address is in one of the ranges.
func (s ServiceNetworks) InRange(a netip.Addr) bool {
	return slices.ContainsFunc(s.Ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// Equal reports whether the same addresses are in the networks.
func (s ServiceNetworks) Equal(o ServiceNetworks) bool { return maps.Equal(s.within, o.within) }

// maxServiceRanges limits the filter chains of a listener. A cluster has one or two ranges for each
// family; Hosts may have virtual addresses elsewhere. Connections to further ranges are not retried.
const maxServiceRanges = 16

// inside returns the range r or the first network that overlaps it, whichever is smaller; nothing if no network
// overlaps it.
func inside(networks []netip.Prefix, r netip.Prefix) []netip.Prefix {
	for _, n := range networks {
		if r.Overlaps(n) {
			if n.Bits() > r.Bits() {
				r = n.Masked()
			}
			return []netip.Prefix{r}
		}
	}
	return nil
}
