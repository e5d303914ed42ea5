package xds

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/base/contract"
)

// A client is the state of one stream. The stream's goroutine changes it, and other goroutines read it for the
// status; both hold the lock.
type client struct {
	id       uint64
	protocol string // name of the protocol, for the status
	proxy    *Proxy
	workload Workload
	since    time.Time

	prewarm      *PrewarmCache
	peer         *peer
	counted      int // names of this stream that are counted for its peer
	maxNames     int
	maxPeerNames int
	unsolicited  bool // resources may be sent without a subscription

	mu        sync.Mutex
	snapshot  Snapshot
	types     map[string]*subscription
	expected  []string // clusters, from prewarm; nil until they are read
	overLimit int      // names beyond maxNames, which were answered but get no updates
	adopted   int      // number of names that the client has from an earlier stream, with their versions
	nonces    uint64
	away      []byte                 // the last value of [Snapshot.Away] that was sent
	held      map[heldName]time.Time // when the response for the name is due
}

// A subscriptionChange is the change that a request makes to the subscription to one type.
type subscriptionChange struct {
	typeURL         string
	subscribe       []string // "*" is the wildcard
	unsubscribe     []string
	initialVersions map[string]string // resources that the client has from an earlier stream, by name
	resend          bool              // a request without names: send the resources of the wildcard again
}

// subscription returns the subscription to a type, which it creates if need be.
func (c *client) subscription(typeURL string) *subscription {
	s := c.types[typeURL]
	if s == nil {
		s = newSubscription(typeURL)
		c.types[typeURL] = s
	}
	return s
}

func (c *client) newResponse() *response {
	return &response{client: c, types: map[string]*typeResponse{}}
}

// named looks a name up in the snapshot.
func (c *client) named(typeURL, name string) Bundle { return c.snapshot.Named(c.proxy, typeURL, name) }

// count sums up a number over all types.
func (c *client) count(of func(*subscription) int) int {
	n := 0
	for _, s := range c.types {
		n += of(s)
	}
	return n
}

func countSubscribed(s *subscription) int { return len(s.names) }
func countBytes(s *subscription) int      { return s.bytes }

// names returns how many names are stored for this stream.
func (c *client) names() int { return c.count(countSubscribed) + c.adopted }

// expectedClusters returns the clusters to which earlier pods of the workload subscribed. They do not
// change during a stream.
func (c *client) expectedClusters() []string {
	if c.expected == nil && !c.proxy.GRPC {
		if c.proxy.Metadata[contract.MetadataRenewed] == "" {
			c.expected = c.prewarm.Get(c.workload)
		}
		if c.expected == nil {
			c.expected = []string{}
		}
	}
	return c.expected
}

// subscribe applies a change and returns the response.
func (c *client) subscribe(change subscriptionChange) (*response, error) {
	if c.types[change.typeURL] == nil && len(c.types) >= maxTypes {
		return nil, status.Errorf(codes.ResourceExhausted, "type_url: %q is one type too many: a stream may have %d", change.typeURL, maxTypes)
	}
	if err := checkNames(change); err != nil {
		return nil, err
	}
	sub, r := c.subscription(change.typeURL), c.newResponse()
	r.names = len(change.subscribe) + len(change.unsubscribe) + len(change.initialVersions)
	wildcard, reconnected, first := change.resend, false, !sub.started
	if first {
		sub.started = true
		clear(sub.sent) // Envoy drops resources that arrive before it subscribes to the type
		wildcard = wildcard || len(change.subscribe) == 0
		reconnected = c.adopt(sub, change.initialVersions)
	}
	c.unsubscribe(r, sub, change.unsubscribe)
	names := make([]string, 0, len(change.subscribe))
	for _, name := range change.subscribe {
		if name == "*" {
			wildcard = true
			continue
		}
		c.addName(r, sub, name)
		names = append(names, name)
	}
	if wildcard || len(names) > 0 {
		r.of(sub).required = true
	}
	if wildcard {
		sub.wildcard = true
		r.addWildcard(sub, change.resend)
	} else if reconnected {
		for _, name := range sub.unsolicited() {
			r.refresh(sub, name, false)
		}
	}
	for _, name := range names {
		r.addName(sub, name, true)
	}
	if first && wildcard && !reconnected && sub.typeURL == ClusterType {
		c.addAhead(r)
	}
	c.recordUsed(r)
	return r, nil
}

