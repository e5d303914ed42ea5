package inject

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject/settings"
)

// fuzzed returns a pod that is affected by all settings.
func fuzzed() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app", Command: []string{"/app"}}}}}
}

// With values that ParseValues accepts, a pod is injected, or there is an error with a message.
func FuzzValues(f *testing.F) {
	f.Add("global: {proxy: {logLevel: info, holdApplicationUntilProxyStarts: true, resources: {limits: {cpu: 2}}, excludeIPRanges: 10.0.0.0/8}}", "global.proxy.logLevel=debug")
	f.Add("global: {tag: null, proxy: {includeIPRanges: null, resources: {requests: null, limits: {cpu: null, memory: 1Gi}}}}", "global.proxy.resources=null")
	f.Add("revision: canary\nglobal: {hub: h, tag: 1, imagePullSecrets: [a], proxy_init: {}}\nmeshConfig: {trustDomain: td, defaultConfig: {concurrency: 2}}", "a[0].b={x,y}")
	f.Add("sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {a: b}}], alwaysInjectSelector: [{matchExpressions: [{key: a, operator: Exists}]}], injectedAnnotations: {a: b}}", `a\.b[3]=,`)
	f.Add("global: {proxy: {lifecycle: {preStop: {exec: {comand: [a]}}}, resources: {limts: {}}}}\npilot: {env: {A: b}, cni: {x: 1}}\ncomponents: {}\nmeshConfig: {outboundTrafficPolicy: {mode: 1}, data: x}", "env.A=b")
	f.Fuzz(func(t *testing.T, text, setting string) {
		if len(setting) < 1<<10 {
			_ = settings.SetValue(map[string]any{"a": []any{1}, "global": map[string]any{}}, setting)
		}
		v, _, err := settings.ParseValues([]byte(text))
		if err != nil {
			return
		}
		if _, err := Pod(fuzzed(), Namespace{Name: "shop"}, Options{Values: v, Manual: true}); err != nil && err.Error() == "" {
			t.Errorf("%q: an error without words", text)
		}
	})
}

// With a mesh configuration that ParseMesh accepts, a pod is injected, or there is an error with a message.
func FuzzMeshConfig(f *testing.F) {
	f.Add("trustDomain: td\ndefaultConfig: {discoveryAddress: a:1, concurrency: 2, drainDuration: 5s, proxyMetadata: {A: b}, interceptionMode: TPROXY}")
	f.Add("defaultConfig: {holdApplicationUntilProxyStarts: true, proxyHeaders: {}, image: {imageType: distroless}, statusPort: 15020}\nenableTracing: true")
	f.Add("defaultConfig: {terminationDrainDuration: 1h, meshId: x, proxyStatsMatcher: {inclusionPrefixes: [a]}, readinessProbe: {httpGet: {path: /, port: 1}}}")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := settings.ParseMesh([]byte(text))
		if err != nil {
			return
		}
		if _, err := Pod(fuzzed(), Namespace{Name: "shop"}, Options{Mesh: m, Manual: true}); err != nil && err.Error() == "" {
			t.Errorf("%q: an error without words", text)
		}
	})
}
