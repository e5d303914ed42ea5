package evidence

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/startup"
)

// A Kind is the kind of a source.
type Kind string

// The kinds of sources.
const (
	FromPod         Kind = "pod"
	FromLog         Kind = "log"
	FromPreviousLog Kind = "previous log"
	FromEvent       Kind = "event"
	FromOwner       Kind = "owner"
	FromJournal     Kind = "startup journal"
)

// A Source tells where a fact was read. Line is 0 in sources without lines; for an object it is the first line of
// its document.
type Source struct {
	Kind Kind   `json:"kind"`
	File string `json:"file,omitempty"` // of an archive: its name, ':', the path in it; live: the kubectl command
	Line int    `json:"line,omitempty"`
}

func (s Source) String() string {
	if s.Line > 0 {
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
	return s.File
}

// A Set is the collected evidence.
type Set struct {
	Pods   []*Pod
	Unused []Unused
}

// Unused is input that is no evidence of any pod, with the reason and what would be evidence.
type Unused struct {
	Source Source
	Why    string
}

// A Pod contains the known facts of one pod.
type Pod struct {
	Object     *corev1.Pod
	Source     Source
	Containers []*Container // init containers, then containers, then ephemeral containers
	Events     []Event      // of the pod and its owners, sorted by their first times
	Owners     []Owner      // nearest first
	Journal    *Journal     // of Outrider's agent
	Taken      Time         // when the evidence was taken, if that is known
	Skew       Skew
	Missing    []Missing
	Notes      []Note
}

// Name returns NAMESPACE/NAME.
func (p *Pod) Name() string {
	if p.Object.Namespace == "" {
		return p.Object.Name
	}
	return p.Object.Namespace + "/" + p.Object.Name
}

// Container returns a container by its name, or nil.
func (p *Pod) Container(name string) *Container {
	for _, c := range p.Containers {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Missing is evidence that could not be read. It weakens conclusions, but stops nothing.
type Missing struct {
	Kind Kind
	What string // a description
	Why  string
}

// A Note describes a contradiction between facts, or a limit of one.
type Note struct {
	Source Source
	Text   string
}

// Ephemeral is the kind of a container that kubectl debug adds. Package startup defines the other kinds.
const Ephemeral startup.Kind = "ephemeral"

// A Container is a container of the pod.
type Container struct {
	Name     string
	Kind     startup.Kind
	Restarts int   // from its status; -1: it has none
	Runs     []Run // known runs, oldest first
	Unknown  int   // number of runs of which nothing is known
	Waiting  *Waiting
	Logs     []*Log
	Zone     Zone // of log lines that name none
}

// Run returns the run with a number, or nil.
func (c *Container) Run(number int) *Run {
	for i := range c.Runs {
		if c.Runs[i].Number == number {
			return &c.Runs[i]
		}
	}
	return nil
}

// Last returns the last known run, or nil.
func (c *Container) Last() *Run {
	if len(c.Runs) == 0 {
		return nil
	}
	return &c.Runs[len(c.Runs)-1]
}

// Log returns the log of a run, or nil.
func (c *Container) Log(run int) *Log {
	for _, l := range c.Logs {
		if l.Run == run {
			return l
		}
	}
	return nil
}

// Waiting is the reason why the container does not run now.
type Waiting struct{ Reason, Message string }

// A Run is one incarnation of a container. Number counts from 0, as restartCount does.
type Run struct {
	Number   int
	Started  Time
	Finished Time // unknown while it runs
	Running  bool
	Exit     *int // nil: it runs, or the code is not known
	Signal   int  // the signal that ended it, also from exit code 128+n of shells and runtimes; 0: none
	Reason   string
	Message  string // its termination message
	Source   Source
}

// An Event is an event of core v1 or events.k8s.io.
type Event struct {
	Reason, Message string
	About           string // "Pod shop/app-1", "Job shop/migrate"
	Container       string // empty: about the whole object
	Reporter        string
	Count           int
	First, Last     Time // by the reporter's clock
	Recorded        Time // by the API server's clock, of the first occurrence
	Source          Source
}

// An Owner is an object that owns the pod, directly or through another owner.
type Owner struct {
	Kind, Name string
	Object     metav1.Object // its metadata; nil: not in the evidence
}

// A Journal is the record that Outrider's agent keeps of its start (GET /startup).
type Journal struct {
	Entries []JournalEntry
	Source  Source
}

// A JournalEntry is a phase, an event, or the wait of a client.
type JournalEntry struct {
	Kind, Name string
	Begin, End Time // End is unknown if the entry has not ended.
	Failed     bool
}

// maxSlack is the longest time by which a line may lie outside the run of its container: the runtime records the
// start slightly after the process began.
const maxSlack = 5 * time.Second
