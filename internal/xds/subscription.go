package xds

import (
	"maps"
	"slices"
)

// A subscription is the state of one client and type: the names it subscribed to and the
// resources it was sent.
type subscription struct {
	typeURL  string
	started  bool // a request of this type has come
	wildcard bool

	// resources maps each subscribed name to the name of the resource that serves it. They
	// differ when the subscribed name is an alias. Empty before the first response.
	resources map[string]string
	bytes     int // of the subscribed names
	// aliasNames is the reverse of resources, where the two names differ.
	aliasNames map[string][]string
	// sent has the versions of what the client has, by name, and not the resources: those
	// that no other client has would be kept for this one. After a reconnect it starts with
	// the client's initial versions.
	sent map[string]string

	acks ackState
}

func newSubscription(typeURL string) *subscription {
	return &subscription{typeURL: typeURL, resources: map[string]string{}, sent: map[string]string{}}
}

// has reports whether the client has a resource.
func (s *subscription) has(name string) bool {
	_, ok := s.sent[name]
	return ok
}

// subscribed reports whether the client subscribed to a resource by its name or an alias.
func (s *subscription) subscribed(name string) bool {
	_, ok := s.resources[name]
	return ok || len(s.aliasNames[name]) > 0
}

// resolve notes which resource serves a name. It returns the resource that served it
// before, if that is another one without any other subscription.
func (s *subscription) resolve(name, resource string) (unused string, ok bool) {
	before := s.resources[name]
	if before == resource {
		return "", false
	}
	s.removeAlias(name, before)
	s.resources[name] = resource
	if name != resource {
		if s.aliasNames == nil {
			s.aliasNames = map[string][]string{}
		}
		s.aliasNames[resource] = append(s.aliasNames[resource], name)
	}
	return before, !s.subscribed(before)
}

func (s *subscription) removeAlias(name, resource string) {
	left := slices.DeleteFunc(s.aliasNames[resource], func(x string) bool { return x == name })
	if len(left) == 0 {
		delete(s.aliasNames, resource)
		return
	}
	s.aliasNames[resource] = left
}

func (s *subscription) forget(name string) {
	delete(s.resources, name)
	s.bytes -= len(name)
}

// unsubscribe removes a name: a subscribed one, an alias, or the resource's own name,
// which stands for all its aliases. It returns the resource, if no subscription to it is
// left.
func (s *subscription) unsubscribe(name string) (unused string, ok bool) {
	for _, alias := range s.aliasNames[name] {
		s.forget(alias)
	}
	delete(s.aliasNames, name)
	resource, ok := s.resources[name]
	if !ok {
		return name, true
	}
	s.forget(name)
	s.removeAlias(name, resource)
	return resource, !s.subscribed(resource)
}

// unsolicited returns what the client has without a subscription by name.
func (s *subscription) unsolicited() []string {
	var out []string
	for name := range s.sent {
		if !s.subscribed(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// affected returns the names of a change that this client subscribed to, or has without a
// subscription. It iterates over the smaller of the two sets.
func (s *subscription) affected(c Change) (subscribed, unsolicited []string) {
	if c.AllNames {
		return slices.Sorted(maps.Keys(s.resources)), s.unsolicited()
	}
	if c.Match == nil && len(c.Names) <= len(s.resources)+len(s.sent) {
		for name := range c.Names {
			if _, ok := s.resources[name]; ok {
				subscribed = append(subscribed, name)
			}
			subscribed = append(subscribed, s.aliasNames[name]...)
			if s.has(name) && !s.subscribed(name) {
				unsolicited = append(unsolicited, name)
			}
		}
	} else {
		in := func(name string) bool { _, ok := c.Names[name]; return ok || c.Match != nil && c.Match(name) }
		for name, resource := range s.resources {
			if in(name) || in(resource) {
				subscribed = append(subscribed, name)
			}
		}
		for name := range s.sent {
			if in(name) && !s.subscribed(name) {
				unsolicited = append(unsolicited, name)
			}
		}
	}
	slices.Sort(subscribed)
	slices.Sort(unsolicited)
	return slices.Compact(subscribed), unsolicited
}

// aliases returns the aliases of a resource, those that the client subscribed to included.
func (s *subscription) aliases(r *Resource) []string {
	if len(s.aliasNames[r.Name]) == 0 {
		if r.Body == nil && s.typeURL == VirtualHostType && len(r.Aliases) == 0 {
			return []string{r.Name} // Envoy finds the waiting request by the aliases alone
		}
		return r.Aliases
	}
	all := slices.Concat(r.Aliases, s.aliasNames[r.Name])
	slices.Sort(all)
	return slices.Compact(all)
}
