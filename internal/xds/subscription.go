package xds

import (
	"maps"
	"slices"
)

// A subscription is what one client wants to know of one type, and what it was told.
type subscription struct {
	typeURL  string
	begun    bool // a request of this type has come
	wildcard bool

	// asked is each name asked for, with the name of the resource that answered it: the
	// same, unless the name is only a spelling. Empty before it is answered.
	asked map[string]string
	// spellings is asked the other way round, where the two differ.
	spellings map[string][]string
	// told is what the client has, by name. After a reconnect it starts with the client's own
	// list: names and versions.
	told map[string]*Resource

	exchange exchange
}

func newSubscription(typeURL string) *subscription {
	return &subscription{typeURL: typeURL, asked: map[string]string{}, told: map[string]*Resource{}}
}

// wants says whether the client asked for a resource by its name or by a spelling of it.
func (s *subscription) wants(name string) bool {
	_, asked := s.asked[name]
	return asked || len(s.spellings[name]) > 0
}

// answer notes which resource answers a name, and returns the one that did before, if
// that is another one and nobody asks for it any more.
func (s *subscription) answer(name, resource string) (orphan string, ok bool) {
	before := s.asked[name]
	if before == resource {
		return "", false
	}
	s.unlink(name, before)
	s.asked[name] = resource
	if name != resource {
		if s.spellings == nil {
			s.spellings = map[string][]string{}
		}
		s.spellings[resource] = append(s.spellings[resource], name)
	}
	return before, !s.wants(before)
}

// unlink takes a spelling from the resource that it stood for.
func (s *subscription) unlink(name, resource string) {
	left := slices.DeleteFunc(s.spellings[resource], func(x string) bool { return x == name })
	if len(left) == 0 {
		delete(s.spellings, resource)
		return
	}
	s.spellings[resource] = left
}

// drop ends the interest in a name: asked for, a spelling, or the resource itself, which
// stands for all its spellings. It returns the resource, if nobody asks for it any more.
func (s *subscription) drop(name string) (orphan string, ok bool) {
	for _, spelling := range s.spellings[name] {
		delete(s.asked, spelling)
	}
	delete(s.spellings, name)
	resource, asked := s.asked[name]
	if !asked {
		return name, true
	}
	delete(s.asked, name)
	s.unlink(name, resource)
	return resource, !s.wants(resource)
}

// unasked returns what the client has without having asked for it by name.
func (s *subscription) unasked() []string {
	var out []string
	for name := range s.told {
		if !s.wants(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// touches says whether a change may concern this client, at the cost of the smaller of
// the two sets.
func (s *subscription) touches(c Change) bool {
	if c.Every || c.All && s.wildcard || len(c.Names) > len(s.asked)+len(s.told) {
		return true
	}
	for name := range c.Names {
		if _, asked := s.asked[name]; asked || s.told[name] != nil {
			return true
		}
	}
	return false
}

// touched returns the names of a change that this client asked for, or has unasked. It
// looks at the smaller of the two sets.
func (s *subscription) touched(c Change) (asked, unasked []string) {
	if c.Every {
		return slices.Sorted(maps.Keys(s.asked)), s.unasked()
	}
	if len(c.Names) <= len(s.asked)+len(s.told) {
		for name := range c.Names {
			if _, ok := s.asked[name]; ok {
				asked = append(asked, name)
			}
			asked = append(asked, s.spellings[name]...)
			if s.told[name] != nil && !s.wants(name) {
				unasked = append(unasked, name)
			}
		}
	} else {
		in := func(name string) bool { _, ok := c.Names[name]; return ok }
		for name, resource := range s.asked {
			if in(name) || in(resource) {
				asked = append(asked, name)
			}
		}
		for name := range s.told {
			if in(name) && !s.wants(name) {
				unasked = append(unasked, name)
			}
		}
	}
	slices.Sort(asked)
	slices.Sort(unasked)
	return slices.Compact(asked), unasked
}

// aliases returns the names that a resource answers besides its own.
func (s *subscription) aliases(r *Resource) []string {
	if len(s.spellings[r.Name]) == 0 {
		if r.Body == nil && s.typeURL == VirtualHostType && len(r.Aliases) == 0 {
			return []string{r.Name} // Envoy finds who waits by the aliases alone
		}
		return r.Aliases
	}
	all := slices.Concat(r.Aliases, s.spellings[r.Name])
	slices.Sort(all)
	return slices.Compact(all)
}
