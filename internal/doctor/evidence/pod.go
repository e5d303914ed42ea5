package evidence

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/startup"
)

// A Kind is what kind of source a fact has.
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

// A Source is where a fact was read. Line is 0 where there are none; of an object it is where its
// document begins.
type Source struct {
	Kind Kind   `json:"kind"`
	File string `json:"file,omitempty"` // of an archive: its name, ':', the path in it; live: how kubectl gets it
	Line int    `json:"line,omitempty"`
}

func (s Source) String() string {
	if s.Line > 0 {
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
	return s.File
}

// A Set is all that was collected.
type Set struct {
	Pods   []*Pod
	Unused []Unused
}

// Unused is something given that is no evidence of any pod, why, and what would be.
type Unused struct {
	Source Source
	Why    string
}

// A Pod is what is known of one pod.
type Pod struct {
	Object     *corev1.Pod
	Source     Source
	Containers []*Container // init containers, containers, ephemeral ones
	Events     []Event      // of the pod and of its owners, in the order of their first times
	Owners     []Owner      // the nearest first
	Journal    *Journal     // of Outrider's agent
	Taken      Time         // when the evidence was taken, if that is known
	Skew       Skew
	Missing    []Missing
	Notes      []Note
}

// Name is the pod's, with its namespace.
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

// Missing is what could not be had. It lowers what can be concluded and stops nothing.
type Missing struct {
	Kind Kind
	What string // in words
	Why  string
}

// A Note is a contradiction between facts, or a limit of one, in words.
type Note struct {
	Source Source
	Text   string
}

// Ephemeral is the kind of a container that kubectl debug adds. The others are package startup's.
const Ephemeral startup.Kind = "ephemeral"

// A Container is one of the pod's.
type Container struct {
	Name     string
	Kind     startup.Kind
	Restarts int   // as its status says; -1: it has none
	Runs     []Run // those that are known, the oldest first
	Unknown  int   // runs that took place and of which nothing is known
	Waiting  *Waiting
	Logs     []*Log
	Zone     Zone // of its logs without one
}

// Run returns a run by its number, or nil.
func (c *Container) Run(number int) *Run {
	for i := range c.Runs {
		if c.Runs[i].Number == number {
			return &c.Runs[i]
		}
	}
	return nil
}

// Last returns the last run that is known, or nil.
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

// Waiting is why the container does not run now.
type Waiting struct{ Reason, Message string }

// A Run is one incarnation of a container. Number counts from 0, as restartCount does.
type Run struct {
	Number   int
	Started  Time
	Finished Time // not known while it runs
	Running  bool
	Exit     *int // nil: it runs, or that is not known
	Signal   int  // that ended it, also by the exit code 128+n of shells and runtimes; 0: none
	Reason   string
	Message  string // its termination message
	Source   Source
}

// An Event is one of core v1 or of events.k8s.io.
type Event struct {
	Type, Reason, Message string
	About                 string // "Pod shop/app-1", "Job shop/migrate"
	Container             string // empty: of the whole object
	Reporter              string
	Count                 int
	First, Last           Time // by the reporter's clock
	Recorded              Time // by the API server's, of the first
	Source                Source
}

// An Owner is what the pod belongs to.
type Owner struct {
	Kind, Name string
	Object     metav1.Object // its metadata; nil: it is not among the evidence
	Source     Source
}

// A Journal is what Outrider's agent recorded of its start (GET /startup).
type Journal struct {
	Process   Time
	Container Time // not known: the agent does not know either
	At        Time // when it was requested
	Entries   []JournalEntry
	Source    Source
}

// A JournalEntry is a phase, an event, or a wait of a client.
type JournalEntry struct {
	Kind, Name, Why string
	Begin, End      Time // End is not known if it has not ended
	Outcome         string
	Failed          bool
}

// maxSlack is how far a line may be outside the run of its container: the runtime notes the start
// a little after the process began.
const maxSlack = 5 * time.Second
