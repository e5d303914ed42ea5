package mtls

import (
	"testing"

	"outrider.dev/internal/core/xds"
	"outrider.dev/test/mutants"
)

// A proxy gets the name of a group only if its TLS library is known to have it.
func TestGroupsAreKnownToTheProxy(t *testing.T) {
	boring := func(version string) *xds.Proxy { return &xds.Proxy{Envoy: version, BoringSSL: true} }
	for name, tt := range map[string]struct {
		proxy *xds.Proxy
		want  Groups
	}{
		"the first that has it":   {boring("1.34.0"), Hybrid},
		"a newer one":             {boring("1.40.2"), Hybrid},
		"an older one":            {boring("1.33.14"), ""},
		"a much older one":        {boring("1.9.0"), ""},
		"another major version":   {boring("2.40.0"), ""},
		"a FIPS or other library": {&xds.Proxy{Envoy: "1.40.0"}, ""},
		"none is reported":        {boring(""), ""},
		"a version with one part": {boring("1"), ""},
		"a version with no digit": {boring("1.x.0"), ""},
		"no Envoy":                {&xds.Proxy{}, ""},
	} {
		if got := GroupsOf(tt.proxy); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestMutants(t *testing.T) {
	mutants.Run(t, "TestGroupsAreKnownToTheProxy", map[string]mutants.Mutant{
		"any library": {File: "groups.go", From: `!p.BoringSSL`, To: `false`},
		"any version": {File: "groups.go", From: `minor < hybridSince`, To: `false`},
		"one too new": {File: "groups.go", From: `minor < hybridSince`, To: `minor <= hybridSince`},
		"any major":   {File: "groups.go", From: `major != "1"`, To: `false`},
	})
}
