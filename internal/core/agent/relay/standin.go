package relay

import (
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
)

// standInVersion is the version of a stand-in. No resource of the control plane has this version, so the
// control plane sends its own resource when it is reachable again.
const standInVersion = "away"

// standIn returns a stand-in for a name that is not stored, so that Envoy's request for it
// completes at once. It returns false if Envoy does not wait for resources of this type.
//
//   - A cluster for an address that belongs to no service leads to that address, as without a mesh.
//   - Any other cluster refuses requests, and resets connections.
//   - Endpoints are an empty list. A virtual host is empty, which means 404.
func standIn(a wire.Away, typeURL, name string) (resource, bool) {
	raw := wire.AppendField(wire.AppendField(nil, 3, name), 1, standInVersion)
	var body []byte
	switch typeURL {
	case clusterType:
		body = standInCluster(a, name)
	case endpointType:
		body = wire.AppendField(nil, 1, name)
	case hostType:
		// Envoy finds the waiting request by the alias.
		return resource{name: name, version: standInVersion, raw: wire.AppendField(raw, 4, name)}, true
	default:
		return resource{}, false
	}
	packed := wire.AppendField(wire.AppendField(nil, 1, typeURL), 2, body)
	return resource{name: name, version: standInVersion, raw: wire.AppendField(raw, 2, packed)}, true
}

// standInCluster returns a cluster with the given name. It consists of a template from a and of appended fields,
// which protobuf merges into the template.
func standInCluster(a wire.Away, name string) []byte {
	assignment := wire.AppendField(nil, 1, name)
	body := a.Refused
	if to, http, ok := addressOf(name); ok && !slices.ContainsFunc(a.Services, func(p netip.Prefix) bool { return p.Contains(to.Addr()) }) {
		template := a.TCP
		if http {
			template = a.HTTP
		}
		if len(template) > 0 {
			body = template
			socket := wire.AppendVarint(wire.AppendField(nil, 2, to.Addr().String()), 3, uint64(to.Port()))
			endpoint := wire.AppendField(nil, 1, wire.AppendField(nil, 1, socket)) // Endpoint.address.socket_address
			assignment = wire.AppendField(assignment, 2, wire.AppendField(nil, 2, wire.AppendField(nil, 1, endpoint)))
		}
	}
	return wire.AppendField(wire.AppendField(slices.Clone(body), 1, name), 33, assignment)
}

// addressOf returns the address in a cluster's name: "http|10.0.0.7:80" or "tcp|[fd00::7]:80".
func addressOf(name string) (to netip.AddrPort, http, ok bool) {
	for _, prefix := range []string{contract.HTTPCluster, contract.TCPCluster, contract.RawCluster} {
		if address, is := strings.CutPrefix(name, prefix); is {
			to, err := netip.ParseAddrPort(address)
			return netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), prefix == contract.HTTPCluster, err == nil
		}
	}
	return netip.AddrPort{}, false, false
}
