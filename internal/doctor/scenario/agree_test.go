package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
	"outrider.dev/test/tier"
)

// agreePods is the environment variable that selects the long form of the test. Its value is a number of seeds, or
// the first and the last seed as in 476-476.
const agreePods = "OUTRIDER_AGREE_PODS"

// An effort is the size of a test: the seeds, and for each claim the number of states in the search and of simulated
// runs. A search that needs more states proves the claim only for fewer faults.
type effort struct {
	first, last  uint64 // seeds
	states, runs int
}

var (
	shortForm = effort{last: 23, states: 3_000, runs: 20}
	longForm  = effort{last: 1999, states: 4_000, runs: 200}
)

// disagreed lists the seeds whose pods once revealed a disagreement of the tools. The short form includes them.
var disagreed = []uint64{9, 83, 107, 161, 309, 342, 476, 803, 1197, 1258}

func (e effort) seeds() (out []uint64) {
	for seed := e.first; seed <= e.last; seed++ {
		if e != shortForm || tier.Sample(fmt.Sprintf("seed %d", seed), 3) {
			out = append(out, seed)
		}
	}
	if e == shortForm {
		out = append(out, disagreed...)
	}
	return out
}

func effortOf(t *testing.T) effort {
	text := os.Getenv(agreePods)
	if text == "" {
		return shortForm
	}
	out := longForm
	n, _ := fmt.Sscanf(text, "%d-%d", &out.first, &out.last)
	if n == 1 {
		out.first, out.last = 0, out.first-1
	}
	if n == 0 || out.last < out.first || out.last > 1e9 {
		t.Fatalf("%s=%q: must be a number of pods, or FIRST-LAST", agreePods, text)
	}
	return out
}

// plan, simulate, verify and the model of the kubelet agree on random pods, before and after injection:
//   - verify finds no violation of an edge that plan calls kept;
//   - if verify proves a plan for a number of faults, no simulated run with that many faults violates it;
//   - the simulator replays, step by step, every counterexample of verify;
//   - if nothing fails, the model of the kubelet alone starts the containers in the order of plan.
func TestToolsAgree(t *testing.T) {
	c := &agreement{effort: effortOf(t)}
	seeds := c.effort.seeds()
	for _, seed := range seeds {
		text := randomPod(rand.New(rand.NewPCG(seed, 15)))
		for i, injected := range []bool{false, true} {
			if err := c.pod(rand.New(rand.NewPCG(seed, uint64(16+i))), text, injected); err != nil {
				t.Errorf("seed %d, injected %t: %v\n%s", seed, injected, err, text)
			}
		}
	}
	t.Logf("seeds %d to %d: %s", c.effort.first, c.effort.last, c)
	if c.effort == shortForm {
		t.Logf("%d of %d seeds, all of them with OUTRIDER_NIGHTLY=1", len(seeds), int(shortForm.last)+1+len(disagreed))
	}
	if c.effort.last-c.effort.first < shortForm.last {
		return
	}
	if c.Subjects < len(seeds) || c.Holds == 0 || c.RunsWithFaults == 0 || c.WithFaults == 0 || c.Starts == 0 {
		t.Errorf("too little was compared: %s", c)
	}
}

// An agreement compares the answers of the tools, and counts the comparisons.
type agreement struct {
	effort effort

	Subjects, Refused                   int
	Searches, Holds, Fewer, Cut, Broken int
	WithFaults, Replayed                int // parts of Broken
	Runs, RunsWithFaults, Starts        int
}

func (c *agreement) String() string {
	return fmt.Sprintf("%d pods, %d refused; %d searches: %d hold, %d hold with fewer faults than asked, %d were cut short before, %d broken (%d by faults, %d replayed step by step); "+
		"%d random runs (%d with faults); %d edges against the kubelet's model alone",
		c.Subjects, c.Refused, c.Searches, c.Holds, c.Fewer, c.Cut, c.Broken, c.WithFaults, c.Replayed, c.Runs, c.RunsWithFaults, c.Starts)
}

