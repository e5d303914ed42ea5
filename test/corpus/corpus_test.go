package corpus

import (
	"slices"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/validation"
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
			if err := validation.Check(&o.Pod); err != nil {
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

// ofOldKubernetes reports whether a finding is expected for a Kubernetes version without native sidecars, in
// which an init container's restartPolicy has no effect, and the proxy of a Job does not end.
func ofOldKubernetes(f finding.Finding) bool {
	return slices.Contains([]finding.Code{"job-never-ends", "init-never-ends", "unsuitable-mechanism"}, f.Code)
}

// refusesNone injects a pod with each configuration of the mesh that changes the form of the proxy, and fails the
// test if injection refuses the pod.
func refusesNone(t *testing.T, file string, o podfile.Object) (injected bool) {
	t.Helper()
	for _, way := range []map[string]string{nil, {contract.Start: "native"}} {
		for _, on := range []startup.Kubernetes{28, 34, 36} {
			if on < 29 && way != nil {
				continue // versions before 1.29 have no native sidecars
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
