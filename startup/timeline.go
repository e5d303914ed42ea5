package startup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Timeline lists the events of one pod, in the order of time.
type Timeline []Event

// An Event is one event of a pod or of a container. Events at the same instant are in the order in which
// they happened.
type Event struct {
	Container   string        `json:"container,omitempty"` // empty: the pod
	What        What          `json:"what"`
	At          time.Duration `json:"at"`                    // since the pod was given to the kubelet
	Incarnation int           `json:"incarnation,omitempty"` // 0 is the first start, as in restartCount
	Detail      string        `json:"detail,omitempty"`      // for people
}

// A What is the kind of an event.
type What string

// Events of a container.
const (
	IsWaiting   What = "waiting"   // its gate, or the kubelet, holds it
	IsStarted   What = "started"   // the real command runs
	IsHealthy   What = "healthy"   // as its own probe, hook or report says
	IsUnhealthy What = "unhealthy" // it was healthy and no longer is
	IsStopping  What = "stopping"  // it was sent its stop signal
	IsCompleted What = "completed" // it ended, exit code 0
	HasFailed   What = "failed"    // it ended with another exit code, or could not be started
	IsNotified  What = "notified"  // it was told that a dependency restarted
	IsRefused   What = "refused"   // a connection that it made was refused
	HookFailed  What = "hook-failed"
)

// Events of the pod.
const (
	PodDeleted What = "deleted" // its containers are to stop
	NewSandbox What = "sandbox" // the pod starts again from its first init container
	HasAddress What = "address" // its IP is in the API
)

// ends reports whether a container no longer runs after an event of this kind.
func (w What) ends() bool { return w == IsCompleted || w == HasFailed }

// Sorted returns t in the order of time. Events at the same instant keep their order.
func (t Timeline) Sorted() Timeline {
	return slices.SortedStableFunc(slices.Values(t), func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// String returns the timeline as lines of text, for the failure messages of tests.
func (t Timeline) String() string {
	var b strings.Builder
	for _, e := range t {
		subject := e.Container
		if subject == "" {
			subject = "pod"
		}
		if e.Incarnation > 0 {
			subject += fmt.Sprintf("#%d", e.Incarnation)
		}
		fmt.Fprintf(&b, "%8.3fs %-16s %s", e.At.Seconds(), subject, e.What)
		if e.Detail != "" {
			b.WriteString(" (" + e.Detail + ")")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
