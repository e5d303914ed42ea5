package objects

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// A check collects the errors in one object, and reads values that occur in several kinds. The readers of the
// kinds embed it.
type check struct{ errors FieldErrors }

func (c *check) invalid(field, format string, args ...any) {
	c.errors = append(c.errors, FieldError{field, fmt.Sprintf(format, args...)})
}

func (c *check) result() error {
	if c.errors == nil {
		return nil
	}
	return c.errors
}

// meta returns an object's namespace and name, and checks both.
func (c *check) meta(m *metav1.ObjectMeta) (namespace, name string) {
	namespace = cmp.Or(m.Namespace, metav1.NamespaceDefault)
	c.name("metadata.name", m.Name)
	c.label("metadata.namespace", namespace)
	return namespace, m.Name
}

func (c *check) name(field, name string) {
	switch {
	case name == "":
		c.invalid(field, "missing")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		c.invalid(field, "%q is not a name: must be lower-case letters, digits, - and ., with a letter or digit at both ends", name)
	}
}

func (c *check) label(field, name string) {
	switch {
	case name == "":
		c.invalid(field, "missing")
	case len(validation.IsDNS1123Label(name)) > 0:
		c.invalid(field, "%q is not a name: must be up to 63 lower-case letters, digits and -, with a letter or digit at both ends", name)
	}
}

func (c *check) port(field string, n int64) uint16 {
	if n < 1 || n > 65535 {
		c.invalid(field, "%d is not a port: must be 1 to 65535", n)
		return 0
	}
	return uint16(n)
}

// addr parses an address. If it is invalid, the result is the zero address.
func (c *check) addr(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		c.invalid(field, "%q is not an IP address such as 10.0.0.1 or 2001:db8::1", s)
		return netip.Addr{}
	}
	return a.Unmap()
}

// reachable parses an address that is the destination of connections. It reports an error for the addresses
// that Kubernetes does not allow for endpoints (ValidateNonSpecialIP).
func (c *check) reachable(field, s string) netip.Addr {
	a := c.addr(field, s)
	if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		c.invalid(field, "%s must not be an unspecified, loopback, link-local or multicast address", a)
		return netip.Addr{}
	}
	return a
}

// portName returns the name of a port, after a check.
func (c *check) portName(field, name string) string {
	if problems := validation.IsValidPortName(name); len(problems) > 0 {
		c.invalid(field, "%q is not a port: must be a number, or a name of up to 15 lower-case letters, digits and -", name)
	}
	return name
}

// durations matches durations in the form of GEP-2257.
var durations = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func (c *check) duration(field string, d *gatewayv1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	out, err := time.ParseDuration(string(*d))
	if err != nil || !durations.MatchString(string(*d)) {
		c.invalid(field, "%q is not a duration: must be whole numbers of h, m, s and ms, such as 1m30s or 250ms", *d)
		return 0
	}
	return out
}

// oneOf returns the value of a table under a key. It reports an error if the key, which may be empty, is not
// in the table.
func oneOf[K ~string, V any](c *check, field string, value K, table map[K]V) V {
	v, ok := table[value]
	if !ok {
		c.invalid(field, "%q is unknown: must be %s", string(value), choices(table))
	}
	return v
}

func choices[K ~string, V any](table map[K]V) string {
	var names []string
	for k := range table {
		if k != "" {
			names = append(names, string(k))
		}
	}
	slices.Sort(names)
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// at returns the path of an item in a list.
func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// addresses parses addresses. It leaves out empty texts, invalid addresses and duplicates.
func addresses(parse func(field, s string) netip.Addr, all ...fieldValue) []netip.Addr {
	var out []netip.Addr
	for _, v := range all {
		if v.value == "" {
			continue
		}
		if a := parse(v.field, v.value); a.IsValid() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

type fieldValue struct{ field, value string }
