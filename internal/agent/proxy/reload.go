package proxy

import (
	"context"
	"maps"
	"os"
	"strings"
	"time"

	"outrider.dev/internal/agent/config"
	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/identity/watch"
)

// follow takes what changes in the pod's annotations while it runs. What Envoy takes at its
// start only is refused, with the reason; a mistake changes nothing.
func (a *agent) follow(ctx context.Context, in config.Inputs) {
	name := a.config.Annotations
	before, ok := annotations(name)
	if !ok {
		return // a host, or a pod without the file
	}
	changed := make(chan struct{}, 1)
	stop := watch.Files(time.Minute, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, name)
	defer stop()
	told := ""
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		now, ok := annotations(name)
		if !ok || maps.Equal(before, now) {
			continue
		}
		to, err := config.Read(in.Follow(before, now))
		if err != nil {
			if err.Error() != told { // each mistake once
				told = err.Error()
				a.problem("changing the configuration", err)
			}
			continue
		}
		told = ""
		a.take(ctx, to)
	}
}

func annotations(name string) (map[string]string, bool) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, false
	}
	out, err := config.Annotations(data)
	return out, err == nil
}

// take applies what differs.
func (a *agent) take(ctx context.Context, to config.Config) {
	a.changing.Lock()
	defer a.changing.Unlock()
	for _, c := range config.Changes(a.running, to) {
		what := c.Setting + ": " + c.From + " to " + c.To
		if c.Refused != "" {
			a.log.Warn("change refused", "setting", c.Setting, "from", c.From, "to", c.To, "reason", c.Refused)
			a.journal.Fail("change refused", what+"; "+c.Refused)
			continue
		}
		if strings.Contains(c.Setting, "log level") {
			if err := a.admin.SetLevels(ctx, envoy.Log{Level: to.Envoy.Level, Components: to.Envoy.Components}); err != nil {
				a.problem("changing log levels", err)
				continue
			}
		}
		a.log.Info("changed", "setting", c.Setting, "from", c.From, "to", c.To)
		a.journal.Note("changed", what)
	}
	a.running = to
}

// stopOptions are how to leave, as things stand now.
func (a *agent) stopOptions() config.Stop {
	a.changing.Lock()
	defer a.changing.Unlock()
	return a.running.Stop
}
