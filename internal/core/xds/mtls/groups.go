package mtls

import (
	"strconv"
	"strings"

	"outrider.dev/internal/core/xds"
)

// Groups are the groups of a proxy's key exchange, the preferred one first. The zero value stands for those of its
// build: X25519 and P-256, or P-256 alone in a FIPS build.
type Groups string

// Hybrid prefers X25519MLKEM768, so that a connection that is recorded today stays secret from a later quantum
// computer. A client sends its share of it together with one for X25519, so that a server without the group costs
// no further round trip.
const Hybrid Groups = "X25519MLKEM768,X25519,P-256"

// hybridSince is the minor version of the first Envoy 1 that is known to have the group in each of its builds. A user
// saw it work in 1.33.2 (github.com/envoyproxy/envoy/issues/33941), whose development builds, which Istio's agents
// start, may have an older BoringSSL.
const hybridSince = 34

// GroupsOf returns the groups of a proxy. An Envoy rejects a listener or cluster with the name of a group that its
// TLS library does not know, so one that does not say what it is keeps the groups of its build. So does a FIPS build:
// whether it has the group depends on the release of BoringSSL, and X25519 is not among its approved ones.
func GroupsOf(p *xds.Proxy) Groups {
	major, rest, _ := strings.Cut(p.Envoy, ".")
	text, _, _ := strings.Cut(rest, ".")
	minor, err := strconv.Atoi(text)
	if !p.BoringSSL || err != nil || major != "1" || minor < hybridSince {
		return ""
	}
	return Hybrid
}

func (g Groups) list() []string {
	if g == "" {
		return nil
	}
	return strings.Split(string(g), ",")
}
