package objects

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/mesh"
)

// exportTo is Istio's annotation: the namespaces that see a service, with commas.
const exportTo = "networking.istio.io/exportTo"

// transports are the protocols of Kubernetes.
var transports = map[corev1.Protocol]bool{"": true, corev1.ProtocolTCP: true, corev1.ProtocolUDP: true, corev1.ProtocolSCTP: true}

var serviceTypes = map[corev1.ServiceType]bool{
	"": true, corev1.ServiceTypeClusterIP: true, corev1.ServiceTypeNodePort: true,
	corev1.ServiceTypeLoadBalancer: true, corev1.ServiceTypeExternalName: true,
}

// Service returns what s is in a mesh.
func Service(s *corev1.Service) (*mesh.ServiceSpec, error) {
	var c check
	out := &mesh.ServiceSpec{PublishNotReady: s.Spec.PublishNotReadyAddresses, Selector: s.Spec.Selector}
	out.Namespace, out.Name = c.meta(&s.ObjectMeta)
	oneOf(&c, "spec.type", s.Spec.Type, serviceTypes)
	out.ExportTo = c.exportTo(s.Annotations[exportTo])
	for i, f := range s.Spec.IPFamilies {
		switch f {
		case corev1.IPv4Protocol:
			out.IPv4 = true
		case corev1.IPv6Protocol:
			out.IPv6 = true
		default:
			c.wrong(at("spec.ipFamilies", i), "%q is not known: write IPv4 or IPv6", f)
		}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.External = c.externalName(s.Spec.ExternalName)
		out.Selector = nil
	} else {
		out.Headless = s.Spec.ClusterIP == corev1.ClusterIPNone
		out.Addresses = c.clusterIPs(&s.Spec)
	}
	out.Ports = c.servicePorts(s.Spec.Ports)
	return out, c.err()
}

func (c *check) externalName(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	c.name("spec.externalName", name)
	return name
}

func (c *check) exportTo(annotation string) []string {
	if annotation == "" {
		return nil
	}
	var out []string
	for to := range strings.SplitSeq(annotation, ",") {
		to = strings.TrimSpace(to)
		if !slices.Contains([]string{"*", ".", "~"}, to) && len(validation.IsDNS1123Label(to)) > 0 {
			c.wrong("metadata.annotations."+exportTo, "%q is no namespace: names of namespaces, *, . and ~ are known", to)
		}
		out = append(out, to)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *check) clusterIPs(s *corev1.ServiceSpec) []netip.Addr {
	var out []netip.Addr
	add := func(field, ip string) {
		if ip == "" || ip == corev1.ClusterIPNone {
			return
		}
		if a := c.reachable(field, ip); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	add("spec.clusterIP", s.ClusterIP)
	for i, ip := range s.ClusterIPs {
		add(at("spec.clusterIPs", i), ip)
	}
	return out
}

func (c *check) servicePorts(ports []corev1.ServicePort) []mesh.PortSpec {
	var out []mesh.PortSpec
	names := map[string]bool{}
	numbers := map[string]bool{}
	for i, p := range ports {
		field := at("spec.ports", i)
		oneOf(c, field+".protocol", p.Protocol, transports)
		spec := mesh.PortSpec{Port: mesh.Port{
			Name: p.Name, Number: c.port(field+".port", int64(p.Port)),
			Protocol: mesh.ProtocolOf(value(p.AppProtocol), p.Name, string(p.Protocol)),
		}}
		if p.Name == "" && len(ports) > 1 {
			c.wrong(field+".name", "missing: with more than one port each needs a name")
		} else if names[p.Name] {
			c.wrong(field+".name", "%q is there twice", p.Name)
		}
		names[p.Name] = true
		number := fmt.Sprint(p.Port, "/", cmp.Or(p.Protocol, corev1.ProtocolTCP))
		if numbers[number] {
			c.wrong(field+".port", "%s is there twice", number)
		}
		numbers[number] = true
		if p.TargetPort.Type == intstr.String {
			spec.TargetName = c.portName(field+".targetPort", p.TargetPort.StrVal)
		} else if p.TargetPort.IntVal != 0 {
			spec.Target = c.port(field+".targetPort", int64(p.TargetPort.IntVal))
		}
		out = append(out, spec)
	}
	return out
}

func (c *check) portName(field, name string) string {
	if problems := validation.IsValidPortName(name); len(problems) > 0 {
		c.wrong(field, "%q is no number and no name of a port: up to 15 lower-case letters, digits and - are", name)
	}
	return name
}

// EndpointSlice returns what s is in a mesh; nil for one that belongs to no service, or
// that has names instead of addresses.
func EndpointSlice(s *discoveryv1.EndpointSlice) (*mesh.SliceSpec, error) {
	var c check
	out := &mesh.SliceSpec{Service: s.Labels[discoveryv1.LabelServiceName]}
	out.Namespace, out.Name = c.meta(&s.ObjectMeta)
	if out.Service != "" {
		c.label("metadata.labels."+discoveryv1.LabelServiceName, out.Service)
	}
	oneOf(&c, "addressType", s.AddressType, map[discoveryv1.AddressType]bool{
		discoveryv1.AddressTypeIPv4: true, discoveryv1.AddressTypeIPv6: true, discoveryv1.AddressTypeFQDN: true,
	})
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, c.err()
	}
	for i, p := range s.Ports {
		field := at("ports", i)
		oneOf(&c, field+".protocol", value(p.Protocol), transports)
		if p.Port != nil { // nil: every port, which is nothing to connect to
			out.Ports = append(out.Ports, mesh.SlicePort{Name: value(p.Name), Number: c.port(field+".port", int64(*p.Port))})
		}
	}
	for i := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, c.endpoint(at("endpoints", i), &s.Endpoints[i], s.AddressType))
	}
	if out.Service == "" {
		return nil, c.err()
	}
	return out, c.err()
}

// endpoint reads conditions as the API has them: nil is ready, and serving as ready.
func (c *check) endpoint(field string, e *discoveryv1.Endpoint, family discoveryv1.AddressType) mesh.SliceEndpoint {
	ready := valueOr(e.Conditions.Ready, true)
	out := mesh.SliceEndpoint{
		Ready: ready, Serving: valueOr(e.Conditions.Serving, ready) && value(e.Conditions.Terminating),
		Zone: value(e.Zone), Hostname: value(e.Hostname),
	}
	if len(e.Addresses) == 0 {
		c.wrong(field+".addresses", "missing: an endpoint has at least one")
	}
	for i, s := range e.Addresses {
		addr := c.reachable(at(field+".addresses", i), s)
		if !addr.IsValid() {
			continue
		}
		if addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
			c.wrong(at(field+".addresses", i), "%q is not of the slice's addressType %s", s, family)
			continue
		}
		out.Addresses = append(out.Addresses, addr)
	}
	if out.Hostname != "" {
		c.label(field+".hostname", out.Hostname)
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" {
		out.Pod = t.Name
	}
	return out
}

// sortedKeys makes messages come in the same order each time.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
