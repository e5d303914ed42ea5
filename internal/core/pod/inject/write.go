package inject

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/order"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/core/pod/validation"
	"outrider.dev/startup"
)

// A written holds the pod that [write] has written, with facts about it.
type written struct {
	pod       *corev1.Pod
	added     bool     // injection added something to the pod
	neverEnds []string // containers of a Job whose end is not reported to a proxy that is a regular container
}

// write is the last step of [Pod]: it returns the pod with the settings and the plan applied.
func write(in input, s effective, p order.Plan, r *verdict.Report) (w written, err error) {
	before := changes.Overrides{InitContainers: in.own.init, Containers: in.own.plain, Commands: p.Commands, Order: in.own.order, InitOrder: in.own.initOrder}
	before.KeepEdges(p.Pod)
	before.KeepEmpty(in.stripped)
	pod, err := writeOrder(in, s, p, r)
	if err != nil {
		return w, err
	}
	p.Explain(in.alongside, r)
	noteProxies(pod, in, s, r)
	noteStops(pod, r)
	w.neverEnds = reportEnd(pod, s, r)
	before.KeepOrder(p.Pod, pod)
	if s.byNode() {
		err = writeNode(pod, in, s, &before, r)
	} else {
		err = writeInit(pod, in, s, p.Edges, r)
	}
	if err != nil {
		return w, err
	}
	if err := writeProbes(pod, in, s, r); err != nil {
		return w, err
	}
	writeStopHook(pod, in, s)
	if in.alongside {
		warnOfStop(pod, in.mesh, r)
	}
	before.KeepWords(p.Pod, pod)
	before.KeepHooks(p.Pod, pod)
	s.metrics.annotate(pod, &before, s.port)
	writeMetadata(pod, in, s, &before)
	if s.proxy {
		pod.Spec.Volumes = append(pod.Spec.Volumes, in.proxyVolumes(s)...)
	}
	for _, name := range in.o.Values.Global.ImagePullSecrets {
		secret := corev1.LocalObjectReference{Name: name}
		if !slices.Contains(pod.Spec.ImagePullSecrets, secret) {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, secret)
		}
	}
	added, err := before.Write(pod, in.pod, in.o.revision())
	if err != nil {
		return w, err
	}
	if err := validation.CheckSize(pod); err != nil {
		return w, order.TooLarge(fmt.Errorf("the injected pod: %w", err))
	}
	_, byNode := podspec.NodeWork(pod)
	w.pod, w.added = pod, byNode || added || len(p.Edges.Edges) > 0
	return w, nil
}

// writeOrder writes the edges into the pod. The settings decide how the gates get their copy of the agent.
func writeOrder(in input, s effective, p order.Plan, r *verdict.Report) (pod *corev1.Pod, err error) {
	switch stops := stopping(p, in, s, r); s.init {
	case contract.InitByNode:
		pod, err = podspec.WriteForNode(p.Pod, p.Edges, stops...)
	case contract.InitVolume:
		pod, err = podspec.WriteByVolume(p.Pod, p.Edges, s.initImage, s.pull, stops...)
	default:
		pod, err = podspec.Write(p.Pod, p.Edges, s.initImage, stops...)
	}
	var impossible *podspec.WriteError
	switch {
	case err == nil:
		return pod, nil
	case errors.As(err, &impossible):
		return nil, verdict.Refuse(verdict.NoMechanism, "", "%v", err)
	}
	return nil, taken(err)
}

// stopping returns the containers that take part in the order of stops even without an edge; see [podspec.Write]. Beside
// another mesh's proxy, parking needs its proxy to stay until the applications have ended: connections to a proxy that
// has left would be parked, too, and the application would hang in them until it is killed.
func stopping(p order.Plan, in input, s effective, r *verdict.Report) []string {
	if !in.alongside {
		return reporting(p, in, s, r)
	}
	var out []string
	for _, c := range p.Pod.Spec.Containers {
		if s.capture && knownproxy.IsMeshProxy(p.Pod, &c) {
			out = append(out, c.Name)
		}
	}
	return out
}

