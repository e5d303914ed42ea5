package witness

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// A policy is a NetworkPolicy of the pod's namespace that limits what pods may call.
type policy struct {
	name   string
	labels map[string]string // of the pods that it selects
	vague  bool              // it selects by expressions, which are not read
	rules  []egress
	from   evidence.Source
}

// A selector selects by labels, and perhaps by expressions, which are not read.
type selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []json.RawMessage `json:"matchExpressions"`
}

// namespaceName is the label that each namespace has, with its name.
const namespaceName = "kubernetes.io/metadata.name"

// An egress lists destinations that a policy allows.
type egress struct {
	To []struct {
		IPBlock *struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except"`
		} `json:"ipBlock"`
		NamespaceSelector *selector `json:"namespaceSelector"`
	} `json:"to"`
	Ports []struct {
		Port     any    `json:"port"`
		EndPort  uint16 `json:"endPort"`
		Protocol string `json:"protocol"`
	} `json:"ports"`
}

func (r *Record) addPolicy(o *object, from evidence.Source) {
	var spec struct {
		PodSelector selector `json:"podSelector"`
		PolicyTypes []string `json:"policyTypes"`
		Egress      []egress `json:"egress"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil {
		return
	}
	limits := slices.Contains(spec.PolicyTypes, "Egress") || len(spec.PolicyTypes) == 0 && len(spec.Egress) > 0
	if limits && (o.Metadata.Namespace == "" || r.pod.Object.Namespace == "" || o.Metadata.Namespace == r.pod.Object.Namespace) {
		r.keepPolicy(policy{o.Metadata.Name, spec.PodSelector.MatchLabels, len(spec.PodSelector.MatchExpressions) > 0, spec.Egress, from})
	}
}

// forbids returns a policy that selects the pod, if none of those that do allows a call. What cannot be told is allowed:
// pods that a rule selects by their labels, the name of a port, a policy that selects by expressions.
//
// A policy counts the ports of pods, which are not those of their Service. So for a name of which no Service is known, a
// rule about any port but that of DNS may allow the call.
//
// The proxy called via for it, whose address is a pod's, unless it is the Service's.
func (r *Record) forbids(to doctor.Destination, via string) (found policy, is bool) {
	c := callee{own: r.pod.Object.Namespace, ports: []uint16{to.Port}, udp: to.Network == doctor.UDP}
	if a, err := netip.ParseAddr(to.Host); err == nil {
		c.addresses = append(c.addresses, a)
	}
	s := r.serviceOf(to)
	if parts := strings.Split(to.Host, "."); len(parts) == 2 || len(parts) > 2 && parts[2] == "svc" {
		c.namespace = parts[1]
	}
	if m := at.FindStringSubmatch(via); m != nil && (s == nil || !slices.Contains(s.ips, m[1])) && m[1] != to.Host {
		if a, err := netip.ParseAddr(m[1]); err == nil {
			c.addresses, c.ports = append(c.addresses, a), append(c.ports, port(m[2]))
		}
	}
	c.anyPort = to.Port == 0 || s == nil && len(c.addresses) == 0 && to.Port != dns
	if s != nil {
		c.namespace = s.namespace
		c.anyPort = c.anyPort || !s.known
		for _, e := range s.endpoints {
			c.addresses, c.ports = append(c.addresses, e.Addr()), append(c.ports, e.Port())
		}
	}
	for _, p := range r.policies {
		labels, known := r.pod.Object.Labels, !r.pod.Omitted.Meta
		if own := labelsOf(r.own["LABELS"]); !known && own != nil {
			labels, known = own, true
		}
		if p.vague || !known && len(p.labels) > 0 {
			return policy{}, false
		}
		selects := true
		for k, v := range p.labels {
			selects = selects && labels[k] == v
		}
		if !selects {
			continue
		}
		if slices.ContainsFunc(p.rules, func(e egress) bool { return e.mayAllow(c) }) {
			return policy{}, false
		}
		found, is = p, true
	}
	return found, is
}

// A callee has all that is known of the far end of a call.
type callee struct {
	addresses []netip.Addr
	namespace string // empty: not known
	ports     []uint16
	own       string // the namespace of the pod
	anyPort   bool   // the port of its pods is not known
	udp       bool
}

const dns = 53

func (e egress) mayAllow(c callee) bool {
	port := len(e.Ports) == 0
	for _, p := range e.Ports {
		n, isNumber := p.Port.(float64)
		at := func(o uint16) bool { return float64(o) == n || p.EndPort > 0 && float64(o) >= n && o <= p.EndPort }
		fits := p.Port == nil || !isNumber || c.anyPort && n != dns || slices.ContainsFunc(c.ports, at)
		port = port || fits && (p.Protocol != "UDP" || c.udp || slices.Contains(c.ports, dns))
	}
	peer := len(e.To) == 0
	for _, t := range e.To {
		switch {
		case t.IPBlock != nil:
			peer = peer || len(c.addresses) == 0 || slices.ContainsFunc(c.addresses, func(a netip.Addr) bool {
				return within(a, t.IPBlock.CIDR) && !slices.ContainsFunc(t.IPBlock.Except, func(c string) bool { return within(a, c) })
			})
		case t.NamespaceSelector != nil:
			name := t.NamespaceSelector.MatchLabels[namespaceName]
			peer = peer || name == "" || c.namespace == "" || name == c.namespace
		default: // pods of the policy's own namespace
			peer = peer || c.namespace == "" || c.namespace == c.own
		}
	}
	return port && peer
}

func within(a netip.Addr, cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Contains(a.Unmap())
}
