package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// A fix in a pod of another mesh takes effect: injection skips such a pod by default, so the fix must also request
// that injection orders its containers although the proxy is another mesh's.
func TestFixesInPodsOfOtherMeshes(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  containers:
  - {name: %s, image: proxy, readinessProbe: {httpGet: {path: /ready, port: 9999}}}
  - {name: app, image: app, command: [/app]}
`
	for _, m := range podspec.Meshes[1:] {
		t.Run(m.Proxy, func(t *testing.T) {
			fixed, err := Fix([]File{{"f.yaml", fmt.Appendf(nil, pod, m.Proxy)}}, Options{}, func(f finding.Finding) bool { return f.Code == "proxy-not-awaited" })
			if err != nil || len(fixed.Changed) != 1 {
				t.Fatalf("%v: %d changed", err, len(fixed.Changed))
			}
			objects, _, err := podfile.Parse("f.yaml", fixed.Changed[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			r, err := inject.Pod(&objects[0].Pod, inject.Namespace{Name: "x"}, inject.Options{})
			if err != nil || !r.Injected || r.Proxy {
				t.Fatalf("%v: injected: %v (%s), with a proxy of ours: %v\n%s", err, r.Injected, r.Reason.Sentence, r.Proxy, fixed.Changed[0].Data)
			}
			reading, err := podspec.Read(r.Pod)
			kept := slices.ContainsFunc(reading.Plan().Expand().Edges, func(e startup.Edge) bool { return e.From == m.Proxy && e.To == "app" && e.By != "" })
			if err != nil || !kept {
				t.Errorf("%v: the order is not kept: %v", err, reading.Plan())
			}
		})
	}
}

// A container that only sleeps is not treated as a server, even if a gate runs its command.
func TestSleepBehindGate(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec: {containers: [{name: app, image: a, command: [/bin/sleep, infinity]}]}\n"
	objects, _, err := podfile.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := inject.Pod(&objects[0].Pod, inject.Namespace{Name: "x"}, inject.Options{Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	app := r.Pod.Spec.Containers[slices.IndexFunc(r.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "app" })]
	if !podspec.Gated(&app) || !(member{Container: &app}).offline() {
		t.Errorf("gated: %v, %q", podspec.Gated(&app), app.Command)
	}
}

// Lint offers no fix that injection would refuse. If another mesh's proxy is a regular container, only a gate keeps
// the order, and a gate needs a command in the manifest, which this container does not have.
func TestNoFixThatInjectionRefuses(t *testing.T) {
	report, err := Lint([]File{{"f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app, image: a}, {name: istio-proxy, image: p}]}\n")}}, Options{})
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Code != "proxy-not-awaited" || report.Findings[0].Fix != nil {
		t.Errorf("%v, %+v", err, report.Findings)
	}
}

// For a pod with Istio's proxy, the remedies name Istio's own settings.
func TestRemediesOfIstio(t *testing.T) {
	report, err := Lint([]File{{"f.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: istio-proxy, image: p}, {name: app, image: a, command: [/app]}]}\n")}}, Options{})
	if err != nil || len(report.Findings) == 0 {
		t.Fatalf("%v: %d findings", err, len(report.Findings))
	}
	for _, f := range report.Findings {
		if !strings.Contains(f.Remedy.Sentence, "sidecar.istio.io/nativeSidecar") || !strings.Contains(f.Remedy.Sentence, "holdApplicationUntilProxyStarts") {
			t.Errorf("%s: %s", f.Code, f.Remedy.Sentence)
		}
	}
}
