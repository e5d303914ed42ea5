package verify

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

func plan(t testing.TB, text string) startup.Plan {
	t.Helper()
	p, err := startup.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Pods and their plans. Most are named after the mechanism that keeps the order.
var (
	everySecond = kubelet.Probe{Handler: kubelet.Exec, Period: time.Second, Failures: 3}

	unordered = kubelet.Pod{Containers: []kubelet.Container{{Name: "app"}, {Name: "proxy"}}}
	held      = kubelet.Pod{Containers: []kubelet.Container{{Name: "proxy", PostStart: kubelet.Exec}, {Name: "app"}}}
	native    = kubelet.Pod{Init: []kubelet.Container{{Name: "proxy", Restart: kubelet.Always, Startup: everySecond}},
		Containers: []kubelet.Container{{Name: "app"}}}
	nativeHook = kubelet.Pod{Init: []kubelet.Container{{Name: "proxy", Restart: kubelet.Always, PostStart: kubelet.Exec}},
		Containers: []kubelet.Container{{Name: "app"}}}
	nativeTwo = kubelet.Pod{Init: nativeHook.Init, Containers: []kubelet.Container{{Name: "app"}, {Name: "web"}}}
	chain     = kubelet.Pod{Containers: []kubelet.Container{{Name: "web"}, {Name: "app"}, {Name: "proxy"}}}
	impatient = kubelet.Pod{Containers: []kubelet.Container{{Name: "app", Liveness: everySecond}, {Name: "proxy"}}, Grace: 2 * time.Second}
	job       = kubelet.Pod{Restart: kubelet.OnFailure, Containers: unordered.Containers}
	initFirst = kubelet.Pod{Init: []kubelet.Container{{Name: "init"}}, Containers: []kubelet.Container{{Name: "proxy"}, {Name: "app"}}}
	injected  = kubelet.Pod{Init: []kubelet.Container{{Name: "init"}}, Containers: []kubelet.Container{probed("app"), probed("web"), {Name: "log"}}}
	migrated  = kubelet.Pod{Init: []kubelet.Container{{Name: "migrate"}}, Containers: []kubelet.Container{{Name: "app"}}}
)

const (
	unorderedPlan  = "container app is plain\ncontainer proxy is plain, healthy by report\napp after proxy is healthy"
	gatePlan       = unorderedPlan + ", by gate"
	holdPlan       = "container proxy is plain, healthy by post-start\ncontainer app is plain\napp after proxy is healthy, by hold"
	hookedPlan     = "container proxy is plain, healthy by post-start, outlives app\ncontainer app is plain\napp after proxy is healthy, by hold"
	nativePlan     = "container proxy is sidecar, healthy by startup-probe\ncontainer app is plain\napp after proxy is healthy, by native"
	nativeHookPlan = "container proxy is sidecar, healthy by post-start\ncontainer app is plain\napp after proxy is healthy, by native"
	nativeTwoPlan  = "container proxy is sidecar, healthy by post-start\ncontainer app is plain\ncontainer web is plain\n* after proxy is healthy, by native"
	chainPlan      = "container web is plain\ncontainer app is plain, healthy by report\ncontainer proxy is plain, healthy by report\n" +
		"web after app is healthy, by gate\napp after proxy is healthy, by gate"
	initFirstPlan = "container init is init\ncontainer proxy is plain, healthy by report\ncontainer app is plain\n" +
		"app after proxy is healthy, by gate\nproxy after init is completed, by init\napp after init is completed, by init"
	injectedPlan = "container init is init\ncontainer app is plain, healthy by report\ncontainer web is plain, healthy by report\ncontainer log is plain\n" +
		"app after web is healthy, by gate\n* after init is completed, by init"
	migratePlan = "container migrate is init\ncontainer app is plain\napp after migrate is completed, by init"
)

// probed returns a container with the probes that injection writes for a gate in front of a server.
func probed(name string) kubelet.Container {
	return kubelet.Container{Name: name, Liveness: kubelet.Probe{Handler: kubelet.HTTPGet},
		Startup: kubelet.Probe{Handler: kubelet.Gate, Period: time.Second, Timeout: 10 * time.Second, Failures: math.MaxInt32}}
}

// withPreStop returns a pod with an application and a native sidecar that stops after it. The sidecar has a preStop
// hook, and the application has the hooks and probes of the parameter.
func withPreStop(hook kubelet.Container) kubelet.Pod {
	proxy := nativeHook.Init[0]
	proxy.PreStop, hook.Name = kubelet.Exec, "app"
	return kubelet.Pod{Init: []kubelet.Container{proxy}, Containers: []kubelet.Container{hook}}
}

func explore(t testing.TB, q Question, b Bound) Result {
	t.Helper()
	if q.Version == (kubelet.Version{}) {
		q.Version = kubelet.Minor(34)
	}
	r, err := Explore(context.Background(), q, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// For each mechanism and kind of fault, Explore finds the known counterexample, or none if the plan holds.
func TestExplore(t *testing.T) {
	stale := gates.Gate{AcceptsStale: true}
	deaths := []Fault{Crash}
	tests := map[string]struct {
		question Question
		plan     string
		bound    Bound
		want     []string // the counterexample; nil: the plan holds
	}{
		"no order at all":                          {Question{Pod: unordered}, unorderedPlan, Bound{}, []string{"app started"}},
		"a hold, where nothing goes wrong":         {Question{Pod: held}, holdPlan, Bound{Faults: -1}, nil},
		"a hold whose image is missing fails open": {Question{Pod: held}, holdPlan, Bound{Faults: 1}, []string{"app started"}},
		"a hold whose hook fails, fails open": {Question{Pod: held}, holdPlan, Bound{Only: []Fault{BadHook}},
			[]string{"proxy started", "proxy hook-failed", "proxy stopping", "proxy completed", "app started"}},
		"a native sidecar, where nothing goes wrong":             {Question{Pod: native}, nativePlan, Bound{Faults: -1}, nil},
		"a native sidecar with a hook, where nothing goes wrong": {Question{Pod: nativeHook}, nativeHookPlan, Bound{Faults: -1}, nil},
		"a native sidecar that dies while the app's image is pulled": {Question{Pod: nativeHook}, nativeHookPlan, Bound{Only: deaths},
			[]string{"proxy started", "proxy healthy", "proxy failed", "app started"}},
		"a native sidecar that dies after the app started, which then crashes": {Question{Pod: nativeHook}, nativeHookPlan, Bound{Only: deaths, Settled: true},
			[]string{"proxy started", "proxy healthy", "app started", "app failed", "proxy failed", "app started"}},
		"a native sidecar that dies after the app started, which is to follow": {Question{Pod: nativeHook},
			strings.ReplaceAll(nativeHookPlan, ", by", ", on restart restart, by"), Bound{Faults: 1, Only: deaths, Settled: true},
			[]string{"proxy started", "proxy healthy", "app started", "proxy failed", "proxy started"}},
		"two apps, one of which restarts while the native sidecar is down": {Question{Pod: nativeTwo}, nativeTwoPlan, Bound{Only: deaths, Settled: true},
			[]string{"proxy started", "proxy healthy", "app started", "web started", "app failed", "proxy failed", "app started"}},
		"two containers, one of which restarts while the held proxy is down": {Question{Pod: held}, holdPlan, Bound{Only: deaths, Settled: true},
			[]string{"proxy started", "proxy healthy", "app started", "app failed", "proxy failed", "app started"}},
		"an init container": {Question{Pod: migrated}, migratePlan, Bound{}, nil},

		"a gate, proxy first":                   {Question{Pod: held}, strings.ReplaceAll(holdPlan, "by hold", "by gate"), Bound{}, nil},
		"a gate in front of a native sidecar":   {Question{Pod: nativeHook}, strings.ReplaceAll(nativeHookPlan, "by native", "by gate"), Bound{Faults: 2}, nil},
		"gates, two apps, and a native sidecar": {Question{Pod: nativeTwo}, strings.ReplaceAll(nativeTwoPlan, "by native", "by gate"), Bound{Faults: 2}, nil},
		"gates in a chain":                      {Question{Pod: chain}, chainPlan, Bound{Faults: 2}, nil},
		"gates that follow restarts":            {Question{Pod: unordered}, gatePlan + ", on restart restart", Bound{}, nil},
		"a gate with a timeout":                 {Question{Pod: unordered}, gatePlan + ", within 5s", Bound{Faults: 1}, nil},
		"a gate that goes on after its timeout": {Question{Pod: unordered}, gatePlan + ", within 5s or continue", Bound{Faults: 2}, nil},
		"a gate that goes on while another one has to follow a restart": {Question{Pod: kubelet.Pod{Containers: append([]kubelet.Container{{Name: "web"}}, unordered.Containers...)}},
			"container web is plain\n" + gatePlan + ", on restart restart\nweb after proxy is healthy, within 5s or continue, by gate", Bound{Faults: 1, Only: deaths}, nil},
		"a gate before an optional proxy": {Question{Pod: unordered}, gatePlan + ", optional", Bound{Faults: 2}, nil},
		"a gate after one that completes": {Question{Pod: job}, "container app is plain, restart on-failure\ncontainer proxy is plain, restart on-failure\napp after proxy is completed, by gate", Bound{Faults: 2}, nil},
		"a gate that accepts a stale record": {Question{Pod: unordered, Gate: stale}, gatePlan, Bound{},
			[]string{"app waiting", "proxy started", "proxy healthy", "proxy failed", "app started"}},
		"a gate that accepts the record of an earlier sandbox": {Question{Pod: job, Gate: stale},
			"container app is plain\ncontainer proxy is plain, restart on-failure\napp after proxy is completed, by gate", Bound{Only: []Fault{NoSandbox}},
			[]string{"app waiting", "proxy started", "proxy completed", "app failed", "sandbox", "app started"}},
		"a gate that waits at the first start only": {Question{Pod: unordered, Gate: gates.Gate{OnlyFirst: true}}, gatePlan, Bound{Only: deaths},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "app failed", "proxy failed", "app started"}},
		"a gate that stops at once": {Question{Pod: unordered, Promise: Stops, Gate: gates.Gate{StopsAtOnce: true}}, gatePlan, Bound{Faults: -1},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "app stopping", "proxy stopping", "proxy completed", "app completed"}},
		"a gate that the kubelet kills for its liveness": {Question{Pod: impatient}, gatePlan, Bound{Faults: -1}, nil},
		"a health loop": {Question{Pod: unordered}, unorderedPlan + ", by health-loop", Bound{}, nil},
		"a sleep":       {Question{Pod: unordered}, unorderedPlan + ", by sleep", Bound{}, []string{"app waiting", "app started"}},

		"a loop that gives up": {Question{Pod: unordered}, unorderedPlan + ", by bounded-loop", Bound{Faults: -1}, []string{"app waiting", "app started"}},
		"a wrapper":            {Question{Pod: unordered}, unorderedPlan + ", by wrapper", Bound{}, nil},
		"a wrapper does not stop in order": {Question{Pod: unordered, Promise: Stops}, unorderedPlan + ", by wrapper", Bound{Faults: -1},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "app stopping", "proxy stopping", "proxy completed", "app completed"}},
		"a gate stops in order, proxy first, after an init container": {Question{Pod: initFirst, Promise: Stops}, initFirstPlan, Bound{Faults: 1}, nil},

		"a hold does not stop in order": {Question{Pod: held, Promise: Stops}, holdPlan, Bound{Faults: -1},
			[]string{"proxy started", "proxy healthy", "app started", "deleted", "proxy stopping", "app stopping", "proxy completed", "app completed"}},
		"a native sidecar stops in order": {Question{Pod: nativeHook, Promise: Stops}, nativeHookPlan, Bound{Faults: -1}, nil},
		"a native sidecar whose restart is just failing stops before the app": {Question{Pod: nativeHook, Promise: Stops}, nativeHookPlan, Bound{Faults: 2},
			[]string{"proxy started", "proxy healthy", "app started", "proxy failed", "proxy started", "proxy hook-failed", "proxy stopping",
				"deleted", "proxy completed", "app stopping", "app completed"}},
		"a native sidecar stops after an app with a preStop": {Question{Pod: withPreStop(kubelet.Container{PreStop: kubelet.Exec}), Promise: Stops}, nativeHookPlan, Bound{Faults: -1}, nil},
		"a native sidecar stops after an app whose preStop sleeps for most of the grace period": {
			Question{Pod: withPreStop(kubelet.Container{PreStop: kubelet.Sleep, PreStopSleep: 28 * time.Second}), Promise: Stops}, nativeHookPlan, Bound{Faults: -1}, nil},
		"a native sidecar stops with an app whose preStop sleeps for all of the grace period": {
			Question{Pod: withPreStop(kubelet.Container{PreStop: kubelet.Sleep, PreStopSleep: 30 * time.Second}), Promise: Stops}, nativeHookPlan, Bound{Faults: -1},
			[]string{"proxy started", "proxy healthy", "app started", "deleted", "proxy stopping", "app stopping", "proxy completed", "app completed"}},
		"gates that are killed in one instant": {Question{Pod: kubelet.Pod{Grace: 2 * time.Second, Containers: []kubelet.Container{{Name: "proxy"}, {Name: "app"}, {Name: "web"}}}, Promise: Stops},
			"container proxy is plain, healthy by report\ncontainer app is plain\ncontainer web is plain\n* after proxy is healthy, by gate", Bound{Faults: -1}, nil},
		"gates stop in order, after a preStop": {Question{Pod: kubelet.Pod{Containers: []kubelet.Container{{Name: "app", PreStop: kubelet.HTTPGet}, {Name: "proxy", PreStop: kubelet.Exec}}}, Promise: Stops},
			gatePlan, Bound{Faults: 1}, nil},
		"a gate gives up when an app takes most of the grace period": {Question{Pod: kubelet.Pod{Grace: 10 * time.Second, Containers: []kubelet.Container{{Name: "app", PreStop: kubelet.Sleep, PreStopSleep: 9 * time.Second}, {Name: "proxy"}}}, Promise: Stops},
			gatePlan, Bound{Faults: -1}, []string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "proxy stopping", "proxy completed", "app stopping", "app completed"}},
		"gates do not order stops without a grace period": {Question{Pod: kubelet.Pod{Grace: time.Nanosecond, Containers: unordered.Containers}, Promise: Stops}, gatePlan, Bound{Faults: -1},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "app stopping", "proxy stopping", "proxy completed", "app completed"}},
		"nor do they after a preStop": {Question{Pod: kubelet.Pod{Grace: time.Nanosecond, Containers: []kubelet.Container{{Name: "app", PreStop: kubelet.HTTPGet}, {Name: "proxy"}}}, Promise: Stops}, gatePlan, Bound{Faults: -1},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "proxy stopping", "proxy completed", "app stopping", "app completed"}},
		"a gate gives up at the end of a preStop that takes all its patience": {Question{Pod: kubelet.Pod{Grace: 10 * time.Second, Containers: []kubelet.Container{{Name: "app", PreStop: kubelet.Sleep, PreStopSleep: 8 * time.Second}, {Name: "proxy"}}}, Promise: Stops}, gatePlan, Bound{Faults: -1},
			[]string{"app waiting", "proxy started", "proxy healthy", "app started", "deleted", "proxy stopping", "app stopping", "proxy completed", "app completed"}},
		"a hook that waits for sockets stops in order": {Question{Pod: hooked(30 * time.Second), Promise: Stops}, hookedPlan, Bound{Faults: -1}, nil},
		"a hook that waits for sockets without a grace period": {Question{Pod: hooked(time.Nanosecond), Promise: Stops}, hookedPlan, Bound{Faults: -1},
			[]string{"proxy started", "proxy healthy", "app started", "deleted", "app stopping", "proxy stopping", "proxy completed", "app completed"}},
		"gates stop in order":            {Question{Pod: unordered, Promise: Stops}, gatePlan, Bound{Faults: 2}, nil},
		"gates in a chain stop in order": {Question{Pod: chain, Promise: Stops}, chainPlan, Bound{Faults: 1}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.question.Plan = plan(t, tt.plan)
			r := explore(t, tt.question, tt.bound)
			t.Logf("%d states, %d steps, %d deep, %s", r.States, r.Steps, r.Depth, r.Took.Round(time.Millisecond))
			if diff := cmp.Diff(tt.want, lines(r.Counterexample)); diff != "" {
				t.Errorf("counterexample (-want +got):\n%s\n%+v", diff, r)
			}
			if r.Holds() != (tt.want == nil) {
				t.Errorf("Holds is %v\n%+v", r.Holds(), r)
			}
		})
	}
}

