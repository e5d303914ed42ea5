package verify

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A node is a state of the kubelet and of the containers.
type node struct {
	kubelet kubelet.State
	gates   gates.State
	faults  int // number of faults that may still happen
	step    int // index in search.steps

	// outlived has, for each edge whose dependency ended while the dependent container ran and the pod was stopping, the
	// time of that end plus one; nil if there is none.
	outlived []time.Duration
}

// A step records how a state was reached: the step of the state before, and the number of the move. The moves
// themselves are not kept, because a counterexample is replayed from the beginning.
type step struct {
	before int32
	move   uint16
}

type search struct {
	question Question
	edges    []startup.Edge // edges of the plan, with wildcards expanded
	// Sets for reductions: containers that are not in them have fewer transitions.
	observed  map[string]bool // containers whose health has an effect
	published map[string]bool // containers whose published state is read by the gates of other containers
	finishes  map[string]bool // containers that may complete
	awaited   map[string]bool // containers that must outlive others
	serves    map[string]bool // containers that must be healthy, and not complete
	needed    map[string]bool // containers that must be healthy for others
	follows   map[string]bool // containers that a gate ends if their dependency restarts
	slowStops []string        // containers whose stops take an unknown time
	late      map[string]bool // containers whose stops certainly take too long
	bound     Bound
	progress  func(Progress)

	seen      map[[16]byte]struct{} // hashes of the visited states; with 128 bits, collisions are negligible
	forgetful bool                  // in tests: also expand states that were already visited
	full      bool                  // in tests: no reductions
	key       []byte                // of the last visited state; kept for its memory
	steps     []step
	replayed  int // number of steps of all replays
	result    Result
}

// The context is checked after everyStates states and after everySteps steps of replays. Either takes a few
// milliseconds, so that a search ends soon after its time is over. Steps of replays are counted too, because a replay
// may have a thousand steps.
const (
	everyStates = 256
	everySteps  = 2048
)

func newSearch(q Question, b Bound, progress func(Progress)) *search {
	q.Pod = withoutReadiness(q.Pod)
	q.Version.KeepsBackOff = true
	s := &search{question: q, edges: q.Plan.Expand().Edges, bound: b, progress: progress,
		seen: map[[16]byte]struct{}{}, result: Result{Promise: q.Promise, Bound: b}}
	s.observed, s.published, s.finishes, s.slowStops = s.healthObserved(), s.recordIsRead(), s.mayFinish(), slowStops(q)
	s.follows, s.needed = s.mustFollow(), s.from(startup.Healthy)
	s.late = gates.OutlastGrace(q.Pod, q.Plan)
	s.awaited, s.serves = s.from(startup.Started, startup.Healthy), s.from(startup.Healthy)
	for name := range s.from(startup.Completed) { // in any order: each is deleted
		delete(s.serves, name)
	}
	return s
}

// root returns the state in which the kubelet has just received the pod.
func (s *search) root() node { return s.rootOf(s.question.Version) }

func (s *search) rootOf(v kubelet.Version) node {
	k, _ := kubelet.New(s.question.Pod, v).Step(kubelet.Event{Kind: kubelet.Added})
	return node{kubelet: k, gates: gates.New(s.question.Plan, s.question.Gate), faults: s.bound.Faults}
}

// run makes the breadth-first search: it expands all states of one depth, then all states of the next depth.
func (s *search) run(ctx context.Context) {
	root := s.root()
	s.steps = []step{{before: -1}}
	s.visit(&root)
	level := []node{root}
	for tried := 0; len(level) > 0; s.result.Depth++ {
		if s.bound.Depth > 0 && s.result.Depth == s.bound.Depth {
			s.result.CutShort = ByDepth
			return
		}
		var next []node
		for i := range level {
			if tried%everyStates == 0 && s.stopped(ctx, len(level)-i+len(next)) {
				return
			}
			tried++
			if next = s.expand(ctx, level[i], next); s.result.Counterexample != nil || s.result.CutShort != "" {
				return
			}
			level[i] = node{} // frees its memory
		}
		level = next
	}
	s.result.Depth--
}

// stopped calls the function progress, and returns whether the context has ended.
func (s *search) stopped(ctx context.Context, open int) bool {
	if s.progress != nil {
		s.progress(Progress{Faults: s.bound.Faults, States: len(s.seen), Depth: s.result.Depth, Open: open})
	}
	return s.ended(ctx)
}

// ended reports whether the context has ended, and sets the reason in the result.
func (s *search) ended(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	s.result.CutShort = Cancelled
	if errors.Is(context.Cause(ctx), errTime) {
		s.result.CutShort = ByTime
	}
	return true
}

// expand tries all moves from a state, and appends the new states to next.
func (s *search) expand(ctx context.Context, from node, next []node) []node {
	for i, m := range s.moves(from) {
		to, happened := s.make(from, m)
		s.result.Steps++
		if s.mayViolate(to, happened) {
			if s.violates(from.step, i) {
				s.result.Depth++
				return next
			}
			before := s.replayed
			if s.replayed += s.result.Depth + 1; s.replayed/everySteps > before/everySteps && s.ended(ctx) {
				return next
			}
		}
		if !s.visit(&to) {
			continue
		}
		if len(s.seen) > s.bound.States {
			s.result.States, s.result.CutShort = s.bound.States, ByStates
			return next
		}
		to.step = len(s.steps)
		s.steps = append(s.steps, step{before: int32(from.step), move: uint16(i)})
		next = append(next, to)
	}
	return next
}

// visit adds a state to the visited ones, and reports whether it is new.
func (s *search) visit(n *node) bool {
	s.key = s.appendKey(s.key[:0], n)
	hash := sha256.Sum256(s.key)
	key := [16]byte(hash[:16])
	if _, ok := s.seen[key]; ok && !s.forgetful {
		return false
	}
	s.seen[key] = struct{}{}
	s.result.States = len(s.seen)
	return true
}

// replay repeats the run that leads to a step, and then makes the move with the number last. It returns the events
// and the moves.
func (s *search) replay(to, last int) (t startup.Timeline, schedule []gates.Move) {
	var numbers []int
	for at := to; at > 0; at = int(s.steps[at].before) {
		numbers = append(numbers, int(s.steps[at].move))
	}
	n := s.root()
	repeat := func(i int) {
		m := s.moves(n)[i]
		schedule = append(schedule, m)
		var happened startup.Timeline
		n, happened = s.make(n, m)
		t = append(t, happened...)
	}
	for i := len(numbers) - 1; i >= 0; i-- {
		repeat(numbers[i])
	}
	repeat(last)
	return t, schedule
}

// withoutReadiness removes readiness probes. This is a reduction, which is possible because readiness delays no
// container.
func withoutReadiness(p kubelet.Pod) kubelet.Pod {
	strip := func(cs []kubelet.Container) (out []kubelet.Container) {
		for _, c := range cs {
			c.Readiness = kubelet.Probe{}
			out = append(out, c)
		}
		return out
	}
	p.Init, p.Containers = strip(p.Init), strip(p.Containers)
	return p
}
