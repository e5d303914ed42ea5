package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The first restart after a crash is immediate. The next ones wait 10 s, then twice as long each time, up to 5
// minutes. After more than 10 minutes without a crash the back-off starts again.
func TestBackOff(t *testing.T) {
	for name, tt := range map[string]struct {
		ran  []time.Duration // running time before each end
		want []time.Duration // wait before the restart after it
	}{
		"doubling to five minutes": {[]time.Duration{sec, sec, sec, sec, sec, sec, sec, sec},
			[]time.Duration{0, 10 * sec, 20 * sec, 40 * sec, 80 * sec, 160 * sec, 300 * sec, 300 * sec}},
		"forgotten":         {[]time.Duration{sec, sec, 11 * time.Minute, sec}, []time.Duration{0, 10 * sec, 0, 10 * sec}},
		"not forgotten yet": {[]time.Duration{sec, sec, 9 * time.Minute}, []time.Duration{0, 10 * sec, 20 * sec}},
	} {
		var s start
		now, got := time.Duration(0), []time.Duration(nil)
		for _, ran := range tt.ran {
			now += ran
			ended := now
			if until, why := s.begin(ended, now); why != "" {
				now = until
				s.begin(ended, now)
			}
			got = append(got, now-ended)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSchedule(t *testing.T) {
	q := newSchedule()
	q.retryAt(9 * sec)
	q.wakeAt(2 * sec)
	q.wakeAt(5 * sec)
	q.end(3 * sec)
	if at := q.due(); at != 3*sec {
		t.Errorf("a pass that is requested for 2s, with a fresh look at 3s, is due at %s", at)
	}
	q.bind(sec)
	early := q.bound
	q.bind(2 * sec)
	if early || !q.begin(3*sec) || q.begin(4*sec) {
		t.Error("a pass is bound by a deletion exactly while it waits for a fresh look")
	}
	if at := q.due(); at != never || q.first != 3*sec {
		t.Errorf("after the first pass, at 3s, another one is due at %s; the first was at %s", at, q.first)
	}
	q.changed(6 * sec)
	q.changed(7 * sec)
	if q.relist != 6*sec {
		t.Errorf("what is new is seen at %s", q.relist)
	}
	if q.relisted(6 * sec); q.relist != never || q.due() != 6*sec {
		t.Errorf("a relist requests a pass for %s", q.due())
	}
}

// A pass does not modify its list of tasks, because other states share the list.
func TestPass(t *testing.T) {
	tasks := []task{{startInit, 0}, {startInit, 1}, {startOne, 2}}
	var p pass
	p.begin(tasks)
	if !p.takeUp() || p.takeUp() {
		t.Error("a task does not begin exactly once")
	}
	p.next()
	p.dropRest()
	if p.current() != tasks[1] || !p.takeUp() || len(p.tasks) != 1 {
		t.Errorf("the second task is not the last one: %v", p.tasks)
	}
	p.act()
	p.giveUp()
	p.end()
	if diff := cmp.Diff([]task{{startInit, 0}, {startInit, 1}, {startOne, 2}}, tasks, cmp.AllowUnexported(task{})); diff != "" || !p.acted || len(p.tasks) > 0 {
		t.Errorf("at its end the pass has %v, acted: %t; the tasks are (-want +got):\n%s", p.tasks, p.acted, diff)
	}
}

func TestSandbox(t *testing.T) {
	var b sandbox
	if b.lost() || b.is != noSandbox {
		t.Error("a sandbox is lost that was not made")
	}
	b.made()
	if !b.lost() || b.lost() || b.is != deadSandbox || !b.address {
		t.Errorf("a sandbox is not lost once, with its address kept: %+v", b)
	}
	if b.made(); !b.removed() || b.removed() {
		t.Error("a sandbox is not removed once")
	}
}

func TestLife(t *testing.T) {
	l := newLife()
	l.begin(sec)
	l.end(3, 2*sec)
	l.look()
	l.begin(4 * sec)
	if want := (life{run: running, incarnation: 1, startedAt: 4 * sec, finishedAt: 2 * sec, known: 2 * sec, here: true}); l != want {
		t.Errorf("a second life is %+v, want %+v", l, want)
	}
	if l.leave(); l.here || l.run != running {
		t.Error("with another sandbox, a container does not run on in the one before")
	}
	if l.forget(); l != (life{incarnation: 1, finishedAt: never, known: never}) {
		t.Errorf("more is left than the number of lives: %+v", l)
	}
}

// The grace period is counted in whole seconds. After SIGTERM at least two seconds are left.
func TestKilling(t *testing.T) {
	k := notKilled()
	k.begin(5*sec, sec, true)
	k.enter(inPreStop, sec)
	if k.deadline != 6*sec || k.graceEnd != 6*sec {
		t.Errorf("a preStop may take until %s, of the grace period until %s", k.deadline, k.graceEnd)
	}
	k.spend(2900 * ms)
	if k.left != 4*sec || k.since != 2900*ms {
		t.Errorf("1.9 s of 5 s leave %s, since %s", k.left, k.since)
	}
	k.spend(6 * sec)
	if k.term(6 * sec); k.left != minimumGrace || k.deadline != 8*sec {
		t.Errorf("SIGTERM leaves %s, until %s", k.left, k.deadline)
	}
	if k.kill(); k.deadline != never || k.stage != sigkilled {
		t.Error("after SIGKILL there is something left to do")
	}
	if k.end(); k != notKilled() {
		t.Error("a container that has ended is being killed")
	}
}

// A probe changes its result when the number of equal consecutive answers reaches the threshold.
func TestProbe(t *testing.T) {
	spec := Probe{Handler: Exec, Period: 2 * sec, Successes: 2, Failures: 3}
	p := newProbe()
	p.notice(unknown, sec)
	p.schedule(spec, true, 500*ms, 1500*ms)
	var got []result
	for _, ok := range []bool{true, false, true, true, false, false, false} {
		at := p.due
		p.send(sec, at)
		got = append(got, p.answer(spec, ok, at+100*ms))
		if p.due != at+spec.Period {
			t.Errorf("a run at %s is followed by one at %s", at, p.due)
		}
	}
	if diff := cmp.Diff([]result{unseen, unseen, unseen, success, unseen, unseen, failure}, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if !p.conclude(failure, true) || p.conclude(failure, true) {
		t.Error("a verdict is news not exactly once")
	}
	if p.schedule(spec, true, 0, 0); p.due != never {
		t.Error("a probe runs after a verdict for good")
	}
}
