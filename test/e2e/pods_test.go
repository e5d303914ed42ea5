package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/tier"
)

// proxy is the name of the container for which the applications wait.
const proxy = podspec.OurProxy

// A change modifies a pod before it is injected.
type change func(*corev1.Pod)

// awesome returns the pod of most cases, see [world.Awesome].
func awesome(namespace, name string, changes ...change) *corev1.Pod {
	p := world.Awesome(namespace, name)
	for _, c := range changes {
		c(p)
	}
	return p
}

func httpProbe(path string, port int) *corev1.Probe { return world.HTTPProbe(path, port) }

func annotated(key, value string) change {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func start(mechanism startup.Mechanism) change {
	return annotated("outrider.dev/start", string(mechanism))
}

func restart(policy corev1.RestartPolicy) change {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

// grace sets the grace period of the pod, in seconds.
func grace(seconds int64) change {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// command sets the command of the first container.
func command(words ...string) change {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = append([]string{"/app"}, words...) }
}

// works returns a change: the application makes some calls and exits.
func works(flags ...string) change {
	return func(p *corev1.Pod) {
		command(append([]string{"work", "--call=http://server.shop/"}, flags...)...)(p)
		p.Spec.Containers[0].ReadinessProbe = nil
		p.Spec.Containers[0].Ports = nil
	}
}

func another(name string, words ...string) change {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: world.AppImage, Command: append([]string{"/app"}, words...)})
	}
}

func memory(limit string) change {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	}
}

// A run is a running case of the suite, with the entry for its results in the report.
type run struct {
	*testing.T
	entry *entry
	pods  []*world.Pod
}

// nightly skips the case, if left is set, except in the nightly run and in "make load".
func nightly(t *testing.T, left bool) {
	t.Helper()
	if left && !tier.Nightly() && os.Getenv("OUTRIDER_CALLS") == "" {
		report.count(nil, func(*entry) { report.left++ })
		t.Skip("of this kind other cases run: OUTRIDER_NIGHTLY=1 has all")
	}
}

// newRun begins a case, which runs in parallel with others, because cases mostly wait.
func newRun(t *testing.T) *run {
	t.Parallel()
	return alone(t)
}

// alone begins a case that does not run in parallel with others.
func alone(t *testing.T) *run {
	r := &run{T: t, entry: report.begin(t)}
	t.Cleanup(func() {
		for _, p := range r.pods {
			p.Remove(context.Background())
		}
	})
	return r
}

func (r *run) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// webhook creates a pod in a namespace in which the webhook injects pods.
func (r *run) webhook(pod *corev1.Pod) *world.Pod {
	r.Helper()
	p, err := w.Create(r.Context(), pod)
	r.must(err)
	return r.keep(p)
}

// cli creates a pod that "outrider inject" has injected.
func (r *run) cli(pod *corev1.Pod, flags ...string) *world.Pod {
	r.Helper()
	injected, err := w.Inject(r.Context(), pod, flags...)
	r.must(err)
	p, err := w.Create(r.Context(), injected)
	r.must(err)
	return r.keep(p)
}

func (r *run) keep(p *world.Pod) *world.Pod {
	r.pods = append(r.pods, p)
	report.count(r.entry, func(e *entry) { e.pods++ })
	return p
}

// ready waits until a pod is ready and its application has made a call.
func (r *run) ready(p *world.Pod) {
	r.Helper()
	r.must(p.Until(r.Context(), "ready", p.Ready))
}

func (r *run) until(p *world.Pod, what string, holds func() bool) {
	r.Helper()
	r.must(p.Until(r.Context(), what, holds))
}

// emitted waits until a container has emitted an event n times.
func (r *run) emitted(p *world.Pod, container, word string, n int) world.Record {
	r.Helper()
	r.until(p, fmt.Sprintf("%s emits %q for the %dth time", container, word, n), func() bool {
		_, ok := p.Has(container, word, n)
		return ok
	})
	got, _ := p.Has(container, word, n)
	return got
}

// ends waits until a pod is Succeeded or Failed.
func (r *run) ends(p *world.Pod) corev1.PodPhase {
	r.Helper()
	var phase corev1.PodPhase
	r.until(p, "ended", func() bool {
		status, _ := p.Status()
		phase = status.Phase
		return phase == corev1.PodSucceeded || phase == corev1.PodFailed
	})
	return phase
}

// deleted deletes a pod and waits until it is gone.
func (r *run) deleted(p *world.Pod) {
	r.Helper()
	r.must(p.Delete(r.Context()))
}

// judge compares the timeline of a pod with the plan that the pod declares, and returns the violations. It fails the
// case if the timeline lacks the start of a container, because then the container's log or its gate's journal was
// not read, and the container cannot be judged.
func (r *run) judge(p *world.Pod) []startup.Violation {
	r.Helper()
	plan, err := p.Plan()
	r.must(err)
	timeline := p.Timeline()
	found := startup.Check(plan, timeline)
	byEdge := map[startup.Mechanism]int{}
	for _, v := range found {
		byEdge[v.Edge.By]++
	}
	starts := map[string]int{}
	for _, e := range timeline {
		if e.What == startup.IsStarted {
			starts[e.Container]++
		}
	}
	judged := map[string]bool{}
	for _, e := range plan.Expand().Edges {
		if judged[e.To] || e.To == proxy {
			continue
		}
		judged[e.To] = true
		if starts[e.To] == 0 {
			r.Errorf("no start of %s was seen, so none was judged\n%s", e.To, p.Describe())
		}
		report.judged(r.entry, e.By, starts[e.To], byEdge[e.By])
	}
	if len(judged) == 0 {
		delete(starts, proxy)
		delete(starts, "outrider-init")
		for _, n := range starts {
			report.judged(r.entry, "", n, 0)
		}
		if len(starts) == 0 {
			r.Errorf("no start of an application was seen, so none was judged\n%s", p.Describe())
		}
	}
	return found
}

// kept fails the case if the plan was violated, a connection was refused or a call failed.
func (r *run) kept(p *world.Pod) {
	r.Helper()
	r.ordered(p)
	if failed, refused := r.entry.tally(p); failed+refused > 0 {
		r.Errorf("%d failed calls, %d of them refused\n%s", failed, refused, p.Describe())
	}
}

// ordered fails the case if the plan was violated.
func (r *run) ordered(p *world.Pod) {
	r.Helper()
	if found := r.judge(p); len(found) > 0 {
		plan, _ := p.Plan()
		r.Errorf("violations: %v\n%s\n%s", found, plan, p.Describe())
	}
	for _, word := range p.Records("") {
		if word.Event == "started" && word.Values["proxy"] != "200" && r.waits(p, word.Container) {
			r.Errorf("%s began while the status of its proxy was %s\n%s", word.Container, word.Values["proxy"], p.Describe())
		}
	}
}

// waits reports whether a container waits for the proxy by a mechanism that never lets it start earlier.
func (r *run) waits(p *world.Pod, container string) bool {
	plan, err := p.Plan()
	r.must(err)
	for _, e := range plan.Expand().Edges {
		if e.From == proxy && e.To == container && e.After == startup.Healthy && (e.By == startup.Gate || e.By == startup.Native) {
			return true
		}
	}
	return false
}
