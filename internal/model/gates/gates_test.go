package gates

import (
	"testing"
	"time"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

const sec = time.Second

// A story is a sequence of events of the containers of a pod. Most of what a gate does is
// tested by the scenarios of package simulate and the explorations of package verify.
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
