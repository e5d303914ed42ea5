package inject

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/startup"
)

var update = flag.Bool("update", false, "write what is got into the golden files")

func kubernetes(n int) startup.Kubernetes { return startup.Kubernetes(n) }

// A scenario is the content of a golden file: a pod, the options, and the result.
type scenario struct {
	pod  *corev1.Pod
	ns   Namespace
	o    Options
	full bool // the golden file shows the whole pod
}

func readScenario(t testing.TB, a *txtar.Archive) scenario {
	t.Helper()
	var s scenario
	for _, f := range a.Files {
		var err error
		switch f.Name {
		case "pod":
			s.pod = podOf(t, string(f.Data))
		case "values":
			s.o.Values = valuesOf(t, string(f.Data))
		case "mesh":
			s.o.Mesh, err = settings.ParseMesh(f.Data)
		case "namespace":
			err = yaml.Unmarshal(f.Data, &s.ns)
		case "commands":
			err = yaml.UnmarshalStrict(f.Data, &s.o.Commands)
		case "options":
			var o struct {
				Kubernetes int
				Full       bool
			}
			err = yaml.UnmarshalStrict(f.Data, &o)
			s.o.Kubernetes, s.full = kubernetes(o.Kubernetes), o.Full
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
	}
	return s
}

// Injection returns the result in the golden file, for each mechanism and type of pod. -update rewrites the
// files.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := readScenario(t, a)
			r, err := Pod(s.pod, s.ns, s.o)
			got := describe(r, err, s.full)
			i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "want" })
			if *update {
				if i < 0 {
					i, a.Files = len(a.Files), append(a.Files, txtar.File{Name: "want"})
				}
				a.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 {
				t.Fatal("no want; run the test with -update")
			}
			if diff := cmp.Diff(string(a.Files[i].Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err == nil && r.Injected {
				checkInjected(t, s.pod, r, s.o)
			}
		})
	}
}

// describe returns the result of an injection as text. Parts that are the same in all scenarios are left out.
func describe(r Result, err error, full bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if err != nil {
		line("refused: %v", err)
		return b.String()
	}
	line("%s: %s", r.Reason.Code, r.Reason.Sentence)
	for _, n := range r.Notes {
		line("note: %s", n)
	}
	for _, w := range r.Warnings {
		line("warning: %s", w)
	}
	if full {
		text, err := yaml.Marshal(r.Pod)
		if err != nil {
			return err.Error()
		}
		b.Write(text)
		return b.String()
	}
	for _, list := range []struct {
		name string
		all  []corev1.Container
	}{{"init", r.Pod.Spec.InitContainers}, {"containers", r.Pod.Spec.Containers}} {
		line("%s:", list.name)
		for _, c := range list.all {
			line("  %s%s: %s", c.Name, mark(c), strings.Join(append(slices.Clone(c.Command), c.Args...), " "))
			if strings.Contains(c.Image, "@") {
				line("    image %s", c.Image)
			}
			var hooks corev1.Lifecycle
			if c.Lifecycle != nil {
				hooks = *c.Lifecycle
			}
			for _, p := range []struct {
				name string
				what any
			}{{"postStart", hooks.PostStart}, {"preStop", hooks.PreStop}, {"startup", c.StartupProbe}, {"readiness", c.ReadinessProbe}, {"liveness", c.LivenessProbe}} {
				if text, _ := json.Marshal(p.what); string(text) != "null" {
					line("    %s %s", p.name, text)
				}
			}
			for _, e := range c.Env {
				if c.Name == contract.ProxyContainer && e.Value != "" && slices.Contains(shown, e.Name) {
					line("    %s=%s", e.Name, e.Value)
				}
			}
		}
	}
	return b.String()
}

// shown lists the environment variables that differ between scenarios.
var shown = []string{"OUTRIDER_ORDERED_STOP", "OUTRIDER_GRACE", "ISTIO_META_APP_CONTAINERS", "ISTIO_META_INTERCEPTION_MODE", "ISTIO_KUBE_APP_PROBERS", "ISTIO_PROMETHEUS_ANNOTATIONS", "PROXY_CONFIG"}

func mark(c corev1.Container) string {
	out := ""
	if c.RestartPolicy != nil {
		out = "[" + string(*c.RestartPolicy) + "]"
	}
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		out += fmt.Sprintf(" as %d", *s.RunAsUser)
		if s.Capabilities != nil && len(s.Capabilities.Add) > 0 {
			out += fmt.Sprintf(" with %v", s.Capabilities.Add)
		}
	}
	return out
}
