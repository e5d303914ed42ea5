// Package phases measures the time that a pod took to get ready, and divides it into phases.
package phases

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A stretch is an interval of a phase, by the node's clock.
type stretch struct {
	name     result.PhaseName
	from, to evidence.Time
}

// Of returns the start of a pod. It measures each phase with one clock only: the schedule phase with the API server's
// clock, and all other phases with the node's clock. The other phases begin when the kubelet saw the pod. The time
// between the scheduling and that moment belongs to no phase, because it begins on one clock and ends on the other.
func Of(p *facts.Pod) *result.Start {
	o := p.Object
	out := &result.Start{State: state(p)}
	created, scheduled := evidence.Second(o.CreationTimestamp.Time, evidence.APIClock), p.Condition(corev1.PodScheduled, evidence.APIClock)
	if least, most, ok := scheduled.Since(created); ok && most > 0 {
		out.Phases = append(out.Phases, result.Phase{Name: result.SchedulePhase, From: 0, Took: elapsed(least, most)})
	}
	if o.Status.StartTime == nil || evidence.IsStatic(o) { // whose containers start before the object is created
		return out
	}
	seen, end := evidence.Second(o.Status.StartTime.Time, evidence.NodeClock), p.Taken
	if out.State == result.StartReady {
		end = p.Condition(corev1.PodReady, evidence.NodeClock)
	}
	var offset result.Elapsed
	if len(out.Phases) > 0 {
		offset = out.Phases[0].Took
	}
	if least, most, ok := end.Since(seen); ok && most > 0 && offset.Known() && (out.State == result.StartReady || out.State == result.StartNotReady) {
		took := elapsed(least, most)
		out.Took = result.Elapsed{Time: offset.Time + took.Time, Error: offset.Error + took.Error}
	}
	out.AtMost = out.State == result.StartReady && slices.ContainsFunc(p.Containers, func(c *evidence.Container) bool { return c.Restarts > 0 })
	if out.State != result.StartReady {
		end = evidence.Time{}
	}
	out.Phases = append(out.Phases, divide(stretches(p, seen, end), seen, offset.Time)...)
	return out
}

func state(p *facts.Pod) result.StartState {
	ready := slices.IndexFunc(p.Object.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	switch {
	case p.Object.Status.Phase == corev1.PodSucceeded, p.Object.Status.Phase == corev1.PodFailed:
		return result.StartEnded
	case ready < 0:
		return result.StartUnknown
	case p.Object.Status.Conditions[ready].Status == corev1.ConditionTrue:
		return result.StartReady
	}
	return result.StartNotReady
}

func elapsed(least, most time.Duration) result.Elapsed {
	return result.Elapsed{Time: max((least+most)/2, 0).Round(time.Millisecond), Error: ((most - least) / 2).Round(time.Millisecond)}
}

// stretches returns the phases whose beginning and end are known. They may overlap.
func stretches(p *facts.Pod, seen, ready evidence.Time) (out []stretch) {
	first := firstStart(p)
	sandbox := p.Condition(corev1.PodReadyToStartContainers, evidence.NodeClock)
	if first.Compare(sandbox) == evidence.Before { // the condition is about a later sandbox
		sandbox = evidence.Time{}
	}
	out = append(out, stretch{result.SandboxPhase, seen, sandbox})
	out = append(out, pulls(p)...)
	for _, c := range p.Containers {
		if r := c.Run(0); c.Kind == startup.Init && r != nil && len(c.Runs) > 0 {
			out = append(out, stretch{result.InitPhase, r.Started, c.Last().Finished})
		}
	}
	if len(p.Serving) > 0 && p.Serving[0].Number == 0 {
		out = append(out, stretch{result.ProxyPhase, p.Serving[0].Started, p.Serving[0].Ready.At})
	}
	if p.Journal != nil && p.Proxy != nil && p.Proxy.Restarts == 0 { // later entries belong to a later run
		for _, e := range p.Journal.Entries {
			if e.Kind == "wait" && !e.Failed {
				out = append(out, stretch{result.GatePhase, e.Begin, e.End})
			}
		}
	}
	for _, c := range p.Apps {
		if r := c.Run(0); r != nil {
			out = append(out, stretch{result.AppPhase, r.Started, ready})
		}
	}
	return slices.DeleteFunc(out, func(v stretch) bool {
		_, most, ok := v.to.Since(v.from)
		return !ok || most <= 0
	})
}

// firstStart returns the start of the first container whose start is known.
func firstStart(p *facts.Pod) (out evidence.Time) {
	for _, c := range p.Containers {
		if r := c.Run(0); r != nil && r.Started.Known() && (!out.Known() || r.Started.At.Before(out.At)) {
			out = r.Started
		}
	}
	return out
}

// pulls returns an interval for each image pull: from a container's event Pulling to its event Pulled.
func pulls(p *facts.Pod) (out []stretch) {
	begun := map[string]evidence.Time{}
	for _, e := range p.Events {
		switch {
		case e.Container == "" || e.First.Clock != evidence.NodeClock:
		case e.Reason == "Pulling" && !begun[e.Container].Known():
			begun[e.Container] = e.First
		case e.Reason == "Pulled" && begun[e.Container].Known() && !strings.Contains(e.Message, "already present"):
			out = append(out, stretch{result.ImagePhase, begun[e.Container], e.First})
			begun[e.Container] = evidence.Time{}
		}
	}
	return out
}

// precedence decides to which phase a moment belongs if phases overlap: the first phase of this list. For example,
// while an application waits at its gate, the phase is gate, even if the proxy is still starting.
var precedence = []result.PhaseName{result.SandboxPhase, result.ImagePhase, result.InitPhase, result.GatePhase, result.ProxyPhase, result.AppPhase}

// divide splits overlapping stretches, so that each moment belongs to at most one phase. seen is the moment when the
// kubelet saw the pod, and offset is the age of the pod at that moment.
func divide(all []stretch, seen evidence.Time, offset time.Duration) (out []result.Phase) {
	var cuts []evidence.Time
	for _, v := range all {
		cuts = append(cuts, v.from, v.to)
	}
	slices.SortStableFunc(cuts, func(a, b evidence.Time) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Error, b.Error)) })
	var merged []stretch
	for i := 1; i < len(cuts); i++ {
		from, to := cuts[i-1], cuts[i]
		at := slices.IndexFunc(precedence, func(p result.PhaseName) bool {
			return slices.ContainsFunc(all, func(v stretch) bool { return v.name == p && !v.from.At.After(from.At) && !v.to.At.Before(to.At) })
		})
		switch n := len(merged) - 1; {
		case !to.At.After(from.At) || at < 0:
		case n >= 0 && merged[n].name == precedence[at] && merged[n].to.At.Equal(from.At):
			merged[n].to = to
		default:
			merged = append(merged, stretch{precedence[at], from, to})
		}
	}
	for _, v := range merged {
		least, most, _ := v.to.Since(v.from)
		out = append(out, result.Phase{Name: v.name, From: offset + v.from.At.Sub(seen.At), Took: elapsed(least, most)})
	}
	return out
}
