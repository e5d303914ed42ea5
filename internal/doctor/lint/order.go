package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

const (
	proxyConfig = contract.ProxyConfig
	istioProxy  = "istio-proxy"
	onlyFirst   = "first-start-only"

	refused = "connections are redirected to a proxy that does not listen yet, so those of an app that starts may be refused (with parking they wait)"
)

// startOff finds pods whose start order is turned off.
func startOff(s subject, b *builder) {
	if !s.captured() || !s.injected || s.readErr != nil || len(s.own()) == 0 {
		return
	}
	c := clue{code: "proxy-not-awaited", why: refused, run: "outrider plan " + b.input(s.File) + " --advise"}
	switch hold := s.configOf("holdApplicationUntilProxyStarts"); {
	case s.reading.Start == request.Off:
		c.field, c.evidence = annotation(contract.Start), "off"
		c.do = "remove the annotation: without it the app starts after its proxy"
	case s.reading.Start == "" && hold == false:
		c.field, c.evidence = annotation(proxyConfig), "holdApplicationUntilProxyStarts"
		c.do = "remove holdApplicationUntilProxyStarts, or set it to true"
	default:
		return
	}
	c.title = fmt.Sprintf("%s may run before %s: the order is turned off, and capture is on", words(names(s.own())), s.proxy)
	b.add(c)
}

// leftOut finds pods whose annotations make some containers wait for the proxy, but not all.
func leftOut(s subject, b *builder) {
	if !s.captured() || !s.injected || s.readErr != nil || s.reading.Start == request.Off || !s.namesProxy() {
		return
	}
	free := s.free()
	if len(free) == 0 {
		return
	}
	field, evidence, _ := s.annotationOf(s.reading.Requested[slices.IndexFunc(s.reading.Requested, func(e startup.Edge) bool { return e.From == s.proxy })])
	b.add(clue{code: "proxy-not-awaited", title: fmt.Sprintf("%s may run before %s: the annotations name only other containers", words(free), s.proxy), field: field, evidence: evidence,
		why: "a pod that names containers to wait for its proxy must name all of them; " + refused, do: "let " + words(free) + " wait for " + s.proxy + " too", fix: s.requesting(&s.Pod, s.edges(free))})
}

// firstStartOnly finds pods in which injection keeps the order only at the first start or not at all, although
// gates could keep it at every start.
func firstStartOnly(s subject, b *builder) {
	if !s.injected || s.refusal != nil || s.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever { // with restartPolicy Never every start is a first start
		return
	}
	run, err := podspec.Read(s.result.Pod)
	if err != nil {
		return
	}
	missing := mechanism.MissingCommands(run, mechanism.Choose(run, s.on), s.on)
	if len(missing) == 0 {
		return
	}
	m, _ := s.member(missing[0])
	b.add(clue{code: onlyFirst, title: fmt.Sprintf("%s and %s are in order at the first start only", words(missing), s.proxy), field: m.field.plus("name"), evidence: missing[0],
		why: "a gate keeps the order at every start, and needs the command, which only the image has here; the mechanism that injection uses instead keeps no order when a container restarts",
		do:  "install outrider-node (value node.enabled), whose gates need no command, or write the command into the pod spec, or inject with --resolve-images",
		run: fmt.Sprintf("outrider plan %s --advise", b.input(s.File)), source: "docs/node.md"})
}

// controlPlane is the label of Linkerd's own pods. One of them signs the certificates of all proxies. If the
// application in that pod waited for the proxy beside it, both would wait forever: the proxy needs a certificate from
// the application.
const controlPlane = "linkerd.io/control-plane-component"

// nothingWaits finds pods that contain a proxy for which no container waits.
func nothingWaits(s subject, b *builder) {
	if !s.captured() || s.injected || s.readErr != nil {
		return
	}
	free := s.free()
	m, ok := s.member(s.proxy)
	if _, controls := s.Pod.Labels[controlPlane]; len(free) == 0 || !ok || controls {
		return
	}
	b.add(clue{code: "proxy-not-awaited", title: fmt.Sprintf("nothing makes %s wait for %s", words(free), s.proxy), field: m.field.plus("name"), evidence: s.proxy,
		why: "the kubelet starts the next container as soon as one runs, ready or not; " + refused,
		do:  "let " + words(free) + " wait for " + s.proxy + s.withOtherMesh(s.proxy), source: "kubelet v1.34.4 SyncPod", fix: s.requesting(&s.Pod, s.edges(free))})
}

