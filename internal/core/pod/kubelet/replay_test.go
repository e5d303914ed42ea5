package kubelet_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
)

// A replay feeds what the world did, as a trace has it, to the model, and compares
// what the model then does with what the real kubelet did.
type replay struct {
	trace   trace
	state   kubelet.State
	passed  time.Duration   // the model's last pass, about
	later   []kubelet.Event // the end of the kubelet's own sleeps
	acted   []acted
	matched []match
	diffs   []string
}

// acted is something that the model did and that no line of the trace has been
// found for yet.
type acted struct {
	kubelet.Action
	taken bool
}

// A match is something that both did.
type match struct {
	key         string
	real, model time.Duration
}

// slack is how much later than the real kubelet the model may be.
const slack = 300 * time.Millisecond

// news is how long an end or a start may take to reach the runtime, and so a relist.
const news = 150 * time.Millisecond

// run replays a trace and compares. Whether a relist saw what came just
// before it is left to chance: what explains more of the trace is taken to be so.
func run(tr trace) *replay {
	best := once(tr)
	for n, l := range tr.lines {
		if len(best.diffs) == 0 || l.what != "exited" && l.what != "started" || tr.relistAfter(l.at)-l.at > news {
			continue
		}
		other := tr
		other.missed = maps.Clone(best.trace.missed)
		other.missed[n] = true
		if r := once(other); len(r.diffs) < len(best.diffs) {
			best = r
		}
	}
	return best
}

// once replays a whole trace.
func once(tr trace) *replay {
	r := &replay{trace: tr, state: kubelet.New(tr.pod, tr.version)}
	for n, l := range tr.lines {
		switch l.side {
		case ">":
			r.kubelet(l)
		case "<":
			r.world(n, l)
		}
		if l.what == "pass" {
			r.pass(l)
		}
	}
	r.advance(tr.lines[len(tr.lines)-1].at + slack)
	r.late()
	r.order()
	r.extra()
	r.statuses()
	return r
}

func (r *replay) differ(at time.Duration, format string, args ...any) {
	r.diffs = append(r.diffs, fmt.Sprintf("%.3f ", r.own(at).Seconds())+fmt.Sprintf(format, args...))
}

// own is a time as the trace has it.
func (r *replay) own(at time.Duration) time.Duration { return at - r.trace.zero }

// step feeds one event, and answers what is not in traces.
func (r *replay) step(e kubelet.Event) {
	next, actions := r.state.Step(e)
	if kubelet.Passes(next) > kubelet.Passes(r.state) {
		r.passed = next.Now()
	}
	r.state = next
	r.chance()
	for _, a := range actions {
		r.acted = append(r.acted, acted{Action: a})
	}
	for _, a := range actions {
		switch {
		case a.Kind == kubelet.Pull:
			r.pull(a)
		case a.Kind == kubelet.RunHook && r.sleeps(a) > 0:
			r.acted[len(r.acted)-1].taken = true
			r.later = append(r.later, kubelet.Event{At: a.At + r.sleeps(a), Kind: kubelet.HookReturned, Container: a.Container, Which: a.Which, OK: true})
		}
	}
}

// pass: the real kubelet began a pass. It may begin more of them than the model,
// right after another: two things that one relist saw can be two reasons for one.
// What is due next then waits for another relist, in the model too.
func (r *replay) pass(l seen) {
	r.advance(l.at)
	if next, ok := kubelet.PassAt(r.state); ok && next < l.at+slack/2 {
		return // it may be this one
	}
	since := l.at - r.passed
	if since > slack/2 && since < r.trace.version.Relist*3/2 {
		r.state = kubelet.WithPassAt(r.state, l.at)
	}
}

// pull: an image is there, unless the next that is seen of its container is that
// it is not.
func (r *replay) pull(a kubelet.Action) {
	for _, l := range r.trace.lines {
		if l.at < a.At-slack || l.name != a.Container || l.what != "start" && l.what != "pulled" {
			continue
		}
		if l.what == "start" {
			r.step(kubelet.Event{At: a.At, Kind: kubelet.Pulled, Container: a.Container, OK: true})
		}
		return
	}
}

