package inject

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// wishes are what pod and mesh say about the order, the most specific word first:
//
//	by: of an edge, outrider.dev/start          a mechanism, refused if it does not fit
//	sidecar.istio.io/nativeSidecar              where the proxy stands
//	holdApplicationUntilProxyStarts             whether there is an order, not by what:
//	  of the pod, of the mesh, of the values      true and unset are the default strategy
type wishes struct {
	start   podspec.Start
	order   bool              // the app waits for the proxy
	sidecar bool              // the proxy is a restartable init container
	by      startup.Mechanism // of the edges from the proxy; empty: the strategy decides
	avoid   []startup.Mechanism
}

// wishes reads them, and says which of them have no effect.
func (in *injection) wishes() (wishes, error) {
	start, err := podspec.ParseStart(in.pod.Annotations)
	w := wishes{start: start, order: start != podspec.StartOff}
	if err != nil {
		return w, refuse(BadAnnotation, "", "%v", err)
	}
	hold, holdAt := in.hold()
	native, nativeAt := in.native()
	if in.beside {
		native = "" // it is said about the other mesh's proxy
	}
	old := in.o.kubernetes() < 29
	if hold != nil && w.start != podspec.StartDefault {
		if in.settings.podHold != nil {
			in.idle(proxyConfigKey, "holdApplicationUntilProxyStarts: annotation "+podspec.StartAnnotation+": "+string(w.start)+" is more specific")
		}
		in.note("%s: %t has no effect: annotation %s: %s is more specific", holdAt, *hold, podspec.StartAnnotation, w.start)
	} else if hold != nil {
		w.order = *hold
		if *hold {
			in.note("%s: true: the app starts after the proxy", holdAt)
		} else {
			in.note("%s: false: nobody waits for the proxy; early connections are parked", holdAt)
		}
	}
	switch {
	case native == "":
	case w.start == podspec.StartHold || w.start == podspec.StartOff || w.start == podspec.StartNative && native == "false":
		in.idle(nativeKey, "annotation "+podspec.StartAnnotation+": "+string(w.start)+" is more specific")
		in.note("%s: %s has no effect: annotation %s: %s is more specific", nativeAt, native, podspec.StartAnnotation, w.start)
	case native == "false":
		w.avoid = []startup.Mechanism{startup.Native}
	case old:
		in.idle(nativeKey, fmt.Sprintf("restartable init containers need Kubernetes 1.29, and this is 1.%d", in.o.kubernetes()))
		in.warn("%s: true has no effect: restartable init containers need Kubernetes 1.29, and this is 1.%d", nativeAt, in.o.kubernetes())
	default:
		w.sidecar = true
		if w.start == podspec.StartDefault && w.order {
			w.by = startup.Native
		}
	}
	w.sidecar = w.sidecar || w.start == podspec.StartNative && !old || in.endsWithItsJob(w, old)
	return w, nil
}

// ends says whether the pod is done one day, as a Job's is, and its proxy has to end too.
func (in *injection) ends() bool {
	policy := in.pod.Spec.RestartPolicy
	return in.settings.proxy && (policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure)
}

// endsWithItsJob makes the proxy of a Job a restartable init container, which the kubelet
// ends when the others have ended, whatever they are; unless somebody wants it otherwise.
func (in *injection) endsWithItsJob(w wishes, old bool) bool {
	if !in.ends() || old || w.start == podspec.StartHold || len(w.avoid) > 0 {
		return false
	}
	if !w.sidecar {
		in.note("restartPolicy: %s: the proxy is a restartable init container, so that the kubelet ends it when the others have ended", in.pod.Spec.RestartPolicy)
	}
	return true
}

