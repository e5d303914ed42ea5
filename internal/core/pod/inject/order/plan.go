package order

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// A Request holds the facts on which the order of a pod's start depends.
type Request struct {
	Pod        *corev1.Pod // in the author's form, without our containers
	Kubernetes startup.Kubernetes

	// Proxy makes our proxy, as a sidecar or a plain container; nil: the pod gets none.
	Proxy    func(sidecar bool, r *verdict.Report) (corev1.Container, error)
	Before   int  // number of plain containers that the author lists before the proxy
	Captured bool // the proxy has the pod's connections
	ByNode   bool // the node adds the gates

	OtherMesh string // the container of another mesh's proxy; empty: there is none
	Alongside bool   // that mesh has the proxy

	Hold   Hold
	Native string // the control plane's ENABLE_NATIVE_SIDECARS: auto, true or false

	Commands    map[string]imagecmd.Command // commands of images; nil: none is looked up
	Interrupted func() error                // returns an error once no one needs the order
}

// A Hold is the effective setting of holdApplicationUntilProxyStarts.
type Hold struct {
	Value *bool
	At    string // where it is set
	OfPod bool   // it is in the pod's own annotation
}

// A Plan describes how the pod starts: the position of the proxy, a mechanism for each edge, and the
// commands that are taken from images.
type Plan struct {
	Pod      *corev1.Pod // with the proxy and the commands of images, but without gates
	Edges    startup.Plan
	choices  []mechanism.Choice
	Commands map[string]imagecmd.Written // by container

	policy      policy
	fromInit    map[string]bool // names of the init containers, without the proxy
	commandless []string        // containers whose commands would make more gates possible
	said        *verdict.Report // reports of the arrangement
	Unknown     []string        // images whose commands would make more gates possible
}

// Of plans the order of a pod's start.
func Of(in Request, r *verdict.Report) (Plan, error) {
	w, err := policyOf(in, r)
	if err != nil {
		return Plan{}, err
	}
	known := imagecmd.Commands{Pod: in.Pod}
	if in.Commands != nil {
		known = imagecmd.Of(in.Pod, in.Commands)
	}
	p, err := arrange(in, w, w.sidecar, known)
	if in.Commands != nil {
		p.Unknown = known.LookUp(p.commandless)
		for _, name := range p.commandless {
			if why, ok := known.Unknown[name]; ok {
				r.Warn("%s: its command is not known: %s", name, why)
			}
		}
	}
	sidecar := w.sidecar
	if err == nil && !sidecar && in.Proxy != nil && p.needsSidecar(in.Kubernetes) {
		// A container needs a proxy that the kubelet starts first if it waits before the plain containers
		// run, or if its command is unknown.
		sidecar = true
		unknown := p.Unknown // with their commands, gates might make a plain proxy suffice
		p, err = arrange(in, w, sidecar, known)
		p.Unknown = unknown
	}
	if err != nil {
		return p, err
	}
	r.Add(p.said)
	if _, ok := in.Pod.Annotations[contract.NativeRelease]; ok && in.Proxy != nil && !sidecar {
		r.Ignored(contract.NativeRelease, "the proxy is no native sidecar")
		r.Note("annotation %s: %s has no effect: the proxy is no native sidecar", contract.NativeRelease, in.Pod.Annotations[contract.NativeRelease])
	}
	p.keepCommands(known.Written, r)
	p.clearHook(r)
	return p, nil
}

// needsSidecar reports whether an arrangement with a plain proxy shows that the proxy must be a sidecar.
func (p Plan) needsSidecar(on startup.Kubernetes) bool {
	w := p.policy
	if on < 29 || slices.Contains(w.avoid, startup.Native) || w.start == startup.Hold {
		return false
	}
	return slices.ContainsFunc(p.Edges.Edges, func(e startup.Edge) bool {
		return e.From == contract.ProxyContainer && e.By == startup.Native || e.By == startup.Gate && (p.fromInit[e.From] || p.fromInit[e.To])
	}) || slices.ContainsFunc(p.choices, func(c mechanism.Choice) bool {
		return c.Edge.From == contract.ProxyContainer && c.Edge.By == "" // for example to a container that another edge makes a sidecar
	})
}

