package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/startup"
)

// A deletion is the end of a simulated pod, and what a person has of it.
type deletion struct {
	at, grace time.Duration
	manners   map[string]manner
	events    bool   // the person has the events
	without   string // the container whose last log the person does not have
}

// A manner is how a program ends when it is told to.
type manner struct {
	code int32
	says string // a line of its log
}

// delete lets a pod be deleted at a random time. The evidence is of a random time from then on.
func (in *incident) delete(rng *rand.Rand, s Subject, b *simulate.Behaviour) {
	at := func(least, most time.Duration) time.Duration {
		return (least + time.Duration(rng.Int64N(int64(most-least)))).Round(time.Millisecond)
	}
	d := &deletion{at: at(2*time.Second, 90*time.Second), grace: time.Duration(*in.pod.Spec.TerminationGracePeriodSeconds) * time.Second, manners: map[string]manner{}, events: rng.IntN(2) == 0}
	if rng.IntN(5) == 0 {
		d.without = s.Names()[rng.IntN(len(s.Names()))]
	}
	in.deletion = d
	b.Deleted, b.Until = d.at, d.at+at(100*time.Millisecond, d.grace+8*time.Second)
	for _, c := range s.Plan.Containers {
		one := b.Containers[c.Name]
		if one.PostStart == (simulate.Hook{}) && c.Name == "istio-proxy" {
			one.PostStart = simulate.Hook{Polls: c.Name, Takes: time.Minute} // that of pilot-agent wait
		}
		switch rng.IntN(4) { // else it stops at once
		case 0:
			one.Stops = at(time.Second, d.grace-time.Second)
		case 1:
			one.Stops = simulate.Forever
		}
		if c.Name == "istio-proxy" {
			d.manners[c.Name] = manner{0, "info\tAgent draining Proxy for termination"}
			if rng.IntN(2) == 0 {
				one.Stops = 5*time.Second + at(0, 100*time.Millisecond)
			}
		} else {
			d.manners[c.Name] = []manner{{0, "info received SIGTERM, draining"}, {143, ""}, {0, ""}, {143, "info shutting down"}, {1, "error received SIGTERM, 3 jobs given up"}}[rng.IntN(5)]
		}
		if c.Kind == startup.Plain && c.Name != "istio-proxy" && rng.IntN(3) > 0 {
			one.Calls = append(one.Calls, simulate.Call{To: "istio-proxy", After: at(5*time.Second, 15*time.Second), Every: at(time.Second, 6*time.Second), Exits: rng.IntN(4) == 0, Code: 1})
		}
		b.Containers[c.Name] = one
	}
}

// begun returns the time at which the kubelet began to stop the containers, and false if it has not.
func (in *incident) begun() (time.Duration, bool) {
	if in.deletion == nil {
		return 0, false
	}
	var failed startup.Event // the last hook that did, for which the kubelet stops its container
	for _, e := range in.out.Timeline.Sorted() {
		switch {
		case e.What == startup.HookFailed:
			failed = e
		case e.What == startup.IsStopping && e.At >= in.deletion.at && (e.At != failed.At || e.Container != failed.Container):
			return e.At, true
		}
	}
	return in.out.End, in.out.Over
}

// terminating reports whether the pod's status is of the kubelet's last pass, which starts nothing again: a container that
// has failed is terminated then, instead of waiting for its next start, and one without an image is as if it never was
// tried. Source: kubelet_pods.go convertToAPIContainerStatuses; helpers.go ShouldContainerBeRestarted.
func (in *incident) terminating() bool {
	_, is := in.begun()
	return is
}

// published returns the runs of a container as the status has them. While the kubelet waits for the ends of the containers,
// it publishes none of them.
func (in *incident) published(name string) []simulatedRun {
	since, is := in.begun()
	if !is || in.out.Over {
		return in.runs[name]
	}
	all := slices.Clone(in.runs[name])
	for i := range all {
		if all[i].to > since {
			all[i].to, all[i].code = 0, 0
		}
	}
	return all
}

// phase returns the phase of the pod. The simulation does not have the exit codes of programs that are told to stop.
func (in *incident) phase(last simulate.Shown) corev1.PodPhase {
	failed := slices.ContainsFunc(in.pod.Spec.Containers, func(c corev1.Container) bool {
		all := in.runs[c.Name]
		return len(all) > 0 && all[len(all)-1].code != 0
	})
	if in.deletion != nil && in.out.Over && last.Phase == "Succeeded" && failed {
		return corev1.PodFailed
	}
	return corev1.PodPhase(last.Phase)
}

// madeUp changes the last status of a pod as the kubelet does: containers without an end get one.
// Source: status_manager.go TerminatePod, hasPodInitialized, initializedContainers.
func madeUp(st *corev1.PodStatus) {
	end := func(c *corev1.ContainerStatus) {
		if c.State.Terminated == nil {
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated"}}
		}
	}
	inits := st.InitContainerStatuses
	started := func(c corev1.ContainerStatus) bool {
		return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
	}
	done := len(inits) == 0 || inits[len(inits)-1].State.Terminated != nil && inits[len(inits)-1].State.Terminated.ExitCode == 0
	if done || slices.ContainsFunc(st.ContainerStatuses, started) {
		for i := range st.ContainerStatuses {
			end(&st.ContainerStatuses[i])
		}
	}
	n := len(inits)
	for n > 1 && !started(inits[n-1]) {
		n--
	}
	for i := range inits[:n] {
		end(&inits[i])
	}
}

