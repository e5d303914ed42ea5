package podspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// A WriteError reports that the pod cannot have an edge, or cannot have it by the edge's mechanism.
type WriteError struct {
	Edge   startup.Edge
	Reason string
}

func (e *WriteError) Error() string { return fmt.Sprintf("%q: %s", e.Edge, e.Reason) }

// Write returns a copy of the pod with the plan applied. Each edge names its mechanism. Edges by gate, native and
// hold are written; an edge by any other mechanism must be in the pod already. The order of the containers
// changes only if a mechanism requires it. The parameter image is the image of the init container that copies the
// agent; the default is outrider-agent.
//
// The annotation outrider.dev/depends-on gets the written edges; earlier edges in annotations are removed.
//
// The containers in stops take part in the order of stops even without an edge. Another mesh's proxy gets a preStop
// hook that keeps it until the others have ended. Any other container gets a gate that waits for nothing and reports
// the end of the command, which the pod must set.
func Write(pod *corev1.Pod, plan startup.Plan, image string, stops ...string) (*corev1.Pod, error) {
	return (&writer{out: pod.DeepCopy(), image: cmp.Or(image, "outrider-agent")}).writePlan(plan, stops)
}

// WriteByVolume is [Write] for clusters whose kubelets and runtimes support image volumes (Kubernetes 1.33): a
// volume with the agent's image replaces the init container that copies the agent.
func WriteByVolume(pod *corev1.Pod, plan startup.Plan, image string, pull corev1.PullPolicy, stops ...string) (*corev1.Pod, error) {
	volume := &corev1.ImageVolumeSource{Reference: image, PullPolicy: pull}
	return (&writer{out: pod.DeepCopy(), volume: volume}).writePlan(plan, stops)
}

// WriteForNode is [Write] for a pod on nodes where outrider-node adds the gates. It needs no init container and
// no volumes, and a gate can wrap any command, also one that only the image sets. The pod's annotation describes
// the work for the node; it replaces an earlier one.
func WriteForNode(pod *corev1.Pod, plan startup.Plan, stops ...string) (*corev1.Pod, error) {
	return (&writer{out: Ungated(pod), node: true}).writePlan(plan, stops)
}

func (w *writer) writePlan(plan startup.Plan, stops []string) (*corev1.Pod, error) {
	w.block = map[string]bool{}
	w.keep(stops)
	plan.Containers = containersOf(w.out)
	full := plan.Expand()
	if err := validation.CheckEdges(full.Edges); err != nil {
		return nil, err
	}
	judge := plan.Judge(0)
	seen := map[startup.Ends]bool{}
	from := map[string][]startup.Edge{}
	for _, e := range full.Edges {
		if seen[e.Ends()] {
			return nil, w.fail(e, e.To+" waits for "+e.From+" twice")
		}
		seen[e.Ends()] = true
		from[e.From] = append(from[e.From], e)
		for _, name := range []string{e.From, e.To} {
			if _, at := judge.Find(name); at < 0 {
				return nil, w.fail(e, "the pod has no container "+name)
			}
		}
	}
	order, err := full.StartOrder()
	if err != nil {
		return nil, err
	}
	w.needs = full.Dependency()
	for _, name := range order {
		for _, e := range from[name] {
			if err := w.write(e); err != nil {
				return nil, err
			}
		}
	}
	if err := w.writeGates(full.Edges); err != nil {
		return nil, err
	}
	if err := w.writeStopHooks(full.Edges); err != nil {
		return nil, err
	}
	w.annotate(full.Edges)
	if w.node && len(w.work.Containers) > 0 {
		SetNodeWork(w.out, w.work)
	}
	if n := validation.AnnotationsSize(w.out.Annotations); n > validation.MaxAnnotations {
		return nil, &validation.SizeError{Edges: len(full.Edges), Bytes: n}
	}
	return w.out, w.check(full.Edges)
}

// keep distinguishes, among the containers that stop after others, the proxies, which need a preStop hook.
func (w *writer) keep(stops []string) {
	for _, name := range stops {
		if c := w.find(name); c != nil && isProxy(w.out, c) {
			w.stays = append(w.stays, name)
		} else {
			w.reports = append(w.reports, name)
		}
	}
}

type writer struct {
	out   *corev1.Pod
	image string
	needs startup.Dependency // dependencies between the containers because of the edges being written
	block map[string]bool    // containers whose hook already waits for their health

	reports []string // containers that get a gate even if they wait for nothing
	stays   []string // proxies that get a preStop hook even if no gate waits for them

	volume *corev1.ImageVolumeSource // image volume with the agent; nil if an init container copies it
	node   bool                      // the node adds the gates, as described in work
	work   contract.NodeWork
}

func (w *writer) fail(e startup.Edge, reason string) error {
	return &WriteError{Edge: e, Reason: reason}
}

