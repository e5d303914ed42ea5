package gates

import (
	"slices"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

const sec = time.Second

// A story is a sequence of events in a pod's containers. The tests here are few, because the scenarios of package
// simulate and the explorations of package verify cover most of a gate's behaviour.
type story struct {
	State
}

func newStory(t *testing.T, plan string) *story {
	t.Helper()
	p, err := startup.Parse(plan)
	if err != nil {
		t.Fatal(err)
	}
	return &story{New(p, Gate{})}
}

func (st *story) follow(e kubelet.Event, what startup.What, at time.Duration) {
	st.State, _ = st.Follow(e, startup.Timeline{{Container: e.Container, What: what, At: at}})
}

func (st *story) started(name string, at time.Duration) {
	st.follow(kubelet.Event{Kind: kubelet.Started, Container: name, OK: true}, startup.IsStarted, at)
}

func (st *story) ended(name string, code int, at time.Duration) {
	st.follow(kubelet.Event{Kind: kubelet.Exited, Container: name, Code: code}, startup.HasFailed, at)
}

func TestAnOptionalProxyIsAbsent(t *testing.T) {
	const plan = "app after proxy is healthy, by gate, optional"
	if !newStory(t, "container app is plain\n"+plan).MayRun("app", 0) {
		t.Error("app waits for a container that the pod lacks")
	}
	st := newStory(t, plan+"\nproxy after db is started, by gate")
	st.started("proxy", 0)
	if st.MayRun("app", 0) {
		t.Error("app does not wait for a proxy that waits at its own gate")
	}
	if st.ended("proxy", Killed, sec); !st.MayRun("app", sec) {
		t.Error("app waits for a proxy that was killed at its own gate")
	}
}

func TestAGateGivesUpAtItsTimeout(t *testing.T) {
	st := newStory(t, "app after proxy is healthy, within 5s, by gate")
	if next, ok := st.Next(0); ok {
		t.Errorf("Next is %s before the gate waits", next)
	}
	st.started("app", 2*sec)
	if next, ok := st.Next(2 * sec); !ok || next != 7*sec {
		t.Errorf("Next is %s, %v, want 7s", next, ok)
	}
	if st.GivesUp("app", 6*sec) || !st.GivesUp("app", 7*sec) {
		t.Error("it does not give up at 7s")
	}
}

func TestStoppingWaitsForTheDependents(t *testing.T) {
	st := newStory(t, "app after proxy is started, by gate")
	st.started("proxy", 0)
	st.started("app", sec)
	if st.HoldsStop("proxy") {
		t.Error("a kill of one container, not of the pod, is held")
	}
	st.follow(kubelet.Event{}, startup.PodDeleted, 2*sec)
	if !st.HoldsStop("proxy") || st.HoldsStop("app") {
		t.Error("the pod stops, and proxy does not wait for app")
	}
	if st.ended("app", 1, 3*sec); st.HoldsStop("proxy") {
		t.Error("app has ended, and proxy still waits")
	}
}

// A proxy without a gate and without a preStop hook that waits gets SIGTERM with the others.
func TestAProxyThatLeavesFirst(t *testing.T) {
	for options, holds := range map[string]bool{"": true, ", stops at once": false} { // any order: two tests
		st := newStory(t, "container proxy is plain, healthy by report"+options+"\ncontainer app is plain\napp after proxy is started, by gate")
		st.started("proxy", 0)
		st.started("app", sec)
		st.follow(kubelet.Event{}, startup.PodDeleted, 2*sec)
		if st.HoldsStop("proxy") != holds {
			t.Errorf("proxy%s is kept until app has ended: %t, want %t", options, !holds, holds)
		}
	}
}

// A preStop hook that waits for open sockets keeps its container for those that have no gate.
func TestAProxyThatOutlives(t *testing.T) {
	st := newStory(t, "container proxy is plain, healthy by report, outlives app\ncontainer app is plain\ncontainer web is plain")
	for _, name := range []string{"proxy", "app", "web"} {
		st.started(name, 0)
	}
	st.follow(kubelet.Event{}, startup.PodDeleted, 2*sec)
	if got := st.HeldBy("proxy"); !slices.Equal(got, []string{"app"}) || st.HoldsStop("app") {
		t.Errorf("proxy is held by %q, want app", got)
	}
	if st.ended("app", 1, 3*sec); st.HoldsStop("proxy") {
		t.Error("app has ended, and proxy still waits")
	}
}

// A shell that waits in a loop ignores SIGTERM, and the signal never reaches the command after the loop. A gate
// exits on SIGTERM.
func TestWhatFollowsALoopDoesNotGetItsSignal(t *testing.T) {
	for by, ignores := range map[string]bool{"health-loop": true, "gate": false} { // any order: two tests
		st := newStory(t, "app after proxy is healthy, by "+by)
		st.started("app", 0)
		if st.IgnoresStop("app") != ignores {
			t.Errorf("%s: while it waits, it ignores SIGTERM: %t, want %t", by, !ignores, ignores)
		}
		st.follow(kubelet.Event{Container: "app"}, startup.IsStopping, sec)
		st.State, _ = st.Release("app", 2*sec)
		if st.IgnoresStop("app") != ignores {
			t.Errorf("%s: its command gets no SIGTERM any more: %t, want %t", by, !ignores, ignores)
		}
		if !ignores {
			continue
		}
		st.ended("app", Killed, 3*sec)
		st.started("app", 4*sec)
		if st.State, _ = st.Release("app", 5*sec); st.IgnoresStop("app") {
			t.Errorf("%s: its next life has not got a signal yet", by)
		}
	}
}

func TestWhatOutlastsTheGracePeriod(t *testing.T) {
	sleeps := func(name string, d time.Duration) kubelet.Container {
		return kubelet.Container{Name: name, PreStop: kubelet.Sleep, PreStopSleep: d}
	}
	proxy := kubelet.Container{Name: "proxy", Restart: kubelet.Always}
	const gates = "web after app is started, by gate\napp after cache is healthy, by gate\n"
	for name, tt := range map[string]struct {
		pod  kubelet.Pod
		plan string
		want []string
	}{
		"none": {kubelet.Pod{Containers: []kubelet.Container{sleeps("web", 7*sec), {Name: "app"}, {Name: "cache"}}}, gates, nil},
		"it and those behind its gates, also indirectly": {kubelet.Pod{Containers: []kubelet.Container{sleeps("web", 8*sec), {Name: "app"}, {Name: "cache"}}},
			gates, []string{"web", "app", "cache"}},
		"not those before it": {kubelet.Pod{Containers: []kubelet.Container{{Name: "web"}, sleeps("app", 9*sec), {Name: "cache"}}}, gates, []string{"app", "cache"}},
		"no container by another mechanism": {kubelet.Pod{Containers: []kubelet.Container{sleeps("web", 9*sec), {Name: "app"}}},
			"web after app is started, by hold", []string{"web"}},
		"what has completed is gone": {kubelet.Pod{Containers: []kubelet.Container{sleeps("web", 9*sec), {Name: "app"}}},
			"web after app is completed, by gate", []string{"web"}},
		"sidecars before it, by the kubelet's order": {kubelet.Pod{Init: []kubelet.Container{proxy, {Name: "migrate"}, sleeps("log", 9*sec)}, Containers: []kubelet.Container{{Name: "app"}}},
			"app after proxy is started, by native", []string{"log", "proxy"}},
		"a sidecar behind a gate": {kubelet.Pod{Init: []kubelet.Container{proxy}, Containers: []kubelet.Container{{Name: "cache"}, sleeps("app", 9*sec)}},
			"app after cache is started, by gate", []string{"app", "cache", "proxy"}},
	} {
		plan, err := startup.Parse(tt.plan)
		if err != nil {
			t.Fatal(err)
		}
		tt.pod.Grace = 10 * sec
		got := OutlastGrace(tt.pod, plan)
		if len(got) != len(tt.want) || slices.ContainsFunc(tt.want, func(name string) bool { return !got[name] }) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
