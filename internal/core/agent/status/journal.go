package status

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// An EntryKind is the kind of a journal entry.
type EntryKind string

// The kinds of entries.
const (
	PhaseEntry EntryKind = "phase" // the agent did something, or waited for something
	EventEntry EntryKind = "event" // something happened
	WaitEntry  EntryKind = "wait"  // a client waited for the agent
)

// An Entry is a phase, an event or a wait. Its times count from the start of the process.
type Entry struct {
	Kind   EntryKind     `json:"kind"`
	Name   string        `json:"name"` // of the phase, the event, or the client that waited
	Why    string        `json:"why,omitempty"`
	Begin  time.Duration `json:"begin_ns"`
	End    time.Duration `json:"end_ns,omitempty"`
	Open   bool          `json:"open,omitempty"`   // it has not ended yet
	Ended  string        `json:"ended,omitempty"`  // the outcome; for a wait: what ended it
	Failed bool          `json:"failed,omitempty"` // the outcome is a failure
}

// JournalOptions configure a Journal. The zero value of a field selects its default.
type JournalOptions struct {
	Process   time.Time // when this process started; default now
	Container time.Time // when the container started; default unknown
	Limit     int       // entries; default 512
}

// A Journal records the course of an agent's start: each phase with its begin, end and reason,
// and for each waiting client what it waited for and what ended the wait. Its methods may be
// called from any goroutine.
//
// Its size is bounded. It keeps the first entries, because most questions are about the start,
// and the latest ones.
type Journal struct {
	o    JournalOptions
	mu   sync.Mutex
	head []*Entry // the first half of the limit
	ring []*Entry // the latest entries
	at   int      // index of the oldest entry in ring, once it is full
	lost int
}

// NewJournal returns an empty journal. It holds at least two entries, whatever the limit.
func NewJournal(o JournalOptions) *Journal {
	if o.Process.IsZero() {
		o.Process = time.Now()
	}
	o.Limit = max(cmp.Or(o.Limit, 512), 2)
	return &Journal{o: o}
}

// Process returns the time at which the process started.
func (j *Journal) Process() time.Time { return j.o.Process }

// An EndEntry ends an entry with its outcome; failed marks it as a failure. Only the first call
// has an effect.
type EndEntry func(outcome string, failed bool)

// Begin adds a phase, which lasts until the returned function is called.
func (j *Journal) Begin(phase, why string) EndEntry { return j.open(PhaseEntry, phase, why) }

// Waiter adds the wait of a client, which lasts until the returned function is called. The text what names the
// thing that the client waits for.
func (j *Journal) Waiter(client, what string) EndEntry { return j.open(WaitEntry, client, what) }

// Note adds an event.
func (j *Journal) Note(name, detail string) { j.note(name, detail, false) }

// Fail adds an event and marks it as a failure.
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

// A JournalRecord is a copy of a journal at one moment.
type JournalRecord struct {
	Process   time.Time  `json:"process_started"`
	Container *time.Time `json:"container_started,omitempty"`
	At        time.Time  `json:"at"`
	Entries   []Entry    `json:"entries"`
	Lost      int        `json:"lost,omitempty"` // number of dropped entries, between the first and the latest
}

// Record returns a copy of the journal, with the entries in the order of their begins.
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
