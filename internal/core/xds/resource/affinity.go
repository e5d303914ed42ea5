package resource

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/clusters"
	"outrider.dev/internal/core/xds/names"
)

// choices are the endpoints that clients at a place may choose, and all endpoints that they get.
type choices struct {
	nearest []choice // sorted by address
	all     clusters.ByPriority
}

// A choice is an endpoint that a client may choose, with a digest of its address.
type choice struct {
	to     netip.AddrPort
	digest uint64
}

// choiceMark separates the digest in the version of endpoints from the chosen one.
const choiceMark = "@"

// chosenEndpoints returns the endpoints of a service with sessionAffinity: ClientIP, with the one that p has chosen
// before all others. The version contains the chosen one: a proxy sends its versions to the replica to which it
// connects next, which therefore knows the choice without any state of its own. The key is without a choice.
//
// There is one resource for each endpoint that can be chosen, whatever the number of clients.
func (v *snapshot) chosenEndpoints(p *xds.Proxy, key endpointsKey, t names.Target) *xds.Resource {
	cache, name := v.cache.of(t.Service), t.Name()
	from := cache.choicesOf(key, func() clusters.ByPriority { return clusters.EndpointsFor(t, key.at) })
	had := ""
	if p.Has != nil {
		had = p.Has(xds.EndpointType, name)
	}
	key.chosen = from.of(p.ID, had)
	return cache.get(key, func() *xds.Resource {
		r := serialize(name, v.clusters().Endpoints(name, from.all, key.chosen))
		if r != nil && key.chosen.IsValid() {
			r.Version += choiceMark + key.chosen.String()
		}
		return r
	})
}

// of returns the choice of a client; the zero address if there is no endpoint. The client keeps the endpoint that
// its version of the endpoints contains, as long as that is one of the nearest. Otherwise it gets the one with the
// greatest digest of both (rendezvous hashing), which is the same at all replicas, and spreads the clients of an
// endpoint that goes.
func (c choices) of(client, version string) netip.AddrPort {
	_, text, _ := strings.Cut(version, choiceMark)
	if had, err := netip.ParseAddrPort(text); err == nil {
		if _, found := slices.BinarySearchFunc(c.nearest, had, func(c choice, to netip.AddrPort) int { return c.to.Compare(to) }); found {
			return had
		}
	}
	var first netip.AddrPort
	own, greatest := digest(client), uint64(0)
	for _, one := range c.nearest {
		if d := mix(own ^ one.digest); !first.IsValid() || d > greatest {
			first, greatest = one.to, d
		}
	}
	return first
}

// choicesOf returns the choices with a key; the first call builds them.
func (c *resourceCache) choicesOf(key endpointsKey, build func() clusters.ByPriority) choices {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, ok := c.choices[key]
	if ok {
		return out
	}
	out.all = build()
	for _, e := range out.all[0] {
		to := netip.AddrPortFrom(e.Addr, e.Port)
		out.nearest = append(out.nearest, choice{to, digest(to.String())})
	}
	if c.choices == nil {
		c.choices = map[endpointsKey]choices{}
	}
	c.choices[key] = out
	const each = 250 // bytes of an endpoint and its choice
	for _, endpoints := range out.all {
		c.count(int64(len(endpoints)) * each)
	}
	return out
}

func digest(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// mix spreads the bits of x over the result, as the finalizer of SplitMix64 does.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
