package resource

import (
	"net/netip"
	"slices"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// Keys of a proxy's metadata.
const (
	MetadataSecrets      = "SECRETS"           // the cluster that it asks for its secrets
	MetadataCertificates = "CERTIFICATES"      // or the directory of their files; neither: it speaks no mutual TLS
	MetadataInterception = "INTERCEPTION_MODE" // Istio's: REDIRECT or TPROXY
	MetadataPrewarm      = "PREWARM"           // services to tell of before they are used: host or host:port, by comma
)

// A shape is all of a proxy that its resources depend on, besides its workload: proxies
// of one shape share them.
type shape struct {
	secrets     secrets
	v4, v6      bool // addresses it listens on
	transparent bool
	full        bool // it is told everything
}

func shapeOf(p *xds.Proxy) shape {
	s := shape{
		secrets:     secretsOf(p),
		transparent: p.Metadata[MetadataInterception] == "TPROXY",
		full:        !p.OnDemand,
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

// calling is the part of s that clusters depend on, listening the one that outbound
// listeners do.
func (s shape) calling() shape   { return shape{secrets: s.secrets, full: s.full} }
func (s shape) listening() shape { return shape{v4: s.v4, v6: s.v6} }

// workload is what p is the proxy of, or nil. A proxy says itself what its name and its
// addresses are; what its certificate says must agree.
func workload(m *mesh.Mesh, p *xds.Proxy) *mesh.Workload {
	var found []*mesh.Workload
	// By name first: a pod's addresses are known to the cluster only after it has started.
	if id, err := xds.ParseNodeID(p.ID); err == nil && id.Name != "" {
		found = append(found, m.Pod(p.Namespace, id.Name), m.Host(p.Namespace, id.Name))
	}
	for _, a := range p.Addresses {
		found = append(found, m.Workload(a))
	}
	i := slices.IndexFunc(found, func(w *mesh.Workload) bool {
		return w != nil && w.Namespace == p.Namespace && w.ServiceAccount == p.ServiceAccount
	})
	if i < 0 {
		return nil
	}
	return found[i]
}

// appPort returns what is known of a workload's port, and whether anything is.
func appPort(w *mesh.Workload, number uint16) (mesh.AppPort, bool) {
	for _, p := range w.Ports {
		if p.Number == number {
			return p, true
		}
	}
	return mesh.AppPort{Number: number, TLS: w.TLS}, false
}

// mutual says whether a workload's port is called by mutual TLS, from inside the mesh.
// Both ends go by it.
//
//   - A port that takes both, where the server speaks first, is called plainly: its
//     proxy cannot tell a caller who waits for the server from one whose TLS is late.
//   - So is a port that takes both and that nothing is known of: it may be excluded from
//     the capture, as a port of the proxy's own is.
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

// identity is a workload's SPIFFE ID.
func identity(trustDomain string, w *mesh.Workload) string {
	return "spiffe://" + trustDomain + "/ns/" + w.Namespace + "/sa/" + w.ServiceAccount
}

// socket is an address to listen on.
type socket struct {
	host netip.Addr
	port uint16
}

// wildcards are the addresses that a listener of s has, at least one.
func (s shape) wildcards(port uint16) []socket {
	var out []socket
	if s.v4 {
		out = append(out, socket{netip.IPv4Unspecified(), port})
	}
	if s.v6 {
		out = append(out, socket{netip.IPv6Unspecified(), port})
	}
	return out
}
