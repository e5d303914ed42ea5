package verify

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
	"outrider.dev/test/tier"
)

// reducedPods is the environment variable that selects the long form of TestReducedSearchAgrees. Its value is a number of
// random pods, or the first and the last seed as in 17-17.
const reducedPods = "OUTRIDER_VERIFY_PODS"

// The search with its reductions finds the same violations as the full search on small random pods. The shortest run to
// one of them may be some events longer, of a pod in a thousand: it waits for another instant.
func TestReducedSearchAgrees(t *testing.T) {
	const most = 20_000 // states of a full search; larger pods are skipped
	first, last := 0, tier.Times(30, 3000)
	if text := os.Getenv(reducedPods); text != "" {
		if n, _ := fmt.Sscanf(text, "%d-%d", &first, &last); n < 2 {
			first, last = 0, first
		}
	}
	compared, violated, longer, states, reducedStates := 0, 0, 0, 0, 0
	seeds := []int{2808} // once differed: a deletion while a container was being stopped
	for seed := first; seed <= last; seed++ {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		q, b := randomQuestion(rand.New(rand.NewPCG(uint64(seed), 35)))
		full := newSearch(q, b, nil)
		full.full, full.question.Version.KeepsBackOff = true, false
		want, ok := reachable(full, most)
		if !ok {
			continue
		}
		reduced := newSearch(q, b, nil)
		got, _ := reachable(reduced, math.MaxInt)
		compared, states, reducedStates = compared+1, states+len(full.seen), reducedStates+len(reduced.seen)
		if len(want) > 0 {
			violated++
		}
		if maps.EqualFunc(want, got, func(full, reduced int) bool { return full <= reduced && reduced <= full+full/10 }) {
			if !maps.Equal(want, got) {
				longer++
			}
		} else if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: violations and the number of events to them (-full +reduced):\n%s%+v\n%+v", seed, diff, q, b)
		}
		if len(reduced.seen) > len(full.seen) {
			t.Errorf("seed %d: %d states are reduced to %d", seed, len(full.seen), len(reduced.seen))
		}
	}
	t.Logf("%d of %d pods compared, %d with violations, %d of them after a longer run; %d states are reduced to %d", compared, len(seeds), violated, longer, states, reducedStates)
	if longer > 1+compared/200 {
		t.Errorf("%d runs are longer", longer)
	}
	if last-first >= 30 && (compared < (last-first)/2 || violated < compared/10 || violated == compared) {
		t.Error("too little was compared")
	}
}

// reachable explores all states, also those after a violation. It returns the violations that can be reached, each with the
// least number of moves. The result is false if there are more states than most.
func reachable(s *search, most int) (map[string]int, bool) {
	type run struct {
		node
		before   *run
		happened startup.Timeline
		depth    int
	}
	out := map[string]int{}
	root := &run{node: s.root()}
	s.visit(&root.node)
	for open := []*run{root}; len(open) > 0; open = open[1:] {
		for _, m := range s.moves(open[0].node) {
			next := &run{before: open[0], depth: open[0].depth + 1}
			next.node, next.happened = s.make(open[0].node, m)
			if s.mayViolate(next.node, next.happened) {
				var t startup.Timeline
				for r := next; r != nil; r = r.before {
					t = append(slices.Clone(r.happened), t...)
				}
				for _, v := range s.decided(startup.Check(s.question.Plan, t)) {
					name := fmt.Sprint(v.How, ": ", v.Edge)
					if _, known := out[name]; !known {
						out[name] = next.depth
					}
				}
			}
			if s.visit(&next.node) {
				open = append(open, next)
			}
		}
		if len(s.seen) > most {
			return nil, false
		}
	}
	return out, true
}

