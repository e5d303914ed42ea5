// Package scenario is the conformance table of capture: each entry is a connection and its required
// destination under given flags. The table is tested with the pure model ([capture.Ruleset.Trace])
// and with a real kernel, so that the two cannot diverge.
//
// Every scenario uses one topology:
//
//	pod    lo; eth0 10.9.0.2/24 fd09::2/64; virt0 10.10.0.2/24 fd10::2/64
//	peer   10.9.0.1 fd09::1 behind eth0, the pod's default route. It also owns the
//	       services 10.96.0.10, 172.16.0.10 and fd96::10, and answers TCP ports 53,
//	       80 and 9000 and UDP ports 53 and 9000 on every address
//	guest  10.10.0.1 fd10::1 behind virt0; the pod forwards for it
//
// The package does no I/O and imports only the standard library and capture.
package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

// A Scenario is one connection and its expected result.
type Scenario struct {
	Name  string   // a sentence
	Flags []string // flags of istio-iptables and of Outrider, for example "-i", "*", "--park=off"
	// Nameservers are the name servers in resolv.conf.
	Nameservers []netip.Addr
	Conn        trace.Conn
	Pod         trace.Pod
	Want        Want
	OnIPTables  *Want // expected with the iptables backend, if that is weaker; otherwise nil
}

// Want is the expected result of a connection.
type Want struct {
	Fate trace.Fate
	Port uint16 // port at which the connection ends; if it is parked or refused, its destination port
}

// For returns the expected result for a backend.
func (s Scenario) For(backend string) Want {
	if backend == capture.IPTables && s.OnIPTables != nil {
		return *s.OnIPTables
	}
	return s.Want
}

// Intent returns the intent that the flags of s express. Both IP families are captured unless the flags select one.
func (s Scenario) Intent() (capture.Intent, error) {
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.Nameservers = s.Nameservers
	flags := capture.Flags(&in, nil, nil)
	args := s.Flags
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		args = args[1:]
		bare := strings.TrimLeft(name, "-")
		i := slices.IndexFunc(flags, func(f *capture.Flag) bool { return f.Name == bare || f.Short == bare })
		if i < 0 {
			return in, fmt.Errorf("there is no flag %s", name)
		}
		switch {
		case given:
		case flags[i].IsBoolFlag():
			value = "true"
		case len(args) == 0:
			return in, fmt.Errorf("%s needs a value", name)
		default:
			value, args = args[0], args[1:]
		}
		if err := flags[i].Set(value); err != nil {
			return in, err
		}
	}
	return in, in.Check()
}

// All lists every scenario.
var All = slices.Concat(outbound, ranges, owners, inbound, guests, dns, tproxy, parking, memory, families, checks)
