package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// Read returns the order of the pod's start: the requested order, and the orderings that the pod already has.
// The error joins a [*request.Error] for each invalid annotation; the rest of the reading is valid nevertheless.
// A pod that exceeds the limits of [validation.CheckSize] is not read.
func Read(pod *corev1.Pod) (podstart.Reading, error) {
	r, err := readAll(pod)
	r.note()
	return r.Reading, err
}

// ReadOrder is [Read] without notes.
func ReadOrder(pod *corev1.Pod) (podstart.Reading, error) {
	r, err := readAll(pod)
	return r.Reading, err
}

func readAll(pod *corev1.Pod) (reader, error) {
	if err := validation.CheckSize(pod); err != nil {
		return reader{pod: pod}, err
	}
	requested, err := request.Edges(pod.Annotations, manifest.DecodeAnnotationStrict)
	if err := validation.CheckEdges(requested); err != nil {
		return reader{pod: pod}, err
	}
	r, startErr := read(pod, requested)
	return r, errors.Join(err, startErr)
}

// read is [ReadOrder] with the given edges in place of the edges in the annotations.
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

// emptyReader returns a reader of the pod's own containers without any facts about them.
func emptyReader(pod *corev1.Pod) reader {
	return reader{pod: pod, all: podContainers(pod), Reading: podstart.Reading{Facts: map[string]podstart.Fact{}}}
}

// newReader returns a reader with the containers and the facts about them. It has not looked for orderings yet.
func newReader(pod *corev1.Pod) reader {
	work, _ := NodeWork(pod)
	r := reader{pod: pod, all: podContainers(withGates(pod, work)), gates: work.Containers, Reading: podstart.Reading{Facts: map[string]podstart.Fact{}, Node: len(work.Containers) > 0}}
	for _, c := range r.all {
		r.Containers = append(r.Containers, r.container(c))
		_, isProxy := knownproxy.Named(c.Name)
		r.Facts[c.Name] = podstart.Fact{Command: len(c.Command) > 0, First: len(c.Command) > 0 && contract.RunsFirst(c.Command[0]), Proxy: isProxy, Probed: ownProbe(c.Container) != nil, Starts: c.StartupProbe != nil, Hooked: c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !r.holdsItself(c)}
	}
	return r
}

// recognisers has a function for each kind of ordering. Each function is called for each container and adds the
// orderings that it finds to the reader.
var recognisers = []func(*reader, podContainer){native, initDone, gate, hook, workaround}

type reader struct {
	pod   *corev1.Pod
	all   []podContainer      // with the gates that the node adds
	gates map[string][]string // command lines of the gates that the node adds, by container
	podstart.Reading
}

func (r *reader) has(name string) bool {
	return slices.ContainsFunc(r.all, func(c podContainer) bool { return c.Name == name })
}

// firstOf returns the first of the names that is in the pod. If the pod has none of them, firstOf returns the
// first name, and records that the pod is expected to get that container.
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
	r.Expect(name)
}

// listener returns the container that listens on a local port: a mesh's proxy, else a container that declares the
// port or has a probe of it, else a server with that port; empty if none is known.
func (r *reader) listener(port int) string {
	known := knownproxy.At(port)
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
		own := *c.Container
		own.StartupProbe = startupProbe(c.Container)
		if ListensOn(&own, port) {
			return c.Name
		}
	}
	return r.firstOf(known)
}

// proxy returns the name of the first known proxy in the pod; empty if there is none.
func (r *reader) proxy() string {
	names := knownproxy.Names()
	if i := slices.IndexFunc(names, r.has); i >= 0 {
		return names[i]
	}
	return ""
}

// after returns the edge of a container that waits for another one. The condition is the other container's
// health if that container reports it, else its start.
func (r *reader) after(from, to string, by startup.Mechanism) startup.Edge {
	e := startup.Edge{From: from, To: to, After: startup.Healthy, By: by}
	if c, known := r.Find(from); known && c.Health == startup.NoHealth {
		e.After = startup.Started
	}
	return e
}

func (r *reader) add(f podstart.Found) {
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

// note adds notes about the proxy, and about containers that do not wait for it.
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
	if len(r.Requested) > 0 { // the edges may have wildcards and contradict each other
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
		early := "may be refused"
		if Parks(r.pod) {
			early = "are parked"
		}
		r.Note(fmt.Sprintf("nothing makes %s wait for %s: connections before it is ready %s", strings.Join(free, ", "), proxy, early))
	}
}
