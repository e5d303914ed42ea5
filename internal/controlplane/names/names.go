// Package names answers for the names of the mesh, when a pod's DNS proxy asks: which
// service a name means to the caller, and where it is.
//
// No pod is sent a table of names. A question costs a look-up in the snapshot of that
// moment; the answer says how long it may be kept.
package names

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/mesh"
	"outrider.dev/internal/unary"
	"outrider.dev/internal/wire"
)

// How long an answer may be kept: a change reaches every pod within this time.
const (
	TTL        = 30 * time.Second // Istio's
	UnknownTTL = 5 * time.Second  // a service that is new is found sooner
)

// A Service answers over gRPC.
type Service struct {
	Mesh func() *mesh.Mesh // of this moment
	// Identify says who calls; its error is a status. The caller's namespace is this
	// identity's, whatever a request may say.
	Identify func(context.Context) (ca.Identity, error)
}

// Register adds the service to a gRPC server, beside others.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	unary.Method[wire.NamesRequest, wire.NamesResponse]{
		Service: wire.NamesService, Name: wire.NamesMethod,
		Parse: wire.ParseNamesRequest, Answer: s.Resolve,
	}.Register(to)
}

// Resolve answers for each name, as far as the caller may see it.
func (s *Service) Resolve(ctx context.Context, in wire.NamesRequest) (wire.NamesResponse, error) {
	caller, err := s.Identify(ctx)
	if err != nil {
		return wire.NamesResponse{}, err
	}
	m := s.Mesh()
	out := wire.NamesResponse{Answers: make([]wire.Answer, 0, len(in.Names))}
	for _, name := range in.Names {
		out.Answers = append(out.Answers, Lookup(m, name, caller.Namespace))
	}
	return out, nil
}

// Lookup returns what a name means to a client in a namespace. An ExternalName is followed
// as long as it stays in the mesh; one that leads in a circle has no address.
func Lookup(m *mesh.Mesh, name, clientNamespace string) wire.Answer {
	a := wire.Answer{TTL: UnknownTTL}
	for next := name; next != ""; {
		found, addresses, leads := one(m, next, clientNamespace)
		if found == "" {
			if a.Known {
				a.Outside = next
			}
			return a
		}
		if slices.Contains(a.Aliases, found) || len(a.Aliases) == wire.MaxAliases {
			return a
		}
		a.Known, a.TTL, a.Aliases, a.Addresses = true, TTL, append(a.Aliases, found), addresses
		next = leads
	}
	return a
}

// one is one step: whose full name it is, its addresses, or where it leads. Nothing is
// found of what the client may not see.
func one(m *mesh.Mesh, name, clientNamespace string) (full string, addresses []netip.Addr, leads string) {
	if s := m.Resolve(name, clientNamespace); s != nil {
		switch {
		case s.External != "":
			return s.Host, nil, strings.ToLower(strings.TrimSuffix(s.External, "."))
		case s.Headless:
			return s.Host, ready(s.Endpoints), ""
		}
		return s.Host, s.Addresses, ""
	}
	if s, endpoints := m.ResolveHostname(name, clientNamespace); s != nil {
		hostname, _, _ := strings.Cut(strings.ToLower(name), ".")
		return hostname + "." + s.Host, ready(endpoints), ""
	}
	return "", nil, ""
}

// ready are the addresses behind a headless service, each once, whatever its ports are.
// What is not ready is left out, as Kubernetes' own DNS does.
func ready(endpoints []mesh.Endpoint) []netip.Addr {
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
