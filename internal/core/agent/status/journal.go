package status

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// An EntryKind is the kind of an entry of the journal.
type EntryKind string

// The kinds.
const (
	PhaseEntry EntryKind = "phase" // the agent did something, or waited for something
	EventEntry EntryKind = "event" // something happened
	WaitEntry  EntryKind = "wait"  // a client waited for the agent
)

// An Entry is one thing that took time, or happened. Times are since the process started.
type Entry struct {
	Kind   EntryKind     `json:"kind"`
	Name   string        `json:"name"` // of the phase, of the event, or of the client that waited
	Why    string        `json:"why,omitempty"`
	Begin  time.Duration `json:"begin_ns"`
	End    time.Duration `json:"end_ns,omitempty"`
	Open   bool          `json:"open,omitempty"`   // it has not ended
	Ended  string        `json:"ended,omitempty"`  // how; of a wait: released by what
	Failed bool          `json:"failed,omitempty"` // it did not end well
}

// JournalOptions are those of a Journal. The zero value of a field means its default.
type JournalOptions struct {
	Process   time.Time // when this process started; default now
	Container time.Time // when the container started; default unknown
	Limit     int       // entries; default 512
}

// A Journal records how an agent's start went: each phase with its begin, end and reason,
// and which client waited for what and was released by what. Its methods may be called from
// any goroutine.
//
// It is bounded: it keeps the first entries, since questions are about the start, and of the
// rest the latest.
type Journal struct {
	o    JournalOptions
	mu   sync.Mutex
	head []*Entry // the first half of the limit
	ring []*Entry // the latest
	at   int      // where the oldest of the ring is, once it is full
	lost int
}

// NewJournal returns an empty journal.
func NewJournal(o JournalOptions) *Journal {
	if o.Process.IsZero() {
		o.Process = time.Now()
	}
	o.Limit = max(cmp.Or(o.Limit, 512), 2)
	return &Journal{o: o}
}

// Process is when the process started.
func (j *Journal) Process() time.Time { return j.o.Process }

// An EndEntry ends an entry. outcome describes it, and failed reports a failure. Only the first
// call counts.
type EndEntry func(outcome string, failed bool)

// Begin opens a phase.
func (j *Journal) Begin(phase, why string) EndEntry { return j.open(PhaseEntry, phase, why) }

// Waiter opens the wait of a client for something; its end has the outcome.
func (j *Journal) Waiter(client, what string) EndEntry { return j.open(WaitEntry, client, what) }

// Note adds an event.
func (j *Journal) Note(name, detail string) { j.note(name, detail, false) }

// Fail adds an event that is a failure.
func (j *Journal) Fail(name, detail string) { j.note(name, detail, true) }

func (j *Journal) note(name, detail string, failed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.since()
	j.add(&Entry{Kind: EventEntry, Name: name, Why: detail, Begin: now, End: now, Failed: failed})
}

func (j *Journal) open(k EntryKind, name, why string) EndEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &Entry{Kind: k, Name: name, Why: why, Begin: j.since(), Open: true}
	j.add(e)
	return func(outcome string, failed bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if e.Open {
			e.Open, e.End, e.Ended, e.Failed = false, j.since(), outcome, failed
		}
	}
}

func (j *Journal) since() time.Duration { return time.Since(j.o.Process) }

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

// A JournalRecord is what a journal held at a moment.
type JournalRecord struct {
	Process   time.Time  `json:"process_started"`
	Container *time.Time `json:"container_started,omitempty"`
	At        time.Time  `json:"at"`
	Entries   []Entry    `json:"entries"`
	Lost      int        `json:"lost,omitempty"` // entries in the middle that were dropped
}

// Record returns what j holds now, in the order of begins.
func (j *Journal) Record() JournalRecord {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := JournalRecord{Process: j.o.Process, At: time.Now(), Lost: j.lost, Entries: []Entry{}}
	if !j.o.Container.IsZero() {
		c := j.o.Container
		r.Container = &c
	}
	for _, e := range slices.Concat(j.head, j.ring[j.at:], j.ring[:j.at]) {
		r.Entries = append(r.Entries, *e)
	}
	return r
}
