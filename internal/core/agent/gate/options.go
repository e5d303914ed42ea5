package gate

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// Options of a gate. Command, Environ, Say and Explain are required; the zero value of another field
// means its default.
type Options struct {
	Place   state.Place
	Command []string

	After []startup.Edge      // what the command waits for
	At    map[string]*url.URL // by container that publishes no record: see [ParseAddress]

	Probe        *Probe // succeeds when the command is healthy
	StartupProbe *Probe // until it succeeds the container has not started
	PostStart    *Hook
	Notify       Notify // how the command itself reports that it is ready

	// LivenessDelay is for how long after the command's start the kubelet's liveness probe must
	// not count.
	LivenessDelay time.Duration

	Restart  startup.Restart // what the kubelet does when the container ends
	HelperOf []string        // ends when all of these have ended for good

	// StopGrace is what is left of the pod's grace period when SIGTERM comes: the command
	// is kept for its dependents for that long at most. Default 30s; negative: not at all.
	StopGrace time.Duration

	// PreStop: the container has a preStop hook, so its SIGTERM comes late.
	PreStop bool

	StopSignal syscall.Signal // of the image, beside the usual ones

	// NotifySignal notifies the command that a dependency is back, besides [BackFile].
	// Default: none, because every signal can end some program.
	NotifySignal syscall.Signal

	// Release ends the parking of connections to another mesh's proxy, which leaves with the pod. It
	// reports whether a listener that was still there may have undone that. Default: nothing.
	Release func() (again bool)

	Say     func(string) // prints one line, rarely
	Explain func(string) // why the gate ended by itself, for the termination message

	// SecondLook is how often a gate that waits reads the records without an event, in case
	// an event was lost (a volume without sockets); default 1s.
	SecondLook time.Duration

	Environ []string // of the command
}

// Exit statuses of a gate that ended by itself. 126 and 127 are a command that cannot be
// run, as shells have it, 128+n is signal n; anything else is the command's own.
const (
	GaveUp       = 75 // it waited for long enough (EX_TEMPFAIL)
	FollowsOther = 76 // a dependency was restarted, and so must this container be
	HookFailed   = 77 // the postStart hook failed
	NeverStarted = 78 // the startup probe failed for too long
	Unusable     = 1  // it cannot publish its state
)

const (
	defaultGrace      = 30 * time.Second // Kubernetes' own
	defaultSecondLook = time.Second
)

func (o Options) complete() (Options, error) {
	if o.StopGrace == 0 {
		o.StopGrace = defaultGrace
	}
	if o.Release == nil {
		o.Release = func() bool { return false }
	}
	if o.SecondLook <= 0 {
		o.SecondLook = defaultSecondLook
	}
	if o.Probe != nil && o.Notify.By != "" {
		return o, fmt.Errorf("healthy by a probe and by a notification: one of them")
	}
	return o, nil
}

// ParseAfter reads what container waits for: the end of a statement of a plan's text, as
// "cache is healthy, within 20s or continue".
func ParseAfter(container, text string) (startup.Edge, error) {
	e, err := startup.ParseEdge(container + " after " + text)
	switch {
	case err != nil:
		return startup.Edge{}, fmt.Errorf("%q: %w; want as in \"cache is healthy, within 20s or continue\"", text, err)
	case e.From == startup.Everything || e.To == startup.Everything:
		return e, fmt.Errorf("%q: a gate waits for one container by its name, not for %q", text, startup.Everything)
	case e.From == e.To:
		return e, fmt.Errorf("%q: %s waits for itself", text, e.To)
	}
	return e, nil
}

// condition is an edge as the end of a statement.
func condition(e startup.Edge) string { return e.From + " is " + string(e.After) }

// ParseAddress reads the URL of a container's health: http://HOST:PORT/PATH, or
// http+unix://%2Fpath%2Fof.sock/PATH.
func ParseAddress(text string) (*url.URL, error) {
	if path, ok := strings.CutPrefix(text, unixScheme+"://"); ok {
		socket, rest, _ := strings.Cut(path, "/")
		socket, err := url.PathUnescape(socket)
		if err != nil || !strings.HasPrefix(socket, "/") {
			return nil, fmt.Errorf("%q: want %s://%%2Fpath%%2Fof.sock/path", text, unixScheme)
		}
		u, err := url.Parse("http://unix/" + rest)
		if err != nil {
			return nil, err
		}
		u.Scheme, u.Opaque = unixScheme, socket
		return u, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q: want http://HOST:PORT/PATH", text)
	}
	return u, nil
}

const unixScheme = "http+unix"