// withOtherMesh returns an addition to a remedy for users of the proxy's mesh: the setting of that mesh with the same
// effect. It is empty for Outrider's proxy.
func (s *subject) withOtherMesh(proxy string) string {
	native := knownproxy.NativeAnnotation(proxy)
	switch {
	case proxy == contract.ProxyContainer:
		return ""
	case proxy == istioProxy:
		return "; with Istio alone: " + native + ", or holdApplicationUntilProxyStarts: true in proxy.istio.io/config, and inject again"
	case native != "":
		return "; with its mesh alone: " + native + ", and inject again"
	case s.Pod.Annotations[contract.Proxy] == "none":
		return ""
	}
	return "; outrider.dev/proxy: none adds the order next to the proxy of another mesh"
}

// free returns the regular containers that do not wait for the proxy.
func (s *subject) free() []string {
	var out []string
	p := s.run.Expand()
	for _, m := range s.own() {
		if !slices.ContainsFunc(p.Edges, func(e startup.Edge) bool { return e.To == m.Name && e.From == s.proxy }) {
			out = append(out, m.Name)
		}
	}
	return out
}

// namesProxy reports whether an annotation requests an edge from the proxy.
func (s *subject) namesProxy() bool {
	return slices.ContainsFunc(s.reading.Requested, func(e startup.Edge) bool { return e.From == s.proxy })
}

// edges returns one edge for each of the named containers: the container waits until the proxy is healthy.
func (s *subject) edges(to []string) []startup.Edge {
	var out []startup.Edge
	for _, name := range to {
		out = append(out, startup.Edge{From: s.proxy, To: name, After: startup.Healthy})
	}
	return out
}

// requesting returns the change that turns the subject's pod into the pod after, and adds
// annotations that request the edges. It returns nil if there is an edge that no mechanism can
// keep: the fix would otherwise remove the present order without a replacement.
//
// By default injection makes all containers wait for the proxy, but not if an annotation names the
// proxy. So a fix that names the proxy must name all containers that wait for it.
func (s *subject) requesting(after *corev1.Pod, edges []startup.Edge) *change {
	after = after.DeepCopy()
	aboutProxy := slices.ContainsFunc(edges, func(e startup.Edge) bool { return e.From == s.proxy })
	if aboutProxy && s.injected && !s.namesProxy() {
		for _, e := range s.edges(s.free()) {
			if !slices.ContainsFunc(edges, func(o startup.Edge) bool { return o.To == e.To && o.From == e.From }) {
				edges = append(edges, e)
			}
		}
	}
	requested := startup.Plan{Containers: s.plan.Containers, Edges: s.reading.Requested}.Expand()
	for _, e := range edges {
		if slices.ContainsFunc(requested.Edges, func(o startup.Edge) bool { return o.From == e.From && o.To == e.To }) {
			continue
		}
		value := e.From
		if e.After != startup.Healthy {
			value += "=" + string(e.After)
		}
		key := contract.DependsOn + "." + e.To
		if after.Annotations == nil {
			after.Annotations = map[string]string{}
		}
		after.Annotations[key] = strings.TrimPrefix(after.Annotations[key]+", "+value, ", ")
	}
	if s.ofOtherMesh() { // otherwise our injection would add a second proxy
		after.Annotations[contract.Proxy] = "none"
	}
	if !keepsAll(after, edges, s.on) || s.ofOtherMesh() && !s.keptBesides(after) {
		return nil
	}
	return s.to(after)
}

// keptBesides reports whether injection accepts the pod with the proxy of another mesh. Injection changes neither
// that proxy nor its position among the containers.
func (s *subject) keptBesides(after *corev1.Pod) bool {
	r, err := inject.Pod(after, inject.Namespace{Name: cmp.Or(s.Ref.Namespace, corev1.NamespaceDefault)}, inject.Options{Kubernetes: s.on, Manual: true})
	return err == nil && r.Injected
}

// ofOtherMesh reports whether the pod contains the proxy of another mesh.
func (s *subject) ofOtherMesh() bool {
	return s.proxy != "" && !s.injected && s.proxy != contract.ProxyContainer
}

