package simulate

import "time"

// A Behaviour describes the environment of a pod and the behaviour of its containers. With the zero value everything
// succeeds without delay, and commands run forever and end immediately on SIGTERM.
type Behaviour struct {
	Kubernetes  int           // minor version; default: the newest supported
	Until       time.Duration // end of the simulation; default 2 minutes
	Begins      time.Duration // time at which the kubelet receives the pod; the times of its relists do not depend on it
	Sandbox     time.Duration // duration of the creation of a sandbox
	SandboxDies []time.Duration
	Deleted     time.Duration // time at which the pod is deleted; 0: never
	Containers  map[string]Container
}

const defaultUntil = 2 * time.Minute

// A Container describes the behaviour of one container.
type Container struct {
	Image        time.Duration // duration of a pull
	MissingUntil time.Duration // pulls that end before this time fail; Forever: all fail
	CannotStart  bool

	Sleeps    time.Duration // time before its command begins; if no edge relies on the sleep, the container counts as running meanwhile
	Healthy   time.Duration // time after its command began; Forever: never
	Sick      time.Duration // time after its first start at which it becomes unhealthy; 0: never
	SickFor   time.Duration // time for which it is unhealthy; 0: until it ends
	Ends      []End         // how each run of the command ends; the last element applies to all later runs
	EndsWith  []string      // it exits with 0 once these containers have ended and will not be restarted
	KilledAt  []time.Duration
	Stops     time.Duration // time after SIGTERM; Forever: it ignores SIGTERM
	PostStart Hook
	PreStop   time.Duration
	Calls     []Call
}

// Forever is a time that is never reached.
const Forever = time.Duration(1<<63 - 1)

// An End describes the end of one run of a command: the time since the command began, and the exit code.
type End struct {
	After time.Duration // Forever: this run does not end by itself
	Code  int
}

// A Hook describes the behaviour of a postStart hook. A hook with the zero value returns when the container is
// healthy.
type Hook struct {
	Takes time.Duration // Forever: it never returns
	Fails bool
	Fixed bool   // it returns after Takes, independently of health
	Polls string // it waits until this container is healthy, and fails after Takes

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

// end returns the end of run number n, or false if that run does not end by itself.
func (c Container) end(n int) (End, bool) {
	if len(c.Ends) == 0 {
		return End{}, false
	}
	e := c.Ends[min(n, len(c.Ends)-1)]
	return e, e.After != Forever
}
