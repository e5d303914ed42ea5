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
	Host string
	Port uint16
}

// Known reports whether the host is known.
func (d Destination) Known() bool { return d.Host != "" }

func (d Destination) String() string {
	switch {
	case d.Host == "":
		return "an address that the log does not name"
	case d.Port == 0:
		return d.Host
	}
	return fmt.Sprintf("%s:%d", d.Host, d.Port)
}

// Loopback reports whether the destination is the pod itself.
func (d Destination) Loopback() bool {
	a, err := netip.ParseAddr(d.Host)
	return strings.EqualFold(d.Host, "localhost") || err == nil && (a.IsLoopback() || a.IsUnspecified())
}
