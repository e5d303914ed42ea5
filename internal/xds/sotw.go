package xds

import (
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotw is the state-of-the-world protocol: each request names all that the client wants
// of a type; each message has all listeners or clusters that there are for it.
type sotw struct{}

func (sotw) name() string  { return "state-of-the-world" }
func (sotw) unasked() bool { return false }

// full are the types whose messages are lists of everything: what is missing is gone.
var full = map[string]bool{ListenerType: true, ClusterType: true}

// read turns the list of names into what is new in it and what is gone. A request that
// answers an older message is out of date: the next one is on its way.
func (sotw) read(c *client, r *discovery.DiscoveryRequest) (*batch, error) {
	typeURL, names := r.GetTypeUrl(), r.GetResourceNames()
	sub := c.types[typeURL]
	if sub == nil || !sub.begun {
		if len(names) == 0 && !full[typeURL] {
			return c.batch(), nil // no interest yet
		}
		return c.ask(interest{typeURL: typeURL, subscribe: names})
	}
	if n := r.GetResponseNonce(); n != "" && n != sub.exchange.nonce {
		return c.batch(), nil
	}
	in := interest{typeURL: typeURL}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
		if _, asked := sub.asked[name]; !asked && (name != "*" || !sub.wildcard) {
			in.subscribe = append(in.subscribe, name)
		}
	}
	for name := range sub.asked {
		if !want[name] {
			in.unsubscribe = append(in.unsubscribe, name)
		}
	}
	if sub.wildcard && !want["*"] && len(names) > 0 {
		in.unsubscribe = append(in.unsubscribe, "*")
	}
	return c.ask(in)
}

func (sotw) write(c *client, b *batch) []*discovery.DiscoveryResponse {
	var out []*discovery.DiscoveryResponse
	for _, p := range b.inOrder() {
		tell := p.resources
		if full[p.sub.typeURL] {
			if len(tell)+len(p.gone()) == 0 && !p.answer {
				continue
			}
			tell = nil
			for _, name := range slices.Sorted(maps.Keys(p.sub.told)) {
				tell = append(tell, p.sub.told[name])
			}
		} else if len(tell) == 0 {
			continue
		}
		r := &discovery.DiscoveryResponse{TypeUrl: p.sub.typeURL, VersionInfo: c.view.Version(), Nonce: c.send(p.sub)}
		r.Resources = make([]*anypb.Any, 0, len(tell))
		for _, one := range tell {
			if one.Body != nil {
				r.Resources = append(r.Resources, one.Body)
			}
		}
		out = append(out, r)
	}
	return out
}
