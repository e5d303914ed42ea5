package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// privateNetworks are the networks of RFC 1918, RFC 6598 and RFC 4193.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// Complete returns c with defaults in place of empty fields.
func (c Config) Complete() Config {
	c.TrustDomain = cmp.Or(c.TrustDomain, DefaultTrustDomain)
	c.Domain = cmp.Or(c.Domain, DefaultDomain)
	c.RootNamespace = cmp.Or(c.RootNamespace, DefaultRoot)
	if c.Networks == nil {
		c.Networks = privateNetworks
	}
	return c
}

// Host returns the DNS name of a Kubernetes service.
func (c Config) Host(namespace, name string) string {
	return name + "." + namespace + ".svc." + c.Domain
}

// Special values of the annotation networking.istio.io/exportTo: all namespaces, the service's own one, and
// none.
const (
	exportAll  = "*"
	exportOwn  = "."
	exportNone = "~"
)

// Visible reports whether clients in a namespace can see s, according to exportTo.
func (m *Mesh) Visible(s *Service, namespace string) bool {
	if len(s.ExportTo) == 0 {
		return true
	}
	return slices.ContainsFunc(s.ExportTo, func(to string) bool {
		return to == exportAll || to == namespace || to == exportOwn && namespace == s.Namespace
	})
}

// Resolve returns the service that a client in a namespace reaches by a name, or nil if there is none that it
// can see. Name is completed as by a pod's resolver: reviews, reviews.shop, reviews.shop.svc or the full
// name. It is case-insensitive, may end in a dot, and contains no port.
func (m *Mesh) Resolve(name, clientNamespace string) *Service {
	name = canonical(name)
	s := m.Service(name)
	if s == nil {
		s = m.byShortName(name, clientNamespace)
	}
	if s == nil || !m.Visible(s, clientNamespace) {
		return nil
	}
	return s
}

// ResolveHostname resolves the own name of a pod in a headless service, such as db-0.db.shop.svc. It returns
// the service and the pod's endpoints, one for each port and address; nil if there are none.
func (m *Mesh) ResolveHostname(name, clientNamespace string) (*Service, []Endpoint) {
	hostname, service, ok := strings.Cut(canonical(name), ".")
	if !ok {
		return nil, nil
	}
	s := m.Resolve(service, clientNamespace)
	if s == nil || !s.Headless {
		return nil, nil
	}
	var out []Endpoint
	for _, e := range s.Endpoints {
		if e.Hostname == hostname {
			out = append(out, e)
		}
	}
	if out == nil {
		return nil, nil
	}
	return s, out
}

func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// byShortName completes a name with the search list that the kubelet writes: namespace.svc.domain,
// svc.domain, domain.
func (m *Mesh) byShortName(name, clientNamespace string) *Service {
	switch strings.Count(name, ".") {
	case 0:
		return m.ByName(clientNamespace, name)
	case 1:
		service, namespace, _ := strings.Cut(name, ".")
		return m.ByName(namespace, service)
	case 2:
		if strings.HasSuffix(name, ".svc") {
			return m.Service(name + "." + m.Config.Domain)
		}
	}
	return nil
}

// Port returns the port that clients reach by a number and TCP, or nil if the service has none.
func (s *Service) Port(number uint16) *Port { return portOfTCP(s.Ports, number) }

// portOfTCP returns the port with a number, or nil if there is none. Kubernetes allows the same number for ports of
// other transports, in any order.
func portOfTCP(ports []Port, number uint16) *Port {
	for i := range ports {
		if ports[i].Number == number && ports[i].Protocol.Captured() {
			return &ports[i]
		}
	}
	return nil
}

// Captured returns the ports whose connections proxies take.
func Captured(ports []Port) (out []Port) {
	for _, p := range ports {
		if p.Protocol.Captured() {
			out = append(out, p)
		}
	}
	return out
}
