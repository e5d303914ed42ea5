package resource

import (
	"net/netip"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// features are the properties of a proxy, except its workload, on which its resources depend. Proxies
// with the same features share resources.
type features struct {
	secrets     secrets
	v4, v6      bool // address families of its listeners
	transparent bool
	grpc        bool   // a gRPC client without a proxy
	relayed     bool   // its agent answers while the control plane is away
	sampling    string // see samplingOf
}

// shared reports whether other proxies probably have the same features. A directory of secrets is
// chosen by each proxy alone.
func (f features) shared() bool { return f.secrets.dir == "" }

func featuresOf(p *xds.Proxy) features {
	s := features{
		secrets:     secretsOf(p),
		transparent: p.Metadata[contract.MetadataInterception] == "TPROXY",
		grpc:        p.GRPC,
		relayed:     p.Relayed,
		sampling:    samplingOf(p),
	}
	if s.grpc {
		s.secrets = secrets{} // endpoints with different transport sockets are unsupported
	}
	for _, a := range p.Addresses {
		if a.Unmap().Is4() {
			s.v4 = true
		} else {
			s.v6 = true
		}
	}
	if !s.v6 {
		s.v4 = true
	}
	return s
}

// forClusters returns the features on which clusters depend, and forListeners those on which outbound
// listeners depend.
func (f features) forClusters() features {
	return features{secrets: f.secrets, grpc: f.grpc, relayed: f.relayed}
}
func (f features) forListeners() features {
	return features{v4: f.v4, v6: f.v6, relayed: f.relayed, sampling: f.sampling}
}

// workload returns the workload of a proxy, or nil. The proxy claims a name and addresses, but the
// workload must have the identity in the proxy's certificate.
func workload(m *mesh.Mesh, p *xds.Proxy) *mesh.Workload {
	var found []*mesh.Workload
	// The name comes first, because a pod's addresses are known to the cluster only after it has
	// started.
	if id, err := xds.ParseNodeID(p.ID); err == nil && id.Name != "" {
		found = append(found, m.Pod(p.Namespace, id.Name), m.Host(p.Namespace, id.Name))
	}
	for _, a := range p.Addresses {
		found = append(found, m.Workload(a, p.Namespace))
	}
	i := slices.IndexFunc(found, func(w *mesh.Workload) bool {
		return w != nil && w.Namespace == p.Namespace && w.ServiceAccount == p.ServiceAccount
	})
	if i < 0 {
		return nil
	}
	return found[i]
}

// appPort returns a workload's port, and whether a service or policy declares it.
func appPort(w *mesh.Workload, number uint16) (mesh.AppPort, bool) {
	for _, p := range w.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return mesh.AppPort{Number: number, TLS: w.TLS}, false
}

// mutual reports whether proxies connect to a workload's port by mutual TLS. Both the clients and the
// server's own proxy use this rule.
//
//   - A permissive port on which the server speaks first is called in plain text, because its proxy
//     cannot distinguish a client that waits for the server from one whose TLS handshake is late.
//   - A permissive port that no service or policy declares is also called in plain text, because it may
//     be excluded from capture, as the proxy's own ports are.
func mutual(w *mesh.Workload, number uint16) bool {
	if w == nil || !w.Proxied {
		return false
	}
	p, known := appPort(w, number)
	switch p.TLS {
	case mesh.Disable:
		return false
	case mesh.Strict:
		return true
	}
	return known && p.Protocol != mesh.ServerFirst
}

// identity returns a workload's SPIFFE ID.
func identity(trustDomain string, w *mesh.Workload) string {
	return "spiffe://" + trustDomain + "/ns/" + w.Namespace + "/sa/" + w.ServiceAccount
}

// A socket is an address to listen on.
type socket struct {
	host netip.Addr
	port uint16
}

// wildcards returns a listener's addresses, at least one.
func (f features) wildcards(port uint16) []socket {
	var out []socket
	if f.v4 {
		out = append(out, socket{netip.IPv4Unspecified(), port})
	}
	if f.v6 {
		out = append(out, socket{netip.IPv6Unspecified(), port})
	}
	return out
}
