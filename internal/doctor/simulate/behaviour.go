package simulate

import "time"

// A Behaviour describes the world of a pod. Zero value: everything works at once, and commands run forever and end
// at once on SIGTERM.
type Behaviour struct {
	Kubernetes  int           // minor version; default: the newest supported
	Until       time.Duration // end of the simulation; default 2 minutes
	Begins      time.Duration // when the kubelet receives the pod, which shifts it relative to the relists
	Sandbox     time.Duration // duration of creating one
	SandboxDies []time.Duration
	Deleted     time.Duration // when the pod is deleted; 0: never
	Containers  map[string]Container
}

const defaultUntil = 2 * time.Minute

// A Container describes the behaviour of one container.
type Container struct {
	Image        time.Duration // duration of a pull
	MissingUntil time.Duration // pulls that end before this time fail; Forever: all fail
	CannotStart  bool

	Sleeps    time.Duration // time before its command begins; a sleep on which no edge relies happens while the container runs
	Healthy   time.Duration // time after its command began; Forever: never
	Sick      time.Duration // time at which its first life becomes unhealthy; 0: never
	SickFor   time.Duration // 0: until its life ends
	Ends      []End         // of its lives; the last one applies to all that follow
	EndsWith  []string      // it exits with 0 once these have ended and will not restart
	KilledAt  []time.Duration
	Stops     time.Duration // time after SIGTERM; Forever: it ignores SIGTERM
	PostStart Hook
	PreStop   time.Duration
	Calls     []Call
}

// Forever is a time that is never reached.
const Forever = time.Duration(1<<63 - 1)

// An End describes how a life ends, some time after the command began.
type End struct {
	After time.Duration // Forever: this life does not end by itself
	Code  int
}

// A Hook describes the run of a postStart hook. The zero value returns when the container is healthy.
type Hook struct {
	Takes time.Duration // Forever: it never returns
	Fails bool
	Fixed bool   // it takes that long regardless of health
	Polls string // instead it waits until this container is healthy, and fails after Takes

	GoesOn bool // with Polls: after Takes it succeeds instead of failing
}

// A Call is a request that a container makes to another one.
type Call struct {
	To    string
	After time.Duration // time after its command began
	Every time.Duration // 0: once
	Exits bool          // if the call is refused, the container exits with Code
	Code  int
}

func (c Container) names() []string {
	var out []string
	for _, call := range c.Calls {
		out = append(out, call.To)
	}
	if c.PostStart.Polls != "" {
		out = append(out, c.PostStart.Polls)
	}
	return append(out, c.EndsWith...)
}

// end returns how life number n ends, or false if it does not end by itself.
func (c Container) end(n int) (End, bool) {
	if len(c.Ends) == 0 {
		return End{}, false
	}
	e := c.Ends[min(n, len(c.Ends)-1)]
	return e, e.After != Forever
}
