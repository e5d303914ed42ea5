package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// delta is the incremental protocol: each message names what is new, changed and gone.
type delta struct{ maxMessage int }

func (delta) name() string  { return "delta" }
func (delta) unasked() bool { return true }

// read turns a request into an interest. One without names and without a nonce is
// answered with all: that is how Envoy opens a wildcard, and the virtual hosts of each
// route configuration (on-demand-xds, rule 4).
func (delta) read(c *client, r *discovery.DeltaDiscoveryRequest) (*batch, error) {
	in := interest{
		typeURL:     r.GetTypeUrl(),
		subscribe:   r.GetResourceNamesSubscribe(),
		unsubscribe: r.GetResourceNamesUnsubscribe(),
		have:        r.GetInitialResourceVersions(),
	}
	sub := c.types[in.typeURL]
	if sub == nil {
		return c.ask(in)
	}
	bare := len(in.subscribe)+len(in.unsubscribe) == 0
	switch {
	case sub.begun:
		in.have = nil // only the first request of a type says that
		in.again = bare && r.GetResponseNonce() == "" && (sub.wildcard || in.typeURL == VirtualHostType)
	case bare && r.GetResponseNonce() != "":
		return c.batch(), nil // an answer to what was told unasked, not a wildcard
	}
	return c.ask(in)
}

// write gives all parts in order, and at the very end which clusters and endpoints are
// gone: by then nothing refers to them.
func (d delta) write(c *client, b *batch) []*discovery.DeltaDiscoveryResponse {
	var out, last []*discovery.DeltaDiscoveryResponse
	for _, p := range b.inOrder() {
		resources, removed := p.resources, p.gone()
		if p.sub.typeURL == ClusterType || p.sub.typeURL == EndpointType {
			there, gone := split(resources)
			last = append(last, d.part(p.sub, gone, removed, false)...)
			resources, removed = there, nil
			p.answer = p.answer && len(last) == 0
		}
		out = append(out, d.part(p.sub, resources, removed, p.answer)...)
	}
	out = append(out, last...)
	for _, r := range out {
		r.SystemVersionInfo = c.view.Version()
		r.Nonce = c.send(c.subscription(r.GetTypeUrl()))
	}
	return out
}

// split separates what stands for nothing.
func split(all []*Resource) (there, gone []*Resource) {
	for _, r := range all {
		if r.Version == absentVersion {
			gone = append(gone, r)
		} else {
			there = append(there, r)
		}
	}
	return there, gone
}

// part writes one type, in as many messages as the bound on their size asks for; an
// empty one where the client waits for an answer.
func (d delta) part(sub *subscription, resources []*Resource, removed []string, answer bool) []*discovery.DeltaDiscoveryResponse {
	if len(resources)+len(removed) == 0 && !answer {
		return nil
	}
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: sub.typeURL, RemovedResources: removed}
	out := []*discovery.DeltaDiscoveryResponse{r}
	size := 0
	for _, one := range resources {
		res := &discovery.Resource{Name: one.Name, Version: one.Version, Aliases: sub.aliases(one), Resource: one.Body}
		n := proto.Size(res)
		if size > 0 && size+n > d.maxMessage {
			r, size = &discovery.DeltaDiscoveryResponse{TypeUrl: sub.typeURL}, 0
			out = append(out, r)
		}
		r.Resources, size = append(r.Resources, res), size+n
	}
	return out
}
