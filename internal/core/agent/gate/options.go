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

// Options of a gate. Command, Environ, Say and Explain are required; the zero value of any other field
// selects its default.
type Options struct {
	Place   state.Place
	Command []string

	After []startup.Edge      // the dependencies of the command
	At    map[string]*url.URL // health URLs of the containers that publish no record: see [ParseAddress]

	Probe        *Probe // decides whether the command is healthy
	StartupProbe *Probe // decides when the container has started up
	PostStart    *Hook
	Notify       Notify // how the command itself reports that it is ready

	// LivenessDelay is the time after the command's start during which failures of the
	// kubelet's liveness probe must not count.
	LivenessDelay time.Duration

	Restart  startup.Restart // whether the kubelet restarts the container when it ends
	HelperOf []string        // the gate ends when all of these containers have ended for good

	// StopGrace is the pod's grace period. It limits the time for which the command keeps running for its dependents
	// and its clients. Default 30s; if negative, the command gets SIGTERM at once.
	StopGrace time.Duration

	// PreStop: the container has a preStop hook, which delays its SIGTERM. The time since the first SIGTERM of
	// another container is taken off StopGrace.
	PreStop bool

	StopSignal syscall.Signal // the image's own stop signal, in addition to the usual ones

	// NotifySignal is sent to the command when a dependency was restarted, in addition to
	// [BackFile]. Default: none, because every signal can end some program.
	NotifySignal syscall.Signal

	// Release is called when the container stops. It ends the parking of connections to another mesh's proxy
	// (their first packets are dropped until the proxy listens), so that the kernel refuses them: the proxy
	// ends with the pod and will not listen again. It returns true if the gate must call it again, because a
	// proxy that still listens may have undone it. Default: nothing.
	Release func() (again bool)

	Say     func(string) // prints one line; called rarely
	Explain func(string) // writes the termination message: why the gate ended by itself

	// SecondLook is the interval at which a waiting gate reads the records without an event, because events can
	// be lost (on a volume that does not support sockets). Default 1s.
	SecondLook time.Duration

	Environ []string // the command's environment
}

// Exit statuses of a gate that ended by itself. As in a shell, 126 and 127 mean that the command
// cannot be run, and 128+n stands for signal n. Any other status is the command's own.
const (
	GaveUp       = 75 // the wait for a dependency timed out (EX_TEMPFAIL)
	FollowsOther = 76 // a dependency was restarted, so this container must restart too
	HookFailed   = 77 // the postStart hook failed
	NeverStarted = 78 // the startup probe did not succeed in time
	Unusable     = 1  // the gate cannot publish its state
)

const (
	defaultGrace      = 30 * time.Second // Kubernetes' default
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

// ParseAfter parses one dependency of container, written as in a plan: "cache is healthy,
// within 20s or continue".
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

// condition describes an edge as in a plan: "cache is healthy".
func condition(e startup.Edge) string { return e.From + " is " + string(e.After) }

// ParseAddress parses the URL of a container's health endpoint: http://HOST:PORT/PATH,
// http+unix://%2Fpath%2Fof.sock/PATH, or tcp://HOST:PORT for a container that is healthy when it accepts connections.
// The host localhost stands for the pod: its loopback addresses, or else its own.
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
	switch {
	case u.Scheme == tcpScheme && u.Port() != "" && u.Path == "":
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q: want http://HOST:PORT/PATH or tcp://HOST:PORT", text)
	}
	return u, nil
}

const (
	unixScheme = "http+unix"
	tcpScheme  = "tcp"
)
