package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

func (s *subject) ends() bool {
	return s.Pod.Spec.RestartPolicy == "Never" || s.Pod.Spec.RestartPolicy == "OnFailure"
}

// proxyInJob finds proxies among the regular containers of a pod that should complete. Proxies do not end when the
// other containers have completed. Only Outrider's proxy does, if the gates of all other containers report the ends
// of these containers.
//
// complexity: one case for each cause, with its remedy.
func proxyInJob(s subject, b *builder) {
	if !s.ends() || s.proxy == "" || s.injected && len(s.result.NeverEnds) == 0 || !s.injected && s.kind() != startup.Plain {
		return
	}
	if p, ok := s.member(s.proxy); ok && podspec.EndedByOthers(&s.Pod, p.Container) || slices.ContainsFunc(s.own(), member.quitsProxy) {
		return
	}
	c := clue{code: "job-never-ends", source: "istio/istio#6324, #11659; kubelet v1.34.4: the pod ends when its plain containers have",
		why: fmt.Sprintf("%s runs on when %s has ended, so the pod never completes: the Job never finishes, the next one never starts", s.proxy, words(names(s.own())))}
	if s.injected {
		c.why = fmt.Sprintf("no gate reports to %s when %s has ended, so the proxy runs on and the pod never completes: the Job never finishes, the next one never starts", s.proxy, words(s.result.NeverEnds))
	}
	old := s.on < 29
	switch {
	case s.endsByGates():
		return
	case !s.injected:
		m, _ := s.member(s.proxy)
		c.title = fmt.Sprintf("%s is a plain container of a pod that should complete", s.proxy)
		c.field, c.evidence = m.field.plus("name"), s.proxy
		c.do = "make it a sidecar: an init container with restartPolicy: Always (Kubernetes 1.29 and later)"
		if native := knownproxy.NativeAnnotation(s.proxy); native != "" {
			c.do = "annotate " + native + " and inject again, which makes it a sidecar (Kubernetes 1.29 and later)"
		}
	case s.Pod.Annotations[contract.NativeSidecar] == "false":
		c.title, c.field, c.evidence = "the proxy will be a plain container of a pod that should complete", annotation(contract.NativeSidecar), "false"
		c.do = "remove the annotation"
		if after := s.Pod.DeepCopy(); !old {
			delete(after.Annotations, contract.NativeSidecar)
			c.fix = s.to(after)
		}
	case s.reading.Start == "hold":
		c.title, c.field, c.evidence = "a hold needs a plain proxy, in a pod that should complete", annotation(contract.Start), "hold"
		c.do = "name the command, or set it to gate or native"
	case old:
		c.title = fmt.Sprintf("on Kubernetes 1.%d the proxy will be a plain container of a pod that should complete", s.on)
		c.field = path{"spec", "restartPolicy"}
		c.do = "name the command, so that it gets a gate; or let it end the proxy (POST to 127.0.0.1:15020/quitquitquit), or use Kubernetes 1.29 and later"
	default: // the reason is in the mesh's configuration, which the files do not contain
		c.title = "the proxy will be a plain container of a pod that should complete"
		c.field = path{"spec", "restartPolicy"}
		c.do = "name the command, so that it gets a gate"
	}
	b.add(c)
}

// endsByGates reports whether the pod contains Outrider's proxy and all other containers have gates, so that the
// proxy ends by itself.
func (s *subject) endsByGates() bool {
	return s.proxy == contract.ProxyContainer && !s.injected && !slices.ContainsFunc(s.own(), func(m member) bool { return !podspec.Gated(m.Container) })
}

// serverInJob finds containers that run on when the work of a pod is done. Pods that a controller made are left out, but
// for those of Jobs, because their controller may end such containers, as Tekton and Argo do.
func serverInJob(s subject, b *builder) {
	if !s.ofNoController() {
		return
	}
	pod := s.asRun()
	for _, m := range s.own() {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == m.Name })
		if i < 0 || !podspec.RunsOn(pod, s.Kind, &pod.Spec.Containers[i]) || m.quitsProxy() || s.wrapped(m) || len(s.own()) < 2 {
			continue
		}
		c := clue{code: "job-never-ends", severity: finding.Warning, title: fmt.Sprintf("%s serves others, by its readiness probe, in a pod that should complete", m.Name),
			field: m.field.plus("readinessProbe"), why: fmt.Sprintf("the pod is done when all its plain containers have ended; a server does not end by itself, so %s may run for ever", s.Ref),
			do: fmt.Sprintf("move %s to initContainers, with restartPolicy: Always: the kubelet ends it after the others; where Outrider injects and its command is in the pod, it is enough that the others wait for it (%s)", m.Name, contract.DependsOn), source: "KEP-753"}
		switch {
		case podspec.RestartedAlways(m.Container):
			c.title = fmt.Sprintf("%s has restartPolicy: Always among the containers, in a pod that should complete", m.Name)
			c.field, c.evidence = m.field.plus("restartPolicy"), "Always"
			c.why = fmt.Sprintf("that field makes a sidecar of an init container only. Here the kubelet restarts the container whenever it ends, or the API server drops the field: %s may run for ever", s.Ref)
		case m.ReadinessProbe == nil:
			c.title = fmt.Sprintf("%s serves until it gets a signal, in a pod that should complete", m.Name)
			c.field, c.evidence = m.field.plus("name"), m.Name
		}
		b.add(c)
	}
}

