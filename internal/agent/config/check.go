package config

import (
	"net"
	"strconv"
)

// check finds what no single setting shows.
func (r *reader) check() {
	c := r.out
	for _, need := range []struct{ where, value, want string }{
		{"variable POD_NAME", c.Pod.Name, "the pod's name (downward API: metadata.name), or a host's"},
		{"variable POD_NAMESPACE", c.Pod.Namespace, "the pod's namespace (downward API: metadata.namespace)"},
		{"variable SERVICE_ACCOUNT", c.Pod.ServiceAccount, "the pod's service account (downward API: spec.serviceAccountName)"},
		{"--work-dir", c.Work, "a directory that the agent may write to"},
	} {
		if need.value == "" {
			r.refuse(need.where, "", need.want)
		}
	}
	for where, address := range map[string]string{"discoveryAddress": c.ControlPlane.Address, "variable CA_ADDR": c.ControlPlane.CA} {
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			r.refuse(where, address, "host:port, for example outriderd.outrider-system.svc:15012")
		}
	}
	if c.Stop.Grace < c.Stop.Drain {
		r.note("terminationDrainDuration is %s, but the pod's grace period ends after %s: the proxy leaves then", c.Stop.Drain, c.Stop.Grace)
	}
	r.checkPorts()
}

// checkPorts finds two users of one port: the second could not bind it.
func (r *reader) checkPorts() {
	p := r.out.Ports
	seen := map[uint16]string{}
	for _, port := range []struct {
		name   string
		number uint16
	}{
		{"proxyAdminPort", p.Admin}, {"the outbound port", p.Outbound}, {"the inbound port", p.Inbound}, {"statusPort", p.Status},
		{"the readiness port", p.Readiness}, {"DNS", p.DNS}, {"the port of Envoy's metrics", p.Prometheus},
		{"the outbound relay", p.RelayOutbound}, {"the inbound relay", p.RelayInbound},
	} {
		if port.number == 0 {
			continue
		}
		if other, taken := seen[port.number]; taken {
			r.refuse(port.name, strconv.Itoa(int(port.number)), "a port that is not also that of "+other)
		}
		seen[port.number] = port.name
	}
}