// A container that still runs when its dependency has ended may end in the same instant, so that is no violation yet.
func TestDecided(t *testing.T) {
	s := search{question: Question{Promise: Stops}}
	open, over := startup.Violation{How: startup.OutlivedDependency, By: startup.Forever}, startup.Violation{How: startup.OutlivedDependency, By: time.Second}
	early := startup.Violation{How: startup.StartedTooEarly} // breaks the other promise
	if diff := cmp.Diff([]startup.Violation{over}, s.decided([]startup.Violation{open, early, over})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// hooked returns a pod whose proxy has a hold, and a preStop hook that waits for the application.
func hooked(grace time.Duration) kubelet.Pod {
	return kubelet.Pod{Grace: grace, Containers: []kubelet.Container{{Name: "proxy", PostStart: kubelet.Exec, PreStop: kubelet.Gate}, {Name: "app"}}}
}

// lines formats a timeline without times and addresses.
func lines(t startup.Timeline) (out []string) {
	for _, e := range t {
		if e.What != startup.HasAddress {
			out = append(out, strings.TrimSpace(e.Container+" "+string(e.What)))
		}
	}
	return out
}

func TestBounds(t *testing.T) {
	q := Question{Pod: nativeTwo, Plan: plan(t, strings.ReplaceAll(nativeTwoPlan, "by native", "by gate")), Version: kubelet.Minor(34)}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := map[string]struct {
		ctx    context.Context
		bound  Bound
		want   CutShort
		proved int
	}{
		"states":    {context.Background(), Bound{States: 5000}, ByStates, 1},
		"depth":     {context.Background(), Bound{Depth: 6}, ByDepth, -1},
		"time":      {context.Background(), Bound{Time: time.Nanosecond}, ByTime, -1},
		"cancelled": {cancelled, Bound{}, Cancelled, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Explore(tt.ctx, q, tt.bound, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.CutShort != tt.want || r.Holds() || r.Counterexample != nil {
				t.Errorf("cut short by %q, want %q\n%+v", r.CutShort, tt.want, r)
			}
			if r.Proved != tt.proved {
				t.Errorf("proved with up to %d faults, want %d", r.Proved, tt.proved)
			}
		})
	}
}

// Three containers with probes, an edge and a fault: without reductions the starts alone have 262,000 states.
func TestThreeContainersEnd(t *testing.T) {
	for promise, most := range map[Promise]int{Starts: 8_000, Stops: 16_000} { // any order: two tests
		r := explore(t, Question{Pod: injected, Plan: plan(t, injectedPlan), Promise: promise}, Bound{Faults: 1, Time: time.Hour})
		if !r.Holds() || r.States > most {
			t.Errorf("%q: %d states, want %d at most: %+v", promise, r.States, most, r)
		}
	}
}

// When the pod stops, its init containers have ended and their order cannot be violated, so no run is replayed.
func TestCompletedContainersCostNoReplay(t *testing.T) {
	s := newSearch(Question{Pod: migrated, Plan: plan(t, migratePlan), Version: kubelet.Minor(34), Promise: Stops}, Bound{Faults: 1, States: 1 << 20}, nil)
	s.run(context.Background())
	if !s.result.Holds() || s.result.States < 100 || s.replayed > 0 {
		t.Errorf("%d steps replayed in %d states: %+v", s.replayed, s.result.States, s.result)
	}
}

// A countingContext counts the calls of Err.
type countingContext struct {
	context.Context
	checks int
}

func (c *countingContext) Err() error { c.checks++; return c.Context.Err() }

// A replay takes longer than the expansion of a state, so the time bound is also checked between replays.
func TestTimeIsCheckedBetweenReplays(t *testing.T) {
	ctx := &countingContext{Context: context.Background()}
	q := Question{Pod: unordered, Plan: plan(t, gatePlan+", optional"), Version: kubelet.Minor(34)}
	s := newSearch(q, Bound{Faults: 2, States: 1 << 20}, nil)
	s.run(ctx)
	if s.replayed < 10*everySteps || ctx.checks < s.replayed/everySteps {
		t.Errorf("%d checks in %d replayed steps of %d states", ctx.checks, s.replayed, s.result.States)
	}
}

// A search reports its progress. This one allows more faults than the other tests, so that it takes long enough.
func TestProgressIsReported(t *testing.T) {
	var last Progress
	calls := 0
	r, err := Explore(context.Background(), Question{Pod: unordered, Plan: plan(t, gatePlan), Version: kubelet.Minor(34)}, Bound{Faults: 3},
		func(p Progress) {
			if p.Faults > last.Faults {
				last = Progress{}
			}
			if calls++; p.States < last.States || p.Depth < last.Depth || p.Open == 0 {
				t.Errorf("after %+v comes %+v", last, p)
			}
			last = p
		})
	if err != nil || calls == 0 || !r.Holds() {
		t.Errorf("%d reports, error %v\n%+v", calls, err, r)
	}
}

func TestAPlanOfAnotherPodIsRefused(t *testing.T) {
	for name, pod := range map[string]kubelet.Pod{"too few": {}, "too many": nativeTwo} {
		_, err := Explore(context.Background(), Question{Pod: pod, Plan: plan(t, nativeHookPlan)}, Bound{}, nil)
		if err == nil {
			t.Errorf("a pod with %s containers is explored", name)
		}
	}
}

// The search calls Check only if mayViolate returns true. So in random runs mayViolate must return true at the step
// at which Check finds a violation.
func TestNoViolationIsMissed(t *testing.T) {
	follows := strings.ReplaceAll(nativeHookPlan, ", by", ", on restart restart, by")
	for name, q := range map[string]Question{
		"unordered": {Pod: unordered, Plan: plan(t, unorderedPlan)},
		"hold":      {Pod: held, Plan: plan(t, holdPlan)},
		"native":    {Pod: nativeTwo, Plan: plan(t, nativeTwoPlan)},
		"optional":  {Pod: unordered, Plan: plan(t, unorderedPlan+", optional")},
		"stale":     {Pod: unordered, Plan: plan(t, gatePlan), Gate: gates.Gate{AcceptsStale: true}},
		"follows":   {Pod: nativeHook, Plan: plan(t, follows)},
		"stops":     {Pod: held, Plan: plan(t, holdPlan), Promise: Stops},
	} {
		rng := rand.New(rand.NewPCG(5, 6))
		q.Version = kubelet.Minor(34)
		s := newSearch(q, Bound{Only: []Fault{Crash, Kill}}.withDefaults(), nil) // other faults rarely break these plans
		violated := 0
		for runs := 0; violated < 10 && runs < 3000; runs++ {
			n, timeline := s.root(), startup.Timeline(nil)
			for range 60 {
				moves := s.moves(n)
				if len(moves) == 0 {
					break
				}
				var happened startup.Timeline
				n, happened = s.make(n, moves[rng.IntN(len(moves))])
				timeline = append(timeline, happened...)
				violations := s.decided(startup.Check(q.Plan, timeline))
				if len(violations) == 0 {
					continue
				}
				if violated++; !s.mayViolate(n, happened) {
					t.Fatalf("%s: mayViolate misses %v\n%s", name, violations, timeline)
				}
				break
			}
		}
		if violated < 10 {
			t.Errorf("%s: only %d runs violate the plan, so nothing was tested", name, violated)
		}
	}
}

// The search expands only one of the states that have the same key. A search that expands all of them finds the same
// counterexample and no other keys.
func TestStatesWithOneKeyBehaveAlike(t *testing.T) {
	stale := gates.Gate{AcceptsStale: true}
	for name, q := range map[string]Question{
		"hold":       {Pod: held, Plan: plan(t, holdPlan)},
		"gate":       {Pod: unordered, Plan: plan(t, gatePlan)},
		"stale":      {Pod: unordered, Plan: plan(t, gatePlan), Gate: stale},
		"timeout":    {Pod: unordered, Plan: plan(t, gatePlan+", within 1s")},
		"nativeTwo":  {Pod: nativeTwo, Plan: plan(t, nativeTwoPlan)},
		"hold stops": {Pod: held, Plan: plan(t, holdPlan), Promise: Stops},
	} {
		q.Version = kubelet.Minor(34)
		b := Bound{Faults: 1, Depth: 14, States: 1 << 30}.withDefaults()
		run := func() (one, two *search) {
			one, two = newSearch(q, b, nil), newSearch(q, b, nil)
			one.full, two.full, two.forgetful = true, true, true
			one.run(context.Background())
			two.run(context.Background())
			return one, two
		}
		one, two := run()
		if diff := cmp.Diff(lines(two.result.Counterexample), lines(one.result.Counterexample)); diff != "" {
			t.Errorf("%s (-all +one of each key):\n%s", name, diff)
		}
		if one.result.Counterexample != nil { // in its depth the searches do not expand all states
			b.Depth = one.result.Depth - 1
			one, two = run()
		}
		if len(one.seen) != len(two.seen) {
			t.Errorf("%s: %d keys, and %d if all are expanded", name, len(one.seen), len(two.seen))
		}
		t.Logf("%s: %d steps instead of %d", name, one.result.Steps, two.result.Steps)
	}
}

func BenchmarkExplore(b *testing.B) {
	for _, bb := range []struct {
		name, plan string
		pod        kubelet.Pod
		promise    Promise
		bound      Bound
	}{
		{"gate", gatePlan, unordered, Starts, Bound{Faults: 5}},
		{"gates-and-native", strings.ReplaceAll(nativeTwoPlan, "by native", "by gate"), nativeTwo, Starts, Bound{Faults: 2}},
		{"three-with-probes", injectedPlan, injected, Starts, Bound{Faults: 1}},
		{"three-with-probes-stop", injectedPlan, injected, Stops, Bound{Faults: 1}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			q := Question{Pod: bb.pod, Plan: plan(b, bb.plan), Promise: bb.promise}
			states, deep := 0, 0
			for b.Loop() {
				r := explore(b, q, bb.bound)
				states, deep = states+r.States, r.Depth
			}
			b.ReportMetric(float64(states)/b.Elapsed().Seconds(), "states/s")
			b.ReportMetric(float64(states)/float64(b.N), "states")
			b.ReportMetric(float64(deep), "depth")
		})
	}
}

// No probe of the kubelet stops a container while its gate waits, whatever happens. The number of states is bounded,
// although the wait and the failures of the startup probe are not.
func TestNoProbeStopsAGateThatWaits(t *testing.T) {
	gated := kubelet.Probe{Handler: kubelet.Gate, Period: time.Second, Timeout: 10 * time.Second, Failures: math.MaxInt32}
	explored := func(first kubelet.Probe) (stopped bool, states int) {
		q := Question{Pod: kubelet.Pod{Containers: []kubelet.Container{{Name: "app", Startup: first, Liveness: everySecond}, {Name: "proxy"}}}, Version: kubelet.Minor(34)}
		q.Plan = plan(t, gatePlan)
		s := newSearch(q, Bound{Faults: 1}, nil)
		root := s.root()
		s.visit(&root)
		for open := []node{root}; len(open) > 0; open = open[1:] {
			for _, a := range open[0].kubelet.Open() {
				if a.Kind == kubelet.Stop && open[0].gates.Waits(a.Container) {
					return true, len(s.seen)
				}
			}
			for _, m := range s.moves(open[0]) {
				if to, _ := s.make(open[0], m); s.visit(&to) {
					open = append(open, to)
				}
			}
			if len(s.seen) > 100_000 {
				t.Fatal("more than 100,000 states")
			}
		}
		return stopped, len(s.seen)
	}
	if stops, states := explored(gated); stops {
		t.Error("a container is stopped while its gate waits")
	} else {
		t.Logf("%d states", states)
	}
	if stops, _ := explored(kubelet.Probe{}); !stops {
		t.Error("without a startup probe no container is stopped: this test sees nothing")
	}
}
