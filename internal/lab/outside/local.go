//go:build linux

package outside

import (
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/lab/localpod"
)

// Watch creates a view of a pod that will run with these options, and sets o.Line and o.Journal so that it
// records the pod. Functions that were set before are still called.
func Watch(o *localpod.Options, at time.Time) (*View, error) {
	v, err := New(&o.Pod, at)
	if err != nil {
		return nil, err
	}
	line, journal := o.Line, o.Journal
	o.Line = func(container, text string) {
		v.Line(container, time.Now(), text)
		if line != nil {
			line(container, text)
		}
	}
	o.Journal = func(e localpod.Entry) {
		if e.Kind == localpod.Received {
			v.entry(e, at.Add(e.At))
		}
		if journal != nil {
			journal(e)
		}
	}
	return v, nil
}

// entry records what an event of the kubelet changes in the status.
func (v *View) entry(e localpod.Entry, at time.Time) {
	switch kubelet.EventKind(e.What) {
	case kubelet.Started:
		if !e.Failed {
			v.Started(e.Container, at)
		}
	case kubelet.Exited:
		v.Ended(e.Container, at, *e.ExitCode)
	case kubelet.ProbeAnswered:
		if e.Which == kubelet.Readiness {
			v.Ready(e.Container, !e.Failed)
		}
	case kubelet.Deleted:
		v.Deleted(at)
	}
}
