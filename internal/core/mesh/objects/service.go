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
	"k8s.io/utils/ptr"

	"outrider.dev/internal/core/mesh"
)

// exportTo is Istio's annotation with the namespaces that can see a service, separated by commas.
const exportTo = "networking.istio.io/exportTo"

// trafficDistribution is Istio's annotation for the same setting as the field trafficDistribution, which came
// later.
const trafficDistribution = "networking.istio.io/traffic-distribution"

// transports are the valid protocols of a Kubernetes port.
var transports = map[corev1.Protocol]bool{"": true, corev1.ProtocolTCP: true, corev1.ProtocolUDP: true, corev1.ProtocolSCTP: true}

// transportOf returns the transport of a port. Like the API, it defaults to TCP.
func transportOf(p corev1.Protocol) mesh.Transport {
	return mesh.Transport(cmp.Or(p, corev1.ProtocolTCP))
}

var distributions = map[string]mesh.Traffic{
	"": mesh.AnyTraffic,
	corev1.ServiceTrafficDistributionPreferClose:    mesh.SameZone,
	corev1.ServiceTrafficDistributionPreferSameZone: mesh.SameZone,
	corev1.ServiceTrafficDistributionPreferSameNode: mesh.SameNode,
}

// internalPolicies are the valid values of internalTrafficPolicy, with whether a client may only use endpoints on
// its node.
var internalPolicies = map[corev1.ServiceInternalTrafficPolicy]bool{
	"": false, corev1.ServiceInternalTrafficPolicyCluster: false, corev1.ServiceInternalTrafficPolicyLocal: true,
}

var affinities = map[corev1.ServiceAffinity]bool{"": false, corev1.ServiceAffinityNone: false, corev1.ServiceAffinityClientIP: true}

var serviceTypes = map[corev1.ServiceType]bool{
	"": true, corev1.ServiceTypeClusterIP: true, corev1.ServiceTypeNodePort: true,
	corev1.ServiceTypeLoadBalancer: true, corev1.ServiceTypeExternalName: true,
}

type serviceReader struct{ check }

