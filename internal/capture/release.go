package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// releaseAddrs are where [Release] sends its packets, to the port that is released.
var releaseAddrs = []netip.Prefix{passthrough4, loopback6}

// Release ends the parking of ports from inside the pod: from now on connections to
// them are refused at once, until a listener is seen there again. The rules accept
// this from the proxy's users and from root. From others, and where there are no
// rules, it has no effect, which the sender cannot see.
func Release(ports ...uint16) error {
	var errs []error
	for _, p := range ports {
		var reasons []error
		for _, a := range releaseAddrs {
			if err := sendRelease(netip.AddrPortFrom(a.Addr(), p)); err != nil {
				reasons = append(reasons, err)
			}
		}
		if len(reasons) == len(releaseAddrs) { // one family may be switched off
			errs = append(errs, fmt.Errorf("releasing port %d: %w", p, errors.Join(reasons...)))
		}
	}
	return errors.Join(errs...)
}

func sendRelease(to netip.AddrPort) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("released"))
	return err
}