// endsByItself says whether a proxy that is a plain container ends with its Job: the agent
// does once the gates of all applications say that their commands have ended and will not
// be started again (internal/agent/proxy/apps.go). Of one without a gate it knows nothing.
func (in *injection) endsByItself() {
	if !in.ends() || !slices.ContainsFunc(in.pod.Spec.Containers, named(proxyName)) {
		return
	}
	var free []string
	for _, c := range in.pod.Spec.Containers {
		if c.Name != proxyName && !podspec.Gated(&c) {
			free = append(free, c.Name)
		}
	}
	if len(free) == 0 {
		in.note("restartPolicy: %s: the proxy is a plain container, and ends when the gates say that all commands have ended for good", in.pod.Spec.RestartPolicy)
		return
	}
	in.neverEnds = free
	in.warn("the pod has restartPolicy: %s, its proxy is a plain container, and no gate tells it when %s has ended: the pod never completes unless the command ends the proxy, by a POST to http://127.0.0.1:%d/quitquitquit",
		in.pod.Spec.RestartPolicy, strings.Join(free, ", "), in.settings.status)
}

// hold is holdApplicationUntilProxyStarts, and where it stands.
func (in *injection) hold() (*bool, string) {
	s := in.settings
	const name = "holdApplicationUntilProxyStarts"
	switch {
	case s.podHold != nil:
		return s.podHold, "annotation " + proxyConfigKey + ": " + name
	case s.config.Hold != nil:
		return s.config.Hold, "the mesh's defaultConfig." + name
	case in.o.Values.Global.Proxy.Hold != nil:
		return in.o.Values.Global.Proxy.Hold, "value global.proxy." + name
	}
	return nil, ""
}

// native is "true", "false" or nothing, and where it stands.
func (in *injection) native() (string, string) {
	at := "annotation " + nativeKey
	switch v, ok := in.pod.Annotations[nativeKey]; {
	case ok && (v == "true" || v == "false"):
		return v, at
	case ok:
		in.idle(nativeKey, fmt.Sprintf("%q is neither \"true\" nor \"false\"", v))
		in.warn("%s is %q, which is neither \"true\" nor \"false\": it has no effect", at, v)
	}
	if v := in.o.Values.native(); v != "auto" {
		return v, "value pilot.env.ENABLE_NATIVE_SIDECARS"
	}
	return "", ""
}

// order adds the proxy and writes who waits for whom.
func (in *injection) order() error {
	w, err := in.wishes()
	if err != nil {
		return err
	}
	arranged, err := in.arrange(w)
	if in.takeCommands(arranged.commandless) {
		arranged, err = in.arrange(w)
	}
	if err != nil {
		return err
	}
	if !w.sidecar && in.settings.proxy && arranged.wantsSidecar(w, in.o.kubernetes()) {
		// One that waits before the plain containers run, or whose command nobody knows,
		// needs a proxy that the kubelet starts first: then it stands before all.
		w.sidecar = true
		if arranged, err = in.arrange(w); err != nil {
			return err
		}
	}
	return in.write(arranged)
}

// An arrangement is a pod with its proxy, and what is to be written into it.
type arrangement struct {
	pod     *corev1.Pod
	plan    startup.Plan
	choices []podspec.Choice
	inInit  map[string]bool // containers of the init list, the proxy left out

	commandless []string // containers with whose commands there would be more gates
}

func (a arrangement) wantsSidecar(w wishes, on startup.Kubernetes) bool {
	if on < 29 || slices.Contains(w.avoid, startup.Native) || w.start == podspec.StartHold {
		return false
	}
	return slices.ContainsFunc(a.plan.Edges, func(e startup.Edge) bool {
		return e.From == proxyName && e.By == startup.Native || e.By == startup.Gate && (a.inInit[e.From] || a.inInit[e.To])
	})
}

