package xds

import (
	"cmp"
	"slices"
)

// order is the one in which types are told, so that what is referred to is there first:
// Envoy's make before break. Other types come last.
var order = map[string]int{ClusterType: 1, EndpointType: 2, ListenerType: 3, RouteType: 4, VirtualHostType: 5}

const lastInOrder = 6

func inOrder(a, b string) int {
	rank := func(t string) int { return cmp.Or(order[t], lastInOrder) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// A batch is what a client has to be told, by type.
type batch struct {
	client *client
	parts  map[string]*part
	used   []string // clusters that the client came to need
	excess []excess // names to be forgotten once the batch is written
}

// A part is what a batch has of one type.
type part struct {
	sub       *subscription
	answer    bool // the client waits for an answer, even for an empty one
	resources []*Resource
	within    map[string]bool // names of resources
	removed   []string
}

// An excess is a name for which there was no room.
type excess struct {
	sub  *subscription
	name string
}

func (b *batch) part(sub *subscription) *part {
	p := b.parts[sub.typeURL]
	if p == nil {
		p = &part{sub: sub, within: map[string]bool{}}
		b.parts[sub.typeURL] = p
	}
	return p
}

// inOrder returns the parts in the order in which they are told, each by name: two
// servers with the same views say the same.
func (b *batch) inOrder() []*part {
	var all []*part
	for _, p := range b.parts {
		slices.SortFunc(p.resources, func(x, y *Resource) int { return cmp.Compare(x.Name, y.Name) })
		slices.Sort(p.removed)
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y *part) int { return inOrder(x.sub.typeURL, y.sub.typeURL) })
	return all
}

// gone returns what is told as removed.
func (p *part) gone() []string {
	return slices.DeleteFunc(p.removed, func(name string) bool { return p.within[name] })
}

// put tells a resource, once in a batch. Unless forced it does not tell what the client
// has. It reports whether the resource is told.
func (b *batch) put(sub *subscription, r *Resource, forced bool) bool {
	p, had := b.part(sub), sub.told[r.Name]
	sub.told[r.Name] = r
	if p.within[r.Name] || had != nil && had.Version == r.Version && !forced {
		return false
	}
	p.within[r.Name] = true
	p.resources = append(p.resources, r)
	return true
}

// remove takes back what the client was told. It is not for types of which absent knows
// something better.
func (b *batch) remove(sub *subscription, name string) {
	p := b.part(sub)
	if p.within[name] {
		return
	}
	had := sub.told[name]
	delete(sub.told, name)
	if sub.typeURL == VirtualHostType && had != nil && had.Version == absentVersion {
		return // it never was
	}
	p.removed = append(p.removed, name)
}

// tell puts a resource together with what belongs to it.
func (b *batch) tell(sub *subscription, a Answer, forced bool) {
	if !b.put(sub, a.Resource, forced) {
		return
	}
	for _, n := range a.Before {
		b.before(n)
	}
	b.behind(a.Behind)
}

// before tells what something else needs, unless the client has it. A cluster brings its
// endpoints along.
func (b *batch) before(n Needed) {
	if !b.client.unasked {
		return
	}
	if n.Type == ClusterType {
		b.used = append(b.used, n.Resource.Name)
	}
	if b.put(b.client.subscription(n.Type), n.Resource, false) && n.Type == ClusterType {
		b.behind(b.client.named(n.Type, n.Resource.Name).Behind)
	}
}

// behind tells what follows something. It is told each time: an updated cluster warms
// again, and Envoy does not ask again for the endpoints.
func (b *batch) behind(all []Needed) {
	for _, n := range all {
		sub := b.client.subscription(n.Type)
		if b.client.unasked || sub.wants(n.Resource.Name) {
			b.put(sub, n.Resource, true)
		}
	}
}

// all tells what belongs to the wildcard, and follows up on what else the client has.
func (b *batch) all(sub *subscription, forced bool) {
	c := b.client
	within := map[string]bool{}
	for _, a := range c.view.All(c.proxy, sub.typeURL, c.wanted()) {
		if a.Resource == nil {
			continue
		}
		within[a.Resource.Name] = true
		b.tell(sub, a, forced)
	}
	for _, name := range sub.unasked() {
		if !within[name] {
			b.follow(sub, name, false)
		}
	}
}

// name answers a name that was asked for.
func (b *batch) name(sub *subscription, name string, forced bool) {
	a := b.client.named(sub.typeURL, name)
	if a.Resource == nil {
		a = Answer{Resource: absent(b.client.proxy, sub.typeURL, name)}
	}
	if a.Resource == nil {
		sub.answer(name, name)
		if forced || sub.told[name] != nil {
			b.remove(sub, name)
		}
		return
	}
	if sub.typeURL == ClusterType && a.Resource.Version != absentVersion {
		b.used = append(b.used, name)
	}
	orphan, ok := sub.answer(name, a.Resource.Name)
	b.tell(sub, a, forced)
	if ok && sub.told[orphan] != nil {
		b.follow(sub, orphan, false)
	}
}

// follow tells what became of a resource that the client has, but did not ask for: it
// came by a wildcard, or with something that needed it.
func (b *batch) follow(sub *subscription, name string, forced bool) {
	a := b.client.named(sub.typeURL, name)
	there := a.Resource != nil && a.Resource.Name == name && (a.Resource.Body != nil || sub.typeURL != VirtualHostType)
	if !there && sub.typeURL != VirtualHostType {
		a = Answer{Resource: absent(b.client.proxy, sub.typeURL, name)}
		there = a.Resource != nil
	}
	if !there {
		b.remove(sub, name)
		return
	}
	b.tell(sub, a, forced)
}
