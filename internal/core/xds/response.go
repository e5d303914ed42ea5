package xds

import (
	"cmp"
	"slices"
)

// typeOrder is the order of sending, in which dependencies come first, as Envoy's make-before-break
// requires. Other types come last.
var typeOrder = map[string]int{ClusterType: 1, EndpointType: 2, ListenerType: 3, RouteType: 4, VirtualHostType: 5}

const lastInOrder = 6

func compareTypes(a, b string) int {
	rank := func(t string) int { return cmp.Or(typeOrder[t], lastInOrder) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// A response collects the resources to be sent to a client at once, by type. Adding to it also updates
// the client's subscriptions.
type response struct {
	client    *client
	types     map[string]*typeResponse
	used      []string         // clusters that the client has begun to use
	overLimit []subscribedName // subscriptions to be dropped after the response
	names     int              // number of names in the request
}

// work estimates the cost of the response by the number of look-ups.
func (r *response) work() int {
	n := r.names
	for _, t := range r.types {
		n += len(t.resources) + len(t.removed)
	}
	return n
}

// A typeResponse is the part of a response for one type.
type typeResponse struct {
	sub       *subscription
	required  bool // the client waits for a response, even an empty one
	resources []*Resource
	included  map[string]bool // names of resources
	removed   []string
}

type subscribedName struct {
	sub  *subscription
	name string
}

func (r *response) of(sub *subscription) *typeResponse {
	t := r.types[sub.typeURL]
	if t == nil {
		t = &typeResponse{sub: sub, included: map[string]bool{}}
		r.types[sub.typeURL] = t
	}
	return t
}

// sorted returns the types in the order of sending, each with its resources by name, so that two
// servers with the same snapshots send the same messages.
func (r *response) sorted() []*typeResponse {
	var all []*typeResponse
	for _, t := range r.types {
		slices.SortFunc(t.resources, func(x, y *Resource) int { return cmp.Compare(x.Name, y.Name) })
		slices.Sort(t.removed)
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *typeResponse) int { return compareTypes(x.sub.typeURL, y.sub.typeURL) })
	return all
}

// names returns the names of the resources that are sent.
func (t *typeResponse) names() []string {
	var out []string
	for _, r := range t.resources {
		out = append(out, r.Name)
	}
	return out
}

// removedNames returns the removed resources that were not added again in the same response.
func (t *typeResponse) removedNames() []string {
	return slices.DeleteFunc(t.removed, func(name string) bool { return t.included[name] })
}

// add sends a resource, at most once in a response. Unless forced, it skips a version that the client
// has. It reports whether the resource is sent.
func (r *response) add(sub *subscription, res *Resource, forced bool) bool {
	t := r.of(sub)
	had, ok := sub.sent[res.Name]
	sub.sent[res.Name] = res.Version
	if t.included[res.Name] || ok && had == res.Version && !forced {
		return false
	}
	t.included[res.Name] = true
	t.resources = append(t.resources, res)
	return true
}

// remove sends a removal. It must not be used for types for which notFound returns a resource.
func (r *response) remove(sub *subscription, name string) {
	t := r.of(sub)
	if t.included[name] {
		return
	}
	had := sub.sent[name]
	delete(sub.sent, name)
	if sub.typeURL == VirtualHostType && had == notFoundVersion {
		return // the client does not have it
	}
	t.removed = append(t.removed, name)
}

// addBundle sends a resource with the resources that belong to it.
func (r *response) addBundle(sub *subscription, b Bundle, forced bool) {
	if !r.add(sub, b.Resource, forced) {
		return
	}
	for _, d := range b.Before {
		r.addBefore(d)
	}
	r.addAfter(b.After)
}

// addBefore sends a dependency unless the client has it. A cluster is sent with its endpoints.
func (r *response) addBefore(d Dependency) {
	if !r.client.unsolicited {
		return
	}
	sub := r.client.subscription(d.Type)
	if d.Type == ClusterType && !sub.exists(d.Resource.Name) {
		r.used = append(r.used, d.Resource.Name)
	}
	if r.add(sub, d.Resource, false) && d.Type == ClusterType {
		r.addAfter(r.client.named(d.Type, d.Resource.Name).After)
	}
}

// addAfter sends the resources that follow another one, even if the client has them: an updated cluster
// warms again, and Envoy does not subscribe to its endpoints again.
func (r *response) addAfter(all []Dependency) {
	for _, d := range all {
		sub := r.client.subscription(d.Type)
		if d.Chosen && !sub.started && r.client.adopted > 0 {
			continue
		}
		if r.client.unsolicited || sub.subscribed(d.Resource.Name) {
			r.add(sub, d.Resource, true)
		}
	}
}

// addWildcard sends the resources of the wildcard, and updates others that the client has.
func (r *response) addWildcard(sub *subscription, forced bool) {
	c := r.client
	within := map[string]bool{}
	for _, b := range c.snapshot.Wildcard(c.proxy, sub.typeURL, c.expectedClusters()) {
		if b.Resource == nil {
			continue
		}
		within[b.Resource.Name] = true
		r.addBundle(sub, b, forced)
	}
	for _, name := range sub.unsolicited() {
		if !within[name] {
			r.refresh(sub, name, false)
		}
	}
}

// addName sends the resource for a subscribed name.
func (r *response) addName(sub *subscription, name string, forced bool) {
	b := r.client.named(sub.typeURL, name)
	if b.Resource == nil {
		b = Bundle{Resource: notFound(r.client.proxy, sub.typeURL, name)}
	}
	if b.Resource == nil {
		if forced || sub.has(name) {
			r.remove(sub, name)
		}
		return
	}
	if r.client.hold(sub, name, b.Hold) {
		return
	}
	if b.Service && sub.typeURL == ClusterType && (forced || !sub.exists(b.Resource.Name)) {
		r.used = append(r.used, b.Resource.Name)
	}
	sub.names[b.Resource.Name] = struct{}{} // the key becomes the string that all clients share
	r.addBundle(sub, b, forced)
}

// refresh sends the current state of a resource that the client has without a subscription by name,
// from a wildcard or as a dependency.
func (r *response) refresh(sub *subscription, name string, forced bool) {
	b := r.client.named(sub.typeURL, name)
	found := b.Resource != nil && (b.Resource.Body != nil || sub.typeURL != VirtualHostType)
	if !found && sub.typeURL != VirtualHostType {
		b = Bundle{Resource: notFound(r.client.proxy, sub.typeURL, name)}
		found = b.Resource != nil
	}
	if !found {
		r.remove(sub, name)
		return
	}
	r.addBundle(sub, b, forced)
}