// noteProxies warns about what is not known of other meshes' proxies.
func noteProxies(pod *corev1.Pod, in input, s effective, r *verdict.Report) {
	if !in.alongside {
		return
	}
	if s.capture && in.mesh == "" {
		r.Warn("connections to another mesh's proxy are parked, and none of the pod's containers is known as that proxy: unless its injector adds it later, it has no order, and what a stopping application calls after it has left waits until the application is killed; %s: off leaves the parking out", contract.Park)
	}
	named := podspec.OnlyNamed(pod)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		r.Warn("%s has the name of a mesh's proxy, and neither a probe nor an image or arguments of that mesh: if it is another program, and does not answer %s, what waits for it never starts; a readinessProbe decides, and another name if it is no proxy", name, named[name])
	}
}

// noteStops explains the preStop hooks that keep proxies without a gate.
func noteStops(pod *corev1.Pod, r *verdict.Report) {
	ungated, sidecars := podspec.Unseen(pod)
	mixed := map[string][]string{}
	for _, k := range podspec.Keeps(pod) {
		mixed[k.Proxy] = k.Mixed
	}
	for _, c := range pod.Spec.Containers {
		if !podspec.StaysUntilEnd(&c) {
			continue
		}
		beside := ""
		if podspec.OwnPreStop(&c) != nil {
			beside = "; its own preStop hook runs meanwhile"
		}
		r.Note("%s gets a preStop hook that returns when the applications have ended, so that it stops after them%s", c.Name, beside)
		for _, other := range mixed[c.Name] {
			if other != c.Name && (slices.Contains(mixed[other], c.Name) || slices.ContainsFunc(pod.Spec.InitContainers, containers.Named(other))) {
				r.Warn("%s is kept until the grace period is nearly over: the sockets of %s are not told from those of applications; set securityContext.runAsUser of %s to a user of its own", c.Name, other, other)
			}
		}
		if len(ungated) > 0 && len(sidecars) > 0 {
			r.Warn("%s may stop before %s, and calls through it are then parked: no gate reports the end of such a container, and the sockets of %s, which run on, hide it; make %s a native sidecar, or name the command so that it gets a gate",
				c.Name, strings.Join(ungated, ", "), strings.Join(sidecars, ", "), c.Name)
		}
	}
}

// reporting returns the containers that get a gate only to report their ends. A proxy that is a regular
// container can then exit when the last of them has ended, and need not wait for the drain time. Either all
// applications get such gates or none, because the proxy cannot know that all have ended if one does not report
// its end. None get them if an init container would be needed only for that.
func reporting(p order.Plan, in input, s effective, r *verdict.Report) (out []string) {
	off := in.pod.Annotations[contract.Start] == string(request.Off) // the author wants no change of commands
	if off || !s.proxy || !s.capture || s.init == contract.InitNone ||
		!slices.ContainsFunc(p.Pod.Spec.Containers, containers.Named(contract.ProxyContainer)) {
		return nil
	}
	gated := map[string]bool{contract.ProxyContainer: true}
	for _, e := range p.Edges.Edges {
		if e.By == startup.Gate {
			gated[e.To], gated[e.From] = true, true
		}
	}
	for _, c := range p.Pod.Spec.Containers {
		switch {
		case gated[c.Name]:
		case len(c.Command) == 0 && !s.byNode(), len(c.Command) > 0 && contract.RunsFirst(c.Command[0]):
			return nil
		default:
			out = append(out, c.Name)
		}
	}
	if len(out) > 0 {
		r.Note("%s: a gate that waits for nothing reports the end of the command, so that the proxy leaves with it", strings.Join(out, ", "))
	}
	return out
}