func (w *writer) find(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{w.out.Spec.InitContainers, w.out.Spec.Containers} {
		if i := slices.IndexFunc(list, containerNamed(name)); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func (w *writer) write(e startup.Edge) error {
	switch e.By {
	case startup.Native:
		return w.writeNative(e)
	case startup.Hold:
		return w.writeHold(e)
	case "":
		return w.fail(e, "no mechanism is chosen")
	}
	return nil
}

// writeNative makes e.From a restartable init container, and lists it before all containers that wait for it.
func (w *writer) writeNative(e startup.Edge) error {
	always := corev1.ContainerRestartPolicyAlways
	plain := slices.IndexFunc(w.out.Spec.Containers, containerNamed(e.From))
	if plain >= 0 {
		if len(w.out.Spec.Containers) == 1 {
			return w.fail(e, "a pod needs a container that is no sidecar")
		}
		c := w.out.Spec.Containers[plain]
		c.RestartPolicy = &always
		at := slices.IndexFunc(w.out.Spec.InitContainers, func(c corev1.Container) bool {
			return w.needs.Needs(c.Name, e.From)
		})
		if at < 0 {
			at = len(w.out.Spec.InitContainers)
		}
		w.out.Spec.Containers = slices.Delete(w.out.Spec.Containers, plain, plain+1)
		w.out.Spec.InitContainers = slices.Insert(w.out.Spec.InitContainers, at, c)
	}
	i := slices.IndexFunc(w.out.Spec.InitContainers, containerNamed(e.From))
	from := &w.out.Spec.InitContainers[i]
	switch {
	case from.RestartPolicy == nil || *from.RestartPolicy != always:
		return w.fail(e, e.From+" is an init container that must complete")
	case e.After == startup.Healthy && from.StartupProbe == nil:
		return w.blockUntilHealthy(e, from)
	}
	return nil
}

// blockUntilHealthy adds a postStart hook to c that returns when c is healthy.
func (w *writer) blockUntilHealthy(e startup.Edge, c *corev1.Container) error {
	if w.block[c.Name] { // an earlier edge has done so
		return nil
	}
	w.block[c.Name] = true
	r := emptyReader(w.out)
	for _, other := range r.all {
		if other.Name == c.Name && r.holdsItself(other) {
			return nil
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		return w.fail(e, c.Name+" has a postStart hook of its own, and a container can have one only")
	}
	command, err := waitCommand(c)
	if err != nil {
		return w.fail(e, err.Error())
	}
	if command[0] == AgentPath {
		if err := w.shareAgent(c); err != nil {
			return err
		}
	}
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	c.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	if command[0] == AgentPath {
		return w.addGateVolumes() // must be last: it may move the list that contains c
	}
	return nil
}

// waitCommand returns a command that runs until c is healthy. It fails if c has no probe.
func waitCommand(c *corev1.Container) ([]string, error) {
	if p, ok := knownproxy.Named(c.Name); ok && p.Waits != nil {
		return slices.Clone(p.Waits), nil
	}
	probe := ownProbe(numbered(c))
	if probe == nil {
		return nil, fmt.Errorf("%s has no probe that reports when it is healthy", c.Name)
	}
	text, err := json.Marshal(probe)
	return append([]string{AgentPath}, contract.WaitArgs(string(text))...), err
}

// annotate replaces the edges in the pod's annotations by those that were written.
func (w *writer) annotate(edges []startup.Edge) {
	for key := range w.out.Annotations {
		if request.IsEdges(key) {
			delete(w.out.Annotations, key)
		}
	}
	requested := own(edges)
	if len(requested) == 0 {
		return
	}
	if w.out.Annotations == nil {
		w.out.Annotations = map[string]string{}
	}
	w.out.Annotations[contract.DependsOn] = request.FormatEdges(requested)
}

// own returns the edges that Write itself writes, without their mechanisms, as an annotation contains them.
func own(edges []startup.Edge) []startup.Edge {
	var out []startup.Edge
	for _, e := range edges {
		if e.By == startup.Gate || e.By == startup.Native || e.By == startup.Hold {
			e.By = ""
			out = append(out, e)
		}
	}
	return out
}

// check reads the written pod again. It fails if an edge is missing there or if the edges cause a deadlock.
func (w *writer) check(edges []startup.Edge) error {
	// The edges are passed to the function read. They are not parsed from the annotation, because the parser is
	// tested separately.
	r, err := read(w.out, own(edges))
	if err != nil {
		return fmt.Errorf("reading back what was written: %w", err)
	}
	have := r.RequestedEdges()
	if slices.ContainsFunc(edges, func(e startup.Edge) bool { return e.By == startup.InitDone }) {
		have = r.Plan().Edges
	}
	at := startup.ByEnds(have)
	for _, e := range edges {
		i, found := at[e.Ends()]
		if found && (e.By == startup.InitDone || have[i] == e) {
			continue
		}
		got := "nothing"
		if found {
			got = fmt.Sprintf("%q", have[i])
		}
		return w.fail(e, "cannot be written into this pod: read back as "+got)
	}
	if deadlock := (startup.Plan{Containers: r.Containers, Edges: edges}).Deadlock(); deadlock != nil {
		return w.fail(deadlock.Edges[0], deadlock.Error())
	}
	return nil
}

func containersOf(pod *corev1.Pod) []startup.Container {
	return newReader(pod).Containers
}
