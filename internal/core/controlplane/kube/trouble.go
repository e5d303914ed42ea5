package kube

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// troubles contains the operations that currently fail, by name. A failure is logged when it begins, changes
// and ends, not at each retry.
type troubles struct {
	log *slog.Logger

	mu  sync.Mutex
	now map[string]string
}

// note records the result of an operation.
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
		t.log.Warn("request to the API server failed; it is retried", "error", err)
	}
}

// forget removes an operation that will not be tried again.
func (t *troubles) forget(tried string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.now, tried)
}

// Trouble returns a sentence for each operation that currently fails, sorted.
func (c *Cluster) Trouble() []string {
	c.trouble.mu.Lock()
	defer c.trouble.mu.Unlock()
	return slices.Sorted(maps.Values(c.trouble.now))
}
