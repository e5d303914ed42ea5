package setup

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A rule and a route are read back as they were written.
func TestRouteRoundTrip(t *testing.T) {
	rule := routeRule{family: unix.AF_INET6, mark: 1337, table: 1000, priority: 7, protocol: 151}
	if got, err := parseRule(rule.marshal()); err != nil || got != rule {
		t.Errorf("parseRule = %+v, %v; want %+v", got, err, rule)
	}
	route := localRoute{family: unix.AF_INET, index: 1, table: 1000, protocol: 151}
	if got, everything, err := parseRoute(route.marshal()); err != nil || !everything || got != route {
		t.Errorf("parseRoute = %+v, %v, %v; want %+v of everything", got, everything, err, route)
	}
}

func FuzzParseRoute(f *testing.F) {
	f.Add(routeRule{family: unix.AF_INET, mark: 1337, table: 133, priority: 32765, protocol: 151}.marshal())
	f.Add(localRoute{family: unix.AF_INET6, index: 1, table: 133, protocol: 151}.marshal())
	f.Add([]byte{unix.AF_INET, 0, 0, 0})
	f.Fuzz(func(t *testing.T, m []byte) {
		rule, err := parseRule(m)
		if err == nil {
			if again, err := parseRule(rule.marshal()); err != nil || again != rule {
				t.Errorf("%+v is written and read as %+v, %v", rule, again, err)
			}
		}
		_, _, routeErr := parseRoute(m)
		if (err == nil) != (routeErr == nil) {
			t.Errorf("as a rule: %v; as a route: %v", err, routeErr)
		}
	})
}
