package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
)

// reservedPorts are the mesh's own ports. The app's metrics cannot be on them (Istio refuses the same).
var reservedPorts = []int32{contract.AdminPort, contract.OutboundPort, contract.DebugPort, contract.InboundPort, contract.TunnelPort,
	contract.StatusPort, contract.ReadinessPort, contract.DNSPort, contract.PrometheusPort}

// proxyPorts are the ports that the proxy takes in the pod's network, except for the agent's status port
// (internal/core/agent/config).
var proxyPorts = map[int32]string{
	contract.AdminPort: "Envoy's admin port", contract.OutboundPort: "the proxy's outbound port", contract.InboundPort: "the proxy's inbound port",
	contract.RelayOutbound: "a relay of the proxy's", contract.RelayInbound: "a relay of the proxy's",
	contract.ReadinessPort: "the proxy's readiness port", contract.PrometheusPort: "the port of Envoy's metrics",
}

// A Clash is a port that a container of the pod declares and that the proxy takes.
type Clash struct {
	Container string
	Port      int32
	Of        string // the proxy's use of the port
}

func (c Clash) String() string {
	return fmt.Sprintf("%s declares port %d, which is %s: the second of the two cannot take it", c.Container, c.Port, c.Of)
}

// clashesOf returns the clashes of a pod. They cause only warnings, because a declared port need not be used, and
// some pods declare a port of the proxy so that monitoring finds it.
func clashesOf(pod *corev1.Pod, status int32) []Clash {
	var out []Clash
	for _, c := range containers.Authors(pod) {
		for _, p := range c.Ports {
			of := proxyPorts[p.ContainerPort]
			if p.ContainerPort == status {
				of = "the agent's port"
			}
			clash := Clash{c.Name, p.ContainerPort, of}
			if of != "" && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && !slices.Contains(out, clash) { // a port may have two names
				out = append(out, clash)
			}
		}
	}
	return out
}