// keepsAll reports whether the plan of pod can work, and has a mechanism for each of the edges.
func keepsAll(pod *corev1.Pod, edges []startup.Edge, on startup.Kubernetes) bool {
	r, err := podspec.Read(pod)
	if err != nil || r.Start == request.Off {
		return false
	}
	for _, f := range r.Plan().Validate(on) {
		if f.Level == startup.Error && f.Code != startup.UnsatisfiableEdge && f.Code != startup.UnsuitableMechanism {
			return false
		}
	}
	kept := mechanism.KeptBy(mechanism.Choose(r, on))
	return !slices.ContainsFunc(edges, func(e startup.Edge) bool { return !kept(e) })
}

// heldInPod finds postStart hooks in the pod that hold the containers which are listed after them.
func heldInPod(s subject, b *builder) {
	for _, f := range s.reading.Found {
		if f.Mechanism != startup.Hold {
			continue
		}
		field := parsePath(f.Evidence.Field)
		m, _ := s.member(f.Container)
		if len(f.Edges) == 0 && !knownproxy.OfMesh(f.Container) && !knownproxy.IsProxy(m.Container) {
			continue // the hook prepares its own container
		}
		if len(f.Edges) == 0 {
			b.add(clue{code: "hold-on-last-container", title: fmt.Sprintf("the postStart of %s has no effect: no container is listed after it", f.Container),
				field: field, evidence: f.Evidence.Text, why: "the kubelet starts containers in the order of the list: those before this one run already",
				do: "list " + f.Container + " first", source: "kubelet v1.34.4 SyncPod step 8"})
			continue
		}
		var to []string
		for _, e := range f.Edges {
			to = append(to, e.To)
		}
		var fix *change
		if without, err := podspec.Without(&s.Pod, f); err == nil && !knownproxy.OfMesh(f.Container) {
			fix = s.requesting(without, f.Edges)
		}
		do := "request the order by annotation: injection chooses a mechanism that fails closed"
		b.held(s, f.Container, to, field, f.Evidence.Text, do, fix)
	}
}

// holdRequested finds the annotation that requests a hold.
func holdRequested(s subject, b *builder) {
	written := slices.ContainsFunc(s.reading.Found, func(f podstart.Found) bool {
		return f.Mechanism == startup.Hold && f.Container == s.proxy && len(f.Edges) > 0
	})
	if s.reading.Start != "hold" || written { // heldInPod reports the hold that is there
		return
	}
	var to []string
	edges := s.edges(names(s.own()))
	for _, e := range edges {
		to = append(to, e.To)
	}
	if s.proxy == "" || len(to) == 0 {
		return
	}
	var fix *change
	do := "set it to gate or native"
	for _, better := range []string{"gate", "native"} {
		after := s.Pod.DeepCopy()
		after.Annotations = maps.Clone(after.Annotations)
		after.Annotations[contract.Start] = better
		if fix = s.requesting(after, edges); fix != nil {
			do = "set it to " + better + ": it fails closed"
			break
		}
	}
	b.held(s, s.proxy, to, annotation(contract.Start), "hold", do, fix)
}

// held adds the two findings about a hold: it does not always make the containers wait, and it hides the pod's IP.
func (b *builder) held(s subject, from string, to []string, field path, evidence, do string, fix *change) {
	held := words(to)
	b.add(clue{code: "hold-fails-open", title: fmt.Sprintf("%s starts without %s when the hold fails", held, from), field: field, evidence: evidence,
		why: fmt.Sprintf("the kubelet starts %s even when the image of %s is missing, when it is in back-off, or when its hook fails or gives up", held, from),
		do:  do, run: "outrider plan " + b.input(s.File) + " --advise",
		source: "kubelet v1.34.4 SyncPod step 8 ignores the error of start; seen on v1.34.4; istio/istio#41086", fix: fix})
	b.add(clue{code: "hold-hides-ip", title: fmt.Sprintf("the pod has no IP in the API while the hold of %s blocks", from), field: field, evidence: evidence,
		why: "what waits for the IP to let the proxy get ready (a control plane, a CNI) waits for ever", do: do, run: "outrider plan " + b.input(s.File) + " --advise",
		source: "kubernetes/kubernetes#85966; seen on v1.34.4"})
}

// configOf returns a field of the pod's ProxyConfig, or nil if it is not set.
func (s *subject) configOf(field string) any {
	var config map[string]any
	if manifest.DecodeAnnotation(s.Pod.Annotations[proxyConfig], &config) != nil {
		return nil
	}
	return config[field]
}

func names(ms []member) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.Name)
	}
	return out
}