// chance: real kubelets put a retry off by up to a half, at random, and a pass without
// effect before may have put it off by a relist. The model's is put to when
// the real one began a pass.
func (r *replay) chance() {
	at, ok := kubelet.RetryAt(r.state)
	if !ok {
		return
	}
	for _, l := range r.trace.lines {
		if l.what == "pass" && l.at >= at && l.at <= at+(at-r.state.Now())/2+r.trace.version.Relist+slack {
			r.state = kubelet.WithRetryAt(r.state, l.at)
			return
		}
	}
}

// advance lets time pass until t.
func (r *replay) advance(t time.Duration) {
	r.advanceUntil(t, func() bool { return false })
}

// advanceUntil lets time pass until done, at most until t.
func (r *replay) advanceUntil(t time.Duration, done func() bool) bool {
	for !done() {
		next, ok := r.state.Next()
		tick := kubelet.Event{At: next, Kind: kubelet.Tick}
		if len(r.later) > 0 && (!ok || r.later[0].At <= next) {
			ok, tick = true, r.later[0]
		}
		if !ok || tick.At > t {
			return false
		}
		if tick.Kind != kubelet.Tick {
			r.later = r.later[1:]
		}
		r.step(tick)
	}
	return true
}

// kubelet: the real one did something. The model has done it, or does it soon.
func (r *replay) kubelet(l seen) {
	if l.what == "publish" || l.what == "back-off" {
		return
	}
	r.advance(l.at)
	find := func() int { return r.nearest(l) }
	if !r.advanceUntil(l.at+slack, func() bool { return find() >= 0 }) {
		r.differ(l.at, "real only: %s", l.key())
		return
	}
	i := find()
	r.acted[i].taken = true
	r.matched = append(r.matched, match{l.key(), l.at, r.acted[i].At})
}

// nearest is what the model did of that kind, and nothing has claimed, nearest in
// time to a line; or -1.
func (r *replay) nearest(l seen) int {
	best := -1
	for i, a := range r.acted {
		if a.taken || key(a.Action) != l.key() {
			continue
		}
		if best < 0 || (a.At-l.at).Abs() < (r.acted[best].At-l.at).Abs() {
			best = i
		}
	}
	return best
}

// awaited reports that a pass waited for a relist when line n came, the deletion: the
// real kubelet then began two before it stopped anything.
func (r *replay) awaited(n int) bool {
	passes := 0
	for _, l := range r.trace.lines[n:] {
		if l.what == "stop" || l.what == "run-hook" || l.what == "sandbox-stopped" {
			break
		}
		if l.what == "pass" {
			passes++
		}
	}
	return passes == 2
}

// answers are the events that the model must have caused.
var answers = map[string]kubelet.ActionKind{
	"sandbox-ready": kubelet.CreateSandbox, "started": kubelet.Start, "pulled": kubelet.Pull,
	"hook-returned": kubelet.RunHook, "probe-answered": kubelet.RunProbe,
}

// world: something happened.
func (r *replay) world(n int, l seen) {
	e := l.event()
	if r.trace.missed[n] {
		e.At = r.trace.relistAfter(l.at) + time.Millisecond
	}
	r.advance(e.At)
	if l.what == "deleted" && r.awaited(n) {
		r.state = kubelet.WithPassAt(r.state, l.at)
	}
	if action, isAnswer := answers[l.what]; isAnswer {
		called := r.advanceUntil(l.at+slack, func() bool {
			return slices.ContainsFunc(r.state.Open(), func(a kubelet.Action) bool {
				return a.Kind == action && a.Container == e.Container && a.Which == e.Which
			})
		})
		if !called {
			r.differ(l.at, "the model did not call: %s", l.text)
		}
	}
	r.step(e)
}

// late adds what the model did not do when the real kubelet did.
func (r *replay) late() {
	for _, m := range r.matched {
		if d := m.real - m.model; d.Abs() > tolerance(m.key) {
			r.differ(m.real, "%s: model at %.3f", m.key, r.own(m.model).Seconds())
		}
	}
}

