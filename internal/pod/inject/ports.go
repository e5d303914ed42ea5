package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// proxyPorts are those on which the proxy listens in the pod's network, but for the agent's
// status port (internal/agent/config).
var proxyPorts = map[int32]string{
	15000: "Envoy's admin port", 15001: "the proxy's outbound port", 15006: "the proxy's inbound port", 15007: "a relay of the proxy's", 15016: "a relay of the proxy's",
	readinessPort: "the proxy's readiness port", prometheusPort: "the port of Envoy's metrics",
}

// A Clash is a port that a container of the pod declares, and on which the proxy listens.
type Clash struct {
	Container string
	Port      int32
	Of        string // what the proxy has there
}

func (c Clash) String() string {
	return fmt.Sprintf("%s declares port %d, which is %s: the second of the two cannot listen there", c.Container, c.Port, c.Of)
}

// warnPorts says which ports of the application the proxy has. A declaration binds nothing,
// and some declare a port of the proxy's so that a monitor finds it: no pod is refused.
func (in *injection) warnPorts() error {
	if !in.settings.proxy {
		return nil
	}
	in.each(func(c *corev1.Container) {
		for _, p := range c.Ports {
			of := proxyPorts[p.ContainerPort]
			if p.ContainerPort == in.settings.status {
				of = "the agent's port"
			}
			if of == "" || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
				continue
			}
			clash := Clash{c.Name, p.ContainerPort, of}
			in.clashes = append(in.clashes, clash)
			in.warn("%s", clash)
		}
	})
	return nil
}
