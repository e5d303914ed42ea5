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
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// A Request holds the pod and the settings from which [Of] makes a plan.
type Request struct {
	Pod        *corev1.Pod // as its author wrote it, without our containers
	Kubernetes startup.Kubernetes

	// Proxy makes our proxy container, as a sidecar or a regular container; nil if the pod gets none.
	Proxy    func(sidecar bool, r *verdict.Report) (corev1.Container, error)
	Before   int  // number of the author's regular containers that come before the proxy
	Captured bool // the pod's connections go through the proxy
	ByNode   bool // outrider-node adds the gates

	OtherMesh string // name of the container with another mesh's proxy; empty if there is none
	Alongside bool   // that proxy is used, and ours is not added

	Hold   Hold
	Native string // the control plane's setting ENABLE_NATIVE_SIDECARS: auto, true or false

	Commands    map[string]imagecmd.Command // commands of images; nil if none can be looked up
	Interrupted func() error                // returns an error if the order is no longer needed
}

// A Hold is the effective setting of holdApplicationUntilProxyStarts.
type Hold struct {
	Value *bool
	At    string // where it is set
	OfPod bool   // set in the pod's own annotation
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
	commandless []string        // containers whose commands must be known to make more gates possible
	said        *verdict.Report // messages of [arrange]
	Unknown     []string        // images whose commands must be known to make more gates possible
}

// Of plans the order of a pod's start. The error is a [*verdict.Refusal] if a requested order is impossible.
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
		// If a container waits before the regular containers run, or if its command is unknown, it needs a proxy
		// that the kubelet starts first.
		sidecar = true
		unknown := p.Unknown // if these commands were known, a proxy that is a regular container might suffice, with gates
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

// needsSidecar reports whether the proxy must be a sidecar. In the plan p the proxy is a regular container.
func (p Plan) needsSidecar(on startup.Kubernetes) bool {
	w := p.policy
	if on < 29 || slices.Contains(w.avoid, startup.Native) || w.start == startup.Hold {
		return false
	}
	return slices.ContainsFunc(p.Edges.Edges, func(e startup.Edge) bool {
		return e.From == contract.ProxyContainer && e.By == startup.Native || e.By == startup.Gate && (p.fromInit[e.From] || p.fromInit[e.To])
	}) || slices.ContainsFunc(p.choices, func(c mechanism.Choice) bool {
		return c.Edge.From == contract.ProxyContainer && c.Edge.By == "" // for example, because another edge makes the waiting container a sidecar
	})
}

// arrange adds the proxy to the pod and chooses a mechanism for each edge. It collects its messages in the plan:
// if several arrangements are tried, only the messages of the last one are reported.
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
	if err := validation.CheckEdges(all.Edges); err != nil {
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

// place returns the index of the proxy among the regular containers. The proxy comes first, even if no container
// waits for it: a connection that is parked before the proxy listens is retried only after a second. An author
// may prefer a start without delay and accept the wait of a second. Such an author lists a container with the
// proxy's name after the application.
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

// read reads the order of the pod. If proxy is true, the pod already contains our proxy.
func (p Plan) read(proxy bool) (podstart.Reading, error) {
	reading, err := podspec.ReadOrder(p.Pod)
	var large *validation.SizeError
	switch {
	case errors.As(err, &large):
		return reading, TooLarge(err)
	case err != nil:
		return reading, verdict.Refuse(verdict.InvalidAnnotation, "", "%v", err)
	}
	if proxy {
		added := reading.Facts[contract.ProxyContainer]
		added.Hooked = false // [Plan.clearHook] removes the hook
		reading.Facts[contract.ProxyContainer] = added
	}
	return reading, nil
}

// why returns the reasons for a choice. The first reason of a preset mechanism says that it was requested; for a
// default edge, which no annotation requests, that reason is replaced.
func (p Plan) why(c mechanism.Choice, w policy, requested []startup.Edge) []string {
	preset := p.fromInit[c.Edge.To] || w.by == startup.Native
	if c.Edge.By != startup.Native || len(c.Why) == 0 || !preset || isRequested(requested, c.Edge) {
		return c.Why
	}
	return append([]string{"the proxy is a native sidecar anyway"}, c.Why[1:]...)
}

// presentEdges returns the requested edges, except for edges from another mesh's proxy that is not in the pod
// yet. When the other injector has added it, our injection runs again and reads these edges again.
func presentEdges(in Request, requested []startup.Edge, r *verdict.Report) []startup.Edge {
	return slices.DeleteFunc(slices.Clone(requested), func(e startup.Edge) bool {
		if !in.Alongside || !knownproxy.OtherMesh(e.From) || containers.Find(in.Pod, e.From) != nil {
			return false
		}
		r.Warn("%s is to wait for %s, which is not in the pod: it does not wait until that mesh has added it and the pod is injected again", e.To, e.From)
		return true
	})
}

// mechanismsThatChange lists the mechanisms that would change the other mesh's proxy: making it a sidecar, or
// adding a hook. They are used only if an annotation names them.
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

// withDefault returns the requested edges. If none of them starts at the proxy, every regular container gets an
// edge from the proxy.
func withDefault(containers []startup.Container, requested []startup.Edge, w policy, proxy string) []startup.Edge {
	out := slices.Clone(requested)
	explicit := false
	before := map[string]bool{} // containers for which the proxy waits
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
		// Init containers wait for the proxy too. A native sidecar requires no change of their commands.
		by[startup.Init], by[startup.Sidecar] = startup.Native, startup.Native
	}
	for _, c := range containers {
		if mechanism, waits := by[c.Kind]; waits && c.Name != proxy && !before[c.Name] {
			out = append(out, startup.Edge{From: proxy, To: c.Name, After: startup.Healthy, By: mechanism})
		}
	}
	return out
}