// reportEnd explains how a pod with a proxy as a regular container can complete. The agent exits once the gates
// of all applications have reported that their commands have ended for good (internal/core/agent/proxy/apps.go).
// It returns the containers without a gate: nothing reports their ends.
func reportEnd(pod *corev1.Pod, s effective, r *verdict.Report) (neverEnds []string) {
	pod = podspec.AsRun(pod)
	if s.proxy && containers.EndsOnce(pod) && slices.ContainsFunc(pod.Spec.Containers, containers.Named(contract.ProxyContainer)) {
		for _, c := range pod.Spec.Containers {
			if c.Name != contract.ProxyContainer && !podspec.Gated(&c) {
				neverEnds = append(neverEnds, c.Name)
			}
		}
		if len(neverEnds) == 0 {
			r.Note("restartPolicy: %s: the proxy is a plain container, and ends when the gates report that all commands have ended for good", pod.Spec.RestartPolicy)
		} else {
			r.Warn("the pod has restartPolicy: %s, its proxy is a plain container, and no gate reports to it when %s has ended: the pod never completes unless the command ends the proxy, by a POST to http://127.0.0.1:%d/quitquitquit",
				pod.Spec.RestartPolicy, strings.Join(neverEnds, ", "), s.port)
		}
	}
	for _, c := range pod.Spec.Containers {
		if mains := podspec.HelperOf(&c); len(mains) > 0 {
			r.Note("restartPolicy: %s: %s serves %s, and its gate ends it when they have ended for good", pod.Spec.RestartPolicy, c.Name, strings.Join(mains, " and "))
		}
	}
	return neverEnds
}

// warnOfStop warns of what the proxy of another mesh does when its pod stops or has completed.
func warnOfStop(pod *corev1.Pod, mesh string, r *verdict.Report) {
	if mesh == "" && podspec.Parks(pod) {
		r.Note("the pod has no proxy of another mesh yet: its connections are parked, and no order to a proxy is added until it is injected again with one")
	}
	for _, name := range podspec.Unkept(pod) {
		r.Warn("nothing keeps %s until the applications have ended, and connections to it are parked: what an application calls after it has left waits until the application is killed", name)
	}
	grace := podspec.Grace(pod)
	for _, c := range pod.Spec.Containers {
		if podspec.StaysUntilEnd(&c) && !contract.OrdersStops(grace) {
			r.Warn("of a grace period of %s %s stays for %s only, and stops before what takes longer: raise terminationGracePeriodSeconds", grace, c.Name, contract.StopLimit(grace))
		}
	}
	if mesh == "" || !containers.EndsOnce(pod) || !slices.ContainsFunc(pod.Spec.Containers, containers.Named(mesh)) {
		return
	}
	remedy := "make it a native sidecar"
	if native := knownproxy.NativeAnnotation(mesh); native != "" {
		remedy += " (" + native + ")"
	}
	r.Warn("the pod has restartPolicy: %s, and %s is a plain container that does not end with the others: the pod never completes unless the command ends it; %s",
		pod.Spec.RestartPolicy, mesh, remedy)
}

// writeMetadata adds the mesh's labels, and annotations that other tools read.
func writeMetadata(pod *corev1.Pod, in input, s effective, before *changes.Overrides) {
	more := maps.Clone(in.o.Values.Injector.InjectedAnnotations)
	if more == nil {
		more = map[string]string{}
	}
	if app := firstApp(pod); app != "" {
		for _, key := range []string{settings.DefaultContainer, settings.DefaultLogs} {
			if _, there := more[key]; !there {
				more[key] = app
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(more)) {
		if _, there := pod.Annotations[key]; !there {
			before.Annotate(pod, key, new(more[key]))
		}
	}
	if level, ok := in.annotations()[settings.AgentLogKey]; ok && strings.TrimPrefix(level, "default:") != s.agentLevel {
		before.Annotate(pod, settings.AgentLogKey, &s.agentLevel) // the agent reads this annotation too
	}
	if !s.proxy {
		return
	}
	revision := in.o.revision()
	before.Annotate(pod, contract.RevisionLabel, &revision)
	if s.metrics.app != "" {
		setProxyEnv(pod, metricsEnv, s.metrics.app)
	}
	l := pod.Labels
	before.Label(pod, contract.TLSModeLabel, "istio")
	before.Label(pod, settings.CanonicalName, labelValueOf(cmp.Or(l["app.kubernetes.io/name"], l["app"], in.workload().Name)))
	before.Label(pod, settings.CanonicalRevision, labelValueOf(cmp.Or(l["app.kubernetes.io/version"], l["version"], "latest")))
	before.Label(pod, settings.NetworkLabel, in.o.Values.Global.Network)
}

func firstApp(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name != contract.ProxyContainer && !knownproxy.OtherMesh(c.Name) {
			return c.Name
		}
	}
	return ""
}

// labelValueOf shortens s so that it is a valid label value.
func labelValueOf(s string) string {
	return strings.TrimRightFunc(s[:min(len(s), 63)], func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}
