package rtnetlink

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What a rule and a route are written as is read back as the same.
func TestRoundTrip(t *testing.T) {
	rule := Rule{Family: unix.AF_INET6, Mark: 1337, Table: 1000, Priority: 7, Protocol: 151}
	if got, err := parseRule(rule.marshal()); err != nil || got != rule {
		t.Errorf("parseRule = %+v, %v; want %+v", got, err, rule)
	}
	route := LocalRoute{Family: unix.AF_INET, Index: 1, Table: 1000, Protocol: 151}
	if got, everything, err := parseRoute(route.marshal()); err != nil || !everything || got != route {
		t.Errorf("parseRoute = %+v, %v, %v; want %+v of everything", got, everything, err, route)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Rule{Family: unix.AF_INET, Mark: 1337, Table: 133, Priority: 32765, Protocol: 151}.marshal())
	f.Add(LocalRoute{Family: unix.AF_INET6, Index: 1, Table: 133, Protocol: 151}.marshal())
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
