package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// A Reading describes the start-up of a pod.
type Reading struct {
	Containers []startup.Container
	Facts      map[string]Fact   // by container
	Requested  []startup.Edge    // by annotation, stars included
	Found      []Found           // orderings that the pod already has
	Start      startup.Mechanism // the annotation outrider.dev/start
	Native     bool              // the annotation sidecar.istio.io/nativeSidecar: "true", which takes precedence over a gate
	Expected   []string          // containers that others wait for, and that injection has not added yet
	Notes      []string
	Injected   bool   // injection has already written what is requested, as well as it could
	Excluded   string // why injection will not write what is requested; empty: it will

	// Avoid lists mechanisms that [Choose] must not pick by itself. Callers set it; it is not read from the
	// pod.
	Avoid []startup.Mechanism

	// Node says that the pod's nodes add gates, to any command: they do so already, or the caller sets it
	// for a pod that will be injected in this way.
	Node bool

	// Unknown says for a container why its command is not known from its image either. Nil: the images were
	// not looked up.
	Unknown map[string]string
}

// A Fact describes a container, as far as mechanisms depend on it.
type Fact struct {
	Command bool // the command is in the pod, so that it can be wrapped
	First   bool // the command runs only as process 1
	Proxy   bool // a mesh's proxy: it can be moved, and reports its own readiness
	Probed  bool // it has a probe, which a hook or a gate can run
	Starts  bool // it has a startup probe
	Hooked  bool // it has a postStart hook, which leaves no place for one that waits
}

// Found is an ordering that the pod already has, from any source.
type Found struct {
	Container   string            `json:"container"` // the container in which it was found
	Mechanism   startup.Mechanism `json:"mechanism"`
	By          string            `json:"by"`              // the program or mesh: "pilot-agent wait", "Tekton", "sleep"
	Edges       []startup.Edge    `json:"edges,omitempty"` // empty if it is unknown what it waits for
	Evidence    Evidence          `json:"evidence"`
	Replaceable bool              `json:"replaceable"` // [Without] can take it out

	cut    [2]int        // position in the script, if it is part of one
	unwrap int           // index of the real command, if it is a wrapper
	lasts  time.Duration // duration of a sleep, or of a loop that gives up
}

// Evidence shows where in the pod an ordering was seen.
type Evidence struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

func (e Evidence) String() string { return e.Field + ": " + e.Text }

// Read returns what the pod says and does about its start-up. The error joins an *request.Error for each
// annotation that cannot be understood; the rest of the reading is valid. A pod with more than
// [MaxContainers] is not read at all.
func Read(pod *corev1.Pod) (Reading, error) {
	r, err := readAll(pod)
	r.note()
	return r.Reading, err
}

// ReadOrder is [Read] without notes.
func ReadOrder(pod *corev1.Pod) (Reading, error) {
	r, err := readAll(pod)
	return r.Reading, err
}

func readAll(pod *corev1.Pod) (reader, error) {
	if err := CheckSize(pod); err != nil {
		return reader{pod: pod}, err
	}
	requested, err := request.Edges(pod.Annotations, manifest.DecodeAnnotationStrict)
	if err := CheckEdges(requested); err != nil {
		return reader{pod: pod}, err
	}
	r, startErr := read(pod, requested)
	return r, errors.Join(err, startErr)
}

// read is [Read] without notes, with the given edges in place of those in the annotations.
func read(pod *corev1.Pod, requested []startup.Edge) (reader, error) {
	r := newReader(pod)
	for _, c := range r.all {
		for _, recognise := range recognisers {
			recognise(&r, c)
		}
	}
	r.Requested = requested
	if _, r.Injected = pod.Annotations[contract.Status]; !r.Injected && len(requested) > 0 {
		r.Excluded = request.Excluded(pod)
	}
	start, err := request.Start(pod.Annotations)
	r.Node = r.Node || pod.Annotations[contract.Init] == contract.InitByNode
	r.Start, r.Native = start, pod.Annotations[contract.NativeSidecar] == "true"
	for _, e := range requested {
		if e.From == OurProxy && pod.Annotations[contract.Proxy] != "none" {
			r.expect(OurProxy)
		}
	}
	return r, err
}

// emptyReader returns a reader with the pod and no facts.
func emptyReader(pod *corev1.Pod) reader {
	return reader{pod: pod, all: carriers(pod), Reading: Reading{Facts: map[string]Fact{}}}
}

// newReader returns a reader that knows the containers, and has not looked for any ordering yet.
func newReader(pod *corev1.Pod) reader {
	work, _ := NodeWork(pod)
	r := reader{pod: pod, all: carriers(withGates(pod, work)), gates: work.Containers, Reading: Reading{Facts: map[string]Fact{}, Node: len(work.Containers) > 0}}
	for _, c := range r.all {
		r.Containers = append(r.Containers, r.container(c))
		_, isProxy := knownProxy(c.Name)
		r.Facts[c.Name] = Fact{Command: len(c.Command) > 0, First: len(c.Command) > 0 && contract.RunsFirst(c.Command[0]), Proxy: isProxy, Probed: ownProbe(c.Container) != nil, Starts: c.StartupProbe != nil, Hooked: c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !r.holdsItself(c)}
	}
	return r
}

// recognisers has one function per mechanism. Each adds to what was found.
var recognisers = []func(*reader, carrier){native, initDone, gate, hook, workaround}

type reader struct {
	pod   *corev1.Pod
	all   []carrier           // the containers with the gates that the node adds
	gates map[string][]string // the gates that the node adds, by container
	Reading
}

func (r *reader) has(name string) bool {
	return slices.ContainsFunc(r.all, func(c carrier) bool { return c.Name == name })
}

// firstOf returns the first of the names that the pod has. If it has none, firstOf returns the first name,
// and the pod is expected to get that container.
func (r *reader) firstOf(names []string) string {
	for _, n := range names {
		if r.has(n) {
			return n
		}
	}
	if len(names) == 0 {
		return ""
	}
	r.expect(names[0])
	return names[0]
}

func (r *reader) expect(name string) {
	if r.has(name) || slices.Contains(r.Expected, name) {
		return
	}
	r.Expected = append(r.Expected, name)
	r.Facts[name] = Fact{Command: true, Proxy: true, Probed: true}
}

// listener returns the container behind a local port: a mesh's proxy, or a container that declares the port
// or is probed there; empty if none is known.
func (r *reader) listener(port int) string {
	known := proxiesAt(port)
	for _, n := range known {
		if r.has(n) {
			return n
		}
	}
	for _, c := range r.all {
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port }) {
			return c.Name
		}
	}
	for _, c := range r.all {
		for _, p := range []*corev1.Probe{c.ReadinessProbe, startupProbe(c.Container), c.LivenessProbe} {
			if p != nil && (p.HTTPGet != nil && PortNumber(c.Container, p.HTTPGet.Port) == port || p.TCPSocket != nil && PortNumber(c.Container, p.TCPSocket.Port) == port) {
				return c.Name
			}
		}
	}
	return r.firstOf(known)
}

// proxy returns the name of the pod's proxy; empty if there is none.
func (r *reader) proxy() string {
	for _, p := range proxies {
		if r.has(p.name) {
			return p.name
		}
	}
	return ""
}

// after returns the edge of a container that waits for another one: for its health if it reports it, else
// for its start.
func (r *reader) after(from, to string, by startup.Mechanism) startup.Edge {
	e := startup.Edge{From: from, To: to, After: startup.Healthy, By: by}
	if c, known := r.find(from); known && c.Health == startup.NoHealth {
		e.After = startup.Started
	}
	return e
}

func (r *reader) add(f Found) {
	f.Edges = slices.DeleteFunc(f.Edges, func(e startup.Edge) bool { return e.From == "" || e.From == e.To })
	f.Evidence.Text = oneLine(f.Evidence.Text)
	r.Found = append(r.Found, f)
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s[:min(len(s), 4<<10)]), " ")
	if runes := []rune(s); len(runes) > 140 {
		return string(runes[:137]) + "..."
	}
	return s
}

// note adds the notes about the pod.
func (r *reader) note() {
	r.noteStage()
	r.noteBypasses()
	proxy := r.proxy()
	if proxy == "" {
		return
	}
	waits := map[string]bool{}
	count := func(edges []startup.Edge) {
		for _, e := range edges {
			if e.From == proxy {
				waits[e.To] = true
			}
		}
	}
	if len(r.Requested) > 0 { // the edges may have stars and contradict each other
		count(r.Reading.Plan().Expand().Edges)
	} else {
		for _, f := range r.Found {
			count(f.Edges)
		}
	}
	var free []string
	for _, c := range r.all {
		if c.kind == startup.Plain && c.Name != proxy && !waits[c.Name] {
			free = append(free, c.Name)
		}
	}
	if len(free) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("nothing makes %s wait for %s: connections before it is ready may be refused", strings.Join(free, ", "), proxy))
	}
}

// Meant returns e as the author of a work-around intended it: a command that polls a port is meant to wait
// until the container behind it is healthy, if that container reports its health.
func (r Reading) Meant(e startup.Edge) startup.Edge {
	if c, known := r.find(e.From); slices.Contains(startup.WorkArounds, e.By) && known && c.Health != startup.NoHealth {
		e.After = startup.Healthy
	}
	return e
}

// Plan returns all edges that the pod keeps or requests. A requested edge that the pod already keeps names
// the mechanism; the best one if there are several.
func (r Reading) Plan() startup.Plan {
	p := r.plan()
	n := len(r.Requested)
	for _, f := range r.Found {
		n += len(f.Edges)
	}
	p.Edges = append(make([]startup.Edge, 0, n), r.requested()...)
	at := startup.ByEnds(p.Edges)
	needs := startup.Plan{Containers: p.Containers, Edges: r.Requested}.Dependency()
	for _, f := range r.Found {
		for _, e := range f.Edges {
			i, known := at[e.Ends()]
			switch {
			case !known && contradicts(e, needs):
			case !known:
				at[e.Ends()] = len(p.Edges)
				p.Edges = append(p.Edges, e)
			case i >= len(r.Requested) && better(e.By, p.Edges[i].By):
				p.Edges[i] = e
			}
		}
	}
	return p
}

// requested returns the requested edges, each with the best mechanism by which the pod already keeps it.
func (r Reading) requested() []startup.Edge {
	out := slices.Clone(r.Requested)
	if len(out) == 0 {
		return nil
	}
	at := startup.ByEnds(out)
	kept := map[int][]startup.Edge{} // edges in the pod, by index of the requested edge
	for _, f := range r.Found {
		for _, e := range f.Edges {
			if i, requested := at[e.Ends()]; requested {
				kept[i] = append(kept[i], e)
			}
		}
	}
	for i, e := range out {
		if e.By == "" {
			out[i].By = keptBy(e, kept[at[e.Ends()]])
		}
	}
	return out
}

// contradicts reports whether e closes a cycle with the requested edges, and can be dropped.
func contradicts(e startup.Edge, requested startup.Dependency) bool {
	return e.By.GivesWay() && requested.Needs(e.From, e.To)
}

// find returns a container of the pod, or an expected one.
func (r Reading) find(name string) (startup.Container, bool) {
	if c, i := (startup.Plan{Containers: r.Containers}).Find(name); i >= 0 {
		return c, true
	}
	return startup.Container{Name: name, Health: startup.Report, Named: true}, slices.Contains(r.Expected, name)
}

// plan returns the containers without edges. The expected ones are where injection puts a proxy that others
// wait for: before the init container that waits for it, as a sidecar, else as the first plain container.
func (r Reading) plan() startup.Plan {
	p := startup.Plan{Containers: slices.Clone(r.Containers)}
	at := slices.IndexFunc(p.Containers, func(c startup.Container) bool { return c.Kind == startup.Plain })
	if at < 0 {
		at = len(p.Containers)
	}
	for _, name := range r.Expected {
		c, place := startup.Container{Name: name, Health: startup.Report, Named: true}, at
		if first := slices.IndexFunc(p.Containers[:at], func(o startup.Container) bool {
			return slices.ContainsFunc(r.Requested, func(e startup.Edge) bool { return e.From == name && e.To == o.Name })
		}); first >= 0 {
			c.Kind, place, at = startup.Sidecar, first, at+1
		}
		p.Containers = slices.Insert(p.Containers, place, c)
	}
	return p
}

// keptBy returns the best of the mechanisms by which the pod already keeps e.
func keptBy(e startup.Edge, kept []startup.Edge) startup.Mechanism {
	var best startup.Mechanism
	for _, o := range kept {
		enough := o.After == e.After || o.After == startup.Healthy && e.After == startup.Started
		if enough && o.By != startup.BoundedLoop && (best == "" || better(o.By, best)) {
			best = o.By
		}
	}
	return best
}

func better(a, b startup.Mechanism) bool {
	return slices.Index(startup.Mechanisms, a) < slices.Index(startup.Mechanisms, b)
}
