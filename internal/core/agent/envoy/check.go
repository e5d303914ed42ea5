package envoy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A FieldError is an option with an unusable value.
type FieldError struct {
	Field   string // for example "Node.ID"
	Problem string
	Want    string // what would be valid
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Want }

// A check collects errors.
type check struct{ errs []error }

func (c *check) that(ok bool, field, problem, want string) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Field: field, Problem: problem, Want: want})
	}
}

// text requires printable UTF-8 on one line.
func (c *check) text(field, s string) {
	c.that(utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }),
		field, fmt.Sprintf("%q has bytes that are no printable UTF-8", s), "write plain text")
}

// Check returns all errors joined, each a [*FieldError]; nil if there is none. Package config has
// already checked levels, numbers, statistics and ports.
func (o Options) Check() error {
	o = o.withDefaults()
	c := &check{}
	c.that(o.Node.ID != "", "Node.ID", "it is empty", "give the proxy's name, as the control plane shall see it")
	c.text("Node.ID", o.Node.ID)
	c.text("Node.Cluster", o.Node.Cluster)
	_, _, err := splitAddress(o.ControlPlane.Address)
	c.that(err == nil, "ControlPlane.Address", fmt.Sprintf("%q: %v", o.ControlPlane.Address, err), "write host:port, for example 10.0.0.1:15012 or [fd00::1]:15012")
	if !o.ControlPlane.Plaintext {
		c.mutualTLS(o.ControlPlane)
	}
	if len(c.errs) == 0 {
		_, err := o.merged()
		c.errs = append(c.errs, err)
	}
	return errors.Join(c.errs...)
}

func (c *check) mutualTLS(cp ControlPlane) {
	c.that(cp.Secrets != "", "ControlPlane.Secrets", "it is empty", "name the socket on which the agent serves secrets")
	c.that(len(cp.Identity) > 0, "ControlPlane.Identity", "there is none, and the address is not a name that could stand for it",
		"give the SPIFFE URI or DNS name in the control plane's certificate")
	for _, id := range cp.Identity {
		c.text("ControlPlane.Identity", id)
		c.that(id != "", "ControlPlane.Identity", "one is empty", "give a SPIFFE URI or a DNS name")
	}
}

// hostRunes are the characters of DNS names, and the underscore.
const hostRunes = "-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// splitAddress splits an address into a valid host and a numeric port.
func splitAddress(address string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		var a *net.AddrError
		if errors.As(err, &a) {
			return "", 0, errors.New(a.Err)
		}
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is none", p)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", 0, errors.New("an address with a zone")
		}
		return a.String(), uint16(n), nil
	}
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool { return !strings.ContainsRune(hostRunes, r) }) {
		return "", 0, fmt.Errorf("host %q is none", host)
	}
	return host, uint16(n), nil
}
