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
	"k8s.io/utils/ptr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

const defaultAccount = "default"

type workloadReader struct{ check }

// Pod returns the part for p; nil if the pod has ended.
func Pod(p *corev1.Pod) (*mesh.WorkloadSpec, error) {
	var c workloadReader
	namespace, name := c.meta(&p.ObjectMeta)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, c.result()
	}
	out := &mesh.WorkloadSpec{
		Workload: mesh.Workload{
			Name: name, Namespace: namespace, ServiceAccount: cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, defaultAccount),
			Labels: p.Labels, Addresses: c.podIPs(&p.Status), Node: p.Spec.NodeName, Zone: p.Labels[corev1.LabelTopologyZone],
			Proxied: proxied(p), Own: hasContainer(p, contract.ProxyContainer), HostNetwork: p.Spec.HostNetwork,
		},
		Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
		Ready: PodReady(&p.Status), Kept: kept(&p.Status), Terminating: p.DeletionTimestamp != nil,
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
	return out, c.result()
}

func (c *workloadReader) podIPs(s *corev1.PodStatus) []netip.Addr {
	all := []fieldValue{{"status.podIP", s.PodIP}}
	for i, ip := range s.PodIPs {
		all = append(all, fieldValue{at("status.podIPs", i) + ".ip", ip.IP})
	}
	return addresses(c.addr, all...)
}

// proxied reports whether clients call a pod by mutual TLS. As in Istio, the label decides, which both injectors write:
// Istio's gateways have a container with the name of its sidecar, but take no mutual TLS. On its node's network no pod
// is captured.
func proxied(p *corev1.Pod) bool {
	mode, ok := p.Labels[contract.TLSModeLabel]
	return !p.Spec.HostNetwork && (mode == "istio" || !ok && hasContainer(p, contract.ProxyContainer))
}

func hasContainer(p *corev1.Pod, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is)
}

// PodReady reports whether a pod is ready. A pod without a status counts as ready, because hand-written
// manifests have none.
func PodReady(s *corev1.PodStatus) bool {
	for _, condition := range s.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return len(s.Conditions) == 0 && s.Phase == ""
}

// kept reports whether a pod stopped being ready while all of its containers kept running, that is, whether
// the condition Ready changed after the containers had started. The source of the pod limits the time for
// which this counts.
func kept(s *corev1.PodStatus) bool {
	at := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if at < 0 || s.Conditions[at].Status == corev1.ConditionTrue {
		return false
	}
	stopped := &s.Conditions[at].LastTransitionTime
	all := slices.Concat(s.InitContainerStatuses, s.ContainerStatuses)
	return len(all) > 0 && !slices.ContainsFunc(all, func(c corev1.ContainerStatus) bool {
		t := c.State.Terminated
		done := t != nil && t.ExitCode == 0 && c.Ready // an init container that has succeeded
		return !done && (c.State.Running == nil || !c.State.Running.StartedAt.Before(stopped))
	})
}

// namedPorts adds the named ports of a container. If two have the same name and transport, it uses the first, as the
// EndpointSlice controller does.
func (c *workloadReader) namedPorts(field string, ports []corev1.ContainerPort, w *mesh.WorkloadSpec) {
	for i, p := range ports {
		number := c.port(at(field+".ports", i)+".containerPort", int64(p.ContainerPort))
		key := mesh.NamedPort{Name: p.Name, Transport: transportOf(p.Protocol)}
		if _, has := w.NamedPorts[key]; p.Name == "" || has {
			continue
		}
		if w.NamedPorts == nil {
			w.NamedPorts = map[mesh.NamedPort]uint16{}
		}
		w.NamedPorts[key] = number
	}
}

const hostGroup = "outrider.dev"

// A HostObject is the manifest of a host outside of Kubernetes.
type HostObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              HostSpec `json:"spec"`
}

// A HostSpec contains the addresses and the identity of a host.
type HostSpec struct {
	Address        string            `json:"address,omitempty"`
	Addresses      []string          `json:"addresses,omitempty"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"` // in addition to the labels in the metadata
	Ports          map[string]int32  `json:"ports,omitempty"`  // port numbers by name; a targetPort can refer to a name
	Zone           string            `json:"zone,omitempty"`
	Proxied        *bool             `json:"proxied,omitempty"`     // default: true
	TokenSHA256    string            `json:"tokenSHA256,omitempty"` // SHA-256 of its one-time token, in hex
}

// Host returns the part for h. If there is an error, the part contains everything else in the object.
func Host(h *HostObject) (*mesh.WorkloadSpec, error) {
	var c workloadReader
	out := &mesh.WorkloadSpec{Ready: true}
	out.Namespace, out.Name = c.meta(&h.ObjectMeta)
	out.Host, out.Proxied = true, ptr.Deref(h.Spec.Proxied, true)
	out.Own = out.Proxied
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
			out.NamedPorts = map[mesh.NamedPort]uint16{}
		}
		number := c.port(field, int64(h.Spec.Ports[name]))
		for _, t := range mesh.Transports { // a Host declares none
			out.NamedPorts[mesh.NamedPort{Name: name, Transport: t}] = number
		}
	}
	if t := h.Spec.TokenSHA256; t != "" {
		out.TokenSHA256 = strings.ToLower(t)
		if sum, err := hex.DecodeString(t); err != nil || len(sum) != 32 {
			c.invalid("spec.tokenSHA256", "is not a SHA-256 in hex: must be 64 digits, as sha256sum prints them")
		}
	}
	return out, c.result()
}

func (c *workloadReader) hostAddresses(s *HostSpec) []netip.Addr {
	all := []fieldValue{{"spec.address", s.Address}}
	for i, text := range s.Addresses {
		all = append(all, fieldValue{at("spec.addresses", i), text})
	}
	if s.Address == "" && len(s.Addresses) == 0 {
		c.invalid("spec.address", "missing: a host must have one, or several in spec.addresses")
	}
	return addresses(c.reachable, all...)
}
