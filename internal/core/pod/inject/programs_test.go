package inject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// If the mesh restricts images, a pod's author cannot determine what runs as root with NET_ADMIN. Without that
// restriction, the annotations have the same meaning as in Istio.
func TestProgramsOfTheMesh(t *testing.T) {
	const hub = "registry.example/outrider"
	type table map[string]struct {
		pod     string
		refused string // a part of the message; empty: the pod is injected
	}
	annotated := func(text string) string {
		return "metadata: {annotations: {" + text + "}}\nspec: {containers: [{name: app, image: i, command: [/app]}]}"
	}
	own := func(init, fields string) string {
		list := "spec: {containers: [{name: app, image: i, command: [/app]}"
		if init == contract.ProxyContainer {
			return list + ", {name: outrider-proxy, " + fields + "}]}"
		}
		return list + "], initContainers: [{name: outrider-init, " + fields + "}]}"
	}
	for name, tt := range (table{
		"no setting":                    {annotated(""), ""},
		"another image":                 {annotated("sidecar.istio.io/proxyImage: evil.example/proxy:1"), "evil.example/proxy:1"},
		"an image of the repository":    {annotated("sidecar.istio.io/proxyImage: registry.example/outrider/debug:1"), ""},
		"a name that begins alike":      {annotated("sidecar.istio.io/proxyImage: registry.example/outrider-evil/x:1"), "outrider-evil"},
		"a name in the hub":             {annotated("sidecar.istio.io/proxyImage: debug"), ""},
		"own image":                     {own(contract.ProxyContainer, "image: evil.example/x"), "evil.example/x"},
		"own image, allowed":            {own(contract.ProxyContainer, "image: registry.example/outrider/x@sha256:"+strings.Repeat("0", 64)), ""},
		"own resources":                 {own(contract.ProxyContainer, "image: auto, resources: {limits: {cpu: 1}}"), ""},
		"own command":                   {own(contract.InitContainer, "image: auto, command: [/evil]"), "command"},
		"own arguments":                 {own(contract.InitContainer, "image: auto, args: [evil]"), "args"},
		"own variables":                 {own(contract.InitContainer, "image: auto, env: [{name: A, value: b}]"), "env"},
		"own mounts":                    {own(contract.InitContainer, "image: auto, volumeMounts: [{name: a, mountPath: /a}]"), "volumeMounts"},
		"own privileges":                {own(contract.ProxyContainer, "image: auto, securityContext: {privileged: true}"), "securityContext"},
		"own hook":                      {own(contract.ProxyContainer, "image: auto, lifecycle: {preStop: {exec: {command: [/evil]}}}"), "more than that"},
		"mounted token":                 {own(contract.ProxyContainer, "image: auto, volumeMounts: [{name: a, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]"), ""},
		"files in a proxy that is root": {annotated(`sidecar.istio.io/interceptionMode: TPROXY, sidecar.istio.io/bootstrapOverride: evil`), "bootstrapOverride"},
		"files in a proxy that is not":  {annotated(`sidecar.istio.io/bootstrapOverride: mine`), ""},
	}) {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, tt.pod)
			if _, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true}); err != nil {
				t.Errorf("without the value: %v", err)
			}
			var o Options
			o.Manual, o.Values.Global.Hub, o.Values.Injector.AllowedProxyImages = true, hub, []string{hub}
			_, err := Pod(pod, Namespace{Name: "shop"}, o)
			var refusal *verdict.Refusal
			switch errors.As(err, &refusal); {
			case tt.refused == "" && err != nil:
				t.Error(err)
			case tt.refused != "" && (refusal == nil || refusal.Code != verdict.ImageRefused || !strings.Contains(refusal.Sentence, tt.refused) || refusal.Hint == ""):
				t.Errorf("%v: want a refusal with %q", err, tt.refused)
			}
		})
	}
	o := Options{Manual: true}
	o.Values.Injector.AllowedProxyImages = []string{} // no image is allowed
	if _, err := Pod(podOf(t, annotated("sidecar.istio.io/proxyImage: debug")), Namespace{Name: "shop"}, o); err == nil {
		t.Error("with an empty list the annotation is accepted")
	}
}

// The capture ignores connections of the proxy's user and group. So a container with this user or group bypasses
// the mesh. "outrider plan" reports this for the pod before and after injection, and "outrider lint" by the rule
// proxy-uid.
func TestContainersOfTheProxysUserAreWarnedOf(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  string
		want string // part of the warning; empty: no warning
	}{
		"container, user":           {"spec: {containers: [{name: app, image: i, securityContext: {runAsUser: 1337}}]}", "app has runAsUser: 1337"},
		"container, group":          {"spec: {containers: [{name: app, image: i, securityContext: {runAsGroup: 1337}}]}", "app has runAsGroup: 1337"},
		"pod":                       {"spec: {securityContext: {runAsUser: 1337}, containers: [{name: app, image: i}]}", "app has runAsUser: 1337"},
		"pod, and another one here": {"spec: {securityContext: {runAsUser: 1337}, containers: [{name: app, image: i, securityContext: {runAsUser: 1}}]}", ""},
		"init container":            {"spec: {initContainers: [{name: first, image: i, securityContext: {runAsUser: 1337}}], containers: [{name: app, image: i}]}", "first has runAsUser: 1337"},
		"fsGroup":                   {"spec: {securityContext: {fsGroup: 1337}, containers: [{name: app, image: i}]}", ""},
		"nothing is captured":       {"metadata: {annotations: {outrider.dev/capture: none}}\nspec: {containers: [{name: app, image: i, securityContext: {runAsUser: 1337}}]}", ""},
		"another user":              {"spec: {containers: [{name: app, image: i, securityContext: {runAsUser: 1338}}]}", ""},
	} {
		r, err := Pod(podOf(t, tt.pod), Namespace{Name: "shop"}, Options{Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(r.Warnings, "\n")
		if got := strings.Contains(all, "which is the proxy's"); got != (tt.want != "") || !strings.Contains(all, tt.want) {
			t.Errorf("%s: warnings %q, want %q", name, r.Warnings, tt.want)
		}
		for when, p := range map[string]*corev1.Pod{"before": requesting(podOf(t, tt.pod)), "after": r.Pod} {
			reading, err := podspec.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			notes := slices.DeleteFunc(reading.Notes, func(n string) bool { return !strings.Contains(n, "which is the proxy's") })
			if warned := slices.DeleteFunc(r.Warnings, func(w string) bool { return !strings.Contains(w, "which is the proxy's") }); !slices.Equal(notes, warned) {
				t.Errorf("%s, plan %s injection: %q, want %q", name, when, notes, warned)
			}
		}
	}
}

// requesting adds an edge from the proxy to app. So a plan of the pod expects the proxy.
func requesting(pod *corev1.Pod) *corev1.Pod {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[contract.DependsOn+".app"] = contract.ProxyContainer
	return pod
}
