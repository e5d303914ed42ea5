package podrun

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// A Run is a pod in the form in which it will run: with the containers that injection has not added yet, and
// with the requested order written into it.
type Run struct {
	Pod  *corev1.Pod
	Plan startup.Plan // wildcards are expanded; By is empty if no mechanism keeps the edge

	Added    []string       // containers that injection has not added yet; Pod has each of them with nothing but its name
	Written  []startup.Edge // requested edges that the pod did not keep yet
	Supposed []startup.Edge // edges that are not requested: it is assumed that an app should wait for its proxy

	Stronger string // a sentence about changes after which more edges would be kept at every start

	Facts map[string]podstart.Fact // by container
	podspec.Times

	// EndsWith maps a container to other containers. The container ends with status 0 when the others have
	// ended.
	EndsWith map[string][]string
}

// Of returns the pod as it will run on a kubelet of that version. An edge that the pod already keeps has the
// mechanism from the pod, any other edge the one from [mechanism.Choose].
//
// If the pod has a mesh's proxy and no edges except those of init containers, Of assumes that the app should wait
// for the proxy.
func Of(pod *corev1.Pod, on startup.Kubernetes) (Run, error) {
	r, err := podspec.Read(pod)
	if err != nil {
		return Run{}, err
	}
	run := Run{Pod: withStandIns(pod, r), Added: r.Expected}
	if r, err = podspec.Read(run.Pod); err != nil {
		return Run{}, err
	}
	edges := run.choose(r, on)
	if len(run.Written) > 0 {
		if run.Pod, err = podspec.Write(run.Pod, startup.Plan{Edges: run.Written}, ""); err != nil {
			return Run{}, fmt.Errorf("writing what the pod requests: %w", err)
		}
		if r, err = podspec.Read(run.Pod); err != nil {
			return Run{}, fmt.Errorf("reading what was written: %w", err)
		}
	}
	run.Plan, run.Facts = r.ContainerPlan(), r.Facts
	run.Plan.Edges = slices.Concat(edges, run.Supposed, added(r, edges))
	run.Times = podspec.TimesOf(run.Pod, r)
	run.ends()
	return run, nil
}

// ends sets EndsWith. It contains the helpers, because of their gates or because others end them, and
// our proxy, if all applications have a gate and the pod can complete.
func (run *Run) ends() {
	with := podspec.AsRun(run.Pod)
	run.EndsWith = gatedHelpers(with)
	if policy := run.Pod.Spec.RestartPolicy; policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever {
		return
	}
	if workers := run.workers(with); len(workers) > 0 {
		for i := range with.Spec.Containers {
			c := &with.Spec.Containers[i]
			if _, serves := podspec.Serves(c); serves && run.EndsWith[c.Name] == nil && podspec.EndedByOthers(with, c) {
				run.EndsWith[c.Name] = workers
			}
		}
	}
	if apps, all := gatedApps(with); all {
		run.EndsWith[contract.ProxyContainer] = apps
	}
}

// gatedHelpers returns the containers that their gates end, each with the containers that it serves.
func gatedHelpers(pod *corev1.Pod) map[string][]string {
	out := map[string][]string{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if mains := podspec.HelperOf(&list[i]); len(mains) > 0 {
				out[list[i].Name] = mains
			}
		}
	}
	return out
}

// workers returns the applications that end by themselves: nothing shows that they serve others.
func (run *Run) workers(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if _, serves := podspec.Serves(c); !serves && c.Name != contract.ProxyContainer && c.ReadinessProbe == nil && run.EndsWith[c.Name] == nil {
			out = append(out, c.Name)
		}
	}
	return out
}

// gatedApps returns the applications beside our proxy, and whether all of them have a gate. Without our proxy it
// returns false.
func gatedApps(pod *corev1.Pod) (apps []string, all bool) {
	proxy := false
	for i := range pod.Spec.Containers {
		switch c := &pod.Spec.Containers[i]; {
		case c.Name == contract.ProxyContainer:
			proxy = true
		case !podspec.Gated(c):
			return nil, false
		default:
			apps = append(apps, c.Name)
		}
	}
	return apps, proxy
}

// withStandIns returns the pod with a container for each expected one. The added container has only a name, and
// is at the position that [podstart.Reading.ContainerPlan] gives it.
func withStandIns(pod *corev1.Pod, r podstart.Reading) *corev1.Pod {
	out, always := pod.DeepCopy(), corev1.ContainerRestartPolicyAlways
	for i, c := range r.ContainerPlan().Containers {
		switch in := slices.Contains(r.Expected, c.Name); {
		case in && c.Kind == startup.Sidecar:
			out.Spec.InitContainers = slices.Insert(out.Spec.InitContainers, i, corev1.Container{Name: c.Name, RestartPolicy: &always})
		case in:
			out.Spec.Containers = slices.Insert(out.Spec.Containers, i-len(out.Spec.InitContainers), corev1.Container{Name: c.Name})
		}
	}
	return out
}

// choose returns the edges of the reading with their mechanisms. It records the edges that must be written and
// those that are only assumed.
func (run *Run) choose(r podstart.Reading, on startup.Kubernetes) []startup.Edge {
	var edges []startup.Edge
	choices := mechanism.Choose(r, on)
	run.Stronger = mechanism.Stronger(r, choices, on)
	for _, c := range choices {
		edges = append(edges, c.Edge)
		if c.Present == nil && (c.Edge.By == startup.Gate || c.Edge.By == startup.Native || c.Edge.By == startup.Hold) {
			run.Written = append(run.Written, c.Edge)
		}
	}
	for _, a := range mechanism.Advise(r, on) {
		if _, has := r.Facts[a.Edge.From]; has && a.Supposed {
			e := a.Edge
			e.By = ""
			run.Supposed = append(run.Supposed, e)
		}
	}
	return edges
}

// added returns the edges in the written pod that are not in the list have. They start at the init container
// that copies the agent.
func added(r podstart.Reading, have []startup.Edge) []startup.Edge {
	var out []startup.Edge
	had := startup.ByEnds(have)
	for _, e := range r.Plan().Expand().Edges {
		if _, known := had[e.Ends()]; !known {
			out = append(out, e)
		}
	}
	return out
}
