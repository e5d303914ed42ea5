package inject

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/podspec"
)

const plainApp = "containers: [{name: app, image: a, command: [/app]}]"

// injectStaged injects a pod with the given annotations and the annotation "outrider.dev/init: none".
func injectStaged(t *testing.T, annotations, spec string) Result {
	t.Helper()
	p := podOf(t, "metadata: {name: shop, annotations: {"+strings.TrimPrefix(annotations+", outrider.dev/init: none", ", ")+"}}\nspec: {"+spec+"}")
	return injected(t, p, Options{})
}

// If the proxy cannot do the work of outrider-init, the pod gets outrider-init, and a warning says why.
func TestNoInitContainerHasConditions(t *testing.T) {
	tests := map[string]struct{ annotations, spec, why string }{
		"a Job":                      {"", "restartPolicy: OnFailure, " + plainApp, "restartPolicy is not Always"},
		"a pod that runs once":       {"", "restartPolicy: Never, " + plainApp, "restartPolicy is not Always"},
		"a container that runs once": {"", "containers: [{name: app, image: a, command: [/app], restartPolicy: Never}]", "restartPolicy is not Always"}, // KEP-5307, Kubernetes 1.34
		"an init container":          {"", "initContainers: [{name: migrate, image: m}], " + plainApp, "the init containers would run before"},
		"a native sidecar":           {"sidecar.istio.io/nativeSidecar: 'true'", plainApp, "the init containers would run before"},
		"an own outrider-init":       {"", "initContainers: [{name: outrider-init, image: auto}], " + plainApp, "its own container of that name"},
		"an own command":             {"", "containers: [{name: app, image: a, command: [/app]}, {name: outrider-proxy, image: auto, args: [proxy, sidecar]}]", "outrider-proxy sets a command"},
		"an own user":                {"", "containers: [{name: app, image: a, command: [/app]}, {name: outrider-proxy, image: auto, securityContext: {runAsUser: 7}}]", "outrider-proxy sets a command"},
		"a command in the image":     {"", "containers: [{name: app, image: a, command: [/app]}, {name: web, image: w}]", "the init containers would run before"},
		"a hold":                     {"outrider.dev/start: hold", plainApp, "no gate holds app"},
		"no order":                   {"outrider.dev/start: 'off', outrider.dev/depends-on.app: cache=started", "containers: [{name: app, image: a, command: [/app]}, {name: cache, image: c, command: [/c]}]", "no gate holds app"},
		"a container that is free":   {"outrider.dev/depends-on.app: outrider-proxy", "containers: [{name: app, image: a, command: [/app]}, {name: web, image: w, command: [/w]}]", "no gate holds web"},
		"a wait that is given up":    {"outrider.dev/depends-on: '{app: {outrider-proxy: {condition: healthy, timeout: 9s, on-timeout: continue}}}'", plainApp, "no gate holds app"},
		"a wait that is optional":    {"outrider.dev/depends-on: '{app: {outrider-proxy: {condition: healthy, required: false}}}'", plainApp, "no gate holds app"},
		"TPROXY":                     {"sidecar.istio.io/interceptionMode: TPROXY", plainApp, "TPROXY the proxy keeps NET_ADMIN"},
		"low ports":                  {"sidecar.istio.io/capNetBindService: 'true'", plainApp, "the proxy keeps a capability"},
		"no capture":                 {"outrider.dev/capture: none", plainApp, "nothing is captured"},
		"no proxy":                   {"outrider.dev/proxy: none", plainApp, "there is no Outrider proxy"},
		"root everywhere":            {"", "securityContext: {runAsUser: 0}, " + plainApp, "every container runs as root"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := injectStaged(t, tt.annotations, tt.spec)
			if c := containers.Find(r.Pod, contract.ProxyContainer); c != nil && podspec.Staged(c) {
				t.Fatal("the proxy has a root stage")
			}
			if containers.Find(r.Pod, contract.InitContainer) == nil {
				t.Errorf("the pod has no %s", contract.InitContainer)
			}
			warned := slices.ContainsFunc(r.Warnings, func(w string) bool {
				return strings.Contains(w, "outrider.dev/init: none has no effect") && strings.Contains(w, tt.why)
			})
			if !warned || !strings.Contains(r.NoEffect[contract.Init], tt.why) {
				t.Errorf("warnings %q, no effect %q; want %q", r.Warnings, r.NoEffect, tt.why)
			}
		})
	}
}

