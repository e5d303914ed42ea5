package gate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// graph returns a random plan without cycles: each container waits for some of the containers
// before it.
func graph(r *rand.Rand, size int) startup.Plan {
	var b strings.Builder
	completes := map[int]bool{}
	for i := range size {
		completes[i] = r.IntN(5) == 0
	}
	for i := range size {
		for range 1 + r.IntN(3) {
			from := r.IntN(i + 1)
			if from == i || strings.Contains(b.String(), fmt.Sprintf("c%d after c%d is", i, from)) {
				continue
			}
			after := []string{"healthy", "healthy", "started"}[r.IntN(3)]
			if completes[from] {
				after = "completed"
			}
			fmt.Fprintf(&b, "c%d after c%d is %s\n", i, from, after)
		}
	}
	p, err := startup.Parse(b.String())
	if err != nil {
		panic(err)
	}
	return p
}

// A player starts, crashes and stops the containers of a plan.
type player struct {
	*pod
	r    *rand.Rand
	plan startup.Plan
}

func (pl player) completes(name string) bool {
	for _, e := range pl.plan.Edges {
		if e.From == name && e.After == startup.Completed {
			return true
		}
	}
	return false
}

func (pl player) soon() string { return time.Duration(pl.r.IntN(15) * int(time.Millisecond)).String() }

func (pl player) play(name string) *container {
	s := spec{Name: name, Notify: "fd", SecondLook: time.Hour}
	for _, e := range pl.plan.Edges {
		if e.To == name {
			s.After = append(s.After, condition(e))
		}
	}
	if pl.completes(name) {
		s.Restart = startup.OnFailure
		return pl.start(s, "lives="+pl.soon())
	}
	return pl.start(s, "healthy="+pl.soon(), "stops="+pl.soon())
}

func (pl player) allRun() {
	pl.t.Helper()
	for _, c := range pl.plan.Containers {
		if pl.completes(c.Name) {
			pl.until(c.Name, func(s state.Seen) bool { return s.Phase == state.Ended })
		} else {
			pl.healthy(c.Name) // then the journal contains its start
		}
	}
}

// crash kills a container and its dependency. It restarts the container before the dependency.
func (pl player) crash() {
	pl.t.Helper()
	for _, i := range pl.r.Perm(len(pl.plan.Edges)) {
		e := pl.plan.Edges[i]
		if pl.completes(e.From) || pl.completes(e.To) {
			continue
		}
		for _, name := range []string{e.From, e.To} {
			c := pl.all[name]
			pl.signal(c, unix.SIGKILL)
			pl.ended(c)
			pl.event("%s %s %d", name, startup.HasFailed, pl.n[name]-1)
		}
		pl.play(e.To)
		pl.waits(e.To)
		pl.play(e.From)
		return
	}
}

// deletePod signals all containers at once, as the kubelet does.
func (pl player) deletePod() {
	pl.t.Helper()
	pl.event("%s", startup.PodDeleted)
	for _, c := range pl.all {
		_ = c.cmd.Process.Signal(unix.SIGTERM) // an error means that the container has ended
	}
	for _, c := range pl.all {
		pl.ended(c)
	}
}

// startup.Check finds no violated edge in the starts, crashes, restarts and stops of random pods.
func TestNoEdgeIsEverViolated(t *testing.T) {
	var starts, played atomic.Int64
	t.Run("pods", func(t *testing.T) {
		for size, pods := range map[int]int{20: 12, 4: 48} {
			for seed := range pods {
				name := fmt.Sprintf("%d containers, seed %d", size, seed)
				if !tier.Sample(name, 4) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					played.Add(1)
					starts.Add(playGraph(t, size, uint64(seed)))
				})
			}
		}
	})
	t.Logf("%d starts of %d pods of 60, all of them with OUTRIDER_NIGHTLY=1", starts.Load(), played.Load())
	enough := int64(tier.Times(100, 500))
	if n := starts.Load(); n < enough && !t.Failed() && !partial() {
		t.Errorf("%d starts were judged, want %d or more", n, enough)
	}
}

// partial reports whether a flag of the test binary leaves out some of the pods.
func partial() bool {
	return strings.Contains(flag.Lookup("test.run").Value.String(), "/") || flag.Lookup("test.skip").Value.String() != ""
}

// playGraph starts, crashes, restarts and stops a random pod. It returns the number of starts
// that were checked.
func playGraph(t *testing.T, size int, seed uint64) (starts int64) {
	r := rand.New(rand.NewPCG(seed, uint64(size)))
	pl := player{newPod(t), r, graph(r, size)}
	for _, n := range r.Perm(len(pl.plan.Containers)) {
		pl.play(pl.plan.Containers[n].Name)
	}
	pl.allRun()
	pl.crash()
	pl.allRun()
	pl.deletePod()
	timeline := pl.timeline()
	if vs := startup.Check(pl.plan, timeline); len(vs) > 0 {
		t.Errorf("%v\n%s\n%s", vs, pl.plan, timeline)
	}
	for _, ev := range timeline {
		if ev.What == startup.IsStarted {
			starts++
		}
	}
	return starts
}

// At whatever moment SIGTERM comes, the gate ends and leaves no process behind.
func TestSIGTERMAtEveryMoment(t *testing.T) {
	p := newPod(t)
	p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
	p.healthy("cache")
	ends := map[int]int{}
	const tries = 40
	for i := range tries {
		c := p.start(spec{Name: "app", After: []string{"cache is healthy"}})
		time.Sleep(time.Duration(i%tries) * time.Millisecond * 3 / 4) // the moment of the signal is the test's input
		p.signal(c, unix.SIGTERM)
		code := p.ended(c)
		ends[code]++
		// 143: the gate had no handler yet, or still waited, or its command had no handler
		// yet; 0: the command stopped.
		if code != 143 && code != 0 {
			t.Errorf("status %d\n%s", code, c.Log())
		}
	}
	t.Logf("statuses: %v", ends)
	for line := range strings.Lines(p.log()) {
		w := strings.Fields(line)
		if len(w) < 5 || w[1] != "app" {
			continue
		}
		var pid int
		fmt.Sscan(w[4], &pid)
		process.AwaitEnd(t, pid)
	}
}
