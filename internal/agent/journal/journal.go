// Package journal remembers how an agent's start went: each phase with its begin, end and
// reason, and who waited for what and was released by what.
//
// It is bounded: what happened first is kept, for it is the start that people ask about,
// and of the rest the latest. A [Record] is what it holds at a moment, for JSON, for a
// person, and as one line for the kubelet's termination message.
package journal

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Kind says what an entry is.
type Kind string

// The kinds.
const (
	Phase Kind = "phase" // the agent did something, or waited for something
	Event Kind = "event" // something happened
	Wait  Kind = "wait"  // somebody waited for the agent
)

// An Entry is one thing that took time, or happened. Times are since the process began.
type Entry struct {
	Kind  Kind          `json:"kind"`
	Name  string        `json:"name"` // of the phase; who waited
	Why   string        `json:"why,omitempty"`
	Begin time.Duration `json:"begin_ns"`
	End   time.Duration `json:"end_ns,omitempty"`
	Open  bool          `json:"open,omitempty"`   // it has not ended
	Ended string        `json:"ended,omitempty"`  // how; of a wait: released by what
	Wrong bool          `json:"failed,omitempty"` // it did not end well
}

// Options of a Journal. The zero value of a field means its default.
type Options struct {
	Process   time.Time // when this process began; default now
	Container time.Time // when the container did; default unknown
	Limit     int       // entries; default 512
	Now       func() time.Time
}

// A Journal takes entries. Its methods may be called from any goroutine.
type Journal struct {
	o    Options
	mu   sync.Mutex
	head []*Entry // the first half of the limit
	ring []*Entry // the latest
	at   int      // where the oldest of the ring is, once it is full
	lost int
}

// New returns an empty journal.
func New(o Options) *Journal {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Process.IsZero() {
		o.Process = o.Now()
	}
	o.Limit = max(cmp.Or(o.Limit, 512), 2)
	return &Journal{o: o}
}

// Process is when the process began.
func (j *Journal) Process() time.Time { return j.o.Process }

// An End ends an entry. outcome says how; a wrong one is one that failed. Only the first
// call counts.
type End func(outcome string, wrong bool)

// Begin opens a phase.
func (j *Journal) Begin(phase, why string) End { return j.open(Phase, phase, why) }

// Waiter opens the wait of who for what; its end says what released it.
func (j *Journal) Waiter(who, what string) End { return j.open(Wait, who, what) }

// Note adds an event.
func (j *Journal) Note(name, detail string) { j.note(name, detail, false) }

// Fail adds an event that should not have been.
func (j *Journal) Fail(name, detail string) { j.note(name, detail, true) }

func (j *Journal) note(name, detail string, wrong bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.since()
	j.add(&Entry{Kind: Event, Name: name, Why: detail, Begin: now, End: now, Wrong: wrong})
}

func (j *Journal) open(k Kind, name, why string) End {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &Entry{Kind: k, Name: name, Why: why, Begin: j.since(), Open: true}
	j.add(e)
	return func(outcome string, wrong bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if e.Open {
			e.Open, e.End, e.Ended, e.Wrong = false, j.since(), outcome, wrong
		}
	}
}

func (j *Journal) since() time.Duration { return j.o.Now().Sub(j.o.Process) }

func (j *Journal) add(e *Entry) {
	half := j.o.Limit / 2
	switch {
	case len(j.head) < half:
		j.head = append(j.head, e)
	case len(j.ring) < j.o.Limit-half:
		j.ring = append(j.ring, e)
	default:
		j.ring[j.at] = e
		j.at = (j.at + 1) % len(j.ring)
		j.lost++
	}
}

// A Record is what a journal held.
type Record struct {
	Process   time.Time  `json:"process_started"`
	Container *time.Time `json:"container_started,omitempty"`
	At        time.Time  `json:"at"`
	Entries   []Entry    `json:"entries"`
	Lost      int        `json:"lost,omitempty"` // entries that there was no room for, in the middle
}

// Record returns what j holds now, in the order of begins.
func (j *Journal) Record() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := Record{Process: j.o.Process, At: j.o.Now(), Lost: j.lost, Entries: []Entry{}}
	if !j.o.Container.IsZero() {
		c := j.o.Container
		r.Container = &c
	}
	for _, e := range slices.Concat(j.head, j.ring[j.at:], j.ring[:j.at]) {
		r.Entries = append(r.Entries, *e)
	}
	return r
}
