package xds

import (
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// sotw is the state-of-the-world protocol: each request contains all names to which the client subscribes, and
// each message of listeners or clusters is a complete list.
type sotw struct{}

func (sotw) name() string      { return "state-of-the-world" }
func (sotw) unsolicited() bool { return false }

func (sotw) request() *discovery.DiscoveryRequest { return &discovery.DiscoveryRequest{} }

func (sotw) names(r *discovery.DiscoveryRequest) int { return len(r.GetResourceNames()) }

// completeTypes are the types whose messages are complete lists: a missing resource counts as removed.
var completeTypes = map[string]bool{ListenerType: true, ClusterType: true}

// read converts the list of names to a change since the last list. A request with the nonce of an older message
// is outdated, and a newer one will follow.
func (sotw) read(c *client, r *discovery.DiscoveryRequest) (*response, error) {
	typeURL, names := r.GetTypeUrl(), r.GetResourceNames()
	sub := c.types[typeURL]
	if sub == nil || !sub.started {
		if len(names) == 0 && !completeTypes[typeURL] {
			return c.newResponse(), nil // no names were subscribed to yet
		}
		return c.subscribe(subscriptionChange{typeURL: typeURL, subscribe: names})
	}
	if n := r.GetResponseNonce(); n != "" && n != sub.acks.nonce {
		return c.newResponse(), nil
	}
	return c.subscribe(sub.changeTo(names))
}

// changeTo returns the change that results in a complete list of names.
func (s *subscription) changeTo(names []string) subscriptionChange {
	change := subscriptionChange{typeURL: s.typeURL}
	listed := map[string]bool{}
	for _, name := range names {
		listed[name] = true
		if !s.subscribed(name) && (name != "*" || !s.wildcard) {
			change.subscribe = append(change.subscribe, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		if !listed[name] {
			change.unsubscribe = append(change.unsubscribe, name)
		}
	}
	if s.wildcard && !listed["*"] && len(names) > 0 {
		change.unsubscribe = append(change.unsubscribe, "*")
	}
	return change
}

func (sotw) write(c *client, r *response) []*discovery.DiscoveryResponse {
	var out []*discovery.DiscoveryResponse
	for _, t := range r.sorted() {
		resources := t.resources
		if completeTypes[t.sub.typeURL] {
			if len(resources)+len(t.removedNames()) == 0 && !t.required {
				continue
			}
			resources = nil
			for _, name := range slices.Sorted(maps.Keys(t.sub.sent)) {
				if r := c.named(t.sub.typeURL, name).Resource; r != nil {
					resources = append(resources, r)
				}
			}
		} else if len(resources) == 0 {
			continue
		}
		m := &discovery.DiscoveryResponse{TypeUrl: t.sub.typeURL, VersionInfo: c.snapshot.Version(), Nonce: c.nextNonce(t.sub)}
		m.Resources = make([]*anypb.Any, 0, len(resources))
		for _, one := range resources {
			if one.Body != nil {
				m.Resources = append(m.Resources, one.Body)
			}
		}
		out = append(out, m)
	}
	return out
}
