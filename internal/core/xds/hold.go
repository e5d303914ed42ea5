package xds

import (
	"maps"
	"slices"
	"time"
)

// maxHeld limits how many names of one client may have a delayed first response. Beyond the limit, responses are
// sent at once, for example to an application that scans addresses.
const maxHeld = 100

// A heldName is a subscribed name that is not answered yet.
type heldName struct {
	typeURL, name string
}

// hold reports whether the first response for a name is still delayed. The delay ends with a change of the
// resource, or with the duration wait, which begins with the first call.
func (c *client) hold(sub *subscription, name string, wait time.Duration) bool {
	key := heldName{sub.typeURL, name}
	switch until, held := c.held[key]; {
	case wait > 0 && held:
		return time.Now().Before(until)
	case wait <= 0 || !c.unsolicited || sub.has(name) || len(c.held) >= maxHeld:
		delete(c.held, key)
		return false
	}
	if c.held == nil {
		c.held = map[heldName]time.Time{}
	}
	c.held[key] = time.Now().Add(wait)
	return true
}

// nextDue returns the time at which the first held name must be answered; false if no name is held.
func (c *client) nextDue() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	for _, until := range c.held {
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first, !first.IsZero()
}

// due returns the response for the held names that have waited long enough.
func (c *client) due() *response {
	r, now := c.newResponse(), time.Now()
	for _, key := range slices.SortedFunc(maps.Keys(c.held), func(a, b heldName) int { return compareTypes(a.typeURL+a.name, b.typeURL+b.name) }) {
		if c.held[key].After(now) {
			continue
		}
		if sub := c.subscription(key.typeURL); sub.subscribed(key.name) {
			r.addName(sub, key.name, true)
		}
		delete(c.held, key)
	}
	c.recordUsed(r)
	return r
}
