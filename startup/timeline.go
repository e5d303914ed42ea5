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

// An Event is an event of a pod or of one of its containers. Events with the same time are in the order in which
// they happened.
type Event struct {
	Container   string        `json:"container,omitempty"` // empty for an event of the pod
	What        What          `json:"what"`
	At          time.Duration `json:"at"`                    // time since the kubelet received the pod
	Incarnation int           `json:"incarnation,omitempty"` // 0 for the first start, as in restartCount
	Detail      string        `json:"detail,omitempty"`      // for people
}

// A What is the kind of an event.
type What string

// Events of a container.
const (
	IsWaiting   What = "waiting"   // its gate or the kubelet holds it back
	IsStarted   What = "started"   // the real command runs
	IsHealthy   What = "healthy"   // as reported by its probe, its hook or itself
	IsUnhealthy What = "unhealthy" // it is no longer healthy
	IsStopping  What = "stopping"  // a stop signal was sent to it
	IsCompleted What = "completed" // it ended with exit code 0
	HasFailed   What = "failed"    // it ended with another exit code, or could not be started
	IsNotified  What = "notified"  // its gate notified it that a dependency has restarted
	IsRefused   What = "refused"   // a connection from it was refused
	HookFailed  What = "hook-failed"
)

// Events of the pod.
const (
	PodDeleted What = "deleted" // the deletion of the pod was requested, so its containers will be stopped
	NewSandbox What = "sandbox" // a new sandbox: the pod starts again from its first init container
	HasAddress What = "address" // the API has the pod's IP
)

// ends reports whether the container no longer runs after such an event.
func (w What) ends() bool { return w == IsCompleted || w == HasFailed }

// Sorted returns the events of t in the order of time. Events with the same time keep their order.
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