// events returns the events of the end of the pod.
func (in *incident) events() string {
	var b strings.Builder
	add := func(container, kind, reason, message string, at time.Duration) {
		when := in.at(at).Format("2006-01-02T15:04:05Z")
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Event, metadata: {name: e%d, namespace: store}, involvedObject: {kind: Pod, namespace: store, name: %s, fieldPath: \"spec.containers{%s}\"}, type: %s, reason: %s, message: %q, count: 1, source: {component: kubelet}, firstTimestamp: %q, lastTimestamp: %q}\n",
			b.Len(), in.pod.Name, container, kind, reason, message, when, when)
	}
	for _, p := range in.out.Pulls {
		if p.Failed {
			add(p.Container, "Warning", "Failed", "Error: ErrImagePull", p.To)
		}
	}
	if since, is := in.begun(); is {
		for _, c := range slices.Concat(in.pod.Spec.InitContainers, in.pod.Spec.Containers) {
			for _, r := range in.runs[c.Name] {
				if r.from <= since && (!r.ended() || r.to >= since) {
					add(c.Name, "Normal", "Killing", "Stopping container "+c.Name, since)
				}
			}
		}
	}
	return b.String()
}

// late reports whether a call came after the end of a proxy that was told to stop, since its pod was deleted.
func (in *incident) late(at time.Duration) bool {
	all := in.runs["istio-proxy"]
	since, is := in.begun()
	if !is || len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return last.stopped && last.told >= since && last.ended() && at >= last.to
}

// early returns the refused calls of a run that are not of the end of the pod.
func (in *incident) early(r simulatedRun) (out []time.Duration) {
	for _, at := range r.refused {
		if !in.late(at) {
			out = append(out, at)
		}
	}
	return out
}

// outlived reports whether a run was killed, since the grace period of its pod was over.
func (in *incident) outlived(r simulatedRun) bool {
	return in.deletion != nil && r.stopped && r.code == 137 && r.to >= in.deletion.at+min(in.deletion.grace, 2*time.Second)
}

// stoppedWell reports whether a run ended since it was told to.
func (in *incident) stoppedWell(name string, r simulatedRun) bool {
	return in.outlived(r) || in.deletion != nil && r.stopped && r.code == in.deletion.manners[name].code
}

// atTheEnd changes the causes to those that the evidence of a deleted pod shows.
func (in *incident) atTheEnd(out map[string]bool) map[string]bool {
	since, stopping := in.begun()
	proxy := in.shown("istio-proxy")
	n := len(proxy) - 1
	served := n >= 0 && proxy[n].ready != 0
	for name := range in.runs {
		all := in.shown(name)
		for i, r := range all {
			if late := len(in.early(r)) < len(r.refused); late && served && !in.lacks(name, i == len(all)-1) {
				out["shutdown-race "+name] = true
			}
		}
		if in.lacks(name, true) && !slices.ContainsFunc(all[:len(all)-1], func(r simulatedRun) bool { return len(in.early(r)) > 0 }) {
			for _, code := range []string{"startup-race ", "hold-fails-open "} {
				delete(out, code+name)
			}
		}
	}
	if stopping && !in.deletion.events {
		for _, p := range in.out.Pulls {
			delete(out, "image-missing "+p.Container)
		}
	}
	if n >= 0 && !served && proxy[n].from+time.Minute < since && !in.out.Over && (!proxy[n].ended() || proxy[n].to >= since) && !in.lacks("istio-proxy", true) {
		out["proxy-not-ready"] = true
	}
	return out
}

// lacks reports whether the log of a run is not among the evidence.
func (in *incident) lacks(name string, last bool) bool {
	return last && in.deletion.without == name
}

// besides returns causes that the evidence of a deleted pod may show, too.
func (in *incident) besides() map[string]bool {
	out := map[string]bool{}
	if in.deletion == nil {
		return out
	}
	since, _ := in.begun()
	proxy := in.runs["istio-proxy"]
	n := len(proxy) - 1
	for name := range in.runs {
		for _, r := range in.shown(name) {
			if in.deletion.without == name && len(r.refused) > 0 {
				out["startup-race "+name], out["shutdown-race "+name], out["app-crash "+name] = true, true, true
			}
			if r.stopped && r.code == 137 {
				out["grace-too-short "+name] = true
			}
			f := in.fates[name]
			ownEnd := r.ended() && r.code != 0 && r.to >= since && r.code == f.code && !in.stoppedWell(name, r)
			switch {
			case ownEnd && name == "istio-init":
				out["capture-not-in-place"] = true
			case ownEnd && name == "istio-proxy":
				out["proxy-died"], out["proxy-out-of-memory"] = true, true
			case ownEnd:
				out["app-crash "+name], out["out-of-memory "+name] = true, true
			}
			if len(in.early(r)) < len(r.refused) && proxy[n].ready == 0 {
				out["startup-race "+name], out["shutdown-race "+name] = true, true
			}
			if n >= 0 && proxy[n].ended() && proxy[n].to >= since && !proxy[n].stopped && len(r.refused) > 0 {
				out["shutdown-race "+name] = true
			}
		}
	}
	if n >= 0 && (!proxy[n].ended() || proxy[n].to >= since) && proxy[n].ready == 0 {
		out["proxy-not-ready"] = true
	}
	for _, p := range in.out.Pulls {
		if p.Failed {
			out["image-missing "+p.Container] = true
		}
	}
	return out
}
