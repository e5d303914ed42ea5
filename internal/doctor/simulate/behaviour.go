package simulate

import "time"

// A Behaviour is how the world behaves. The zero value: everything works at once,
// commands run for ever and end at once by SIGTERM.
type Behaviour struct {
	Kubernetes  int           // minor version; default: the newest supported
	Until       time.Duration // the simulation ends then; default 2 minutes
	Begins      time.Duration // the kubelet gets the pod then; shifts it against the relists
	Sandbox     time.Duration // that making one takes
	SandboxDies []time.Duration
	Deleted     time.Duration // at that time; 0: never
	Containers  map[string]Container
}

const defaultUntil = 2 * time.Minute

// A Container is how one container behaves.
type Container struct {
	Image        time.Duration // that a pull takes
	MissingUntil time.Duration // pulls that end before fail; Forever: all do
	CannotStart  bool

	Sleeps    time.Duration // before its command begins; a container whose sleep no edge counts on runs meanwhile
	Healthy   time.Duration // after its command began; Forever: never
	Sick      time.Duration // it becomes unhealthy, in its first life; 0: it does not
	SickFor   time.Duration // 0: until its end
	Ends      []End         // of its lives; the last one goes for all that follow
	EndsWith  []string      // with 0, once these have ended and will not be started again
	KilledAt  []time.Duration
	Stops     time.Duration // after SIGTERM; Forever: it ignores it
	PostStart Hook
	PreStop   time.Duration
	Calls     []Call
}

// Forever is a time that does not come.
const Forever = time.Duration(1<<63 - 1)

// An End is how a life ends, some time after the command began.
type End struct {
	After time.Duration // Forever: this life does not end by itself
	Code  int
}

// A Hook is how a postStart goes. The zero value returns when the container is
// healthy.
type Hook struct {
	Takes time.Duration // Forever: it hangs
	Fails bool
	Fixed bool   // it takes that long, whatever the health
	Polls string // instead, it waits for this container to be healthy, and fails after Takes

	GoesOn bool // with Polls: it does not fail then
}

// A Call is something that a container needs another one for.
type Call struct {
	To    string
	After time.Duration // its command began
	Every time.Duration // 0: once
	Exits bool          // if the call is refused, it ends with Code
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

// end is how life number n ends, if it does by itself.
func (c Container) end(n int) (End, bool) {
	if len(c.Ends) == 0 {
		return End{}, false
	}
	e := c.Ends[min(n, len(c.Ends)-1)]
	return e, e.After != Forever
}
