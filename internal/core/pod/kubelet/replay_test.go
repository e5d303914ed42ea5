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

// A replay passes the external events of a trace to the model, and compares the model's actions with those of the
// real kubelet.
type replay struct {
	trace   trace
	state   kubelet.State
	passed  time.Duration   // approximate time of the model's last pass
	later   []kubelet.Event // the ends of hooks in which the kubelet itself sleeps
	acted   []acted
	matched []match
	diffs   []string
}

// acted is an action of the model; taken is set when a line of the trace has been matched with it.
type acted struct {
	kubelet.Action
	taken bool
}

// A match is an action of both the real kubelet and the model.
type match struct {
	key         string
	real, model time.Duration
}

// slack is the maximum delay of the model's actions behind those of the real kubelet.
const slack = 300 * time.Millisecond

// news is the maximum time between an event and the next relist for which it is uncertain whether that relist saw
// the event.
const news = 150 * time.Millisecond

// run replays a trace and compares the actions. If an event happened just before a relist, it is uncertain
// whether that relist saw it. For each such event run tries both cases, and keeps the one with fewer differences.
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

// once replays the trace a single time.
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

// own converts a time of the model to one of the trace's own clock.
func (r *replay) own(at time.Duration) time.Duration { return at - r.trace.zero }

// step passes an event to the model. It answers those actions for which traces contain no answers.
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

// pass handles the beginning of a pass of the real kubelet. If one relist sees two changes, a real kubelet may
// begin two passes, but the model begins only one. In that case the model gets an additional pass, so that its
// next pass waits for another relist, like that of the real kubelet.
func (r *replay) pass(l seen) {
	r.advance(l.at)
	if next, ok := kubelet.PassAt(r.state); ok && next < l.at+slack/2 {
		return // the model is about to begin this pass
	}
	since := l.at - r.passed
	if since > slack/2 && since < r.trace.version.Relist*3/2 {
		r.state = kubelet.WithPassAt(r.state, l.at)
	}
}

// pull answers a pull. The image is present unless the next line of the trace about the container says otherwise.
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

// chance moves the model's retry to the time at which the real kubelet began its pass. A real kubelet delays a
// retry by a random part of up to a half, and an earlier pass without effect may have delayed it until another
// relist.
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

// advance advances the time to t.
func (r *replay) advance(t time.Duration) {
	r.advanceUntil(t, func() bool { return false })
}

// advanceUntil advances the time until the function done returns true, but not beyond t. It returns the last
// result of done.
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

// kubelet matches an action of the real kubelet with one that the model has done, or does within slack.
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

// nearest returns the index of the model's action that is nearest in time to the line. The action must have the
// same key and must not be matched yet. The result is -1 if there is none.
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

// awaited reports whether a pass was waiting for a relist at the time of the deletion, which is line n. That is
// so if the real kubelet began two passes before it stopped anything.
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

// answers maps each event that is an answer to the action of the model that must precede it.
var answers = map[string]kubelet.ActionKind{
	"sandbox-ready": kubelet.CreateSandbox, "started": kubelet.Start, "pulled": kubelet.Pull,
	"hook-returned": kubelet.RunHook, "probe-answered": kubelet.RunProbe,
}

// world passes an external event to the model.
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

// late reports actions whose times in the model and the real kubelet differ too much.
func (r *replay) late() {
	for _, m := range r.matched {
		if d := m.real - m.model; d.Abs() > tolerance(m.key) {
			r.differ(m.real, "%s: model at %.3f", m.key, r.own(m.model).Seconds())
		}
	}
}

// order reports pairs of actions that the model did in the reverse order. Actions of the model with the same time
// have no order, because the model has no latency and a real kubelet stops several containers in any order.
func (r *replay) order() {
	for n, later := range r.matched {
		for _, earlier := range r.matched[:n] {
			if earlier.real < later.real && earlier.model > later.model {
				r.differ(later.real, "%s: in the model before %s", later.key, earlier.key)
			}
		}
	}
}

// extra reports the actions that only the model did.
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

// publishing returns the maximum delay of a published status relative to the model. At the end of a pod it is
// longer, because the kubelet first removes the sandbox's network.
func (r *replay) publishing(f match) time.Duration {
	stopped := slices.IndexFunc(r.trace.lines, func(l seen) bool { return l.what == "sandbox-stopped" })
	if stopped >= 0 && f.real > r.trace.lines[stopped].at {
		return tolerance("last publish")
	}
	return tolerance("publish")
}

// unseen reports whether the trace may lack a probe of the model, because its container was being stopped, or
// because the pass that saw the container for the first time came slightly too late.
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

// flips returns when each word of the status appeared (+) and disappeared (-). For the phase it returns only
// the appearance.
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

// statuses compares the published statuses of the trace and the model.
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

// sleeps returns the duration of a hook in which the kubelet itself sleeps, so that the trace has no event of it;
// 0 for any other hook.
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
