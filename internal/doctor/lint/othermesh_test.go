package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/knownproxy"
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
	for _, m := range knownproxy.Meshes[1:] {
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

// besideIstio is a pod with Istio's proxy, to which injection is to add order and parking.
const besideIstio = `apiVersion: v1
kind: Pod
metadata: {name: shop, annotations: {outrider.dev/proxy: none%s}}
spec:
  terminationGracePeriodSeconds: 30%s
  containers:
  - {name: app, image: app%s}
  - {name: istio-proxy, image: p%s}
`

// codesOf returns the codes of a report's findings, sorted.
func codesOf(r Report) (codes []string) {
	for _, f := range r.Findings {
		codes = append(codes, string(f.Code))
	}
	slices.Sort(codes)
	return codes
}

// Lint judges a pod with another mesh's proxy as injection leaves it, and reports what injection refuses.
func TestPodsBesideOtherMeshes(t *testing.T) {
	const (
		namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {outrider.dev/injection: enabled}}\n"
		command   = ", command: [/app]"
		slow      = ", lifecycle: {preStop: {exec: {command: [/bin/sh, -c, sleep 40]}}}"
	)
	pod := func(annotations, spec, app, proxy string) string {
		return fmt.Sprintf(besideIstio, annotations, spec, app, proxy)
	}
	for name, tt := range map[string]struct {
		text       string
		o          Options
		want       []string // codes
		notChecked int
	}{
		"nothing requests injection":  {pod("", "", command, ""), Options{}, []string{"proxy-not-awaited"}, 1},
		"--injected":                  {pod("", "", command, ""), Options{Injected: true}, nil, 0},
		"the namespace's label":       {pod("", "", command, "") + namespace, Options{}, nil, 0},
		"no gate":                     {pod("", "", "", ""), Options{Injected: true}, []string{"proxy-not-awaited"}, 0},
		"refused":                     {pod(", outrider.dev/park: required", "", command, ""), Options{Injected: true}, []string{"proxy-not-awaited", "injection-refused"}, 0},
		"the proxy's hook takes long": {pod("", "", command, slow), Options{Injected: true}, []string{"grace-too-short"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Lint([]File{{"f.yaml", []byte(tt.text)}}, tt.o)
			if err != nil {
				t.Fatal(err)
			}
			got := codesOf(report)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) || report.Unknown != tt.notChecked {
				t.Errorf("%q, %d not checked; want %q, %d", got, report.Unknown, tt.want, tt.notChecked)
			}
		})
	}
}

// Injection hides neither a long preStop hook of another mesh's proxy from lint, nor doubles the findings about its hold.
func TestInjectedBesideOtherMeshes(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations, proxy string
		want               []string
	}{
		"a preStop that sleeps": {"", ", lifecycle: {preStop: {exec: {command: [/bin/sleep, \"40\"]}}}", []string{"grace-too-short"}},
		"a hold":                {", outrider.dev/start: hold", "", []string{"hold-fails-open", "hold-hides-ip"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, _, err := podfile.Parse("f.yaml", fmt.Appendf(nil, besideIstio, tt.annotations, "", ", command: [/app]", tt.proxy))
			if err != nil {
				t.Fatal(err)
			}
			r, err := inject.Pod(&objects[0].Pod, inject.Namespace{Name: "x"}, inject.Options{Manual: true})
			if err != nil {
				t.Fatal(err)
			}
			r.Pod.APIVersion, r.Pod.Kind = "v1", "Pod"
			text, err := yaml.Marshal(r.Pod)
			if err != nil {
				t.Fatal(err)
			}
			report, err := Lint([]File{{"f.yaml", text}}, Options{Injected: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := codesOf(report); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q\n%+v", got, tt.want, report.Findings)
			}
		})
	}
}

// A remedy names the annotation of the proxy's mesh that makes it a native sidecar.
func TestNativeSidecarOfOtherMeshes(t *testing.T) {
	for proxy, want := range map[string]string{"istio-proxy": `annotate sidecar.istio.io/nativeSidecar: "true"`, // any order: each is alone
		"linkerd-proxy": `annotate config.beta.linkerd.io/proxy-enable-native-sidecar: "true"`, "kuma-sidecar": "make it a sidecar"} {
		text := fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: %s, image: p}, {name: app, image: a, command: [/app]}]}}}\n", proxy)
		report, err := Lint([]File{{"f.yaml", []byte(text)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Code == "job-never-ends" })
		if i < 0 || !strings.HasPrefix(report.Findings[i].Remedy.Sentence, want) {
			t.Errorf("%s: %+v, want %q", proxy, report.Findings, want)
		}
	}
}

// Before Kubernetes 1.29 a native sidecar is an init container that has to end; with a gate, nothing else says so.
func TestSidecarsBeforeTheirTime(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {initContainers: [{name: logs, image: l, restartPolicy: Always}], containers: [{name: app, image: a, command: [/app]}]}\n"
	for on, want := range map[startup.Kubernetes]bool{28: true, 29: false} { // any order: each is alone
		report, err := Lint([]File{{"f.yaml", []byte(text)}}, Options{Kubernetes: on})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(report.Findings, func(f finding.Finding) bool { return f.Code == "init-never-ends" }); got != want {
			t.Errorf("1.%d: found: %t, want %t: %+v", on, got, want, report.Findings)
		}
	}
}