// randomQuestion returns a question about a pod of two or three containers, with up to two edges and one fault.
func randomQuestion(rng *rand.Rand) (Question, Bound) {
	names := []string{"app", "web", "proxy"}[:2+rng.IntN(2)]
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	q := Question{Version: kubelet.Minor(pick(rng, 28, 34, 36)), Promise: pick(rng, Starts, Stops)}
	q.Pod = kubelet.Pod{Restart: pick(rng, kubelet.Always, kubelet.Always, kubelet.OnFailure, kubelet.Never), Grace: time.Duration(pick(rng, 0, 2, 5, 30)) * time.Second}
	var plan strings.Builder
	kinds := map[string]startup.Kind{}
	for i, name := range names {
		kind, c := startup.Plain, kubelet.Container{Name: name, Startup: randomProbe(rng, 5), Liveness: randomProbe(rng, 3)}
		if i < len(names)-1 {
			kind = pick(rng, startup.Plain, startup.Plain, startup.Init, startup.Sidecar)
		}
		if rng.IntN(4) == 0 {
			c.PostStart = pick(rng, kubelet.Exec, kubelet.HTTPGet)
		}
		if rng.IntN(4) == 0 && kind != startup.Init {
			if c.PreStop = pick(rng, kubelet.Exec, kubelet.Sleep, kubelet.Gate); c.PreStop == kubelet.Sleep {
				c.PreStopSleep = time.Duration(1+rng.IntN(4)) * time.Second
			}
		}
		switch kinds[name] = kind; kind {
		case startup.Plain:
			q.Pod.Containers = append(q.Pod.Containers, c)
		case startup.Sidecar:
			c.Restart = kubelet.Always
			fallthrough
		default:
			q.Pod.Init = append(q.Pod.Init, c)
		}
		health := "report"
		switch {
		case c.Startup.Handler != "" && kind != startup.Init:
			health = "startup-probe"
		case c.PostStart != "" && kind != startup.Init:
			health = "post-start"
		}
		fmt.Fprintf(&plan, "container %s is %s", name, cmp.Or(string(kind), "plain"))
		if kind != startup.Init {
			fmt.Fprintf(&plan, ", healthy by %s", health)
		}
		if kind == startup.Plain && q.Pod.Restart != kubelet.Always {
			fmt.Fprintf(&plan, ", restart %s", map[kubelet.RestartPolicy]string{kubelet.OnFailure: "on-failure", kubelet.Never: "never"}[q.Pod.Restart])
		}
		plan.WriteString("\n")
	}
	for range pick(rng, 0, 1, 1, 2, 2, 2) {
		from := rng.IntN(len(names) - 1)
		to := from + 1 + rng.IntN(len(names)-1-from)
		plan.WriteString(randomEdge(rng, names[from], names[to], kinds))
	}
	var err error
	if q.Plan, err = startup.Parse(plan.String()); err != nil {
		panic(fmt.Sprintf("%v:\n%s", err, plan.String()))
	}
	return q, Bound{Faults: pick(rng, 0, 1, 1)}
}

func randomEdge(rng *rand.Rand, from, to string, kinds map[string]startup.Kind) string {
	after, by := pick(rng, "started", "healthy"), "gate"
	if kinds[from] == startup.Init {
		return fmt.Sprintf("%s after %s is completed, by init\n", to, from)
	}
	if kinds[to] == startup.Init || rng.IntN(3) == 0 {
		by = ""
		if kinds[from] == startup.Sidecar {
			by = "native"
		}
	} else if rng.IntN(4) == 0 {
		by = pick(rng, "health-loop", "wrapper", "hold")
	}
	edge := fmt.Sprintf("%s after %s is %s", to, from, after)
	if by == "gate" {
		edge += pick(rng, "", "", ", within 5s", ", within 5s or continue", ", optional", ", on restart restart", ", on restart notify")
	}
	if by != "" {
		edge += ", by " + by
	}
	return edge + "\n"
}

// randomProbe returns a probe, or none in all but one of n cases.
func randomProbe(rng *rand.Rand, n int) kubelet.Probe {
	if rng.IntN(n) != 0 {
		return kubelet.Probe{}
	}
	p := kubelet.Probe{Handler: pick(rng, kubelet.Exec, kubelet.Exec, kubelet.Gate), Failures: 1 + rng.IntN(3)}
	p.Period, p.InitialDelay = time.Duration(1+rng.IntN(5))*time.Second, time.Duration(rng.IntN(3))*time.Second
	if p.Handler == kubelet.Gate {
		p.Failures, p.Timeout = math.MaxInt32, 10*time.Second
	}
	return p
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }
