package evidence

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/startup"
)

// A Kind says what a source is, for example a log or an event.
type Kind string

// The kinds of sources.
const (
	FromPod         Kind = "pod"
	FromLog         Kind = "log"
	FromPreviousLog Kind = "previous log"
	FromEvent       Kind = "event"
	FromOwner       Kind = "owner"
	FromNode        Kind = "node"
	FromJournal     Kind = "startup journal"
)

// A Source is the place where a fact was read. Line is 0 if the source has no lines; for an object it is the first
// line of the object's document.
type Source struct {
	Kind Kind   `json:"kind"`
	File string `json:"file,omitempty"` // path; in an archive ARCHIVE:PATH; from a cluster the kubectl command
	Line int    `json:"line,omitempty"`
}

// Place returns where a reader finds the fact: the file and the line, or the file alone if it begins with the object.
func (s Source) Place() string {
	if s.Line == 1 && slices.Contains([]Kind{FromPod, FromEvent, FromOwner}, s.Kind) {
		return s.File
	}
	return s.String()
}

func (s Source) String() string {
	if s.Line > 0 {
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
	return s.File
}

// A Quote is a fact with its source.
type Quote struct {
	Source Source `json:"source"`
	At     Time   `json:"at,omitzero"`
	Text   string `json:"text"`
}

// A Set is the collected evidence.
type Set struct {
	Pods     []*Pod
	Creators []*Creator // workloads whose pods cannot be created
	Owners   []Owner    // all workloads of the evidence, also those without pods, as earlier revisions; sorted
	Configs  []Config   // ConfigMaps and Secrets, sorted
	Unused   []Unused
}

// Unused is a part of the input that is not evidence of any pod. Why has the reason, and often the input that is
// expected instead.
type Unused struct {
	Source Source
	Why    string
}

// A Pod contains the known facts of one pod.
type Pod struct {
	Object     *corev1.Pod
	Source     Source
	Containers []*Container // init containers, then containers, then ephemeral containers
	Events     []Event      // events of the pod and its owners, sorted by First
	Owners     []Owner      // nearest first
	Journal    *Journal     // journal of Outrider's agent; may be nil
	Taken      Time         // time at which the evidence was collected, if that is known
	Skew       Skew
	Missing    []Missing
	Notes      []Note
	Omitted    Omitted       // what the evidence leaves out of Object
	Row        *Row          // all that is known, if the evidence has only a line of kubectl get pods; Containers has those with a log then
	Beside     []Beside      // files that lie beside the pod and are of none of its containers, and the logs of few other pods
	Node       *NodeRow      // the line of kubectl get nodes of the pod's node; nil: there is none
	Listed     time.Duration // age in a line of kubectl get pods that fits Object; 0: there is none
}

// Omitted says which fields of a pod's object are not in the evidence. An empty field of these is not known: a person
// shortened the object, or it was read from a text that does not show them.
type Omitted struct {
	Meta  bool // labels, annotations and owners
	Spec  bool // the spec, or a part of it; containers with a status are in it
	Hooks bool // hooks, security contexts and restart policies
	Words bool // how its containers are stands in the words of a person alone
	Units bool // containers: the pod may have others than those of which there is a log, as a proxy
}

// LeftOut reports whether a text stands for something that a person left out, as "..." does.
func LeftOut(text string) bool { return len(text) < 100 && leftOut.MatchString(text) }

var leftOut = regexp.MustCompile(`(?i)^[-\s#"'<\[({*]*(?:\.{3,}|…|\*{3,}|redacted|snip|snipped|omitted|removed|hidden|elided|truncated|masked|cut|x{4,})[-\s"'>\])}*.…]*$`)

// A Row is a line of kubectl get pods. What it does not show is 0.
type Row struct {
	Source              Source
	Status              string
	Ready, Of, Restarts int
	Ended               time.Duration // since the last restart
	Age                 time.Duration
}

// Runs reports whether the line says that all containers of the pod run and are ready.
func (r *Row) Runs() bool { return r.Status == "Running" && r.Ready == r.Of }

// A NodeRow is a line of kubectl get nodes: the status and the age of a node when it was written.
type NodeRow struct {
	Status string // Ready, NotReady or Unknown, perhaps with ",SchedulingDisabled"
	Age    time.Duration
	Source Source
}

// Beside is a text that is of none of a pod's containers, and may say why its calls fail: a table, objects of other
// kinds, what a network plugin dropped, the log of another pod.
type Beside struct {
	*Log
	Of      string // the pod and the container whose log it is; empty: a file of which only the name is known
	Unnamed bool   // it is a log, and of which container is not known
}

// Name returns NAMESPACE/NAME.
func (p *Pod) Name() string {
	if p.Object.Namespace == "" {
		return p.Object.Name
	}
	return p.Object.Namespace + "/" + p.Object.Name
}

// Spec returns the specification of a container, or nil.
func (p *Pod) Spec(container string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Object.Spec.InitContainers, p.Object.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == container }); i >= 0 {
			return &list[i]
		}
	}
	return nil
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

// Missing is a piece of evidence that could not be read. It makes conclusions less certain, and stops nothing.
type Missing struct {
	Kind Kind
	What string // description of the evidence
	Why  string
}

// A Note describes a contradiction between facts, or a limit of a fact.
type Note struct {
	Source Source
	Text   string
	Zone   string    // the container of whose logs the zone is not known, if the note is about that
	About  AboutWhat // empty: something else
}

// An AboutWhat says what a note is about.
type AboutWhat string

// The subjects of notes.
const (
	OfClock AboutWhat = "clock" // the difference of two clocks
	OfRuns  AboutWhat = "runs"  // runs of which nothing is known
)

// Ephemeral is the kind of a container that kubectl debug adds. Package startup defines the other kinds.
const Ephemeral startup.Kind = "ephemeral"

// A Container is a container of the pod.
type Container struct {
	Name     string
	Kind     startup.Kind
	Restarts int   // number of restarts; -1: the container has no status
	Runs     []Run // known runs, oldest first
	Unknown  int   // number of runs that are not in Runs
	Waiting  *Waiting
	Logs     []*Log
	Zone     Zone // time zone of the log lines that name none
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
	Signal   int  // the signal that ended it, also if only the exit code 128+n shows it; 0: none
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
	First, Last     Time // times of the first and last occurrence, by the reporter's clock
	Recorded        Time // time of the first record, by the API server's clock
	Source          Source
}

// Object returns the kind, the namespace and the name of the object that an event is about; what About does not have is
// empty.
func (e Event) Object() (kind, namespace, name string) {
	kind, name, _ = strings.Cut(e.About, " ")
	if in, of, has := strings.Cut(name, "/"); has {
		return kind, in, of
	}
	return kind, "", name
}

// An Owner is an object that owns the pod, directly or through another owner.
type Owner struct {
	Kind, Name string
	Object     metav1.Object           // its metadata; nil: not in the evidence
	Template   *corev1.PodTemplateSpec // of its pods; nil: not in the evidence
}

// A Config is a ConfigMap or a Secret. Its data is not kept.
type Config struct {
	Kind, Namespace, Name string
	Created, Written      Time   // Written is unknown if the object does not have its managed fields
	By                    string // the manager of the field that was written last
	Events                []Event
	Source                Source
}

// A Creator is an object that creates pods and cannot: its events or its conditions say so.
type Creator struct {
	Kind, Namespace, Name string
	Want, Have            int                 // pods; -1: not known
	Failing               bool                // its condition says that pods cannot be created, now
	Said                  string              // message of that condition; empty: it has none
	Since                 Time                // of that condition
	Asks                  corev1.ResourceList // limits and requests of a pod of its template, as quotas name them; nil: not known
	Events                []Event             // that say why
	Source                Source
}

// About returns KIND NAMESPACE/NAME.
func (w *Creator) About() string { return About(w.Kind, w.Namespace, w.Name) }

// About returns KIND NAMESPACE/NAME, or KIND NAME without a namespace, as events name the object that they are about. A
// Node, which owns static pods, has no namespace.
func About(kind, namespace, name string) string {
	if namespace == "" || kind == "Node" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
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

// maxSlack is the longest time by which a line may lie outside the run of its container. Lines may be earlier than
// the recorded start, because the runtime records it slightly after the process began.
const maxSlack = 5 * time.Second