func (c *agreement) pod(rng *rand.Rand, text string, injected bool) error {
	objects, _, err := podfile.Parse("pod.yaml", []byte(text))
	if err != nil {
		return err
	}
	o := objects[0]
	if injected {
		r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "default"}, inject.Options{Manual: true, Kubernetes: 34})
		var refusal *verdict.Refusal
		if errors.As(err, &refusal) {
			c.Refused++
			return nil
		}
		if err != nil {
			return err
		}
		o.Pod = *r.Pod
	}
	s, err := NewSubject(o, 34)
	var unworkable *plan.Error
	if errors.As(err, &unworkable) {
		c.Refused++
		return nil
	}
	if err != nil {
		return err
	}
	c.Subjects++
	report, err := plan.New(o, 34, false)
	if err != nil {
		return err
	}
	return errors.Join(c.alone(s, report), c.starts(rng, s, report), c.stops(rng, s, report))
}

// alone compares plan's order with the order in which the model of the kubelet starts the containers if every action
// succeeds at once. It omits the edges whose waits happen inside containers, because the kubelet does not know them.
func (c *agreement) alone(s Subject, report plan.Report) error {
	state, at := kubelet.New(s.pod, kubelet.Minor(34)), map[string]int{}
	event := kubelet.Event{Kind: kubelet.Added}
	for step := 1; step < 10_000; step++ {
		state, _ = state.Step(event)
		if event.Kind == kubelet.Started || event.Kind == kubelet.Exited {
			at[string(event.Kind)+event.Container] = step
		}
		if next, ok := nextOf(s, state); ok {
			event = next
		} else {
			break
		}
	}
	for _, e := range report.Edges {
		from := string(kubelet.Started) + e.From
		switch {
		case e.Start == startup.Nowhere.String() || !slices.Contains([]startup.Mechanism{startup.InitDone, startup.Native, startup.Hold}, e.By):
			continue
		case e.After == startup.Completed:
			from = string(kubelet.Exited) + e.From
		}
		c.Starts++
		if to := string(kubelet.Started) + e.To; at[from] == 0 || at[to] < at[from] {
			return fmt.Errorf("plan keeps %q, the kubelet's model does not: %v", e.Edge, at)
		}
	}
	return nil
}

// nextOf returns the next event if nothing fails: a successful answer to an action of the kubelet, the end of an init
// container, or a timer. It returns false when all containers run.
func nextOf(s Subject, state kubelet.State) (kubelet.Event, bool) {
	for _, a := range state.Open() {
		if e, answered := a.Answer(state.Now(), true); answered {
			return e, true
		}
	}
	running := state.Running()
	for _, name := range running {
		if c, _ := s.Plan.Find(name); c.Kind == startup.Init {
			return kubelet.Event{At: state.Now(), Kind: kubelet.Exited, Container: name}, true
		}
	}
	at, due := state.Next()
	return kubelet.Event{At: at, Kind: kubelet.Tick}, due && len(running) < len(s.pod.Containers)+sidecars(s.pod)
}

func sidecars(p kubelet.Pod) (n int) {
	for _, c := range p.Init {
		if c.Restart == kubelet.Always {
			n++
		}
	}
	return n
}

// starts checks two claims of plan: the edges kept at the first start hold without faults, and the edges kept at
// every start hold with one fault.
func (c *agreement) starts(rng *rand.Rand, s Subject, report plan.Report) error {
	first := func(e plan.Edge) bool { return e.Start != startup.Nowhere.String() }
	every := func(e plan.Edge) bool { return e.Start == startup.EveryStart.String() }
	return errors.Join(
		c.claim(rng, s, verify.Starts, -1, claimed(s, report, first), keptBy(report, first)),
		c.claim(rng, s, verify.Starts, 1, claimed(s, report, every), keptBy(report, every)),
		c.claim(rng, s, verify.Starts, 1, s.Plan, keptBy(report, every)))
}

