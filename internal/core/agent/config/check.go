package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
)

// check reports conflicts between settings, and required settings that are missing.
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
	r.checkAddresses()
	if mode, set := c.Pod.Metadata[contract.MetadataInterception]; set && mode != "" && !slices.Contains(modes, fmt.Sprint(mode)) {
		r.refuse("variable ISTIO_META_INTERCEPTION_MODE", fmt.Sprint(mode), wantMode)
	}
	r.checkRenewal()
	if c.Stop.Grace < c.Stop.Drain {
		r.note("terminationDrainDuration is %s, but the pod's grace period ends after %s: the proxy leaves then", c.Stop.Drain, c.Stop.Grace)
	}
	r.checkPorts()
}

// checkAddresses requires valid addresses, and a name with which the control plane's certificate can be checked.
func (r *reader) checkAddresses() {
	c := r.out.ControlPlane
	for _, at := range []struct{ where, address string }{{"discoveryAddress", c.Address}, {"variable CA_ADDR", c.CA}} {
		host, port, err := net.SplitHostPort(at.address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || !validHost(host) {
			r.refuse(at.where, at.address, "host:port, for example "+contract.ControlPlaneAddress)
		}
	}
	host, _, _ := net.SplitHostPort(c.Address)
	if _, err := netip.ParseAddr(host); err == nil && len(c.Names) == 0 && !c.Plaintext {
		r.refuse("variable ISTIOD_SAN", "", "the SPIFFE URI or DNS name in the control plane's certificate, since "+host+" is not a name that could stand for it")
	}
}

// validHost reports whether host is an IP address without a zone, or may be a DNS name.
func validHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Zone() == ""
	}
	return host != "" && len(host) <= 253 && strings.Trim(host, hostRunes) == ""
}

// hostRunes are the characters of DNS names, and the underscore.
const hostRunes = "-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// modes are the ways in which the kernel brings connections to the proxy.
var modes = []string{"REDIRECT", "TPROXY", "NONE"}

const wantMode = "REDIRECT, TPROXY or NONE"

// checkRenewal requires that a certificate is renewed within its life.
func (r *reader) checkRenewal() {
	at, jitter := r.out.Certificate.RenewAt, r.out.Certificate.Jitter
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	if !(at > 0 && at < 1) {
		r.refuse("variable SECRET_GRACE_PERIOD_RATIO", number(at), "more than 0 and less than 1")
		return
	}
	if room := min(at, 1-at); jitter >= room {
		r.refuse("variable SECRET_GRACE_PERIOD_RATIO_JITTER", number(jitter), "less than "+number(room)+": SECRET_GRACE_PERIOD_RATIO is not further from 0 and 1")
	}
}

// checkPorts reports ports that are configured for two purposes: the second listener could not bind the port.
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