// order adds what the model did the other way round. What it does at one moment has no
// order: it has no latency, and a real kubelet stops several containers in any order.
func (r *replay) order() {
	for n, later := range r.matched {
		for _, earlier := range r.matched[:n] {
			if earlier.real < later.real && earlier.model > later.model {
				r.differ(later.real, "%s: in the model before %s", later.key, earlier.key)
			}
		}
	}
}

// extra adds what only the model did.
func (r *replay) extra() {
	end := r.trace.lines[len(r.trace.lines)-1].at - slack
	for _, a := range r.acted {
		switch a.Kind {
		case kubelet.Pull, kubelet.Publish, kubelet.BackOff, kubelet.End:
			continue
		}
		if !a.taken && a.At < end && !r.unseen(a.Action) {
			r.differ(a.At, "model only: %s", key(a.Action))
		}
	}
}

// publishing is how much later than in the model a status may be published. At the
// end of a pod the network of its sandbox is taken down before.
func (r *replay) publishing(f match) time.Duration {
	stopped := slices.IndexFunc(r.trace.lines, func(l seen) bool { return l.what == "sandbox-stopped" })
	if stopped >= 0 && f.real > r.trace.lines[stopped].at {
		return tolerance("last publish")
	}
	return tolerance("publish")
}

// unseen reports of a probe that it could not be recorded, as its container was being
// stopped, or that the pass that found its container came a moment too late.
func (r *replay) unseen(probe kubelet.Action) bool {
	if probe.Kind != kubelet.RunProbe {
		return false
	}
	return slices.ContainsFunc(r.acted, func(a acted) bool {
		return a.Kind == kubelet.Stop && a.Container == probe.Container && (a.At-probe.At).Abs() < slack
	}) || slices.ContainsFunc(r.trace.lines, func(l seen) bool {
		return l.what == "pass" && l.at >= probe.At && l.at < probe.At+news
	})
}

// flips are when a word of the status came (+) and went (-), by word; of the
// phase only the coming.
func flips(at []time.Duration, status [][]string) (out []match) {
	last := []string{"Pending"}
	for i, now := range status {
		for _, w := range now {
			if !slices.Contains(last, w) {
				out = append(out, match{key: "+" + w, real: at[i]})
			}
		}
		for _, w := range last {
			if !slices.Contains(now, w) && strings.ToLower(w) == w {
				out = append(out, match{key: "-" + w, real: at[i]})
			}
		}
		last = now
	}
	return out
}

// statuses compares what was published.
func (r *replay) statuses() {
	var at, mat []time.Duration
	var words, mwords [][]string
	for _, l := range r.trace.lines {
		if l.what == "publish" {
			at, words = append(at, l.at), append(words, l.rest)
		}
	}
	for _, a := range r.acted {
		if a.Kind == kubelet.Publish {
			mat, mwords = append(mat, a.At), append(mwords, statusWords(a.Status))
		}
	}
	end := r.trace.lines[len(r.trace.lines)-1].at - slack
	real, model := flips(at, words), flips(mat, mwords)
	for _, f := range real {
		i := slices.IndexFunc(model, func(m match) bool { return m.key == f.key })
		if i < 0 {
			r.differ(f.real, "real only: publish %s", f.key)
			continue
		}
		if d := f.real - model[i].real; d < -tolerance("publish") || d > r.publishing(f) {
			r.differ(f.real, "publish %s: model at %.3f", f.key, r.own(model[i].real).Seconds())
		}
		model = slices.Delete(model, i, i+1)
	}
	for _, m := range model {
		if m.real < end {
			r.differ(m.real, "model only: publish %s", m.key)
		}
	}
}

// sleeps is how long a hook takes that is the kubelet's own sleep, which no
// container sees; 0 for another one.
func (r *replay) sleeps(a kubelet.Action) time.Duration {
	spec := r.trace.spec.Spec
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		if c.Name != a.Container || c.Lifecycle == nil {
			continue
		}
		for which, h := range map[kubelet.Which]*corev1.LifecycleHandler{kubelet.PreStop: c.Lifecycle.PreStop, kubelet.PostStart: c.Lifecycle.PostStart} {
			if a.Which == which && h != nil && h.Sleep != nil {
				return time.Duration(h.Sleep.Seconds) * time.Second
			}
		}
	}
	return 0
}
