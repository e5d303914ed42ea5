package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/test/e2e/load"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// A form holds the amounts of load and of operations in the suites under load. These suites judge failed calls, and no
// latencies.
type form struct {
	rate        int // calls that each of the three clients makes in a second
	answered    int // minimum number of answered calls for each strategy
	rollouts    int // minimum number of roll-outs for each strategy
	strategies  []string
	kinds       []string // of applications: polite, rude
	compared    bool     // with the same roll-outs without a mesh
	upgrades    []string // the strategies whose pods are upgraded in place
	unavailable int      // maximum number of pods that are upgraded at the same time; with 2, both pods of a service may be down together
	kills       map[string]int
	restarts    []string
	replicas    int           // number of outriderd's replicas
	waves       int           // number of rounds with fifty pods each
	away        int           // seconds for which the services call without a control plane
	firstUse    time.Duration // setting with which outriderd is installed; 0: its default
}

// short is the form of the nightly run and, with smaller numbers, of "make e2e"; long is the form of "make load".
// A machine with two processors can handle a hundred calls a second through six proxies, but not three hundred.
var (
	short = form{
		rate: 30, answered: 500, rollouts: 1, strategies: []string{"gate"}, kinds: []string{rude}, upgrades: []string{"gate", "native"}, unavailable: 1,
		kills:    map[string]int{"envoy": 2, "agent": 1, "exit": 1, "memory": 1},
		restarts: []string{"kubelet", "outriderd"},
		replicas: 2,
		firstUse: world.Overloaded, // the same as in the other cases
		waves:    1,
		away:     10,
	}
	long = form{
		rate: 34, rollouts: 3, strategies: slices.Sorted(maps.Keys(strategies)), kinds: []string{polite, rude}, compared: true,
		upgrades: slices.Sorted(maps.Keys(strategies)), unavailable: 2,
		kills:    map[string]int{"envoy": 20, "agent": 10, "exit": 5, "memory": 3},
		restarts: []string{"kubelet", "containerd", "kube-apiserver", "outriderd", "kubelet", "containerd", "kube-apiserver", "outriderd"},
		replicas: 2,
		waves:    3,
		away:     60,
	}
)

// underLoad returns the form of this run: the long one if OUTRIDER_CALLS is set. That variable is the minimum number
// of answered calls in the roll-outs of each strategy and kind of application. OUTRIDER_RATE is the number of calls that
// each client makes in a second.
func underLoad() form {
	calls := os.Getenv("OUTRIDER_CALLS")
	if calls == "" && !tier.Nightly() {
		f := short
		f.rate, f.answered, f.upgrades, f.kills = 10, 200, f.strategies, map[string]int{"envoy": 1, "agent": 1}
		return f
	}
	if calls == "" {
		return short
	}
	n, err := strconv.Atoi(calls)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("OUTRIDER_CALLS=%q: want a number of calls", calls))
	}
	f := long
	f.answered = n
	if tier.Nightly() { // less load, because other steps run at the same time, and a starved load cannot be judged
		f.rate = 10
	}
	if rate, err := strconv.Atoi(os.Getenv("OUTRIDER_RATE")); err == nil && rate > 0 {
		f.rate = rate
	}
	return f
}

// strategies maps the name of an ordering mechanism for a tier's pods to the annotations that select it.
var strategies = map[string]map[string]string{
	"gate":          nil,
	"native":        {"outrider.dev/start": "native"},
	"hold":          {"outrider.dev/start": "hold"},
	"init none":     {"outrider.dev/init": "none"},
	"parking alone": {"outrider.dev/start": "off"},
}

// Kinds of applications, by what they do at SIGTERM.
const (
	polite = "drains"         // answers what comes for some seconds more, and then what is in flight
	rude   = "closes at once" // closes all its connections, whatever is in flight on them
)

// bareWay is the name of the roll-outs without a mesh.
const bareWay = "without a mesh"

// A rollout is a line of the table that [TestRollouts] prints.
type rollout struct {
	way, kind             string
	calls, fresh, kept    int     // fresh and kept: lost calls on new and on persistent connections
	posts, doubled, times int     // posts: received by the three services in all
	waited                float64 // share of the time in which processes waited for a processor
}

// lost returns the share of the calls that were lost.
func (o rollout) lost() float64 { return float64(o.fresh+o.kept) / float64(max(o.calls, 1)) }

