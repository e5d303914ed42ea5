package proxy

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/agent/config"
	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/agent/supervise"
	"outrider.dev/internal/wire"
)

// now is the configuration as changed since the start.
func (a *agent) now() config.Config {
	a.changing.Lock()
	defer a.changing.Unlock()
	return a.running
}

// stopOptions are how to leave, as things stand now.
func (a *agent) stopOptions() config.Stop { return a.now().Stop }

// next is how to start Envoy this time: with what has changed since the last one.
func (a *agent) next(c supervise.Command) supervise.Command {
	o := envoyOptions(a.now())
	c.Args = o.Args(a.bootstrap)
	text, err := o.Bootstrap()
	if err == nil {
		err = os.WriteFile(a.bootstrap, text, 0o600)
	}
	if err != nil { // with the one that is there
		a.problem("writing Envoy's bootstrap", err)
		return c
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	a.keeps = o.Stats
	return c
}

// shown is a filter of Envoy's statistics, where it keeps some that nobody wants any more.
func (a *agent) shown() string {
	a.changing.Lock()
	keeps, wants := a.keeps, envoyOptions(a.running).Stats
	a.changing.Unlock()
	filter := wants.Filter()
	if filter == keeps.Filter() || len(filter) > envoy.FilterLimit {
		return ""
	}
	return filter
}

// A follower takes what changes in the files that the configuration was read from: the
// pod's annotations, the mesh's defaultConfig, the user's bootstrap. What a running proxy
// cannot take is refused once, with the reason; a mistake changes nothing.
type follower struct {
	*agent
	in     config.Inputs
	before map[string]string // annotations at the start

	told    map[string]string // refused values, by setting
	noted   []string
	mistake string

	levels  []config.Change // what Envoy has not taken yet
	wanted  config.Envoy    // its levels
	failure string          // of giving them to it
}

// levelPause is how long to wait before log levels are offered to Envoy again that could
// not be reached: while it starts it is not heard from either.
const levelPause = time.Second

func (a *agent) follow(ctx context.Context, in config.Inputs) {
	var files []string
	first := in
	f := &follower{agent: a, in: in, told: map[string]string{}, noted: a.config.Notes}
	f.in.Running = &a.config
	first.ReadFile = func(name string) ([]byte, error) {
		data, err := in.ReadFile(name)
		if err == nil {
			files = append(files, name)
		}
		if name == a.config.Annotations {
			f.before, _ = config.Annotations(data)
		}
		return data, err
	}
	_, _ = config.Read(first) // it was checked
	if len(files) == 0 {
		return // nothing can change
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // since it was read
	stop := wire.WatchFiles(time.Minute, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, files...)
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

// read reads the configuration again, and takes or refuses what differs.
func (f *follower) read() {
	in, now := f.in, f.before
	in.ReadFile = func(name string) ([]byte, error) {
		data, err := f.in.ReadFile(name)
		if name == f.config.Annotations && err == nil { // else taken away, or on its way
			now, _ = config.Annotations(data) // a mistake is Read's
		}
		return data, err
	}
	to, err := config.Read(in)
	if err != nil {
		if err.Error() != f.mistake { // each once
			f.mistake = err.Error()
			f.problem("changing the configuration", err)
		}
		return
	}
	f.mistake = ""
	runs := f.now()
	changes := append(config.Changes(runs, to), f.in.Unread(to, f.before, now)...)
	f.forget(changes)

	taken := config.Taken(runs, to)
	// Those that Envoy does not know would end the next one.
	taken.Envoy.Level, taken.Envoy.Components = runs.Envoy.Level, runs.Envoy.Components
	f.commit(taken)
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
	f.note(to.Notes, changes)
}

// note tells what is new of what has no effect, unless it was refused for that.
func (f *follower) note(notes []string, changes []config.Change) {
	for _, note := range notes {
		refused := slices.ContainsFunc(changes, func(c config.Change) bool { return c.Refused != "" && strings.Contains(note, ": "+c.Setting) })
		if !refused && !slices.Contains(f.noted, note) {
			f.log.Warn(note)
		}
	}
	f.noted = notes
}

func (f *follower) commit(to config.Config) {
	f.changing.Lock()
	defer f.changing.Unlock()
	f.running = to
	if f.level != nil {
		f.level.Set(to.LogLevel)
	}
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

// refuse tells once.
func (f *follower) refuse(c config.Change) {
	if to, told := f.told[c.Setting]; told && to == c.To {
		return
	}
	f.told[c.Setting] = c.To
	f.log.Warn("change refused", "setting", c.Setting, "from", c.From, "to", c.To, "reason", c.Refused)
	f.journal.Fail("change refused", c.Setting+": "+c.From+" to "+c.To+"; "+c.Refused)
}

// forget forgets what was refused and differs no more.
func (f *follower) forget(changes []config.Change) {
	maps.DeleteFunc(f.told, func(setting, _ string) bool {
		return !slices.ContainsFunc(changes, func(c config.Change) bool { return c.Setting == setting })
	})
}

// setLevels gives Envoy the levels that are wanted. One that is not there gets them later;
// what it does not know is refused.
func (f *follower) setLevels(ctx context.Context) {
	runs := f.now()
	err := f.admin.SetLevels(ctx, envoy.Log{Level: f.wanted.Level, Components: f.wanted.Components})
	var status *envoy.StatusError
	switch {
	case err == nil:
		runs.Envoy.Level, runs.Envoy.Components = f.wanted.Level, f.wanted.Components
		f.commit(runs)
		for _, c := range f.levels {
			f.accept(c)
		}
	case errors.As(err, &status):
		for _, c := range f.levels {
			c.Refused = status.Error()
			f.refuse(c)
		}
		// It may have taken the one and not the other.
		f.problem("taking log levels back", f.admin.SetLevels(ctx, envoy.Log{Level: runs.Envoy.Level, Components: runs.Envoy.Components}))
	default:
		if err.Error() != f.failure { // each once
			f.failure = err.Error()
			f.problem("changing log levels, which is tried again", err)
		}
		return
	}
	f.levels, f.failure = nil, ""
}
