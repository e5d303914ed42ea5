package controlplane

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
)

// These TTLs are the times for which a pod's DNS proxy may cache an answer. A change may take that long to
// reach every pod.
const (
	nameTTL        = 30 * time.Second // as in Istio
	unknownNameTTL = 5 * time.Second  // shorter, so that a new service is found soon
)

// A nameService resolves names in the mesh for the DNS proxies of pods. Pods do not receive a table of names;
// instead, each query causes a look-up in the current mesh.
type nameService struct {
	mesh func() *mesh.Mesh // returns the current mesh
	// identify returns the caller, whose namespace determines which services it may see. Its error is a gRPC
	// status.
	identify func(context.Context) (ca.Identity, error)
}

func (s *nameService) register(to grpc.ServiceRegistrar) {
	ca.Method[wire.NamesRequest, wire.NamesResponse]{
		Service: wire.NamesService, Name: wire.NamesMethod,
		Parse: wire.ParseNamesRequest, Handle: s.resolve,
	}.Register(to)
}

func (s *nameService) resolve(ctx context.Context, in wire.NamesRequest) (wire.NamesResponse, error) {
	caller, err := s.identify(ctx)
	if err != nil {
		return wire.NamesResponse{}, err
	}
	m := s.mesh()
	out := wire.NamesResponse{Answers: make([]wire.Answer, 0, len(in.Names))}
	for _, name := range in.Names {
		out.Answers = append(out.Answers, lookupName(m, name, caller.Namespace))
	}
	return out, nil
}

// lookupName returns the answer for a client in a namespace. It follows ExternalNames as long as they are in
// the mesh; a loop of them yields no address.
func lookupName(m *mesh.Mesh, name, clientNamespace string) wire.Answer {
	a := wire.Answer{TTL: unknownNameTTL}
	for next := name; next != ""; {
		host, addresses, target := lookupOnce(m, next, clientNamespace)
		if host == "" {
			if a.Known {
				a.Outside = next
			}
			return a
		}
		if slices.Contains(a.Aliases, host) || len(a.Aliases) == wire.MaxAliases {
			return a
		}
		a.Known, a.TTL, a.Aliases, a.Addresses = true, nameTTL, append(a.Aliases, host), addresses
		next = target
	}
	return a
}

// lookupOnce returns the full name of a service or pod that the client may see, with its addresses or, for an
// ExternalName, the target. The host is empty if there is no such name.
func lookupOnce(m *mesh.Mesh, name, clientNamespace string) (host string, addresses []netip.Addr, target string) {
	if s := m.Resolve(name, clientNamespace); s != nil {
		switch {
		case s.External != "":
			return s.Host, nil, strings.ToLower(strings.TrimSuffix(s.External, "."))
		case s.Headless:
			return s.Host, readyAddresses(s.Endpoints), ""
		}
		return s.Host, s.Addresses, ""
	}
	if s, endpoints := m.ResolveHostname(name, clientNamespace); s != nil {
		hostname, _, _ := strings.Cut(strings.ToLower(name), ".")
		return hostname + "." + s.Host, readyAddresses(endpoints), ""
	}
	return "", nil, ""
}

// readyAddresses returns the addresses of ready endpoints, sorted and without duplicates. Kubernetes' own DNS
// also leaves out endpoints that are not ready.
func readyAddresses(endpoints []mesh.Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, e := range endpoints {
		if e.Ready {
			out = append(out, e.Addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), wire.MaxAddresses)]
}
