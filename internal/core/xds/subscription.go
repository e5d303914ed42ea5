package xds

import (
	"maps"
	"slices"
)

// A subscription is the state of one client and one type: the names to which it has subscribed, and the
// resources that were sent to it.
type subscription struct {
	typeURL  string
	started  bool // a request for this type has arrived
	wildcard bool

	names map[string]struct{} // names to which the client has subscribed
	bytes int                 // total length of names
	// sent contains the versions of the resources that the client has, by name. It does not contain the resources
	// themselves, because that would keep a resource in memory even if no other client has it. After a reconnect
	// it starts with the client's initial versions.
	sent map[string]string

	acks ackState
}

func newSubscription(typeURL string) *subscription {
	return &subscription{typeURL: typeURL, names: map[string]struct{}{}, sent: map[string]string{}}
}

// has reports whether the client has a resource.
func (s *subscription) has(name string) bool {
	_, ok := s.sent[name]
	return ok
}

// exists reports whether the client has a resource that is not just a substitute from notFound.
func (s *subscription) exists(name string) bool {
	version, ok := s.sent[name]
	return ok && version != notFoundVersion
}

// subscribed reports whether the client has subscribed to a resource by its name.
func (s *subscription) subscribed(name string) bool {
	_, ok := s.names[name]
	return ok
}

func (s *subscription) add(name string) {
	s.names[name] = struct{}{}
	s.bytes += len(name)
}

func (s *subscription) remove(name string) {
	if s.subscribed(name) {
		delete(s.names, name)
		s.bytes -= len(name)
	}
}

// unsolicited returns the resources that the client has without a subscription by name.
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

// affected returns the names in a change that concern this client: those to which it has subscribed, and those
// whose resource it has without a subscription. It iterates over the smaller of the two sets.
func (s *subscription) affected(c Change) (subscribed, unsolicited []string) {
	if c.AllNames {
		return slices.Sorted(maps.Keys(s.names)), s.unsolicited()
	}
	note := func(name string) {
		switch {
		case s.subscribed(name):
			subscribed = append(subscribed, name)
		case s.has(name):
			unsolicited = append(unsolicited, name)
		}
	}
	if c.Match == nil && len(c.Names) <= len(s.names)+len(s.sent) {
		for name := range c.Names {
			note(name)
		}
	} else {
		in := func(name string) bool { _, ok := c.Names[name]; return ok || c.Match != nil && c.Match(name) }
		for name := range s.names {
			if in(name) {
				note(name)
			}
		}
		for name := range s.sent {
			if in(name) && !s.subscribed(name) {
				note(name)
			}
		}
	}
	slices.Sort(subscribed)
	slices.Sort(unsolicited)
	return subscribed, unsolicited
}
