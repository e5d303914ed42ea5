package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/supervise"
)

// current is the configuration with the changes since the start.
type current struct {
	level *slog.LevelVar // of the agent's log; nil: it does not change

	mu     sync.Mutex
	config config.Config
}

func (c *current) get() config.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config
}

func (c *current) set(to config.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = to
	if c.level != nil {
		c.level.Set(to.LogLevel)
	}
}

func (a *agent) stopOptions() config.Stop { return a.current.get().Stop }

// next returns the command of the next Envoy, with the current configuration, and writes its
// bootstrap.
func (a *agent) next(c supervise.Command) supervise.Command {
	o := envoyOptions(a.current.get())
	o.HotRestart = a.hotRestart()
	if a.renewal.renewed.Swap(false) {
		o.Node.Metadata[contract.MetadataRenewed] = "true"
	}
	c.Args = o.Args(a.bootstrap)
	text, err := o.Bootstrap()
	if err == nil {
		err = os.WriteFile(a.bootstrap, text, 0o600)
	}
	if err != nil { // Envoy starts with the previous bootstrap
		a.problem("writing Envoy's bootstrap", err)
	}
	return c
}

// A follower applies changes of the pod's annotations. If a running proxy cannot make a change,
// the follower logs the reason once. A mistake in the annotations changes nothing.
type follower struct {
	*agent
	in     config.Inputs
	before map[string]string // annotations at the start

	refused map[string]string // refused values, by setting
	noted   []string
	mistake string

	levels  []config.Change // changes of log levels that Envoy has not applied yet
	wanted  config.Envoy    // the configuration with these levels
	failure string          // the last error in setting them
}

// levelPause is the pause before log levels are sent again to an Envoy that did not answer, for
// example because it starts.
const levelPause = time.Second

func (a *agent) follow(ctx context.Context, in config.Inputs) {
	file := a.config.Annotations
	data, err := in.ReadFile(file)
	if err != nil {
		return // there are no annotations
	}
	f := &follower{agent: a, in: in, refused: map[string]string{}, noted: a.config.Notes}
	f.before, _ = config.Annotations(data) // the annotations were checked at the start
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // the file may have changed since it was read
	stop := wire.WatchFiles(time.Minute, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, file)
	defer stop()
	for {
		var again <-chan time.Time
		if len(f.levels) > 0 {
			again = time.After(levelPause)
		}
		select {
		case <-changed:
			f.read()
		case <-again:
		case <-ctx.Done():
			return
		}
		if len(f.levels) > 0 {
			f.setLevels(ctx)
		}
	}
}

// read reads the configuration again, and applies or refuses the changes.
func (f *follower) read() {
	in, now := f.in, f.before
	in.ReadFile = func(name string) ([]byte, error) {
		data, err := f.in.ReadFile(name)
		if name == f.config.Annotations && err == nil { // an error means that the file is being replaced
			now, _ = config.Annotations(data) // Read returns the error
		}
		return data, err
	}
	to, err := config.Read(in)
	if err != nil {
		if err.Error() != f.mistake { // report each error once
			f.mistake = err.Error()
			f.problem("changing the configuration", err)
		}
		return
	}
	f.mistake = ""
	runs := f.current.get()
	changes := config.Changes(runs, to, f.before, now)
	// Forget refusals of settings that were changed back.
	maps.DeleteFunc(f.refused, func(setting, _ string) bool {
		return !slices.ContainsFunc(changes, func(c config.Change) bool { return c.Setting == setting })
	})

	taken := config.Taken(runs, to)
	// The log levels are not taken yet: the next Envoy would not start with a level that it does
	// not know.
	taken.Envoy.Level, taken.Envoy.Components = runs.Envoy.Level, runs.Envoy.Components
	f.current.set(taken)
	f.levels, f.wanted = nil, to.Envoy
	for _, c := range changes {
		switch {
		case c.Refused != "":
			f.refuse(c)
		case c.OfEnvoysLog():
			f.levels = append(f.levels, c)
		default:
			f.accept(c)
		}
	}
	for _, note := range to.Notes {
		if !slices.Contains(f.noted, note) {
			f.log.Warn(note)
		}
	}
	f.noted = to.Notes
}

func (f *follower) accept(c config.Change) {
	args := []any{"setting", c.Setting, "from", c.From, "to", c.To}
	what := c.Setting + ": " + c.From + " to " + c.To
	if c.Later != "" {
		args = append(args, "later", c.Later)
		what += "; " + c.Later
	}
	f.log.Info("changed", args...)
	f.journal.Note("changed", what)
}

// refuse logs a refusal, once for each refused value.
func (f *follower) refuse(c config.Change) {
	if to, reported := f.refused[c.Setting]; reported && to == c.To {
		return
	}
	f.refused[c.Setting] = c.To
	f.log.Warn("change refused", "setting", c.Setting, "from", c.From, "to", c.To, "reason", c.Refused)
	f.journal.Fail("change refused", c.Setting+": "+c.From+" to "+c.To+"; "+c.Refused)
}

// setLevels sends the log levels to Envoy. If Envoy does not answer, they are sent again later.
// If Envoy does not know a level, the changes are refused.
func (f *follower) setLevels(ctx context.Context) {
	runs := f.current.get()
	err := f.admin.SetLevels(ctx, envoy.Log{Level: f.wanted.Level, Components: f.wanted.Components})
	var status *envoy.StatusError
	switch {
	case err == nil:
		runs.Envoy.Level, runs.Envoy.Components = f.wanted.Level, f.wanted.Components
		f.current.set(runs)
		for _, c := range f.levels {
			f.accept(c)
		}
	case errors.As(err, &status):
		for _, c := range f.levels {
			c.Refused = status.Error()
			f.refuse(c)
		}
		// Envoy may have applied some of the levels.
		f.problem("taking log levels back", f.admin.SetLevels(ctx, envoy.Log{Level: runs.Envoy.Level, Components: runs.Envoy.Components}))
	default:
		if err.Error() != f.failure { // report each error once
			f.failure = err.Error()
			f.problem("changing log levels, which is tried again", err)
		}
		return
	}
	f.levels, f.failure = nil, ""
}
