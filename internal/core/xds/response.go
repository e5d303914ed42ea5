package xds

import (
	"cmp"
	"slices"
)

// typeOrder is the order in which types are sent, so that dependencies come first: Envoy's
// make before break. Other types come last.
var typeOrder = map[string]int{ClusterType: 1, EndpointType: 2, ListenerType: 3, RouteType: 4, VirtualHostType: 5}

const lastInOrder = 6

func compareTypes(a, b string) int {
	rank := func(t string) int { return cmp.Or(typeOrder[t], lastInOrder) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// A response collects what is sent to a client at once, by type. Collecting it updates
// the client's subscriptions.
type response struct {
	client    *client
	types     map[string]*typeResponse
	used      []string         // clusters that the client began to use
	overLimit []subscribedName // to be dropped after the response
	names     int              // in the request
}

// work is about how many resources were looked up.
func (r *response) work() int {
	n := r.names
	for _, t := range r.types {
		n += len(t.resources) + len(t.removed)
	}
	return n
}

// A typeResponse is the part of a response of one type.
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

// sorted returns the types in the order in which they are sent, each with its resources by
// name: two servers with the same snapshots send the same.
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

// names are those of the resources that are sent.
func (t *typeResponse) names() []string {
	var out []string
	for _, r := range t.resources {
		out = append(out, r.Name)
	}
	return out
}

// removedNames returns the removed resources that did not come back in the same response.
func (t *typeResponse) removedNames() []string {
	return slices.DeleteFunc(t.removed, func(name string) bool { return t.included[name] })
}

// add sends a resource, once in a response. Unless forced it skips a version that the
// client has. It reports whether the resource is sent.
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

// remove sends a removal. It is not for types for which notFound has a resource.
func (r *response) remove(sub *subscription, name string) {
	t := r.of(sub)
	if t.included[name] {
		return
	}
	had := sub.sent[name]
	delete(sub.sent, name)
	if sub.typeURL == VirtualHostType && had == notFoundVersion {
		return // there was none
	}
	t.removed = append(t.removed, name)
}

// addBundle sends a resource with what belongs to it.
func (r *response) addBundle(sub *subscription, b Bundle, forced bool) {
	if !r.add(sub, b.Resource, forced) {
		return
	}
	for _, d := range b.Before {
		r.addBefore(d)
	}
	r.addAfter(b.After)
}

// addBefore sends a dependency, unless the client has it. A cluster brings its endpoints.
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

// addAfter sends what follows a resource, even if the client has it: an updated cluster
// warms again, and Envoy does not subscribe again to the endpoints.
func (r *response) addAfter(all []Dependency) {
	for _, d := range all {
		sub := r.client.subscription(d.Type)
		if r.client.unsolicited || sub.subscribed(d.Resource.Name) {
			r.add(sub, d.Resource, true)
		}
	}
}

// addWildcard sends the resources of the wildcard, and refreshes what else the client has.
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

// addName sends the resource of a subscribed name.
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
	sub.names[b.Resource.Name] = struct{}{} // the string that all clients share
	r.addBundle(sub, b, forced)
}

// refresh sends what became of a resource that the client has without a subscription by
// name: it came by a wildcard, or as a dependency.
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
