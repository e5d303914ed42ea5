package corpus

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/startup"
)

// least is the minimum number of pods in the corpus.
const least = 300

// Sane pods have no finding of severity warning or above, injected or not, and injection refuses none of them.
func TestSanePods(t *testing.T) {
	all, err := Sane()
	if err != nil {
		t.Fatal(err)
	}
	pods, injected, services, notes := 0, 0, 0, 0
	kinds := map[string]int{}
	for _, f := range all {
		for i, o := range []lint.Options{{}, {Injected: true}, {Injected: true, Kubernetes: 28}} {
			report, err := lint.Lint([]lint.File{{Name: f.Name, Data: f.Data}}, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range report.Findings {
				if x.Severity != finding.Note && !(o.Kubernetes == 28 && ofOldKubernetes(x)) {
					t.Errorf("%s: %s, injected: %v, Kubernetes 1.%d: %s: %s [%s]", f.Name, x.Object, o.Injected, o.Kubernetes, x.Severity, x.Title, x.Code)
				} else if i == 1 {
					notes++
				}
			}
			if i == 0 {
				services += report.Services
			}
		}
		objects, _, err := podfile.Parse(f.Name, f.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			pods++
			kinds[o.Kind]++
			if len(o.Unknown) > 0 {
				t.Errorf("%s: %s: unknown fields %v", f.Name, o, o.Unknown)
			}
			if err := podspec.Check(&o.Pod); err != nil {
				t.Errorf("%s: %s: the API server would refuse it: %v", f.Name, o, err)
			}
			if refusesNone(t, f.Name, o) {
				injected++
			}
		}
	}
	t.Logf("%d sane pods in %d files (%v), %d services: no warning, %d injected, 0 refused, %d notes", pods, len(all), kinds, services, injected, notes)
	if pods < least {
		t.Errorf("%d pods, want %d or more", pods, least)
	}
}

// ofOldKubernetes reports whether a finding is expected without native sidecars: there an init
// container's restartPolicy has no effect, and a Job's proxy does not end.
func ofOldKubernetes(f finding.Finding) bool {
	return slices.Contains([]finding.Code{"job-never-ends", "init-never-ends", "unsuitable-mechanism"}, f.Code)
}

// refusesNone injects a pod in each way that a mesh may be configured for.
func refusesNone(t *testing.T, file string, o podfile.Object) (injected bool) {
	t.Helper()
	for _, way := range []map[string]string{nil, {contract.Start: "native"}} {
		for _, on := range []startup.Kubernetes{28, 34, 36} {
			if on < 29 && way != nil {
				continue // that version has no native sidecars
			}
			pod := o.Pod.DeepCopy()
			for key, value := range way {
				if pod.Annotations == nil {
					pod.Annotations = map[string]string{}
				}
				pod.Annotations[key] = value
			}
			r, err := inject.Pod(pod, inject.Namespace{Name: "x"}, inject.Options{Manual: true, Kubernetes: on})
			if err != nil {
				t.Errorf("%s: %s: refused on Kubernetes 1.%d with %v: %v", file, o, on, way, err)
			}
			injected = injected || r.Injected
		}
	}
	return injected
}

// The corpus contains every shape that a lint rule could mistake for a defect.
func TestShapes(t *testing.T) {
	all, err := Sane()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range all {
		objects, _, err := podfile.Parse(f.Name, f.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			shapesOf(&o.Pod, func(shape string) { seen[shape]++ })
		}
	}
	for _, shape := range shapes {
		if seen[shape] < 5 {
			t.Errorf("%d pods have %s, want 5 or more", seen[shape], shape)
		}
		t.Logf("%4d %s", seen[shape], shape)
	}
}

var shapes = []string{"an init container", "a native sidecar", "several containers", "a container without a command", "a command", "args alone", "a shell's script",
	"a startup probe", "a liveness probe", "a readiness probe", "an exec probe", "a gRPC probe", "a postStart hook", "a preStop hook", "variables from secrets",
	"a read-only root file system", "its own user", "the host's network", "a volume claim", "a host path"}

// complexity: one test for each shape.
func shapesOf(pod *corev1.Pod, has func(string)) {
	once := map[string]bool{}
	when := func(is bool, shape string) {
		if is && !once[shape] {
			once[shape] = true
			has(shape)
		}
	}
	when(len(pod.Spec.Containers) > 1, "several containers")
	when(pod.Spec.HostNetwork, "the host's network")
	for _, v := range pod.Spec.Volumes {
		when(v.PersistentVolumeClaim != nil || v.Ephemeral != nil, "a volume claim")
		when(v.HostPath != nil, "a host path")
	}
	for _, c := range pod.Spec.InitContainers {
		when(c.RestartPolicy == nil, "an init container")
		when(c.RestartPolicy != nil, "a native sidecar")
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		_, script := shell.ScriptOf(slices.Concat(c.Command, c.Args))
		when(len(c.Command)+len(c.Args) == 0, "a container without a command")
		when(len(c.Command) > 0, "a command")
		when(len(c.Command) == 0 && len(c.Args) > 0, "args alone")
		when(script, "a shell's script")
		when(c.StartupProbe != nil, "a startup probe")
		when(c.LivenessProbe != nil, "a liveness probe")
		when(c.ReadinessProbe != nil, "a readiness probe")
		for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			when(p != nil && p.Exec != nil, "an exec probe")
			when(p != nil && p.GRPC != nil, "a gRPC probe")
		}
		when(c.Lifecycle != nil && c.Lifecycle.PostStart != nil, "a postStart hook")
		when(c.Lifecycle != nil && c.Lifecycle.PreStop != nil, "a preStop hook")
		for _, e := range c.Env {
			when(e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil, "variables from secrets")
		}
		when(c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil, "a read-only root file system")
		when(c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil || pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.RunAsUser != nil, "its own user")
	}
}