// arrange puts the proxy into its place and chooses a mechanism for each edge.
func (in *injection) arrange(w wishes) (arrangement, error) {
	// The lists are copied, and not what is in them: that is only read here.
	pod := *in.pod
	pod.Spec.InitContainers, pod.Spec.Containers = slices.Clone(pod.Spec.InitContainers), slices.Clone(pod.Spec.Containers)
	a := arrangement{pod: &pod, inInit: map[string]bool{}}
	for _, c := range a.pod.Spec.InitContainers {
		a.inInit[c.Name] = true
	}
	from := otherMesh(a.pod)
	if in.settings.proxy {
		from = proxyName
		c, err := in.proxyContainer(w.sidecar)
		if err != nil {
			return a, err
		}
		// It is started first, also where nobody waits for it: what is parked before somebody
		// listens is only tried again after a second.
		if w.sidecar {
			a.pod.Spec.InitContainers = slices.Insert(a.pod.Spec.InitContainers, 0, c)
		} else {
			a.pod.Spec.Containers = slices.Insert(a.pod.Spec.Containers, 0, c)
		}
	}
	r, err := podspec.Read(a.pod)
	if err != nil {
		return a, refuse(BadAnnotation, "", "%v", err)
	}
	r.Avoid, r.Unknown = w.avoid, in.unknownWhy
	if in.beside && w.start == podspec.StartDefault {
		r.Avoid = append(slices.Clip(r.Avoid), untouched(r, from)...)
	}
	r.Asked = in.stillToCome(r)
	asked := slices.Clone(r.Asked)
	r.Asked = in.withDefault(r, w, from)
	if err := validate(r, in.o.kubernetes()); err != nil {
		return a, err
	}
	a.choices = podspec.Choose(r, in.o.kubernetes())
	a.commandless = commandless(r, a.choices)
	for _, c := range a.choices {
		if err := a.take(c, w, asked); err != nil {
			return a, err
		}
	}
	return a, nil
}

// withDefault are the edges asked for and, unless the pod speaks of the proxy itself, that
// every plain container waits for it.
func (in *injection) withDefault(r podspec.Reading, w wishes, proxy string) []startup.Edge {
	out := slices.Clone(r.Asked)
	speaks := false
	for i, e := range out {
		if e.From == proxy && proxy != "" {
			speaks = true
			if e.By == "" {
				out[i].By = w.by
			}
		}
	}
	if speaks || !w.order || proxy == "" {
		return out
	}
	for _, c := range r.Containers {
		waited := slices.ContainsFunc(out, func(e startup.Edge) bool { return e.From == c.Name && e.To == proxy })
		if c.Kind == startup.Plain && c.Name != proxy && !waited {
			out = append(out, startup.Edge{From: proxy, To: c.Name, After: startup.Healthy, By: w.by})
		}
	}
	return out
}

// ofChoice are findings about mechanisms, which are judged where one is chosen.
var ofChoice = []startup.Code{startup.MechanismUnfit, startup.CannotBeKept}

func validate(r podspec.Reading, on startup.Kubernetes) error {
	for _, f := range r.Plan().Validate(on) {
		if f.Level == startup.Error && !slices.Contains(ofChoice, f.Code) {
			return refuse(BadGraph, f.Remedy, "annotation %s: %s", podspec.EdgesAnnotation, f.Message)
		}
	}
	return nil
}

// take puts a choice into the plan. What somebody asked for by name and cannot be had
// refuses the pod.
func (a *arrangement) take(c podspec.Choice, w wishes, asked []startup.Edge) error {
	e := c.Edge
	switch {
	case c.Present != nil, e.By == startup.InitDone, w.start == podspec.StartOff:
	case slices.Contains([]startup.Mechanism{startup.Gate, startup.Native, startup.Hold}, e.By):
		a.plan.Edges = append(a.plan.Edges, e)
	case e.By != "":
	case w.start != podspec.StartDefault || slices.ContainsFunc(asked, func(o startup.Edge) bool { return means(o.From, e.From) && means(o.To, e.To) }):
		return refuse(NoMechanism, a.hint(e), "%q cannot be kept%s", e, whyNot(c))
	}
	return nil
}

// hint says what would make a gate possible, if that is a command.
func (a *arrangement) hint(e startup.Edge) string {
	for _, name := range []string{e.To, e.From} {
		if slices.Contains(a.commandless, name) {
			return fmt.Sprintf("name the command of %s in the pod (command:), or have it looked up in its image (--resolve-images)", name)
		}
	}
	return ""
}

