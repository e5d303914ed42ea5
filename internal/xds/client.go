package xds

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A client is one stream: who it is, what it wants and what it was told. One goroutine
// changes it, under the lock; others look at it, under the lock.
type client struct {
	id       uint64
	protocol string // as people call it
	proxy    *Proxy
	workload Workload
	since    time.Time

	memory   Memory
	maxNames int
	unasked  bool // it may be told what it did not ask for

	mu       sync.Mutex
	view     View
	types    map[string]*subscription
	expected []string        // clusters, by memory
	recalled bool            // memory was asked
	stored   map[string]bool // handed to memory in the life of this stream
	excess   int             // names that found no room: answered, not followed
	nonces   uint64
}

// maxTypes bounds how many types one stream may open. Envoy knows about a dozen.
const maxTypes = 32

// An interest is what a request changes in a subscription.
type interest struct {
	typeURL     string
	subscribe   []string // "*" is the wildcard
	unsubscribe []string
	have        map[string]string // name and version of what the client has from before
	again       bool              // no name at all: tell what belongs to the wildcard once more
}

// subscription returns the one of a type, new if need be.
func (c *client) subscription(typeURL string) *subscription {
	s := c.types[typeURL]
	if s == nil {
		s = newSubscription(typeURL)
		c.types[typeURL] = s
	}
	return s
}

func (c *client) batch() *batch { return &batch{client: c, parts: map[string]*part{}} }

// named asks the view.
func (c *client) named(typeURL, name string) Answer { return c.view.Named(c.proxy, typeURL, name) }

// count sums up something over all types.
func (c *client) count(of func(*subscription) int) int {
	n := 0
	for _, s := range c.types {
		n += of(s)
	}
	return n
}

func countAsked(s *subscription) int { return len(s.asked) }
func countTold(s *subscription) int  { return len(s.told) }

// wanted returns the clusters that the workload of this client asked for in earlier
// lives. They do not change while the stream lasts.
func (c *client) wanted() []string {
	if !c.recalled {
		c.recalled = true
		if c.proxy.OnDemand {
			c.expected = c.memory.Load(c.workload)
		}
	}
	return c.expected
}

// ask takes an interest in and returns what answers it.
func (c *client) ask(in interest) (*batch, error) {
	if c.types[in.typeURL] == nil && len(c.types) >= maxTypes {
		return nil, status.Errorf(codes.ResourceExhausted, "type_url: %q is one type too many: a stream may have %d", in.typeURL, maxTypes)
	}
	sub, b := c.subscription(in.typeURL), c.batch()
	wildcard, adopted := in.again, false
	if !sub.begun {
		sub.begun = true
		clear(sub.told) // Envoy drops what comes before it subscribes to the type
		wildcard = wildcard || len(in.subscribe) == 0
		adopted = c.adopt(sub, in.have)
	}
	c.unsubscribe(b, sub, in.unsubscribe)
	names := make([]string, 0, len(in.subscribe))
	for _, name := range in.subscribe {
		if name == "*" {
			wildcard = true
			continue
		}
		c.expect(b, sub, name)
		names = append(names, name)
	}
	if wildcard || len(names) > 0 {
		b.part(sub).answer = true
	}
	if wildcard {
		sub.wildcard = true
		b.all(sub, in.again)
	} else if adopted {
		for _, name := range sub.unasked() {
			b.follow(sub, name, false)
		}
	}
	for _, name := range names {
		b.name(sub, name, true)
	}
	c.remember(b)
	return b, nil
}

// adopt takes over what the client has from an earlier stream.
func (c *client) adopt(sub *subscription, have map[string]string) bool {
	room := c.maxNames - c.count(countTold)
	for name, version := range have {
		if sub.told[name] == nil && room > 0 {
			sub.told[name] = &Resource{Name: name, Version: version}
			room--
		}
	}
	return len(have) > 0
}

// expect notes that a name is asked for, for as long as there is room.
func (c *client) expect(b *batch, sub *subscription, name string) {
	if _, asked := sub.asked[name]; asked {
		return
	}
	if c.count(countAsked) >= c.maxNames {
		c.excess++
		b.excess = append(b.excess, excess{sub, name})
	}
	sub.asked[name] = ""
}

// unsubscribe ends interests. What still belongs to the wildcard is told once more: the
// client cannot know that it does.
func (c *client) unsubscribe(b *batch, sub *subscription, names []string) {
	for _, name := range names {
		if name == "*" {
			sub.wildcard = false
			for _, told := range sub.unasked() {
				delete(sub.told, told)
			}
			continue
		}
		orphan, ok := sub.drop(name)
		switch {
		case !ok || sub.told[orphan] == nil:
		case sub.wildcard:
			b.follow(sub, orphan, true)
		default:
			delete(sub.told, orphan)
		}
	}
}

// refresh returns what is to be told because of a new view. Changes say what differs;
// not known: anything may.
func (c *client) refresh(view View, changes map[string]Change, known bool) *batch {
	c.view = view
	b := c.batch()
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), inOrder) {
		change, sub := changes[typeURL], c.types[typeURL]
		if !known {
			change = Change{All: true, Every: true}
		}
		asked, unasked := sub.touched(change)
		if change.All && sub.wildcard {
			b.all(sub, false)
			unasked = nil
		}
		for _, name := range asked {
			b.name(sub, name, false)
		}
		for _, name := range unasked {
			b.follow(sub, name, false)
		}
	}
	c.remember(b)
	return b
}

// passes follows a view that has nothing to tell to this client, and reports whether it
// is one: for most clients most views are.
func (c *client) passes(view View, changes map[string]Change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for typeURL, change := range changes {
		if sub := c.types[typeURL]; sub != nil && sub.touches(change) {
			return false
		}
	}
	c.view = view
	return true
}

// remember hands the clusters that the client came to need to memory.
func (c *client) remember(b *batch) {
	if !c.proxy.OnDemand {
		return
	}
	var news []string
	for _, name := range b.used {
		if !c.stored[name] && len(c.stored) < c.maxNames {
			c.stored[name] = true
			news = append(news, name)
		}
	}
	if len(news) > 0 {
		c.memory.Store(c.workload, news)
	}
}

// written forgets what there was no room for.
func (c *client) written(b *batch) {
	for _, e := range b.excess {
		if orphan, ok := e.sub.drop(e.name); ok {
			delete(e.sub.told, orphan)
		}
	}
}