// Service returns the part for s. If there is an error, the part contains everything else in the object.
func Service(s *corev1.Service) (*mesh.ServiceSpec, error) {
	var c serviceReader
	out := &mesh.ServiceSpec{PublishNotReady: s.Spec.PublishNotReadyAddresses, Selector: s.Spec.Selector}
	out.Namespace, out.Name = c.meta(&s.ObjectMeta)
	oneOf(&c.check, "spec.type", s.Spec.Type, serviceTypes)
	out.ExportTo = c.exportTo(s.Annotations[exportTo])
	for i, f := range s.Spec.IPFamilies {
		switch f {
		case corev1.IPv4Protocol:
			out.IPv4 = true
		case corev1.IPv6Protocol:
			out.IPv6 = true
		default:
			c.invalid(at("spec.ipFamilies", i), "%q is unknown: must be IPv4 or IPv6", f)
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
	out.Traffic = c.traffic(s)
	out.Affinity = c.affinity(&s.Spec)
	out.Ignored = ignoredFields(&s.Spec, out)
	return out, c.result()
}

// ignoredFields returns the fields of a service that have no effect because of others.
func ignoredFields(s *corev1.ServiceSpec, out *mesh.ServiceSpec) (all []mesh.IgnoredField) {
	add := func(field, why, instead string) {
		all = append(all, mesh.IgnoredField{Field: "spec." + field, Why: why, Instead: instead})
	}
	const address = "give it a clusterIP, or remove the field"
	without := out.Headless || out.External != ""
	if without && out.Traffic == mesh.OnlyNode {
		add("internalTrafficPolicy", "a Service without an address of its own leaves the choice to its clients, which call any address that DNS gives them, on whatever node", address)
	}
	switch {
	case s.TrafficDistribution == nil:
	case out.Traffic == mesh.OnlyNode:
		add("trafficDistribution", "internalTrafficPolicy: Local takes precedence: only endpoints on the client's node are used", "remove one of the two fields")
	case without:
		add("trafficDistribution", "a Service without an address of its own leaves the choice to its clients, which call any address that DNS gives them", address)
	}
	switch {
	case !out.Affinity:
	case without:
		add("sessionAffinity", "a Service without an address of its own gives its clients no endpoint to stay with: they choose by DNS", address)
	case s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer:
		add("sessionAffinity", "clients with a proxy keep to it, but those from outside come by the nodes, where kube-proxy keeps to it for each node alone, and a gateway is one client", "let the application find a session by a cookie or a shared store; ignore this if all clients are in the mesh")
	}
	return all
}

// maxAffinity is the maximum of timeoutSeconds (core/v1, ClientIPConfig).
const maxAffinity = 86400

// affinity reads sessionAffinity and its configuration. The timeout has no other effect: a client stays with its
// endpoint for longer, see package resource of xds.
func (c *serviceReader) affinity(s *corev1.ServiceSpec) bool {
	client := oneOf(&c.check, "spec.sessionAffinity", s.SessionAffinity, affinities)
	if config := s.SessionAffinityConfig; config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		switch n := *config.ClientIP.TimeoutSeconds; {
		case !client:
			c.invalid("spec.sessionAffinityConfig", "must not be set without sessionAffinity: ClientIP")
		case n < 1 || n > maxAffinity:
			c.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not a timeout: must be 1 to %d", n, maxAffinity)
		}
	}
	return client
}

// traffic reads the fields internalTrafficPolicy and trafficDistribution or, if both are unset, Istio's annotation,
// which is case-insensitive. With the policy Local, the others have no effect, as in kube-proxy.
func (c *serviceReader) traffic(s *corev1.Service) mesh.Traffic {
	preferred := c.preferred(s)
	if oneOf(&c.check, "spec.internalTrafficPolicy", ptr.Deref(s.Spec.InternalTrafficPolicy, ""), internalPolicies) {
		return mesh.OnlyNode
	}
	return preferred
}

func (c *serviceReader) preferred(s *corev1.Service) mesh.Traffic {
	if field := s.Spec.TrafficDistribution; field != nil {
		return oneOf(&c.check, "spec.trafficDistribution", *field, distributions)
	}
	value := s.Annotations[trafficDistribution]
	for name, t := range distributions { // any order: at most one is equal
		if strings.EqualFold(name, value) {
			return t
		}
	}
	return oneOf(&c.check, "metadata.annotations."+trafficDistribution, value, distributions)
}

func (c *serviceReader) externalName(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	c.name("spec.externalName", name)
	return name
}

func (c *serviceReader) exportTo(annotation string) []string {
	if annotation == "" {
		return nil
	}
	var out []string
	for to := range strings.SplitSeq(annotation, ",") {
		to = strings.TrimSpace(to)
		if !slices.Contains([]string{"*", ".", "~"}, to) && len(validation.IsDNS1123Label(to)) > 0 {
			c.invalid("metadata.annotations."+exportTo, "%q is not a namespace: must be the name of one, *, . or ~", to)
		}
		out = append(out, to)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *serviceReader) clusterIPs(s *corev1.ServiceSpec) []netip.Addr {
	all := []fieldValue{{"spec.clusterIP", s.ClusterIP}}
	for i, ip := range s.ClusterIPs {
		all = append(all, fieldValue{at("spec.clusterIPs", i), ip})
	}
	all = slices.DeleteFunc(all, func(v fieldValue) bool { return v.value == corev1.ClusterIPNone })
	return addresses(c.reachable, all...)
}

func (c *serviceReader) servicePorts(ports []corev1.ServicePort) []mesh.PortSpec {
	var out []mesh.PortSpec
	names := map[string]bool{}
	numbers := map[string]bool{}
	for i, p := range ports {
		field := at("spec.ports", i)
		oneOf(&c.check, field+".protocol", p.Protocol, transports)
		spec := mesh.PortSpec{Port: mesh.Port{
			Name: p.Name, Number: c.port(field+".port", int64(p.Port)),
			Protocol: mesh.ProtocolOf(ptr.Deref(p.AppProtocol, ""), p.Name, string(p.Protocol)),
		}}
		if p.Name == "" && len(ports) > 1 {
			c.invalid(field+".name", "missing: with more than one port each must have a name")
		} else if names[p.Name] {
			c.invalid(field+".name", "duplicate name %q", p.Name)
		}
		names[p.Name] = true
		number := fmt.Sprint(p.Port, "/", cmp.Or(p.Protocol, corev1.ProtocolTCP))
		if numbers[number] {
			c.invalid(field+".port", "duplicate port %s", number)
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

type sliceReader struct{ check }

// EndpointSlice returns the part for s; nil if s belongs to no service. DNS names are no endpoints.
func EndpointSlice(s *discoveryv1.EndpointSlice) (*mesh.SliceSpec, error) {
	var c sliceReader
	out := &mesh.SliceSpec{Service: s.Labels[discoveryv1.LabelServiceName]}
	out.Namespace, out.Name = c.meta(&s.ObjectMeta)
	if out.Service != "" {
		c.label("metadata.labels."+discoveryv1.LabelServiceName, out.Service)
	}
	oneOf(&c.check, "addressType", s.AddressType, map[discoveryv1.AddressType]bool{
		discoveryv1.AddressTypeIPv4: true, discoveryv1.AddressTypeIPv6: true, discoveryv1.AddressTypeFQDN: true,
	})
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		out.Names, out.Ignored = true, []mesh.IgnoredField{{Field: "addressType", Why: "names are no endpoints", Instead: "use a Service of type ExternalName, or addresses"}}
		if out.Service == "" {
			return nil, c.result()
		}
		return out, c.result()
	}
	for i, p := range s.Ports {
		field := at("ports", i)
		oneOf(&c.check, field+".protocol", ptr.Deref(p.Protocol, ""), transports)
		if p.Port == nil { // it means all ports
			out.Ignored = append(out.Ignored, mesh.IgnoredField{Field: field + ".port", Why: "without a number the port cannot be called", Instead: "write the number at which the endpoints listen"})
			continue
		}
		out.Ports = append(out.Ports, mesh.SlicePort{Name: ptr.Deref(p.Name, ""), Number: c.port(field+".port", int64(*p.Port)), Transport: transportOf(ptr.Deref(p.Protocol, ""))})
	}
	for i := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, c.endpoint(at("endpoints", i), &s.Endpoints[i], s.AddressType, out))
	}
	if len(s.Ports) == 0 && len(s.Endpoints) > 0 && !ofController(s.Labels) {
		out.Ignored = append(out.Ignored, mesh.IgnoredField{Field: "ports", Why: "without ports no endpoint can be called by a port of the Service", Instead: "write the ports, with the names of the Service's"})
	}
	if out.Service == "" {
		return nil, c.result()
	}
	return out, c.result()
}

// ofController reports whether a slice has no ports for a reason: it is of a headless Service, or of the controller, which
// knows the pods' ports.
func ofController(labels map[string]string) bool {
	_, headless := labels[corev1.IsHeadlessService]
	return headless || labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
}

// endpoint applies the defaults of the API: if the condition ready is unset, the endpoint is ready; if
// serving is unset, the endpoint is serving if it is ready. An address that cannot be used is reported in the slice, whose
// other addresses are used.
func (c *sliceReader) endpoint(field string, e *discoveryv1.Endpoint, family discoveryv1.AddressType, slice *mesh.SliceSpec) mesh.SliceEndpoint {
	ready := ptr.Deref(e.Conditions.Ready, true)
	out := mesh.SliceEndpoint{
		Ready: ready, Serving: ptr.Deref(e.Conditions.Serving, ready) && ptr.Deref(e.Conditions.Terminating, false),
		Node: ptr.Deref(e.NodeName, ""), Zone: ptr.Deref(e.Zone, ""), Hostname: ptr.Deref(e.Hostname, ""),
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.ForZones = append(out.ForZones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.ForNodes = append(out.ForNodes, n.Name)
		}
	}
	if len(e.Addresses) == 0 {
		c.invalid(field+".addresses", "missing: must be at least one")
	}
	for i, s := range e.Addresses {
		var own check
		at := at(field+".addresses", i)
		addr := own.reachable(at, s)
		if addr.IsValid() && addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
			own.invalid(at, "%q does not have the slice's addressType %s", s, family)
		}
		if own.errors == nil {
			out.Addresses = append(out.Addresses, addr)
			continue
		}
		slice.Ignored = append(slice.Ignored, mesh.IgnoredField{Field: at, Why: own.errors[0].Message, Instead: "the slice's other addresses are used"})
	}
	if out.Hostname != "" {
		c.label(field+".hostname", out.Hostname)
	}
	if t := e.TargetRef; t != nil && t.Kind == "Pod" {
		out.Pod = t.Name
	}
	return out
}

// sortedKeys returns the keys of m in a fixed order, so that the order of errors is fixed too.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