func (c *agreement) stops(rng *rand.Rand, s Subject, report plan.Report) error {
	stops := func(e plan.Edge) bool { return e.Stop }
	return errors.Join(
		c.claim(rng, s, verify.Stops, -1, claimed(s, report, stops), keptBy(report, stops)),
		c.claim(rng, s, verify.Stops, -1, s.Plan, keptBy(report, stops)),
		c.claim(rng, s, verify.Stops, 1, claimed(s, report, stops), nothing)) // plan claims nothing about stops with faults
}

func nothing(startup.Edge) bool { return false }

// keptBy returns a function that reports whether the plan keeps an edge.
func keptBy(report plan.Report, keeps func(plan.Edge) bool) func(startup.Edge) bool {
	return func(e startup.Edge) bool {
		return e.By != "" && slices.ContainsFunc(report.Edges, func(r plan.Edge) bool { return r.Edge == e && keeps(r) })
	}
}

// claimed returns the plan with only two kinds of edges: those that the report calls kept, and those that a mechanism
// inside a container keeps. The second kind stays because without it the simulated containers would not wait.
func claimed(s Subject, report plan.Report, keeps func(plan.Edge) bool) startup.Plan {
	out := startup.Plan{Containers: s.Plan.Containers}
	for _, e := range s.Plan.Edges {
		within := e.By == startup.Gate || slices.Contains(startup.WorkArounds, e.By) || e.By == startup.Wrapper
		if within || keptBy(report, keeps)(e) {
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}

// claim verifies a plan, and compares the answer with the claims of the report and with simulated runs. Each search
// tries only some kinds of faults, so that more of the searches complete.
func (c *agreement) claim(rng *rand.Rand, s Subject, promise verify.Promise, faults int, p startup.Plan, kept func(startup.Edge) bool) error {
	if len(p.Edges) == 0 {
		return nil
	}
	c.Searches++
	kinds := faultKinds[rng.IntN(len(faultKinds))]
	r, err := verify.Explore(context.Background(), s.question(p, promise),
		verify.Bound{Faults: faults, Only: kinds, States: c.effort.states, Time: time.Hour}, nil)
	if err != nil {
		return err
	}
	switch {
	case r.Counterexample != nil:
		c.Broken++
		return c.broken(s, p, r, kept)
	case r.Proved >= 0 && r.CutShort != "":
		c.Fewer++
	case r.CutShort != "":
		c.Cut++
	default:
		c.Holds++
	}
	if r.Proved < 0 {
		return nil
	}
	for range c.effort.runs {
		b := randomBehaviour(rng, s, promise, r.Proved, kinds)
		out, err := simulate.Run(simulate.Scenario{Pod: s.pod, Plan: p, Behaviour: b})
		if err != nil {
			return err
		}
		c.Runs++
		if r.Proved > 0 {
			c.RunsWithFaults++
		}
		for _, v := range out.Violations {
			if (v.How == startup.OutlivedDependency) == (promise == verify.Stops) && v.How != startup.RestartNotPropagated && !crashedLate(out.Timeline, v) {
				return fmt.Errorf("verify: %q holds with %d faults, simulate: %s at %s\n%+v\n%s", promise, r.Proved, v.Sentence(), v.At, b, out.Timeline)
			}
		}
	}
	return nil
}

// crashedLate reports whether From crashed at the time of the violation. verify does not consider crashes after the
// deletion.
func crashedLate(t startup.Timeline, v startup.Violation) bool {
	return v.How == startup.OutlivedDependency && slices.ContainsFunc(t, func(ev startup.Event) bool {
		return ev.Container == v.Edge.From && ev.At == v.At && ev.What == startup.HasFailed && ev.Detail == "exit code 1"
	})
}

// broken checks that a replay of the counterexample in the simulator shows one of its violations, and that the
// counterexample violates no edge that the report calls kept.
func (c *agreement) broken(s Subject, p startup.Plan, r verify.Result, kept func(startup.Edge) bool) error {
	again := func(out simulate.Outcome) bool {
		return slices.ContainsFunc(out.Violations, func(v startup.Violation) bool {
			return slices.ContainsFunc(r.Violations, func(w startup.Violation) bool { return v.Edge == w.Edge && v.How == w.How })
		})
	}
	out, err := simulate.Replay{Pod: s.pod, Plan: p, Kubernetes: int(s.on), Schedule: r.Schedule}.Run()
	if err != nil || !again(out) {
		return fmt.Errorf("verify: %q broken by %v: %s; its replay: %w\n%s--\n%s", r.Promise, r.Faults, r.Violations[0].Sentence(), err, r.Counterexample, out.Timeline)
	}
	c.Replayed++
	if len(r.Faults) > 0 {
		c.WithFaults++
	}
	for _, v := range r.Violations {
		if kept(v.Edge) {
			return fmt.Errorf("plan keeps %q, verify: %q broken by %v: %s\n%s", v.Edge, r.Promise, r.Faults, v.Sentence(), r.Counterexample)
		}
	}
	return nil
}

// randomPod returns a manifest that resembles real ones: with or without the proxy of a mesh, with one of the usual
// mechanisms of order or none, and with hooks, sleeps and probes.
func randomPod(rng *rand.Rand) string {
	of := func(words ...string) string { return words[rng.IntN(len(words))] }
	var b, init, plain strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: shop\n  labels: {app: shop}\n  annotations:\n    a: b\n%s%s",
		of("", "", "    outrider.dev/depends-on.app: cache\n", "    outrider.dev/depends-on.app: cache=started\n", "    outrider.dev/depends-on.web: \"app=started\"\n",
			"    outrider.dev/depends-on: '{\"*\": {cache: healthy}}'\n", "    outrider.dev/depends-on.app: \"cache, migrate=completed\"\n"),
		of("", "", "", "    outrider.dev/start: gate\n", "    outrider.dev/start: native\n", "    outrider.dev/start: hold\n"))
	preStop := func() string {
		return of("", "", ", preStop: {exec: {command: [drain]}}", ", preStop: {sleep: {seconds: 3}}", ", preStop: {sleep: {seconds: 9}}", ", preStop: {httpGet: {port: 8080}}")
	}
	lifecycle := func(hooks string) string {
		if hooks = strings.TrimPrefix(hooks, ", "); hooks == "" {
			return ""
		}
		return "    lifecycle: {" + hooks + "}\n"
	}
	if rng.IntN(3) == 0 {
		fmt.Fprintf(&init, "  - {name: migrate, image: m, command: [sh, -c, %q]}\n", of("sleep 2", "migrate", "sleep 1; migrate"))
	} else if b2 := b.String(); strings.Contains(b2, "migrate") {
		fmt.Fprintf(&init, "  - {name: migrate, image: m}\n")
	}
	const probe = "{httpGet: {path: /healthz/ready, port: 15021}, periodSeconds: 1, failureThreshold: 30}"
	switch rng.IntN(5) {
	case 0:
		fmt.Fprintf(&init, "  - name: istio-proxy\n    image: proxyv2\n    restartPolicy: Always\n    startupProbe: %s\n%s", probe, lifecycle(preStop()))
	case 1:
		fmt.Fprintf(&init, "  - name: istio-proxy\n    image: proxyv2\n    restartPolicy: Always\n%s", lifecycle("postStart: {exec: {command: [pilot-agent, wait]}}"+preStop()))
	case 2:
		fmt.Fprintf(&plain, "  - name: istio-proxy\n    image: proxyv2\n    readinessProbe: %s\n%s", probe, lifecycle(of("", "postStart: {exec: {command: [pilot-agent, wait]}}")+preStop()))
	}
	for _, name := range []string{"cache", "app", "web"} {
		if name == "web" && rng.IntN(2) == 0 && !strings.Contains(b.String(), "on.web") {
			continue
		}
		fmt.Fprintf(&plain, "  - name: %s\n    image: i\n%s%s%s", name,
			of("", "    command: [/run]\n", "    command: [/run]\n", "    command: [sleep, \"60\"]\n", "    command: [sh, -c, \"sleep 2; exec /run\"]\n",
				"    command: [sh, -c, \"until curl -fs localhost:15021/healthz/ready; do sleep 1; done; exec /run\"]\n"),
			of("", "    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}\n", "    startupProbe: {exec: {command: [t]}, periodSeconds: 1, failureThreshold: 30}\n",
				"    livenessProbe: {exec: {command: [l]}, periodSeconds: 2}\n"),
			lifecycle(of("", "", "", "postStart: {exec: {command: [warm]}}")+preStop()))
	}
	fmt.Fprintf(&b, "spec:\n  restartPolicy: %s\n  terminationGracePeriodSeconds: %s\n", of("Always", "Always", "Always", "OnFailure", "Never"), of("0", "1", "5", "10", "30"))
	if init.Len() > 0 {
		b.WriteString("  initContainers:\n" + init.String())
	}
	b.WriteString("  containers:\n" + plain.String())
	return b.String()
}

// faultKinds are the sets of faults that a search may use. Most contain faults that a behaviour can express, alone
// and together; the last two contain faults that only a replay can express. Kill never occurs without Crash, because
// verify treats a killed container as crashed if no gate reads its record.
var faultKinds = [][]verify.Fault{
	{verify.Crash}, {verify.Crash, verify.Kill}, {verify.NoImage}, {verify.NoSandbox}, {verify.Unhealthy},
	{verify.Crash, verify.Kill, verify.NoImage, verify.NoSandbox, verify.Unhealthy},
	{verify.BadHook}, {verify.BadProbe, verify.NoStart},
}

// randomBehaviour returns a behaviour with this number of faults of these kinds, all before the deletion of the pod.
// All stops end within half of the shortest grace period of randomPod, as verify assumes.
func randomBehaviour(rng *rand.Rand, s Subject, promise verify.Promise, faults int, kinds []verify.Fault) simulate.Behaviour {
	at := func(most time.Duration) time.Duration {
		return time.Duration(rng.Int64N(int64(most/time.Millisecond))) * time.Millisecond
	}
	b := simulate.Behaviour{Kubernetes: 34, Until: 90 * time.Second, Begins: at(time.Second), Sandbox: at(time.Second), Containers: map[string]simulate.Container{}}
	names := s.Names()
	deleted := 20*time.Second + at(20*time.Second)
	if promise == verify.Stops {
		b.Deleted = at(40 * time.Second)
		deleted = b.Deleted
	}
	for _, c := range s.Plan.Containers {
		one := simulate.Container{Image: at(2 * time.Second), Healthy: at(4 * time.Second), Sleeps: at(2 * time.Second), Stops: at(200 * time.Millisecond)}
		switch d := s.pod.PreStopSleep(c.Name); {
		case d > 0:
			one.PreStop = d
		default:
			one.PreStop = at(200 * time.Millisecond)
		}
		if c.Kind == startup.Init {
			one.Ends = []simulate.End{{After: at(3 * time.Second)}}
		}
		b.Containers[c.Name] = one
	}
	for range faults {
		name := names[rng.IntN(len(names))]
		one := b.Containers[name]
		before := max(deleted, time.Millisecond)
		switch kinds[rng.IntN(len(kinds))] {
		case verify.Kill:
			one.KilledAt = append(one.KilledAt, at(before))
		case verify.NoSandbox:
			b.SandboxDies = append(b.SandboxDies, at(before))
		case verify.NoImage:
			one.MissingUntil = one.Image + 1
		case verify.Crash:
			one.Ends = append([]simulate.End{{After: at(5 * time.Second), Code: 1}}, one.Ends...)
			if len(one.Ends) == 1 {
				one.Ends = append(one.Ends, simulate.End{After: simulate.Forever})
			}
		case verify.Unhealthy:
			one.Sick = 1 + at(5*time.Second)
		}
		b.Containers[name] = one
	}
	return b
}
