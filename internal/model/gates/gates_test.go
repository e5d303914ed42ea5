package gates

import (
	"testing"
	"time"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

const sec = time.Second

// A story is a sequence of events of the containers of a pod.
type story struct {
	t *testing.T
	s State
	n map[string]int
}

func tell(t *testing.T, plan string, g Gate) *story {
	t.Helper()
	p, err := startup.Parse(plan)
	if err != nil {
		t.Fatal(err)
	}
	return &story{t, New(p, g), map[string]int{}}
}

func (st *story) started(name string, at time.Duration) *story {
	ev := startup.Event{Container: name, What: startup.IsStarted, At: at, Incarnation: st.n[name]}
	st.n[name]++
	st.s, _ = st.s.Follow(kubelet.Event{Kind: kubelet.Started, Container: name, OK: true}, startup.Timeline{ev})
	return st
}

func (st *story) healthy(name string, at time.Duration) *story {
	st.s, _ = st.s.SetHealth(name, true, at)
	return st
}

func (st *story) ended(name string, code int, at time.Duration) *story {
	ev := startup.Event{Container: name, What: startup.HasFailed, At: at}
	if code == 0 {
		ev.What = startup.IsCompleted
	}
	st.s, _ = st.s.Follow(kubelet.Event{Kind: kubelet.Exited, Container: name, Code: code}, startup.Timeline{ev})
	return st
}

func (st *story) pod(what startup.What, at time.Duration) *story {
	st.s, _ = st.s.Follow(kubelet.Event{}, startup.Timeline{{What: what, At: at}})
	return st
}

func TestWhenAGateOpens(t *testing.T) {
	const plain = "app after proxy is healthy, by gate"
	tests := map[string]struct {
		plan  string
		gate  Gate
		story func(*story)
		at    time.Duration
		want  bool
	}{
		"proxy has not started":             {plan: plain, story: func(*story) {}},
		"proxy runs":                        {plan: plain, story: func(s *story) { s.started("proxy", 0) }},
		"proxy is healthy":                  {plan: plain, story: func(s *story) { s.started("proxy", 0).healthy("proxy", sec) }, want: true},
		"proxy crashed":                     {plan: plain, story: func(s *story) { s.started("proxy", 0).healthy("proxy", sec).ended("proxy", 1, 2*sec) }},
		"proxy was killed, its state stays": {plan: plain, story: func(s *story) { s.started("proxy", 0).healthy("proxy", sec).ended("proxy", Killed, 2*sec) }},
		"a gate that accepts a stale record": {plan: plain, gate: Gate{AcceptsStale: true}, want: true,
			story: func(s *story) { s.started("proxy", 0).healthy("proxy", sec).ended("proxy", Killed, 2*sec) }},
		"proxy is back and not healthy": {plan: plain,
			story: func(s *story) {
				s.started("proxy", 0).healthy("proxy", sec).ended("proxy", Killed, 2*sec).started("proxy", 3*sec)
			}},
		"a loop probes the port of a dead container": {plan: "app after proxy is healthy, by health-loop",
			story: func(s *story) { s.started("proxy", 0).healthy("proxy", sec).ended("proxy", Killed, 2*sec) }},
		"what completed stays completed after the death of its writer": {plan: "app after db is completed, by gate", want: true,
			story: func(s *story) { s.started("db", 0).ended("db", 0, sec) }},
		"but not in a new sandbox": {plan: "app after db is completed, by gate",
			story: func(s *story) { s.started("db", 0).ended("db", 0, sec).pod(startup.NewSandbox, 2*sec) }},
		"an optional proxy that failed": {plan: plain + ", optional", want: true,
			story: func(s *story) { s.started("proxy", 0).ended("proxy", Killed, sec) }},
		"an optional proxy that was killed at its own gate": {plan: plain + ", optional\nproxy after db is started, by gate", want: true,
			story: func(s *story) { s.started("proxy", 0).ended("proxy", Killed, sec) }},
		"an optional proxy that is still starting": {plan: plain + ", optional", story: func(s *story) { s.started("proxy", 0) }},
		"an optional proxy that the pod lacks":     {plan: "container app is plain\n" + plain + ", optional", want: true, story: func(*story) {}},
		"before the timeout":                       {plan: plain + ", within 5s or continue", story: func(s *story) { s.started("app", 2*sec) }, at: 6 * sec},
		"after the timeout":                        {plan: plain + ", within 5s or continue", story: func(s *story) { s.started("app", 2*sec) }, at: 7 * sec, want: true},
		"after a timeout that fails":               {plan: plain + ", within 5s", story: func(s *story) { s.started("app", 2*sec) }, at: 7 * sec},
		"one of two":                               {plan: plain + "\napp after db is started, by gate", story: func(s *story) { s.started("db", 0) }},
		"an edge that the kubelet is to keep":      {plan: "app after proxy is healthy, by native", story: func(*story) {}, want: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			st := tell(t, tt.plan, tt.gate)
			tt.story(st)
			if got := st.s.MayRun("app", tt.at); got != tt.want {
				t.Errorf("MayRun is %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAGateGivesUpAtItsTimeout(t *testing.T) {
	st := tell(t, "app after proxy is healthy, within 5s, by gate", Gate{}).started("app", 2*sec)
	if next, ok := st.s.Next(2 * sec); !ok || next != 7*sec {
		t.Errorf("Next is %s, %v, want 7s", next, ok)
	}
	if st.s.GivesUp("app", 6*sec) || !st.s.GivesUp("app", 7*sec) {
		t.Error("it does not give up at 7s")
	}
}

func TestStoppingWaitsForTheDependents(t *testing.T) {
	st := tell(t, "app after proxy is healthy, by gate", Gate{}).started("proxy", 0).healthy("proxy", 0).started("app", sec)
	if st.s.HoldsStop("proxy") {
		t.Error("a kill of one container, not of the pod, is held")
	}
	st.pod(startup.PodDeleted, 2*sec)
	if !st.s.HoldsStop("proxy") || st.s.HoldsStop("app") {
		t.Error("the pod stops, and proxy does not wait for app")
	}
	if st.ended("app", 0, 3*sec); st.s.HoldsStop("proxy") {
		t.Error("app has ended, and proxy still waits")
	}
}

func TestAnObligationIsMetOnce(t *testing.T) {
	st := tell(t, "app after proxy is started, on restart notify, by gate", Gate{}).
		started("proxy", 0).started("app", sec).ended("proxy", 1, 2*sec).started("proxy", 3*sec)
	obligations := st.s.Obligations()
	if len(obligations) != 1 || !obligations[0].Enforced {
		t.Fatalf("the obligations are %v", obligations)
	}
	if st.s, _ = st.s.Notify(obligations[0].Edge, 3*sec); len(st.s.Obligations()) > 0 {
		t.Error("there is still one after the notification")
	}
}

// Follow and the others leave the state that they were called on as it was.
func TestAStateIsAValue(t *testing.T) {
	st := tell(t, "app after proxy is started, on restart notify, within 9s, by gate", Gate{}).started("app", 0)
	before := st.s
	key := string(before.AppendKey(nil, sec))
	st.started("proxy", sec).healthy("proxy", sec)
	st.s, _ = st.s.Release("app", sec)
	st.ended("proxy", 1, 2*sec).started("proxy", 3*sec).pod(startup.NewSandbox, 4*sec)
	if string(before.AppendKey(nil, sec)) != key {
		t.Error("a state changed")
	}
}