// arrange adds the proxy and chooses a mechanism for each edge. Its reports are in the plan, because only
// those of the last arrangement count.
func arrange(in Request, w policy, sidecar bool, known imagecmd.Commands) (Plan, error) {
	p := Plan{Pod: containers.WithLists(known.Pod), policy: w, fromInit: map[string]bool{}, said: &verdict.Report{}}
	for _, c := range p.Pod.Spec.InitContainers {
		p.fromInit[c.Name] = true
	}
	proxy := in.OtherMesh
	if in.Proxy != nil {
		proxy = contract.ProxyContainer
		c, err := in.Proxy(sidecar, p.said)
		if err != nil {
			return p, err
		}
		if sidecar {
			p.Pod.Spec.InitContainers = slices.Insert(p.Pod.Spec.InitContainers, 0, c)
		} else {
			p.Pod.Spec.Containers = slices.Insert(p.Pod.Spec.Containers, in.place(w, p.said), c)
		}
	}
	reading, err := p.read(in.Proxy != nil)
	if err != nil {
		return p, err
	}
	reading.Avoid, reading.Unknown, reading.Node = w.avoid, known.Unknown, in.ByNode
	if in.Alongside && w.start == "" {
		reading.Avoid = append(slices.Clip(reading.Avoid), mechanismsThatChange(reading, proxy)...)
	}
	requested := presentEdges(in, reading.Requested, p.said)
	if err := in.Interrupted(); err != nil {
		return p, err
	}
	reading.Requested = withDefault(reading.Containers, requested, w, proxy)
	all := startup.Plan{Containers: reading.Containers, Edges: reading.Requested}.Expand()
	if err := podspec.CheckEdges(all.Edges); err != nil {
		return p, TooLarge(err)
	}
	source := ""
	if len(requested) > 0 {
		source = "annotation " + contract.DependsOn + ": "
	}
	if err := w.validate(reading, in.Kubernetes, source); err != nil {
		return p, err
	}
	w.doubt(reading, in.Kubernetes, p.said)
	if err := in.Interrupted(); err != nil {
		return p, err
	}
	p.choices = mechanism.ChooseRequested(reading, in.Kubernetes)
	p.commandless = commandless(reading, p.choices)
	for i, c := range p.choices {
		p.choices[i].Why = p.why(c, w, requested)
		if err := p.add(c, w, requested); err != nil {
			return p, err
		}
	}
	return p, nil
}

// place returns the index of the proxy among the plain containers. The proxy starts first, even if no
// container waits for it, because a connection that is parked before the proxy listens is retried only after
// a second. An author who accepts that second in exchange for a start without delay lists a container with
// the proxy's name after the application.
func (in Request) place(w policy, r *verdict.Report) int {
	if w.start != request.Off || in.Before == 0 {
		return 0
	}
	var first []string
	for _, c := range in.Pod.Spec.Containers[:in.Before] {
		first = append(first, c.Name)
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			r.Warn("%s starts before the proxy, which starts only when the postStart hook has ended: what the hook calls through the proxy fails after the parking time", c.Name)
		}
	}
	r.Note("the proxy starts after %s, as the pod lists them: connections in between are parked, and retried after a second", strings.Join(first, ", "))
	return in.Before
}

// read reads the order of the pod. The parameter says whether our proxy was added to it.
func (p Plan) read(proxy bool) (podstart.Reading, error) {
	reading, err := podspec.ReadOrder(p.Pod)
	var large *podspec.SizeError
	switch {
	case errors.As(err, &large):
		return reading, TooLarge(err)
	case err != nil:
		return reading, verdict.Refuse(verdict.InvalidAnnotation, "", "%v", err)
	}
	if proxy {
		added := reading.Facts[contract.ProxyContainer]
		added.Hooked = false // [plan.clearHook] removes the hook
		reading.Facts[contract.ProxyContainer] = added
	}
	return reading, nil
}

// why returns the reasons for a choice. It replaces the first reason if the edge is a default one: then no
// annotation names the mechanism, although it is preset.
func (p Plan) why(c mechanism.Choice, w policy, requested []startup.Edge) []string {
	preset := p.fromInit[c.Edge.To] || w.by == startup.Native
	if c.Edge.By != startup.Native || len(c.Why) == 0 || !preset || isRequested(requested, c.Edge) {
		return c.Why
	}
	return append([]string{"the proxy is a native sidecar anyway"}, c.Why[1:]...)
}

// presentEdges returns the requested edges, except for those from another mesh's proxy that its injector has
// not added yet. These are requested again when it has.
func presentEdges(in Request, requested []startup.Edge, r *verdict.Report) []startup.Edge {
	return slices.DeleteFunc(slices.Clone(requested), func(e startup.Edge) bool {
		if !in.Alongside || !slices.Contains(containers.OtherMeshes, e.From) || containers.Find(in.Pod, e.From) != nil {
			return false
		}
		r.Warn("%s is to wait for %s, which is not in the pod: it does not wait until that mesh has added it and the pod is injected again", e.To, e.From)
		return true
	})
}

// mechanismsThatChange lists the mechanisms that would change the other mesh's proxy. It becomes no sidecar
// and gets no hook, unless an annotation names that mechanism.
func mechanismsThatChange(r podstart.Reading, proxy string) []startup.Mechanism {
	if proxy == "" {
		return nil
	}
	var out []startup.Mechanism
	at := slices.IndexFunc(r.Containers, func(c startup.Container) bool { return c.Name == proxy })
	if at >= 0 && r.Containers[at].Kind == startup.Plain {
		out = append(out, startup.Native)
	}
	holds := func(f podstart.Found) bool { return f.Mechanism == startup.Hold && f.Container == proxy }
	if !slices.ContainsFunc(r.Found, holds) {
		out = append(out, startup.Hold)
	}
	return out
}

// withDefault returns the requested edges. If none of them is from the proxy, it adds an edge from the proxy
// to every plain container.
func withDefault(containers []startup.Container, requested []startup.Edge, w policy, proxy string) []startup.Edge {
	out := slices.Clone(requested)
	explicit := false
	before := map[string]bool{} // containers that the proxy waits for
	for i, e := range out {
		if e.To == proxy {
			before[e.From] = true
		}
		if e.From == proxy && proxy != "" {
			explicit = true
			out[i].By = w.preset(e)
		}
	}
	if explicit || !w.order || proxy == "" {
		return out
	}
	by := map[startup.Kind]startup.Mechanism{startup.Plain: w.by}
	if containers[0].Name == contract.ProxyContainer && containers[0].Kind == startup.Sidecar {
		// Init containers are in the mesh too, and their commands do not change.
		by[startup.Init], by[startup.Sidecar] = startup.Native, startup.Native
	}
	for _, c := range containers {
		if mechanism, waits := by[c.Kind]; waits && c.Name != proxy && !before[c.Name] {
			out = append(out, startup.Edge{From: proxy, To: c.Name, After: startup.Healthy, By: mechanism})
		}
	}
	return out
}

// preset returns the mechanism of a requested edge. If the edge names none, the policy's applies, except
// for an edge that gives up or follows a restart, which only a gate can do.
func (w policy) preset(e startup.Edge) startup.Mechanism {
	if e.By != "" || e.Timeout > 0 || e.OnRestart != startup.Ignore {
		return e.By
	}
	return w.by
}

// ofChoice lists the findings about mechanisms, which [plan.add] handles.
var ofChoice = []startup.Code{startup.UnsuitableMechanism, startup.UnsatisfiableEdge}

// Judge reads the injected pod again, as the other commands do, and refuses it if it cannot start. For
// example, a native sidecar that begins before a plain proxy may have a probe that only the proxy answers.
func (p Plan) Judge(pod *corev1.Pod, on startup.Kubernetes) error {
	reading, err := podspec.ReadOrder(pod)
	if err != nil {
		return nil // too many edges for an annotation, which were judged before they were written
	}
	return p.policy.validate(reading, on, "the injected pod would never start: ")
}

// validate refuses a start that cannot end, considering the author's requests and the kubelet's own order. A
// work-around in a command is only a guess, and refuses nothing. The reason begins with source.
func (w policy) validate(r podstart.Reading, on startup.Kubernetes, source string) error {
	if w.start == request.Off {
		return nil
	}
	certain := startup.Preferred
	if !initWaits(r) {
		// The order of the init list then closes no cycle, and it may have a number of edges that is
		// quadratic in the list.
		certain = []startup.Mechanism{startup.Gate, startup.Hold}
	}
	r.Found = slices.DeleteFunc(slices.Clone(r.Found), func(f podstart.Found) bool { return !slices.Contains(certain, f.Mechanism) })
	for _, f := range unchosen(r).Validate(on) {
		if f.Level == startup.Error && !slices.Contains(ofChoice, f.Code) {
			return verdict.Refuse(verdict.InvalidGraph, f.Remedy, "%s%s", source, f.Message)
		}
	}
	return nil
}

// unchosen returns the plan without mechanisms, which [plan.add] handles.
func unchosen(r podstart.Reading) startup.Plan {
	plan := r.Plan()
	for i := range plan.Edges {
		plan.Edges[i].By = ""
	}
	return plan
}

// doubt warns of a start that cannot end if a command really waits for what it seems to wait for.
func (w policy) doubt(r podstart.Reading, on startup.Kubernetes, to *verdict.Report) {
	if w.start == request.Off || !slices.ContainsFunc(r.Found, func(f podstart.Found) bool { return f.Mechanism == startup.HealthLoop }) {
		return
	}
	for _, f := range unchosen(r).Validate(on) {
		if f.Level == startup.Error && f.Code == startup.Cycle {
			to.Warn("%s, if a command waits for what it seems to", f.Message)
		}
	}
}