// ofNoController reports whether the pod is of a Job, or is one that no controller made.
func (s *subject) ofNoController() bool {
	if s.Kind != "Pod" {
		return s.Kind == "Job" || s.Kind == "CronJob"
	}
	for label := range s.Pod.Labels { // any order: one suffices
		if strings.HasPrefix(label, "tekton.dev/") || strings.HasPrefix(label, "workflows.argoproj.io/") {
			return false
		}
	}
	byStep := func(c corev1.Container) bool { // Tekton's and Argo's programs run the command of a step
		return len(c.Command) > 0 && (strings.HasPrefix(c.Command[0], "/tekton/") || strings.HasSuffix(c.Command[0], "argoexec"))
	}
	return !slices.ContainsFunc(s.Pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind != "Job" }) && !slices.ContainsFunc(s.Pod.Spec.Containers, byStep)
}

// wrapped reports whether a wrapper such as kubexit runs the command of a container, and may end it.
func (s *subject) wrapped(m member) bool {
	return slices.ContainsFunc(s.reading.Found, func(f podstart.Found) bool { return f.Mechanism == startup.Wrapper && f.Container == m.Name })
}

func (m member) quitsProxy() bool { return podspec.QuitsProxy(m.Container) }

// graceTooShort finds grace periods that are shorter than preStop hook and drain together. At the end of the period,
// the kubelet kills all containers that still run.
func graceTooShort(s subject, b *builder) {
	grace, field := podspec.Grace(&s.Pod), path{"spec", "terminationGracePeriodSeconds"}
	given := s.Pod.Spec.TerminationGracePeriodSeconds
	var longest time.Duration
	var container, evidence string
	for _, m := range s.members() {
		d, at, text := m.preStop()
		if d > longest && m.kind != startup.Init {
			longest, container, evidence = d, m.Name, text
			if given == nil {
				field = at
			}
		}
	}
	drain := s.drain()
	needed := longest + drain
	if given != nil {
		evidence = fmt.Sprint(*given)
	}
	fits := grace >= needed && (grace > longest || longest == 0)
	asked := grace == 0 && longest == 0 // the author wants the pod to be killed at once
	if fits || asked || longest == 0 && given == nil && drain <= 5*time.Second {
		return
	}
	c := clue{code: "grace-too-short", field: field, evidence: evidence, source: "kubelet v1.34.4 killContainer: hooks run within the grace period, at least 2 s are left after them"}
	switch {
	case longest >= grace:
		c.title = fmt.Sprintf("the preStop of %s takes %s, and the grace period is %s", container, longest, grace)
		c.why = "the hook is cut off, and everything else of the pod gets 2 s from SIGTERM to SIGKILL"
	default:
		c.title = fmt.Sprintf("stopping takes %s (preStop %s, drain %s), and the grace period is %s", needed, longest, drain, grace)
		c.why = "the proxy is killed before its drain is over: the last requests are reset"
	}
	want := int64((needed + appStops) / time.Second)
	c.do = fmt.Sprintf("give it %d s: hook, drain, and %s for the app itself", want, appStops)
	after := s.Pod.DeepCopy()
	after.Spec.TerminationGracePeriodSeconds = &want
	c.fix = s.to(after)
	b.add(c)
}

// appStops is the time that a fix reserves for the application's own stop.
const appStops = 5 * time.Second

// drain returns the time for which the proxy continues to serve after SIGTERM.
func (s *subject) drain() time.Duration {
	if !s.captured() {
		return 0
	}
	text, _ := s.configOf("terminationDrainDuration").(string)
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d
	}
	return 5 * time.Second // default of Istio's proxy and ours
}

// preStop returns the time for which the preStop hook sleeps, with the field and the text that show it. It is 0 if the
// hook does not sleep.
func (m member) preStop() (time.Duration, path, string) {
	d := podspec.PreStopSleep(m.Container)
	if d == 0 {
		return 0, nil, ""
	}
	at := m.field.plus("lifecycle", "preStop")
	if h := m.Lifecycle.PreStop; h.Sleep != nil {
		return d, at.plus("sleep", "seconds"), fmt.Sprint(h.Sleep.Seconds)
	}
	return d, at.plus("exec", "command"), "sleep"
}