// Three services that call one another are rolled out, with each way to order their containers and with applications
// that drain at SIGTERM or close all their connections. No call is lost if an application drains or has a gate.
// Otherwise no more calls are lost than without a mesh. No service ever gets a POST twice. The port of one service declares no protocol.
func TestRollouts(t *testing.T) {
	form := underLoad()
	var table []rollout
	ways := form.strategies
	if form.compared {
		ways = append([]string{bareWay}, ways...)
	}
	bare := map[string]rollout{} // results without a mesh
	for _, way := range ways {
		for _, kind := range form.kinds {
			t.Run(way+"/"+kind, func(t *testing.T) {
				r := alone(t)
				o := r.rollOut(form, way, kind)
				table = append(table, o)
				if way == bareWay {
					bare[kind] = o
				}
				if of, compared := bare[kind]; compared && o.lost() > of.lost() {
					t.Errorf("%.3f%% of the calls were lost, and without a mesh %.3f%%", 100*o.lost(), 100*of.lost())
				}
			})
		}
	}
	t.Logf("%-16s %-15s %8s %6s %6s %8s %8s %9s %7s", "way", "application", "calls", "fresh", "kept", "received", "doubled", "roll-outs", "waited")
	for _, o := range table {
		t.Logf("%-16s %-15s %8d %6d %6d %8d %8d %9d %6.0f%%", o.way, o.kind, o.calls, o.fresh, o.kept, o.posts, o.doubled, o.times, 100*o.waited)
	}
}

// rollOut rolls the tiers out under load, and returns what was lost.
func (r *run) rollOut(form form, way, kind string) (o rollout) {
	r.Helper()
	o = rollout{way: way, kind: kind}
	annotations, changes, flags := strategies[way], []change(nil), []string(nil)
	if way == bareWay {
		annotations = map[string]string{"sidecar.istio.io/inject": "false"}
		changes = append(changes, func(p *corev1.Pod) { p.Labels["sidecar.istio.io/inject"] = "false" })
	}
	if kind == rude {
		flags = append(flags, world.Rude)
	}
	r.must(w.UndeclaredTiers(r.Context(), annotations, flags...))
	l := r.load(form.rate, changes...)
	for ; o.times < form.rollouts || l.answered() < form.answered; o.times++ {
		began := time.Now()
		r.must(w.RollOut(r.Context()))
		l.note("roll-out %d took %.1f s", o.times+1, time.Since(began).Seconds())
		l.settle(5)
	}
	verdict := l.over()
	o.waited = l.waited
	for _, t := range l.tallies() { // any order: a sum
		o.calls += t.Sent
	}
	for _, f := range verdict.Lost {
		if strings.Contains(f.Root().Connection, "idle") {
			o.kept++
		} else {
			o.fresh++
		}
	}
	o.fresh += max(verdict.Untold, 0)
	got := map[string][]string{}
	for _, p := range w.In(world.TierNamespace) {
		for _, word := range p.Records("app") {
			for number := range strings.SplitSeq(word.Values["numbers"], ",") {
				if word.Event == "got" && strings.HasPrefix(number, l.pod.Name+"-") {
					got[p.Name] = append(got[p.Name], number)
					o.posts++
				}
			}
		}
	}
	if o.posts == 0 {
		r.Error("no service has told of a POST, so none could be found twice")
	}
	doubled := load.Doubled(got)
	if o.doubled = len(doubled); o.doubled > 0 {
		r.Errorf("%d POSTs reached a service twice: %.10q", o.doubled, doubled)
	}
	if n := l.answered(); n < form.answered {
		r.Errorf("not judged: %d calls were answered, want %d", n, form.answered)
	}
	if way != bareWay && (kind == polite || way == "gate" || way == "init none") {
		verdict.Lost = slices.DeleteFunc(verdict.Lost, lostAsBytes)
		l.judge(verdict)
		return o
	}
	kinds := map[string]int{}
	for _, f := range verdict.Lost {
		kinds[f.Kind()]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.Logf("%d calls were lost: %s", kinds[kind], kind)
	}
	return o
}

// lostAsBytes reports whether a call was lost on a connection of bytes to the tier without a declared protocol: its
// client opened it in advance, as Go's do, and sent nothing in the time in which the client's proxy detects HTTP. Such a
// connection stays until its pod ends. On any other one the proxy answers for the pod.
func lostAsBytes(f load.Failure) bool {
	root := f.Root()
	return root.To == world.TierHost(world.Undeclared) && root.Status == 0 && strings.Contains(root.Connection, "idle")
}

