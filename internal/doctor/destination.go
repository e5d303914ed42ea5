package doctor

import (
	"fmt"
	"net/netip"
	"strings"
)

// An Answer is Yes, No or Perhaps. The zero value is No.
type Answer int

// The answers to a question that the evidence may leave open.
const (
	No Answer = iota
	Perhaps
	Yes
)

// A Destination is the target of an application's call. Fields that are not known are zero.
type Destination struct {
	Network Network
	Host    string // an address, or a name if no address is known; of a unix socket its path
	Name    string // the name whose address Host is; empty: not known
	Port    uint16
}

// A Network is the kind of a connection; empty: TCP.
type Network string

// Networks other than TCP. No mesh captures them, but for DNS.
const (
	UDP  Network = "udp"
	Unix Network = "unix"
)

// Known reports whether the host is known.
func (d Destination) Known() bool { return d.Host != "" }

// String returns the name, the address and the port, as far as they are known, and "its destination" if none is.
func (d Destination) String() string {
	host := d.Host
	switch {
	case host == "":
		return "its destination"
	case d.Port > 0 && strings.Contains(host, ":"):
		host = fmt.Sprintf("[%s]:%d", host, d.Port)
	case d.Port > 0:
		host = fmt.Sprintf("%s:%d", host, d.Port)
	}
	if d.Name != "" {
		return fmt.Sprintf("%s (%s)", d.Name, host)
	}
	return host
}

// Loopback reports whether the destination is the pod itself.
func (d Destination) Loopback() bool {
	a, err := netip.ParseAddr(d.Host)
	return d.Network == Unix || strings.EqualFold(d.Host, "localhost") || strings.HasSuffix(strings.ToLower(d.Host), ".localhost") ||
		err == nil && (a.Unmap().IsLoopback() || a.IsUnspecified())
}

// Private reports whether the destination may be in the cluster: a private address, or a name without a public ending.
func (d Destination) Private() bool {
	if a, err := netip.ParseAddr(d.Host); err == nil {
		return a.Unmap().IsPrivate()
	}
	host := strings.TrimSuffix(strings.ToLower(d.Host), ".")
	return strings.Count(host, ".") < 2 || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".local") || strings.HasSuffix(host, ".internal")
}