// preset returns the mechanism of a requested edge, or the policy's mechanism if the edge names none. An edge
// with a timeout or a reaction to restarts has no preset mechanism, because only a gate supports these.
func (w policy) preset(e startup.Edge) startup.Mechanism {
	if e.By != "" || e.Timeout > 0 || e.OnRestart != startup.Ignore {
		return e.By
	}
	return w.by
}

// ofChoice lists the codes of findings about mechanisms. [Plan.add] handles these.
var ofChoice = []startup.Code{startup.UnsuitableMechanism, startup.UnsatisfiableEdge}

// Judge reads the order of the injected pod, as the other commands do, and refuses the pod if it cannot start.
// For example, a native sidecar that starts before a proxy in spec.containers may have a probe that only the
// proxy can answer.
func (p Plan) Judge(pod *corev1.Pod, on startup.Kubernetes) error {
	reading, err := podspec.ReadOrder(pod)
	if err != nil {
		return nil // too many edges for one annotation; the plan was validated before they were written
	}
	return p.policy.validate(reading, on, "the injected pod would never start: ")
}

// validate refuses a start that cannot end, because of the author's requests together with the kubelet's own
// order. Loops in commands that seem to wait do not count, since they are only guessed. The message of the
// refusal begins with source.
func (w policy) validate(r podstart.Reading, on startup.Kubernetes, source string) error {
	if w.start == request.Off {
		return nil
	}
	certain := startup.Preferred
	if !initWaits(r) {
		// In this case the order of the init list cannot be part of a cycle. The edges of that order are left
		// out, because their number can be quadratic in the length of the list.
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

// unchosen returns the plan without any mechanism. [Plan.add] handles findings about mechanisms.
func unchosen(r podstart.Reading) startup.Plan {
	plan := r.Plan()
	for i := range plan.Edges {
		plan.Edges[i].By = ""
	}
	return plan
}

// doubt warns of a start that cannot end if a command really waits for the container for which it seems to wait.
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

// add adds a chosen edge to the plan. It returns a refusal if a requested edge or mechanism is impossible.
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

// hint tells the author how to make a gate possible if only the command of a container is missing for it. It is
// empty if that is not the cause.
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

// clearHook removes the proxy's postStart hook, which the mesh or the author set, if a hold or a native sidecar
// needs that hook for itself.
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

// commandless returns the containers that cannot have a gate for some edge because their command is unknown.
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

// keepCommands keeps a command taken from an image only in containers with a gate, and reports these. The other
// containers become as the author wrote them.
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
