package xds

import (
	"bytes"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/wire"
)

// delta is the incremental protocol: each message contains new, changed and removed resources.
type delta struct{ maxMessage int }

func (delta) name() string      { return "delta" }
func (delta) unsolicited() bool { return true }

func (delta) request() *discovery.DeltaDiscoveryRequest { return &discovery.DeltaDiscoveryRequest{} }

func (delta) names(r *discovery.DeltaDiscoveryRequest) int {
	return len(r.GetResourceNamesSubscribe()) + len(r.GetResourceNamesUnsubscribe()) + len(r.GetInitialResourceVersions())
}

// read converts a request to a change of a subscription. A request without names and without a nonce subscribes
// to the wildcard. Envoy does this for each type, even for the virtual hosts of each route configuration.
func (delta) read(c *client, r *discovery.DeltaDiscoveryRequest) (*response, error) {
	change := subscriptionChange{
		typeURL:         r.GetTypeUrl(),
		subscribe:       r.GetResourceNamesSubscribe(),
		unsubscribe:     r.GetResourceNamesUnsubscribe(),
		initialVersions: r.GetInitialResourceVersions(),
	}
	sub := c.types[change.typeURL]
	if sub == nil {
		return c.subscribe(change)
	}
	noNames := len(change.subscribe)+len(change.unsubscribe) == 0
	switch {
	case sub.started:
		change.initialVersions = nil // only the first request of a type may contain them
		change.resend = noNames && r.GetResponseNonce() == "" && (sub.wildcard || change.typeURL == VirtualHostType)
	case noNames && r.GetResponseNonce() != "":
		return c.newResponse(), nil // the ACK of an unsolicited resource, not a wildcard subscription
	}
	return c.subscribe(change)
}

// write returns all types in order, with removals of clusters and endpoints at the very end, when
// nothing refers to them any longer.
func (d delta) write(c *client, r *response) []*discovery.DeltaDiscoveryResponse {
	var out, last []*discovery.DeltaDiscoveryResponse
	for _, t := range r.sorted() {
		resources, removed := t.resources, t.removedNames()
		if t.sub.typeURL == ClusterType || t.sub.typeURL == EndpointType {
			found, missing := split(resources)
			last = append(last, d.messages(t.sub, missing, removed, false)...)
			resources, removed = found, nil
			t.required = t.required && len(last) == 0
		}
		out = append(out, d.messages(t.sub, resources, removed, t.required)...)
	}
	out = d.withAway(c, append(out, last...))
	for _, m := range out {
		m.SystemVersionInfo = c.snapshot.Version()
		m.Nonce = c.nextNonce(c.subscription(m.GetTypeUrl()))
	}
	return out
}

// withAway adds the answers that the agent of a relayed proxy gives while the control plane is unreachable, if
// they have changed. They are added to a message, as a field that Envoy does not know and skips. If
// there is no message, an empty one about clusters is sent, which changes nothing in Envoy.
func (d delta) withAway(c *client, out []*discovery.DeltaDiscoveryResponse) []*discovery.DeltaDiscoveryResponse {
	away := c.snapshot.Away()
	clusters := c.types[ClusterType]
	if !c.proxy.Relayed || bytes.Equal(away, c.away) || clusters == nil || !clusters.started {
		return out
	}
	c.away = away
	if len(out) == 0 {
		out = d.messages(clusters, nil, nil, true)
	}
	out[0].ProtoReflect().SetUnknown(wire.AppendField(nil, wire.AwayField, away))
	return out
}

// split separates real resources from those that notFound made.
func split(all []*Resource) (found, missing []*Resource) {
	for _, r := range all {
		if r.Version == notFoundVersion {
			missing = append(missing, r)
		} else {
			found = append(found, r)
		}
	}
	return found, missing
}

// messages writes one type, in as many messages as maxMessage requires. If the client waits for a
// response, it writes at least an empty message.
func (d delta) messages(sub *subscription, resources []*Resource, removed []string, required bool) []*discovery.DeltaDiscoveryResponse {
	if len(resources)+len(removed) == 0 && !required {
		return nil
	}
	m := &discovery.DeltaDiscoveryResponse{TypeUrl: sub.typeURL, RemovedResources: removed}
	out := []*discovery.DeltaDiscoveryResponse{m}
	size := 0
	for _, one := range resources {
		res := &discovery.Resource{Name: one.Name, Version: one.Version, Resource: one.Body}
		if one.Body == nil {
			res.Aliases = []string{one.Name} // Envoy matches the waiting request by the aliases alone
		}
		n := proto.Size(res)
		if size > 0 && size+n > d.maxMessage {
			m, size = &discovery.DeltaDiscoveryResponse{TypeUrl: sub.typeURL}, 0
			out = append(out, m)
		}
		m.Resources, size = append(m.Resources, res), size+n
	}
	return out
}