// When a process of a service is killed under load, only the calls in flight in that process fail.
func TestKillsUnderLoad(t *testing.T) {
	r, form := alone(t), underLoad()
	r.must(w.Tiers(r.Context(), nil))
	l := r.load(form.rate)
	i := 0
	for _, what := range slices.Sorted(maps.Keys(form.kills)) {
		for range form.kills[what] {
			pods := r.allReady()
			r.kill(l, what, pods[i%len(pods)])
			i++
			l.settle(2)
		}
	}
	r.allReady()
	l.end()
}

// No call is lost while programs of the node and the control plane are restarted under load.
func TestRestartsUnderLoad(t *testing.T) {
	nightly(t, true)
	r, form := alone(t), underLoad()
	r.must(w.Tiers(r.Context(), nil))
	l := r.load(form.rate)
	for _, what := range form.restarts {
		began := time.Now()
		if what == "outriderd" {
			r.restartOutriderd()
		} else {
			r.must(w.Restart(r.Context(), what))
		}
		l.note("%s is back after %.1f s", what, time.Since(began).Seconds())
		l.settle(5)
		r.allReady()
	}
	l.end()
}

// A loading is a load that is running in a pod.
type loading struct {
	*run
	pod   *world.Pod
	rate  int
	notes []string
	kills []load.Kill
	began time.Time
	short time.Duration // result of [waited] at the beginning of the load

	waited float64 // share of the load's time in which processes waited for a processor; set at the end
}

// waited returns the time since boot in which at least one process of the machine waited for a processor; 0 if the
// kernel does not measure it (CONFIG_PSI).
func waited() time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu")
	var us int64
	if _, total, ok := strings.Cut(string(text), "total="); ok {
		fmt.Sscan(total, &us)
	}
	return time.Duration(us) * time.Microsecond
}

// load starts a load, and waits until calls are answered.
func (r *run) load(rate int, changes ...change) *loading {
	r.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "Test", "").Replace(r.Name()))
	pod := world.LoadPod(name, rate)
	for _, c := range changes {
		c(pod)
	}
	l := &loading{run: r, rate: rate, pod: r.webhook(pod), began: time.Now(), short: waited()}
	r.until(l.pod, "calls are answered", func() bool { return l.answered() > rate })
	return l
}

