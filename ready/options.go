package ready

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// An Option is an option of [New] and [Wait]: a condition to wait for, or a setting. New returns an error for an
// invalid one.
type Option interface{ apply(*options) error }

// options collects the options of one call of New. A nil pointer means that the option was not given.
type options struct {
	conditions  []*condition
	proxy       *[]string
	timeout     *time.Duration
	policy      *Policy
	level       *Level
	every       *time.Duration
	attempt     *time.Duration
	log         *slog.Logger
	name        *string
	own, states *string
}

type option func(*options) error

func (o option) apply(to *options) error { return o(to) }

// once sets *to, or returns an error if *to has been set before.
func once[T any](name string, to **T, value T) error {
	if *to != nil {
		return fmt.Errorf("%s is given twice: give it once", name)
	}
	*to = &value
	return nil
}

// A Policy determines the result of a wait whose time, as set by [For], is over.
type Policy string

// The policies. Both are options.
const (
	Fail     Policy = "fail"     // the default: Wait returns an *Error
	Continue Policy = "continue" // Wait returns nil, and logs a warning with the missing conditions
)

func (p Policy) apply(o *options) error {
	if p != Fail && p != Continue {
		return fmt.Errorf("policy %q: want %s or %s", string(p), Fail, Continue)
	}
	return once("the policy", &o.policy, p)
}

// A Level is the part of the pod that must be ready before [Proxy] ends its wait.
type Level string

// The levels. Both are options that can be given together with [Proxy].
const (
	// Outbound means that the proxy serves, so that the application can call others. It is the default.
	Outbound Level = "outbound"

	// Full means that every application of the pod is healthy too. It is for a helper process in the pod: an
	// application whose own health depends on Full would wait for itself. Outrider and Dapr support it; with the
	// agent of another mesh, the wait fails at once.
	Full Level = "full"
)

func (l Level) apply(o *options) error {
	if l != Outbound && l != Full {
		return fmt.Errorf("level %q: want %s or %s", string(l), Outbound, Full)
	}
	return once("the level", &o.level, l)
}

// Proxy waits for the sidecar of this pod. Without arguments it detects the mesh as the package comment describes.
//
// With arguments it does not detect anything, and waits for everything that they name: "outrider", "istio", "linkerd",
// "dapr", the http:// or https:// URL of an agent's readiness, or unix:///PATH of the socket of Outrider's agent. The
// argument "none" means that there is no proxy, and must be alone.
func Proxy(at ...string) Option {
	return option(func(o *options) error { return once("ready.Proxy", &o.proxy, at) })
}

// On waits for dependencies, given by their addresses; see the package comment.
func On(targets ...string) Option {
	return option(func(o *options) error {
		if len(targets) == 0 {
			return errors.New("ready.On: no dependency is given")
		}
		for _, t := range targets {
			c, err := parseTarget(t)
			if err != nil {
				return err
			}
			o.conditions = append(o.conditions, c)
		}
		return nil
	})
}

// Check waits until ok returns nil. It calls ok repeatedly, but never twice at the same time. ok should return
// when its context ends; if it does not, the wait still ends in time. name is used in errors and in the log.
func Check(name string, ok func(context.Context) error) Option {
	return option(func(o *options) error {
		if name == "" || ok == nil {
			return errors.New("ready.Check: a name and a function are needed")
		}
		o.conditions = append(o.conditions, &condition{name: visible(name), remote: true, busy: make(chan struct{}, 1), check: func(ctx context.Context, _ *attempt) error { return ok(ctx) }})
		return nil
	})
}

// For limits the whole wait; default one minute. To wait without a limit, pass a long duration and a ctx that ends.
func For(d time.Duration) Option {
	return option(func(o *options) error { return positive("ready.For", &o.timeout, d) })
}

// Every sets the longest pause between two attempts; default 50 ms in the pod and 1 s elsewhere. The first pauses are
// shorter.
func Every(d time.Duration) Option {
	return option(func(o *options) error { return positive("ready.Every", &o.every, d) })
}

// Attempt limits the first attempt; default 1 s. The limit doubles for later ones, up to 10 s. A request that
// Outrider's agent holds may take longer.
func Attempt(d time.Duration) Option {
	return option(func(o *options) error { return positive("ready.Attempt", &o.attempt, d) })
}

func positive(name string, to **time.Duration, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s(%s): want more than 0", name, d)
	}
	return once(name, to, d)
}

// Log sets the logger; default slog.Default() at the time of each line.
func Log(l *slog.Logger) Option {
	return option(func(o *options) error {
		if l == nil {
			return errors.New("ready.Log(nil): want a logger; slog.New(slog.DiscardHandler) is silent")
		}
		if o.log != nil {
			return errors.New("ready.Log is given twice: give it once")
		}
		o.log = l
		return nil
	})
}

// Name sets the name under which this waiter appears in the journal of Outrider's agent; default: the names of the host
// and of the program.
func Name(name string) Option {
	return option(func(o *options) error {
		if name == "" || name != visible(name) {
			return fmt.Errorf("ready.Name(%q): want printable characters", name)
		}
		return once("ready.Name", &o.name, name)
	})
}

// StateDirs sets the directories of Outrider's files: this container's own directory, and the directory with the states
// of all containers. The default for each, also if it is empty, is the variable OUTRIDER_OWN or OUTRIDER_STATES, or
// else /outrider/own or /outrider/state.
func StateDirs(own, states string) Option {
	return option(func(o *options) error {
		for _, d := range []string{own, states} {
			if d != "" && !filepath.IsAbs(d) {
				return fmt.Errorf("ready.StateDirs: %q: want an absolute path", d)
			}
		}
		o.states = &states
		return once("ready.StateDirs", &o.own, own)
	})
}

// New returns a Waiter, or an error for invalid options. The Waiter does not wait before [Waiter.Wait], but can
// already serve as an HTTP handler.
func New(opts ...Option) (*Waiter, error) {
	var o options
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("ready: an option is nil")
		}
		if err := opt.apply(&o); err != nil {
			return nil, fmt.Errorf("ready: %w", err)
		}
	}
	w := &Waiter{
		timeout: valueOr(o.timeout, time.Minute), policy: valueOr(o.policy, Fail),
		every: valueOr(o.every, 0), limit: valueOr(o.attempt, 0),
		log: o.log, done: make(chan struct{}), missing: map[*condition]error{},
	}
	p := place{
		own:    cmp.Or(valueOr(o.own, ""), os.Getenv("OUTRIDER_OWN"), ownDir),
		states: cmp.Or(valueOr(o.states, ""), os.Getenv("OUTRIDER_STATES"), statesDir),
		level:  valueOr(o.level, Outbound), as: valueOr(o.name, ""),
	}
	if p.as == "" {
		host, _ := os.Hostname()
		p.as = visible(fmt.Sprintf("%s %s", host, filepath.Base(os.Args[0])))
	}
	switch {
	case o.proxy == nil && o.level != nil:
		return nil, fmt.Errorf("ready: level %s is the proxy's: add ready.Proxy()", *o.level)
	case o.proxy == nil && len(o.conditions) == 0:
		return nil, errors.New("ready: nothing to wait for: give ready.Proxy(), ready.On(...) or ready.Check(...)")
	}
	if o.proxy != nil {
		proxies, none, err := p.proxies(*o.proxy, os.Getenv)
		if err != nil {
			return nil, fmt.Errorf("ready: %w", err)
		}
		w.conditions, w.without = proxies, none
	}
	for _, c := range o.conditions {
		if c.in != nil {
			c.in(p)
		}
		w.conditions = append(w.conditions, c)
	}
	return w, nil
}

func valueOr[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