func means(asked, name string) bool { return asked == name || asked == startup.Everything }

func whyNot(c podspec.Choice) string {
	var why []string
	for _, o := range c.Refused {
		why = append(why, fmt.Sprintf("by %s: %s", o.By, o.WhyNot()))
	}
	if len(why) == 0 {
		return ""
	}
	return ": " + strings.Join(why, "; ")
}

// write puts the plan into the pod, and says how each edge is kept and why so.
func (in *injection) write(a arrangement) error {
	in.keepCommands(a)
	in.clearHook(&a)
	in.rememberEdges()
	was := names(a.pod.Spec.Containers)
	out, err := podspec.Write(a.pod, a.plan, podspec.Options{Image: in.settings.initImage, InPlace: true})
	if err != nil {
		var refused *podspec.WriteError
		if errors.As(err, &refused) {
			return refuse(NoMechanism, "", "%v", err)
		}
		return clashing(err)
	}
	in.pod, in.status.plan = out, a.plan
	in.explain(a)
	in.endsByItself()
	for _, c := range out.Spec.Containers {
		if mains := podspec.HelperOf(&c); len(mains) > 0 {
			in.note("restartPolicy: %s: %s serves %s, and its gate ends it when they have ended for good", out.Spec.RestartPolicy, c.Name, strings.Join(mains, " and "))
		}
	}
	if !slices.Equal(was, names(out.Spec.Containers)) {
		in.memory.Order = was
	}
	return nil
}

// names of the plain containers, ours left out.
func names(list []corev1.Container) []string {
	var out []string
	for _, c := range list {
		if c.Name != proxyName {
			out = append(out, c.Name)
		}
	}
	return out
}

// clearHook: a hold, and a native sidecar, live by the proxy's postStart hook. One that
// mesh or user set would end that, so ours goes first.
func (in *injection) clearHook(a *arrangement) {
	c := find(a.pod, proxyName)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return
	}
	needed := slices.ContainsFunc(a.plan.Edges, func(e startup.Edge) bool {
		return e.From == proxyName && (e.By == startup.Hold || e.By == startup.Native && c.StartupProbe == nil)
	})
	if needed {
		in.warn("the postStart hook that is set for %s is left out: the app waits by that hook, and a container can have one only", proxyName)
		c.Lifecycle.PostStart = nil
	}
}

// explain says what became of each edge, those alike in one sentence.
func (in *injection) explain(a arrangement) {
	type how struct{ edge, why string }
	var order []how
	who := map[how][]string{}
	for _, c := range a.choices {
		written := slices.Contains(a.plan.Edges, c.Edge)
		if !written && c.Edge.By != "" {
			continue // in the pod before us
		}
		edge := c.Edge
		edge.To = "x"
		h := how{strings.TrimPrefix(edge.String(), "x "), strings.Join(c.Why, "; ")}
		if !written {
			h.edge += ", by nothing"
		}
		if !written && in.beside {
			h.why += "; a sidecar or a hold would change " + c.Edge.From + ", which is another mesh's: annotation " + podspec.StartAnnotation + ": native or hold asks for that"
		}
		for _, o := range c.Refused {
			if o.By == startup.InitDone {
				continue // nobody expects that of a container that does not complete
			}
			h.why += fmt.Sprintf("; not by %s: %s", o.By, o.WhyNot())
		}
		if who[h] == nil {
			order = append(order, h)
		}
		who[h] = append(who[h], c.Edge.To)
		if c.Warning != "" && (written || c.Edge.By == "") {
			in.warn("%s %s: %s", c.Edge.To, h.edge, c.Warning)
		}
	}
	for _, h := range order {
		in.note("%s %s: %s", strings.Join(who[h], ", "), h.edge, strings.TrimPrefix(h.why, "; "))
	}
}

// grace is the pod's grace period as the agent reads it.
func (in *injection) grace() string {
	seconds := int64(30)
	if g := in.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		seconds = max(*g, 0)
	}
	return strconv.FormatInt(seconds, 10) + "s"
}
