package chain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// told returns the first event by which the kubelet tells a container to end, from the deletion of its pod on: the kubelet
// begins with all at once.
func (c *Case) told(deleted evidence.Time) (first evidence.Quote, is bool) {
	for _, e := range c.Events {
		if e.Reason != "Killing" || !strings.HasPrefix(e.Message, "Stopping container") || e.Last.Clock != evidence.NodeClock || e.Last.Compare(OnClock(deleted)) == evidence.Before {
			continue
		}
		if !is || e.Last.At.Before(first.At.At) {
			first, is = c.QuoteEvent(e, e.Last, e.Message), true
		}
	}
	return first, is
}

// EndedByStop says whether a run ended since the kubelet had told its container to end, whose pod is deleted, as far as the
// times tell. Only the last run can: none is started afterwards. A sidecar is told when all plain containers have ended.
func (c *Case) EndedByStop(container string, r evidence.Run) doctor.Answer {
	stop, stops := c.Stopped()
	of := c.Container(container)
	if !stops || !c.Deleted() || r.Running || of == nil || of.Last().Number != r.Number {
		return doctor.No
	}
	waits := func(o *evidence.Container) bool {
		return o.Kind == startup.Plain && o.Last() != nil && r.Finished.Compare(o.Last().Finished) == evidence.Before
	}
	if of.Kind == startup.Sidecar && slices.ContainsFunc(c.Containers, waits) {
		return doctor.No
	}
	switch r.Finished.Compare(OnClock(stop.At)) {
	case evidence.Before:
		return doctor.No
	case evidence.After:
		return doctor.Yes
	}
	return doctor.Perhaps
}

// StoppedIn reports whether a run ended since its pod was deleted: by the times or, as far as they tell, by a signal, or
// after its log said so.
func (c *Case) StoppedIn(container string, r evidence.Run) bool {
	ended := c.EndedByStop(container, r)
	said, told := c.Stops(container)
	return ended == doctor.Yes || ended == doctor.Perhaps && (bySignal(r) || told && BySignal.MatchString(said.Text))
}

// bySignal reports whether another program ended a run.
func bySignal(r evidence.Run) bool {
	if r.Exit == nil {
		return false
	}
	exit, _ := states.OfExit(*r.Exit)
	return exit.Outside
}

// outlivedUntilStop quotes the end of a run that is due to the end of its pod, if it had lived with a failed call: it ended
// by a signal, which no call sends, or after the stop that came after the call.
func (c *Case) outlivedUntilStop(y calls.Call, r evidence.Run) *evidence.Quote {
	ended := c.EndedByStop(y.Container, r)
	if ended == doctor.No || r.Exit == nil || *r.Exit == 0 {
		return nil
	}
	stop, _ := c.Stopped()
	if !bySignal(r) && (ended != doctor.Yes || y.Last.Compare(OnClock(stop.At)) != evidence.Before) {
		return nil
	}
	q := c.Quote(r.Finished, "%s ended when its pod was deleted", y.Container)
	return &q
}

// LeftEarlier reports whether the proxy of a deleted pod had ended before that, or before the run that made a call began: no
// container starts in a pod that is being stopped.
func (c *Case) LeftEarlier(left evidence.Time, caller *evidence.Run) bool {
	stop, _ := c.Stopped()
	return c.Deleted() && (left.Compare(OnClock(stop.At)) == evidence.Before && !c.ShouldEnd() || caller != nil && caller.Started.Compare(left) == evidence.After)
}

// YetUnready reports whether a call came in a run of the proxy that was not ready yet, and so refused it anyway.
func (c *Case) YetUnready(y calls.Call, last facts.Service) bool {
	if last.Ready.At.Known() {
		return y.Last.Compare(last.Ready.At) == evidence.Before
	}
	return c.unreadyAtStop(last)
}

// unreadyAtStop reports whether a run of the proxy had not been ready when its pod was deleted: its log has its beginning
// and no word of it, or is not among the evidence, and the pod was not ready before.
func (c *Case) unreadyAtStop(last facts.Service) bool {
	status := c.Status(c.Proxy.Name)
	if status == nil || status.Ready || !last.Running || last.Ready.At.Known() || !last.Began.At.Known() && c.Proxy.Log(last.Number) != nil {
		return false
	}
	stop, _ := c.Stopped()
	return slices.ContainsFunc(c.Object.Status.Conditions, func(v corev1.PodCondition) bool {
		return v.Type == corev1.PodReady && v.Status == corev1.ConditionFalse && evidence.Second(v.LastTransitionTime.Time, evidence.NodeClock).Compare(OnClock(stop.At)) == evidence.Before
	})
}

// LongUnready reports whether the proxy had run for long without being ready when its pod was deleted.
func (c *Case) LongUnready(last facts.Service) bool {
	return c.Proxy.Log(last.Number) != nil && c.unreadyAtStop(last) && c.Until().Sub(last.Started.At) >= facts.Settled
}

// Until returns the last moment of the evidence, or that in which the pod was told to end.
func (c *Case) Until() time.Time {
	if stop, stops := c.Stopped(); stops && stop.At.Known() && c.Deleted() {
		return stop.At.At
	}
	return c.Now()
}

// MadeUp reports whether the kubelet made up the end of a container that never ran, since its pod was deleted: of one that it
// lost, it says in lastState that it had run. Sources: status_manager.go TerminatePod, kubelet_pods.go
// convertToAPIContainerStatuses.
func (c *Case) MadeUp(of *evidence.Container) bool {
	status := c.Status(of.Name)
	return c.Deleted() && len(of.Runs) == 1 && of.Runs[0].Reason == "ContainerStatusUnknown" && of.Restarts == 0 && status != nil && status.LastTerminationState.Terminated == nil
}

// Awaited returns what a container waits for. Of a pod in deletion, the status no longer tells of a container that never ran
// what it waited for, and events may. Source: kubelet_pods.go convertToAPIContainerStatuses.
func (c *Case) Awaited(of *evidence.Container) *evidence.Waiting {
	w := of.Waiting
	if !c.Deleted() || len(of.Runs) > 0 && !c.MadeUp(of) || w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
		return w
	}
	for _, e := range c.Events {
		reason, is := strings.CutPrefix(e.Message, "Error: ")
		if m, known := states.Find(states.Waiting, reason, ""); is && known && m.Code != "" && e.Container == of.Name && e.Reason == "Failed" {
			w = &evidence.Waiting{Reason: reason}
		}
	}
	return w
}
