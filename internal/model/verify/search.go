package verify

import (
	"context"
	"crypto/sha256"
	"errors"

	"outrider.dev/internal/model/gates"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// A node is a state of the pod and of what is in it.
type node struct {
	kubelet kubelet.State
	gates   gates.State
	faults  int // that may still happen
	trail   int // its place in search.trail
}

// A footprint leads back to the state before. It holds the number of the move,
// not the move: a run is played again from the beginning when it is wanted.
type footprint struct {
	before int32
	move   uint16
}

type search struct {
	question Question
	edges    []startup.Edge  // without stars
	watched  map[string]bool // their health matters
	silent   map[string]bool // it matters whether their state is stale
	finishes map[string]bool // they may be done
	bound    Bound
	progress func(Progress)

	seen      map[[16]byte]struct{} // hashes of keys: 128 bits do not collide by chance
	forgetful bool                  // in tests: go on from states that were seen, too
	trail     []footprint
	result    Result
}

// every is how many states are tried between two looks at the context.
const every = 4096

func newSearch(q Question, b Bound, progress func(Progress)) *search {
	q.Pod = withoutReadiness(q.Pod)
	s := &search{question: q, edges: q.Plan.Expand().Edges, bound: b, progress: progress,
		seen: map[[16]byte]struct{}{}, result: Result{Promise: q.Promise, Bound: b}}
	s.watched, s.silent, s.finishes = s.whoseHealthMatters(), s.whoseStateIsRead(), s.whoFinishes()
	return s
}

// root is the state in which the kubelet has just been given the pod.
func (s *search) root() node {
	k, _ := kubelet.New(s.question.Pod, s.question.Version).Step(kubelet.Event{Kind: kubelet.Added})
	return node{kubelet: k, gates: gates.New(s.question.Plan, s.question.Gate), faults: s.bound.Faults}
}

// run goes breadth first, one depth after the other.
func (s *search) run(ctx context.Context) {
	root := s.root()
	s.trail = []footprint{{before: -1}}
	s.meet(&root)
	level := []node{root}
	for tried := 0; len(level) > 0; s.result.Depth++ {
		if s.bound.Depth > 0 && s.result.Depth == s.bound.Depth {
			s.result.CutShort = ByDepth
			return
		}
		var next []node
		for i := range level {
			if tried%every == 0 && s.stopped(ctx, len(level)-i+len(next)) {
				return
			}
			tried++
			if next = s.expand(level[i], next); s.result.Counterexample != nil || s.result.CutShort != "" {
				return
			}
			level[i] = node{} // its memory is wanted for what comes
		}
		level = next
	}
	s.result.Depth--
}

// stopped reports the progress, and whether the context has ended.
func (s *search) stopped(ctx context.Context, open int) bool {
	if s.progress != nil {
		s.progress(Progress{Faults: s.bound.Faults, States: len(s.seen), Depth: s.result.Depth, Open: open})
	}
	if ctx.Err() == nil {
		return false
	}
	s.result.CutShort = Cancelled
	if errors.Is(context.Cause(ctx), errTime) {
		s.result.CutShort = ByTime
	}
	return true
}

// expand tries all moves from a state, and appends the states that are new.
func (s *search) expand(from node, next []node) []node {
	for i, m := range s.moves(from) {
		to, happened := s.make(from, m)
		s.result.Steps++
		if s.suspicious(to, happened) && s.convicted(from.trail, i) {
			s.result.Depth++
			return next
		}
		if !s.meet(&to) {
			continue
		}
		if len(s.seen) > s.bound.States {
			s.result.States, s.result.CutShort = s.bound.States, ByStates
			return next
		}
		to.trail = len(s.trail)
		s.trail = append(s.trail, footprint{before: int32(from.trail), move: uint16(i)})
		next = append(next, to)
	}
	return next
}

// meet says whether a state is new.
func (s *search) meet(n *node) bool {
	b := append([]byte(n.kubelet.Key()), byte(n.faults))
	hash := sha256.Sum256(n.gates.AppendKey(b, n.kubelet.Now()))
	key := [16]byte(hash[:16])
	if _, ok := s.seen[key]; ok && !s.forgetful {
		return false
	}
	s.seen[key] = struct{}{}
	s.result.States = len(s.seen)
	return true
}

// replay plays the run to a footprint again, and one more move.
func (s *search) replay(trail, last int) (t startup.Timeline, faults []string) {
	var numbers []int
	for at := trail; at > 0; at = int(s.trail[at].before) {
		numbers = append(numbers, int(s.trail[at].move))
	}
	n := s.root()
	step := func(i int) {
		m := s.moves(n)[i]
		if m.fault != "" {
			faults = append(faults, m.String())
		}
		var happened startup.Timeline
		n, happened = s.make(n, m)
		t = append(t, happened...)
	}
	for i := len(numbers) - 1; i >= 0; i-- {
		step(numbers[i])
	}
	step(last)
	return t, faults
}

// withoutReadiness: readiness tells the API, and holds no container back.
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