// addAhead sends a starting proxy the types to which it will subscribe next. This saves two round trips: Envoy
// subscribes to a type while it processes the previous message, so the resources usually arrive right after the
// subscription. Because Envoy drops those that arrive earlier, the same resources are sent again in response to
// the subscription.
func (c *client) addAhead(r *response) {
	if c.proxy.GRPC || !c.proxy.Relayed {
		return
	}
	for _, typeURL := range []string{ListenerType, RouteType} {
		r.addWildcard(c.subscription(typeURL), false)
	}
}

// adopt records the resources that the client has from an earlier stream, and reports whether there are
// any.
func (c *client) adopt(sub *subscription, versions map[string]string) bool {
	room, bytes := c.peer.room(c)-c.adopted, c.count(countBytes)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if bytes += len(name); room <= 0 || bytes > c.maxNames*bytesPerName {
			break
		}
		if !sub.has(name) {
			sub.sent[name] = versions[name]
			c.adopted++
			room--
		}
	}
	return len(versions) > 0
}

// addName subscribes to a name. A name beyond the limit is dropped after the response.
func (c *client) addName(r *response, sub *subscription, name string) {
	if sub.subscribed(name) {
		return
	}
	if c.count(countSubscribed) >= c.peer.room(c) || c.count(countBytes)+len(name) > c.maxNames*bytesPerName {
		c.overLimit++
		r.overLimit = append(r.overLimit, subscribedName{sub, name})
	}
	sub.add(name)
}

// unsubscribe removes names. A resource that still belongs to the wildcard is sent again, because the client
// cannot know that the wildcard contains it.
func (c *client) unsubscribe(r *response, sub *subscription, names []string) {
	for _, name := range names {
		if name == "*" {
			sub.wildcard = false
			for _, name := range sub.unsolicited() {
				delete(sub.sent, name)
			}
			continue
		}
		sub.remove(name)
		switch {
		case !sub.has(name):
		case sub.wildcard:
			r.refresh(sub, name, true)
		default:
			delete(sub.sent, name)
		}
	}
}

// push returns the response to a new snapshot. If the changes are unknown, everything that was sent is
// compared.
func (c *client) push(snapshot Snapshot, changes map[string]Change, known bool) *response {
	c.snapshot = snapshot
	r := c.newResponse()
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), compareTypes) {
		change, sub := changes[typeURL], c.types[typeURL]
		if !known {
			change = Change{Wildcard: true, AllNames: true}
		}
		change.AllNames = change.AllNames || change.For != nil && change.For(c.proxy)
		subscribed, unsolicited := sub.affected(change)
		if change.Wildcard && sub.wildcard {
			r.addWildcard(sub, false)
			unsolicited = nil
		}
		for _, name := range subscribed {
			r.addName(sub, name, false)
		}
		for _, name := range unsolicited {
			r.refresh(sub, name, false)
		}
	}
	c.recordUsed(r)
	return r
}

// recordUsed records in the prewarm cache which clusters the client has begun to use.
func (c *client) recordUsed(r *response) {
	if !c.proxy.GRPC && len(r.used) > 0 {
		c.prewarm.Add(c.workload, r.used)
	}
}

// dropOverLimit ends the subscriptions beyond the limit, after they are answered.
func (c *client) dropOverLimit(r *response) {
	for _, n := range r.overLimit {
		n.sub.remove(n.name)
		delete(n.sub.sent, n.name)
	}
}