func TestNoInitContainer(t *testing.T) {
	for name, spec := range map[string]string{
		"a plain pod":                  plainApp,
		"a restart policy":             "restartPolicy: Always, " + plainApp,
		"users that are not root":      "securityContext: {runAsNonRoot: true, runAsUser: 1000}, " + plainApp,
		"roots with a group":           "securityContext: {runAsUser: 0, fsGroup: 7}, " + plainApp,
		"one root of two":              "containers: [{name: app, image: a, command: [/app], securityContext: {runAsUser: 0}}, {name: web, image: w, command: [/w], securityContext: {runAsUser: 9}}]",
		"an own proxy with a variable": "containers: [{name: app, image: a, command: [/app]}, {name: outrider-proxy, image: auto, env: [{name: X, value: y}]}]",
		"an own proxy with a hook":     "containers: [{name: app, image: a, command: [/app]}, {name: outrider-proxy, image: auto, lifecycle: {postStart: {exec: {command: [x]}}, preStop: {exec: {command: [y]}}}}]",
		"processes that all share":     "shareProcessNamespace: true, " + plainApp,
	} {
		t.Run(name, func(t *testing.T) {
			r := injectStaged(t, "", spec)
			if len(r.Pod.Spec.InitContainers) > 0 || strings.Contains(r.Pod.Annotations[contract.Status], "initContainers") {
				t.Errorf("init containers %+v, status %s", r.Pod.Spec.InitContainers, r.Pod.Annotations[contract.Status])
			}
			c := r.Pod.Spec.Containers[0]
			if c.Name != contract.ProxyContainer || !podspec.Staged(&c) {
				t.Fatalf("the first container is %s %q", c.Name, c.Args)
			}
			no, yes, root := false, true, int64(0)
			want := &corev1.SecurityContext{RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no, Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "SETUID", "SETGID", "SETPCAP"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
				t.Error(diff)
			}
			for _, c := range r.Pod.Spec.Containers {
				i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == contract.BinDir })
				if i < 0 || c.VolumeMounts[i].ReadOnly != (c.Name != contract.ProxyContainer) {
					t.Errorf("%s mounts %+v", c.Name, c.VolumeMounts)
				}
			}
			if !slices.ContainsFunc(r.Warnings, func(w string) bool {
				return strings.Contains(w, "kubectl exec into outrider-proxy is root with NET_ADMIN")
			}) {
				t.Errorf("%q; want one about kubectl exec", r.Warnings)
			}
			otherMode(t, r)
		})
	}
}

// otherMode removes the annotation outrider.dev/init from the injected pod, and later adds it again. An
// injection then gives the same result as for a pod that never had the annotation, and then the same as before.
func otherMode(t *testing.T, r Result) {
	t.Helper()
	inject := func(p *corev1.Pod) *corev1.Pod { return injected(t, p, Options{}).Pod }
	with := r.Pod.DeepCopy()
	delete(with.Annotations, contract.Init)
	original := mustStrip(t, with)
	changed := inject(with)
	if diff := podDiff(inject(original), changed); diff != "" || containers.Find(changed, contract.InitContainer) == nil {
		t.Errorf("without the annotation (-fresh +changed):\n%s", diff)
	}
	changed.Annotations[contract.Init] = "none"
	if diff := podDiff(r.Pod, inject(changed)); diff != "" {
		t.Errorf("with it again (-first +again):\n%s", diff)
	}
}
