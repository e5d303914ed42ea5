package readiness

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"
)

// A Reason explains why a condition does not hold.
type Reason struct {
	Code    string    `json:"code"` // from the closed list: "no-control-plane"
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Hint    string    `json:"hint,omitempty"`
}

// A Note is a remark about a condition that holds.
type Note struct {
	Condition string `json:"condition"` // name of the condition: "certificate"
	Message   string `json:"message"`
}

// A Status is the state of a level: ready, or not ready with the reasons.
type Status struct {
	Ready   bool      `json:"ready"`
	Level   Level     `json:"level"`
	Since   time.Time `json:"since"` // when Ready last changed
	Reasons []Reason  `json:"reasons,omitempty"`
	Notes   []Note    `json:"notes,omitempty"`
}

// String describes the status in one line, for people.
func (s Status) String() string {
	if s.Ready {
		return "ready"
	}
	words := make([]string, len(s.Reasons))
	for i, r := range s.Reasons {
		words[i] = r.Code + ": " + r.Message
	}
	return strings.Join(words, "; ")
}

// A Change reports that a condition holds or does not hold from now on, or that its message has changed.
type Change struct {
	Condition Condition
	OK        bool
	Message   string
	At        time.Time
}

// Options of a Board. The zero value of a field selects its default.
type Options struct {
	Conditions []Condition // the conditions that count in this pod; default: all
	Changed    func(Change)
}

// A Board holds the current state of each condition. Its methods may be called from any goroutine.
type Board struct {
	changed func(Change)

	mu      sync.Mutex
	state   [conditions]state
	since   map[Level]time.Time
	first   map[Level]time.Time
	ready   map[Level]chan struct{} // closed while the level is ready
	next    chan struct{}           // closed by the next change
	waiting int
}

type state struct {
	counts, ok bool
	message    string
	since      time.Time
}

// New returns a board on which each condition has its initial state.
func New(o Options) *Board {
	b := &Board{changed: o.Changed, next: make(chan struct{}),
		since: map[Level]time.Time{}, first: map[Level]time.Time{}, ready: map[Level]chan struct{}{}}
	if o.Conditions == nil {
		o.Conditions = Conditions()
	}
	now := time.Now()
	for _, c := range o.Conditions {
		b.state[c] = state{counts: true, ok: rules[c].assumed, message: rules[c].begin, since: now}
	}
	for _, l := range []Level{Outbound, Full} {
		b.ready[l], b.since[l] = make(chan struct{}), now
	}
	b.settle(now)
	return b
}

// Set sets whether a condition holds. The message is the reason if it does not hold, and a note
// if it does. A condition that does not count in this pod is ignored.
func (b *Board) Set(c Condition, ok bool, message string) {
	b.mu.Lock()
	if !b.state[c].counts || b.state[c].ok == ok && b.state[c].message == message {
		b.mu.Unlock()
		return
	}
	now := time.Now()
	s := &b.state[c]
	if s.ok != ok {
		s.since = now
	}
	s.ok, s.message = ok, message
	b.settle(now)
	close(b.next)
	b.next = make(chan struct{})
	b.mu.Unlock()
	if b.changed != nil { // called only now, because releasing the waiters is more urgent
		b.changed(Change{Condition: c, OK: ok, Message: message, At: now})
	}
}

// settle updates the levels after a change of a condition.
func (b *Board) settle(now time.Time) {
	for level, gate := range b.ready {
		is, was := b.holds(level), isClosed(gate)
		switch {
		case is == was:
			continue
		case is:
			close(gate)
			if _, ok := b.first[level]; !ok {
				b.first[level] = now
			}
		default:
			b.ready[level] = make(chan struct{})
		}
		b.since[level] = now
	}
}

func (b *Board) holds(l Level) bool {
	for c, s := range b.state {
		if s.counts && !s.ok && Condition(c).counts(l) {
			return false
		}
	}
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Status returns the status of a level.
func (b *Board) Status(l Level) Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status(l)
}

func (b *Board) status(l Level) Status {
	out := Status{Ready: b.holds(l), Level: l, Since: b.since[l]}
	for i, s := range b.state {
		c := Condition(i)
		switch {
		case !s.counts || !c.counts(l):
		case !s.ok:
			out.Reasons = append(out.Reasons, Reason{Code: rules[c].code, Message: s.message, Since: s.since, Hint: rules[c].hint})
		case s.message != "" && s.message != rules[c].begin:
			out.Notes = append(out.Notes, Note{Condition: c.String(), Message: s.message})
		}
	}
	return out
}

// First returns the time at which a level was ready for the first time; ok is false if it was never ready.
func (b *Board) First(l Level) (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok = b.first[l]
	return at, ok
}

// Waiting returns the number of callers of Wait that are waiting now.
func (b *Board) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// Wait waits until the level is ready, and returns the status. If ctx ends first, it returns
// the last status and an error that wraps the cause of ctx.
func (b *Board) Wait(ctx context.Context, l Level) (Status, error) {
	held := false
	for {
		b.mu.Lock()
		s, gate := b.status(l), b.ready[l]
		if !s.Ready && !held {
			held = true
			b.waiting++
			defer func() {
				b.mu.Lock()
				b.waiting--
				b.mu.Unlock()
			}()
		}
		b.mu.Unlock()
		if s.Ready {
			return s, nil
		}
		select {
		case <-gate: // look again: the level may not be ready any more
		case <-ctx.Done():
			s := b.Status(l)
			if s.Ready {
				return s, nil
			}
			return s, fmt.Errorf("not ready: %v; %w", s, context.Cause(ctx))
		}
	}
}

// Subscribe yields the current status, and then the status after each change, until ctx ends.
// A slow subscriber misses intermediate statuses, but always gets the last one.
func (b *Board) Subscribe(ctx context.Context, l Level) iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for {
			b.mu.Lock()
			s, next := b.status(l), b.next
			b.mu.Unlock()
			if !yield(s) {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	}
}
