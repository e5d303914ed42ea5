package kube

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// troubles are what does not work now, by what is tried. Each is logged when it comes,
// when it changes and when it ends: an API server that is away is asked often.
type troubles struct {
	log *slog.Logger

	mu  sync.Mutex
	now map[string]string
}

// note says how something went.
func (t *troubles) note(tried string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, was := t.now[tried]
	switch {
	case err == nil && was:
		delete(t.now, tried)
		t.log.Info("the API server answers again", "to", tried)
	case err != nil && (!was || before != err.Error()):
		if t.now == nil {
			t.now = map[string]string{}
		}
		t.now[tried] = err.Error()
		t.log.Warn("the API server does not do this now; it is tried again", "error", err)
	}
}

// forget is for what is not tried any more.
func (t *troubles) forget(tried string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.now, tried)
}

// Trouble returns what does not work now, as sentences; none: all is well.
func (c *Cluster) Trouble() []string {
	c.trouble.mu.Lock()
	defer c.trouble.mu.Unlock()
	return slices.Sorted(maps.Values(c.trouble.now))
}
