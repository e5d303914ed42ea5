package names

import (
	"testing"

	"outrider.dev/internal/core/mesh"
)

// FuzzParse: if a name can be parsed, the result prints as the same name.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"http|10.96.0.1:80", "tcp|[fd96::5%x]:080", "raw|[::ffff:10.96.0.1]:80", "outbound|80||web.shop", "outbound|080|IPv6|web.shop", "80.web.shop", "80-ipv6.web.shop", "80-.web.shop", "|:", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if a, ok := ParseAddress(name); ok && a.String() != name {
			t.Errorf("%q is parsed as the address %q", name, a)
		}
		of := func(r Reference) Target {
			return Target{&mesh.Service{Host: r.Host}, &mesh.Port{Number: r.Port}, r.Family}
		}
		if r, ok := ParseService(name); ok && of(r).Name() != name {
			t.Errorf("%q is parsed as the service %q", name, of(r).Name())
		}
		if r, ok := ParseRoutedHost(name); ok && of(r).RoutedHost() != name {
			t.Errorf("%q is parsed as the host %q", name, of(r).RoutedHost())
		}
	})
}
