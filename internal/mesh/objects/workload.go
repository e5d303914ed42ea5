package objects

import (
	"cmp"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/mesh"
)

// tlsModeLabel is what Istio's injection writes on a pod that takes mutual TLS.
const tlsModeLabel = "security.istio.io/tlsMode"

// proxies are the containers by which a pod has a proxy.
var proxies = []string{"outrider-proxy", "istio-proxy"}

const defaultAccount = "default"

// Pod returns what p is in a mesh; nil for a pod that ended.
func Pod(p *corev1.Pod) (*mesh.WorkloadSpec, error) {
	var c check
	namespace, name := c.meta(&p.ObjectMeta)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, c.err()
	}
	out := &mesh.WorkloadSpec{
		Workload: mesh.Workload{
			Name: name, Namespace: namespace, ServiceAccount: cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, defaultAccount),
			Labels: p.Labels, Addresses: c.podIPs(&p.Status), Node: p.Spec.NodeName, Zone: p.Labels[corev1.LabelTopologyZone],
			Proxied: proxied(p), HostNetwork: p.Spec.HostNetwork,
		},
		Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
		Ready: podReady(&p.Status), Terminating: p.DeletionTimestamp != nil,
	}
	c.name("spec.serviceAccountName", out.ServiceAccount)
	for i := range p.Spec.Containers {
		c.namedPorts(at("spec.containers", i), p.Spec.Containers[i].Ports, out)
	}
	for i := range p.Spec.InitContainers {
		if restart := p.Spec.InitContainers[i].RestartPolicy; restart != nil && *restart == corev1.ContainerRestartPolicyAlways {
			c.namedPorts(at("spec.initContainers", i), p.Spec.InitContainers[i].Ports, out)
		}
	}
	return out, c.err()
}

func (c *check) podIPs(s *corev1.PodStatus) []netip.Addr {
	var out []netip.Addr
	add := func(field, ip string) {
		if ip == "" {
			return
		}
		if a := c.addr(field, ip); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	add("status.podIP", s.PodIP)
	for i, ip := range s.PodIPs {
		add(at("status.podIPs", i)+".ip", ip.IP)
	}
	return out
}

func proxied(p *corev1.Pod) bool {
	if mode, ok := p.Labels[tlsModeLabel]; ok {
		return mode == "istio"
	}
	is := func(c corev1.Container) bool { return slices.Contains(proxies, c.Name) }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is)
}

// podReady takes a pod without a status, as a manifest that somebody wrote has none, for
// ready.
func podReady(s *corev1.PodStatus) bool {
	for _, condition := range s.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return len(s.Conditions) == 0 && s.Phase == ""
}

// namedPorts keeps the first of a name, as the EndpointSlice controller does.
func (c *check) namedPorts(field string, ports []corev1.ContainerPort, w *mesh.WorkloadSpec) {
	for i, p := range ports {
		number := c.port(at(field+".ports", i)+".containerPort", int64(p.ContainerPort))
		if _, has := w.NamedPorts[p.Name]; p.Name == "" || has {
			continue
		}
		if w.NamedPorts == nil {
			w.NamedPorts = map[string]uint16{}
		}
		w.NamedPorts[p.Name] = number
	}
}

const hostGroup = "outrider.dev"

// A HostObject is a host outside of Kubernetes, as it is written in a manifest.
type HostObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              HostSpec `json:"spec"`
}

// A HostSpec says where a host is and who it is.
type HostSpec struct {
	Address        string            `json:"address,omitempty"`
	Addresses      []string          `json:"addresses,omitempty"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"` // beside those of its metadata
	Ports          map[string]int32  `json:"ports,omitempty"`  // what services may call by name
	Zone           string            `json:"zone,omitempty"`
	Proxied        *bool             `json:"proxied,omitempty"`     // default: true
	TokenSHA256    string            `json:"tokenSHA256,omitempty"` // of the token for its first certificate, in hex
}

// Host returns what h is in a mesh.
func Host(h *HostObject) (*mesh.WorkloadSpec, error) {
	var c check
	out := &mesh.WorkloadSpec{Ready: true}
	out.Namespace, out.Name = c.meta(&h.ObjectMeta)
	out.Host, out.Proxied = true, valueOr(h.Spec.Proxied, true)
	out.ServiceAccount, out.Zone = cmp.Or(h.Spec.ServiceAccount, defaultAccount), h.Spec.Zone
	c.name("spec.serviceAccount", out.ServiceAccount)
	if len(h.Labels)+len(h.Spec.Labels) > 0 {
		out.Labels = map[string]string{}
		maps.Copy(out.Labels, h.Labels)
		maps.Copy(out.Labels, h.Spec.Labels)
	}
	out.Addresses = c.hostAddresses(&h.Spec)
	for _, name := range sortedKeys(h.Spec.Ports) {
		field := "spec.ports." + name
		c.portName(field, name)
		if out.NamedPorts == nil {
			out.NamedPorts = map[string]uint16{}
		}
		out.NamedPorts[name] = c.port(field, int64(h.Spec.Ports[name]))
	}
	if t := h.Spec.TokenSHA256; t != "" {
		out.TokenSHA256 = strings.ToLower(t)
		if sum, err := hex.DecodeString(t); err != nil || len(sum) != 32 {
			c.wrong("spec.tokenSHA256", "is no SHA-256 in hex: 64 digits, as sha256sum prints them")
		}
	}
	return out, c.err()
}

func (c *check) hostAddresses(s *HostSpec) []netip.Addr {
	var out []netip.Addr
	if s.Address != "" {
		out = append(out, c.reachable("spec.address", s.Address))
	}
	for i, text := range s.Addresses {
		if a := c.reachable(at("spec.addresses", i), text); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if out == nil {
		c.wrong("spec.address", "missing: a host needs one, or several in spec.addresses")
	}
	return out
}
