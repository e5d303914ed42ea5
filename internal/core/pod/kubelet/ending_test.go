package kubelet

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// did returns the actions of a pod after these events, without those that publish a status.
func did(p Pod, events ...Event) (out []string) {
	s := New(p, Minor(34))
	for _, e := range slices.Concat([]Event{{Kind: Added}, {Kind: SandboxReady, OK: true}}, events) {
		var actions []Action
		s, actions = s.Step(e)
		for _, a := range actions {
			if a.Kind != Publish && a.Kind != CreateSandbox {
				out = append(out, a.String())
			}
		}
	}
	return out
}

// If the pod is deleted, a pass that was decided before finishes first. Then the pod ends, with the grace period
// of the deletion.
func TestDeletion(t *testing.T) {
	app := func(kind EventKind, at time.Duration) Event {
		return Event{At: at, Kind: kind, Container: "app", OK: true}
	}
	answered := func(kind EventKind, which Which, at time.Duration, ok bool) Event {
		return Event{At: at, Kind: kind, Container: "app", Which: which, OK: ok}
	}
	deleted := func(at, grace time.Duration) Event { return Event{At: at, Kind: Deleted, Grace: grace} }
	started := []Event{app(Pulled, 0), app(Started, 0)}
	for name, tt := range map[string]struct {
		app    Container
		events []Event
		want   []string
	}{
		"while the image is pulled, it starts and is stopped": {Container{PostStart: Exec},
			[]Event{deleted(sec, 0), app(Pulled, 2*sec), app(Started, 3*sec), answered(HookReturned, PostStart, 4500*ms, true), {At: 9 * sec}},
			[]string{"0s pull app", "2s start app", "3s run-hook app postStart", "5s stop app"}},
		"while its hook runs and fails, it is killed once": {Container{PostStart: HTTPGet},
			append(slices.Clone(started), deleted(sec, 5*sec), answered(HookReturned, PostStart, 2*sec, false), Event{At: 40 * sec}),
			[]string{"0s pull app", "0s start app", "0s run-hook app postStart", "2s stop app", "32s kill app"}},
		"after a verdict that the worker has not seen, it is stopped all the same": {Container{Readiness: Probe{Handler: Exec}},
			append(slices.Clone(started), Event{At: 1500 * ms}, answered(ProbeAnswered, Readiness, 1500*ms, true), deleted(1600*ms, 0), Event{At: 9 * sec}),
			[]string{"0s pull app", "0s start app", "1s run-probe app readiness", "3s stop app"}},
		"with a grace period of its own": {Container{},
			append(slices.Clone(started), deleted(sec, 5*sec), Event{At: 20 * sec}),
			[]string{"0s pull app", "0s start app", "2s stop app", "7s kill app"}},
		"a second one without a grace period changes nothing": {Container{},
			append(slices.Clone(started), deleted(sec, 5*sec), deleted(sec, 0), Event{At: 20 * sec}),
			[]string{"0s pull app", "0s start app", "2s stop app", "7s kill app"}},
		"a second one with a grace period counts": {Container{},
			append(slices.Clone(started), deleted(sec, 5*sec), deleted(sec, 3*sec), Event{At: 20 * sec}),
			[]string{"0s pull app", "0s start app", "2s stop app", "5s kill app"}},
	} {
		tt.app.Name = "app"
		if diff := cmp.Diff(tt.want, did(Pod{Containers: []Container{tt.app}}, tt.events...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