// initWaits reports whether an init container waits for a container that is not listed before it.
func initWaits(r podstart.Reading) bool {
	at := map[string]int{startup.Everything: len(r.Containers)} // index in the init list, from 1
	for i, c := range r.Containers {
		if c.Kind == startup.Plain {
			continue
		}
		if len(c.HealthNeeds) > 0 {
			return true
		}
		at[c.Name] = i + 1
	}
	return slices.ContainsFunc(r.Requested, func(e startup.Edge) bool {
		return at[e.To] > 0 && (at[e.From] == 0 || at[e.From] >= at[e.To])
	})
}

// add adds a chosen edge. An impossible edge or mechanism refuses the pod if it was requested.
func (p *Plan) add(c mechanism.Choice, w policy, requested []startup.Edge) error {
	e := c.Edge
	switch {
	case c.Present != nil, e.By == startup.InitDone, w.start == request.Off:
	case slices.Contains(startup.Preferred, e.By):
		p.Edges.Edges = append(p.Edges.Edges, e)
	case e.By != "":
	case w.start != "" || isRequested(requested, e):
		return verdict.Refuse(verdict.NoMechanism, p.hint(e), "%q cannot be kept%s", e, whyNot(c))
	}
	return nil
}

func isRequested(requested []startup.Edge, e startup.Edge) bool {
	return slices.ContainsFunc(requested, func(o startup.Edge) bool { return covers(o.From, e.From) && covers(o.To, e.To) })
}

func covers(requested, name string) bool { return requested == name || requested == startup.Everything }

// hint says how a gate becomes possible if it lacks a command.
func (p Plan) hint(e startup.Edge) string {
	for _, name := range []string{e.To, e.From} {
		if slices.Contains(p.commandless, name) {
			return fmt.Sprintf("name the command of %s in the pod (command:), or let --resolve-images read it from the image", name)
		}
	}
	return ""
}

func whyNot(c mechanism.Choice) string {
	var why []string
	for _, o := range c.Refused {
		why = append(why, fmt.Sprintf("by %s: %s", o.By, o.WhyNot()))
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, "; ")
}

// clearHook removes a postStart hook of the proxy that the mesh or the author set, if a hold or a native
// sidecar needs the hook.
func (p Plan) clearHook(r *verdict.Report) {
	c := containers.Find(p.Pod, contract.ProxyContainer)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return
	}
	needed := slices.ContainsFunc(p.Edges.Edges, func(e startup.Edge) bool {
		return e.From == contract.ProxyContainer && (e.By == startup.Hold || e.By == startup.Native && c.StartupProbe == nil)
	})
	if needed {
		r.Warn("the postStart hook that is set for %s is left out: the app waits by that hook, and a container can have one only", contract.ProxyContainer)
		c.Lifecycle.PostStart = nil
	}
}

// commandless returns the containers whose unknown command keeps an edge from having a gate.
func commandless(r podstart.Reading, choices []mechanism.Choice) []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range choices {
		if !slices.ContainsFunc(c.Refused, func(o mechanism.Option) bool { return o.By == startup.Gate }) {
			continue
		}
		for _, name := range []string{c.Edge.To, c.Edge.From} {
			if f := r.Facts[name]; !f.Command && !f.Proxy && !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

// keepCommands keeps the commands of images that a gate wraps, and reports them. It restores every other
// container.
func (p *Plan) keepCommands(written map[string]imagecmd.Written, r *verdict.Report) {
	gated := map[string]bool{}
	for _, e := range p.Edges.Edges {
		if e.By == startup.Gate {
			gated[e.To], gated[e.From] = true, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		w := written[name]
		if !gated[name] {
			c := containers.Find(p.Pod, name)
			c.Image, c.Command, c.Args = w.Image, nil, w.Args
			continue
		}
		if p.Commands == nil {
			p.Commands = map[string]imagecmd.Written{}
		}
		p.Commands[name] = w
		pinned := ""
		if w.Digest != "" {
			pinned = ", and the image is pinned to it"
		}
		_, digest, _ := strings.Cut(w.Pinned(), "@")
		r.Note("%s: the command of %s is %q (looked up by digest, %s): it is written into the pod%s",
			name, w.Image, strings.Join(w.Command, " "), digest, pinned)
	}
}

func TooLarge(err error) error {
	return verdict.Refuse(verdict.TooLarge, "request fewer edges, or order init containers by their list alone", "%v", err)
}
