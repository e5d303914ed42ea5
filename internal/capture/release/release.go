// Package release ends parking from inside the pod, without any privilege.
package release

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"outrider.dev/internal/capture"
)

// Ports says that who listened on these ports has left for good: from now on
// connections to them are refused at once, until somebody is seen listening again. The
// rules hear it from the proxy's users and from root; from others, and where there
// are no rules, it has no effect, which the sender cannot see.
func Ports(ports ...uint16) error {
	var errs []error
	for _, p := range ports {
		heard := false
		var reasons []error
		for _, host := range []string{capture.ReleaseAddr4, capture.ReleaseAddr6} {
			if err := send(net.JoinHostPort(host, strconv.Itoa(int(p)))); err != nil {
				reasons = append(reasons, err)
				continue
			}
			heard = true
		}
		if !heard { // one family may be switched off
			errs = append(errs, fmt.Errorf("releasing port %d: %w", p, errors.Join(reasons...)))
		}
	}
	return errors.Join(errs...)
}

func send(addr string) error {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("released"))
	return err
}