// note adds a line with the current time to the notes, which the report shows.
func (l *loading) note(format string, args ...any) {
	l.notes = append(l.notes, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// settle waits until as many more calls have returned as the load makes in this many seconds.
func (l *loading) settle(seconds int) {
	l.Helper()
	n := l.back()
	l.until(l.pod, "more calls", func() bool { return l.back() >= n+seconds*l.rate*len(load.Clients) })
}

// tallies returns the newest tallies that the load has printed.
func (l *loading) tallies() (now map[string]load.Tally) {
	for _, word := range l.pod.Records("app") {
		if word.Event == "load" || word.Event == "loaded" {
			now = nil
			l.must(json.Unmarshal([]byte(word.Values["json"]), &now))
		}
	}
	return now
}

func (l *loading) answered() (n int) {
	for _, t := range l.tallies() {
		n += t.Answered
	}
	return n
}

// back returns the number of calls that have returned or failed.
func (l *loading) back() (n int) {
	for _, t := range l.tallies() {
		n += t.Answered + t.Failed
	}
	return n
}

// end stops the load, prints its results, and fails the case if calls were lost. If the machine was
// too busy for a judgement, the case is skipped.
func (l *loading) end() {
	l.Helper()
	l.judge(l.over())
}

// judge fails the case for lost calls, or skips it if they cannot be judged.
func (l *loading) judge(verdict load.Verdict) {
	l.Helper()
	l.fail(verdict)
	if verdict.Starved != "" && !l.Failed() {
		l.Skipf("not judged: %s", verdict.Starved)
	}
}

// over stops the load, prints its results, and returns the verdict.
func (l *loading) over() load.Verdict {
	l.Helper()
	l.must(l.pod.StartDelete(l.Context()))
	l.emitted(l.pod, "app", "loaded", 1)
	l.deleted(l.pod)
	l.waited = float64(waited()-l.short) / float64(time.Since(l.began))
	l.note("processes waited for a processor in %.0f%% of the time", 100*l.waited)
	var lost []load.Failure
	for _, word := range l.pod.Records("app") {
		if word.Event == "lost" {
			var f load.Failure
			l.must(json.Unmarshal([]byte(word.Values["json"]), &f))
			lost = append(lost, f)
		}
	}
	for _, line := range l.notes {
		l.Log(line)
	}
	tallies := l.tallies()
	for _, name := range load.Clients {
		t := tallies[name]
		l.Logf("%-16s %6d calls, %d failed, %d of them timed out; p50 %s, p99 %s, slowest %s; sent %s late at most (no time is judged but this one)",
			name, t.Sent, t.Failed, t.TimedOut, t.P50.Round(100*time.Microsecond), t.P99.Round(100*time.Microsecond), t.Slowest.Round(time.Millisecond), t.Late.Round(time.Millisecond))
		report.count(l.entry, func(e *entry) { e.calls += t.Sent; e.failed += t.Failed })
		if n := t.Answered + t.Failed; n != t.Sent || n == 0 {
			l.Errorf("not judged: %d of %d calls of %s came back", n, t.Sent, name)
		}
	}
	if len(l.kills) > 0 {
		l.Logf("%d calls failed, %d of them with a process that was killed", len(lost), len(lost)-len(load.Unexcused(lost, l.kills)))
	}
	return load.Judge(lost, l.kills, tallies, l.waited)
}

// fail fails the case for failed calls without an excuse. It shows one failure of each kind, with the events in the
// calling and the called pod at that time.
func (l *loading) fail(v load.Verdict) {
	l.Helper()
	kinds := map[string][]load.Failure{}
	for _, f := range v.Lost {
		kinds[f.Kind()] = append(kinds[f.Kind()], f)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all := kinds[kind]
		l.Errorf("%d calls were lost from %s to %s: %s\nthe first: %s\n%s", len(all),
			clock(all[0].Ended), clock(all[len(all)-1].Ended), kind, all[0], l.around(all[0].Root()))
	}
	if v.Untold > 0 {
		l.Errorf("%d more calls were lost, of which the load has said no more", v.Untold)
	}
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000") }

// around returns the events in the calling and the called pod at the time of a failed call.
func (l *loading) around(f load.Failure) string {
	pods := slices.DeleteFunc(w.In(world.TierNamespace), func(p *world.Pod) bool {
		return p.Name != f.From && world.TierHost(p.Spec().Labels["app"]) != f.To || p.UID == l.pod.UID
	})
	return w.Around(pods, time.Unix(0, f.Ended), 2*time.Second)
}

// allReady waits until every pod of the tiers is ready, and returns them.
func (r *run) allReady() (pods []*world.Pod) {
	r.Helper()
	r.must(w.Until(r.Context(), "the tiers are ready", func() bool {
		pods = w.RunningTiers()
		return len(pods) > 0 && !slices.ContainsFunc(pods, func(p *world.Pod) bool { return !p.Ready() })
	}))
	return pods
}

// kill kills a process of a pod, waits until its successor serves, and records the kill.
func (r *run) kill(l *loading, what string, p *world.Pod) {
	r.Helper()
	container, pid, signal := proxy, p.PID(proxy), syscall.SIGKILL
	var err error
	switch what {
	case "envoy":
		pid, err = p.Below(proxy, "envoy")
	case "exit", "memory":
		container, signal = "app", syscall.SIGUSR1
		if what == "memory" {
			signal = syscall.SIGUSR2
		}
		pid, err = p.Below("app", "app")
	}
	r.must(err)
	if pid < 1 {
		r.Fatalf("%s of %s does not run\n%s", what, p.Name, p.Describe())
	}
	ready, restarts := healthy(p), p.Restarts(container)
	kill := load.Kill{What: what, Pod: p.Name, Service: world.TierHost(p.Spec().Labels["app"]), Before: time.Now()}
	r.must(syscall.Kill(pid, signal))
	process.AwaitEnd(r, pid)
	kill.After = time.Now()
	l.note("%s of %s was killed", what, p.Name)
	r.until(p, what+" is back", func() bool {
		if what == "envoy" {
			return healthy(p) > ready
		}
		return p.Restarts(container) > restarts && p.Ready()
	})
	kill.Back = time.Now()
	l.kills = append(l.kills, kill)
	l.note("%s of %s is back", what, p.Name)
}
