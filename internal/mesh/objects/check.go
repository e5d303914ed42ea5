package objects

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A check collects what is wrong with one object.
type check struct{ wrongs Wrongs }

func (c *check) wrong(field, format string, args ...any) {
	c.wrongs = append(c.wrongs, Wrong{field, fmt.Sprintf(format, args...)})
}

func (c *check) err() error {
	if c.wrongs == nil {
		return nil
	}
	return c.wrongs
}

// meta returns the names of an object.
func (c *check) meta(m *metav1.ObjectMeta) (namespace, name string) {
	namespace = cmp.Or(m.Namespace, metav1.NamespaceDefault)
	c.name("metadata.name", m.Name)
	c.label("metadata.namespace", namespace)
	return namespace, m.Name
}

func (c *check) name(field, name string) {
	switch {
	case name == "":
		c.wrong(field, "missing")
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		c.wrong(field, "%q is no name: lower-case letters, digits, - and . are, with a letter or digit at both ends", name)
	}
}

func (c *check) label(field, name string) {
	switch {
	case name == "":
		c.wrong(field, "missing")
	case len(validation.IsDNS1123Label(name)) > 0:
		c.wrong(field, "%q is no name: up to 63 lower-case letters, digits and - are, with a letter or digit at both ends", name)
	}
}

func (c *check) port(field string, n int64) uint16 {
	if n < 1 || n > 65535 {
		c.wrong(field, "%d is no port: 1 to 65535 is", n)
		return 0
	}
	return uint16(n)
}

// addr returns the zero address if it is none.
func (c *check) addr(field, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		c.wrong(field, "%q is no IP address, as 10.0.0.1 or 2001:db8::1 are", s)
		return netip.Addr{}
	}
	return a.Unmap()
}

// reachable is addr for what others connect to. Kubernetes refuses the same for endpoints
// (ValidateNonSpecialIP).
func (c *check) reachable(field, s string) netip.Addr {
	a := c.addr(field, s)
	if a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() {
		c.wrong(field, "%s is no address of one's own in a network, as 10.0.0.1 or 2001:db8::1 are", a)
		return netip.Addr{}
	}
	return a
}

// oneOf looks a value up in a table; empty is the table's own matter.
func oneOf[K ~string, V any](c *check, field string, value K, table map[K]V) V {
	v, ok := table[value]
	if !ok {
		c.wrong(field, "%q is not known: write %s", string(value), choices(table))
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

// at is the path of an item.
func at(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// value is zero for a nil pointer.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func valueOr[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}
