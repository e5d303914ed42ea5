package inject

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
)

// set1 is, for each annotation that has an effect here, a value that changes the injected
// pod. What others act on is in elsewhere.
var set1 = map[string]string{
	contract.InjectLabel: "false", contract.OwnInjectLabel: "false", contract.NativeSidecar: "true", contract.InterceptionMode: "NONE",
	contract.IstioTraffic + "includeInboundPorts": "80", contract.IstioTraffic + "excludeInboundPorts": "80", contract.IstioTraffic + "includeOutboundIPRanges": "10.0.0.0/8",
	contract.IstioTraffic + "excludeOutboundIPRanges": "10.0.0.0/8", contract.IstioTraffic + "includeOutboundPorts": "80", contract.IstioTraffic + "excludeOutboundPorts": "80",
	contract.IstioTraffic + "excludeInterfaces": "eth1", rerouteKey: "eth1", kubevirtKey: "eth1", contract.StatusPortAnnotation: "15555",
	contract.IstioReadiness + "initialDelaySeconds": "3", contract.IstioReadiness + "periodSeconds": "3", contract.IstioReadiness + "failureThreshold": "7",
	contract.RewriteProbes: "false", mergeKey: "false", scrapeKey: "80:/m", imageKey: "other", imageTypeKey: "debug",
	"sidecar.istio.io/proxyCPU": "1m", "sidecar.istio.io/proxyMemory": "1Mi", "sidecar.istio.io/proxyCPULimit": "9", "sidecar.istio.io/proxyMemoryLimit": "9Gi",
	logKey: "debug", componentLogKey: "upstream:debug", agentLogKey: "debug", bootstrapKey: "b", volumeKey: `{"v":{"emptyDir":{}}}`, mountKey: `{"outrider-work":{"mountPath":"/x"}}`,
	bindKey: "true", discoveryKey: "d:1", templatesKey: "grpc", contract.ProxyConfig: "holdApplicationUntilProxyStarts: false", contract.DependsOn: "app: {outrider-proxy: started}",
	contract.Start: "native", contract.Capture: "none", contract.Proxy: "none", contract.Init: "none", contract.NodeAnnotation: "{}", contract.Park: "off", contract.Prewarm: "a", contract.Push: "full", contract.Status: "x", contract.Overrides: "",
	contract.NativeRelease: "probe", contract.RevisionLabel: "",
}

// No annotation is passed over in silence: each one of the table changes what is injected,
// or is warned about, or refuses the pod.
func TestEveryAnnotationHasAnEffectOrAWarning(t *testing.T) {
	const text = "metadata: {name: shop}\nspec: {containers: [{name: app, image: a, command: [/app], readinessProbe: {httpGet: {port: 80}}}]}"
	plain := injected(t, podOf(t, text), Options{})
	for _, name := range sortedKeys(set1) {
		if annotationIndex[name] == nil {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, a := range annotations {
		t.Run(strings.ReplaceAll(a.name, "/", " "), func(t *testing.T) {
			value, ok := set1[a.name]
			if a.without != "" {
				value, ok = "x", true
			}
			if !ok {
				t.Fatal("no value is known that shows its effect")
			}
			if a.means == "" && a.without == "" {
				t.Error("it says neither what it means nor why it has no effect")
			}
			if value == "" {
				return // written by injection, and read by Stripped
			}
			p := podOf(t, text)
			p.Annotations = map[string]string{a.name: value}
			r, err := Pod(p, Namespace{Name: "shop"}, Options{})
			if err != nil || !r.Injected {
				return
			}
			got := r.Pod.DeepCopy()
			delete(got.Annotations, a.name)
			delete(got.Annotations, contract.Overrides)
			want := plain.Pod.DeepCopy()
			delete(want.Annotations, contract.Overrides)
			if cmp.Equal(want, got, quantities) && len(r.Warnings) == 0 && cmp.Equal(plain.Notes, r.Notes) {
				t.Errorf("%q changes nothing, without a warning", value)
			}
		})
	}
}

// annotationWarnings are the warnings about annotations.
func annotationWarnings(given map[string]string) ([]string, error) {
	var r report
	err := checkAnnotations(given, &r)
	return r.warnings, err
}

func TestMisspelledAnnotationsAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"sidecar.istio.io/proxyCpu":                "(did you mean sidecar.istio.io/proxyCPU?)",
		"sidecar.istio.io/native-sidecar":          "(did you mean sidecar.istio.io/nativeSidecar?)",
		"outrider.dev/dependson":                   "(did you mean outrider.dev/depends-on?)",
		"outrider.dev/dependson.app":               "(did you mean outrider.dev/depends-on.app?)",
		"outrider.dev/strat":                       "(did you mean outrider.dev/start?)",
		"outrider.dev/pakr":                        "(did you mean outrider.dev/park?)",
		"sidecar.istio.io/excludeOutboundIPRanges": "",
		"outrider.dev/zzz":                         "; it has no effect",
	} {
		w, err := annotationWarnings(map[string]string{name: "1"})
		if err != nil || len(w) != 1 || !strings.Contains(w[0], want) {
			t.Errorf("%s: %q, %v; want %s", name, w, err, want)
		}
	}
	if w, err := annotationWarnings(map[string]string{"example.org/x": "1", "outrider.dev/depends-on.app": "x"}); err != nil || len(w) > 0 {
		t.Errorf("%q, %v", w, err)
	}
}

func TestValues(t *testing.T) {
	v, warnings, err := ParseValues([]byte(`
global:
  tag: 1.2
  proxy: {logLevel: info, excludeInboundPorts: 22, includeIPRanges: "*", privileged: true, loglevel: x, startupProbe: {enabled: true}, lifecycle: {prestop: {}}}
  proxy_init: {image: i, resources: {limits: {}}}
  other: {}
sidecarInjectorWebhook: {templates: {a: b}, useLegacySelectors: false, rewriteAppHTTPProb: true}
pilot: {cni: {enabled: true, provider: multus}, env: {ENABLE_NATIVE_SIDECARS: true}}
meshConfig: {trustDomain: example.org, defaultConfig: {concurrency: 2, concurency: 3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"value global.other is not known; it has no effect",
		"value global.proxy.loglevel is not known (did you mean logLevel?); it has no effect",
		"value sidecarInjectorWebhook.rewriteAppHTTPProb is not known (did you mean rewriteAppHTTPProbe?); it has no effect",
		"value global.proxy.privileged has no effect: the proxy needs no privilege",
		"value global.proxy.startupProbe.enabled has no effect: annotation outrider.dev/native-release: probe requests a startup probe",
		"value global.proxy_init.resources has no effect: outrider-init has the resources of the proxy, as in Istio",
		"values pilot.cni.enabled, pilot.cni.provider have no effect: " + noCNI,
		"value sidecarInjectorWebhook.templates has no effect: " + builtIn,
		"value global.proxy.lifecycle.prestop is not known (did you mean preStop?); it has no effect",
		"value meshConfig.defaultConfig.concurency: no such setting is known (did you mean concurrency?); it has no effect",
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if v.Global.Proxy.ExcludeInboundPorts != "22" || v.native() != "true" {
		t.Errorf("%+v, native %s", v.Global.Proxy, v.native())
	}
	m, err := v.mesh(Mesh{TrustDomain: "cluster.local", DefaultConfig: map[string]any{"drainDuration": "1s"}})
	if err != nil || m.TrustDomain != "example.org" || len(m.DefaultConfig) != 3 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSetValue(t *testing.T) {
	values := map[string]any{"list": []any{"x"}}
	for _, s := range []string{"values.global.proxy.holdApplicationUntilProxyStarts=true", "global.proxy.readinessPeriodSeconds=3", "global.hub=a.b/c=d", "revision=",
		`never[1].matchLabels.a\.b/c=d`, "never[0]=e", "list[0]=y", "list[1][0]=1", "secrets={a,2}", `ports=80,443\,8080`} {
		if err := SetValue(values, s); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{"revision": "", "global": map[string]any{"hub": "a.b/c=d", "proxy": map[string]any{"holdApplicationUntilProxyStarts": true, "readinessPeriodSeconds": int64(3)}},
		"never": []any{"e", map[string]any{"matchLabels": map[string]any{"a.b/c": "d"}}}, "list": []any{"y", []any{int64(1)}}, "secrets": []any{"a", int64(2)}, "ports": "80,443,8080"}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, s := range []string{"a", "a..b=c", "=x", "global.hub.x=1", "a[=1", "a[x]=1", "a[-1]=1", "a[1000000]=1", "[0]=1", "global[0]=1", "list.a=1", "a[0]b=1"} {
		if err := SetValue(values, s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

// A value that would refuse a pod as an annotation is refused in values and options too.
func TestOptionsThatNoPodCouldUse(t *testing.T) {
	for text, want := range map[string]string{
		"global: {proxy: {logLevel: zz}}":                        `global.proxy.logLevel: "zz": want trace`,
		"global: {proxy: {componentLogLevel: 'x:y'}}":            "component:level",
		"global: {proxy: {includeIPRanges: x}}":                  "address ranges",
		"global: {proxy: {excludeOutboundPorts: http}}":          "ports from 1",
		"global: {proxy: {statusPort: 70000}}":                   `statusPort: "70000"`,
		"global: {proxy: {readinessPeriodSeconds: -1}}":          "not negative",
		"global: {proxy: {image: Bad Name}}":                     "an image",
		"global: {hub: 'a b'}":                                   "global.hub",
		"global: {tag: 'a b'}":                                   "global.tag",
		"global: {imagePullSecrets: [A_b]}":                      "global.imagePullSecrets",
		"global: {imagePullPolicy: Sometimes}":                   "IfNotPresent",
		"revision: A_B":                                          "revision",
		"meshConfig: {defaultConfig: {discoveryAddress: x}}":     "discoveryAddress",
		"meshConfig: {defaultConfig: {drainDuration: soon}}":     "drainDuration",
		"meshConfig: {defaultConfig: {interceptionMode: MAGIC}}": "MAGIC",
	} {
		if _, _, err := ParseValues([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	good := "global: {hub: 'localhost:5000/a_b/c', tag: v1.2-x, proxy: {image: 'docker.io/istio/proxyv2:1@sha256:" + strings.Repeat("a", 64) + "', componentLogLevel: 'misc:warn, upstream:debug', includeInboundPorts: '', clusterDomain: cluster.local}}"
	if _, _, err := ParseValues([]byte(good)); err != nil {
		t.Error(err)
	}
	for want, o := range map[string]Options{
		"control plane": {ControlPlane: "foo"},
		"revision":      {Revision: "A_B"},
		"root":          {RootCA: "A b"},
		"the proxy":     {Images: Images{Proxy: "Bad Name"}},
		"the init":      {Images: Images{Init: "a/B"}},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if err := (Options{ControlPlane: "[::1]:15012", Revision: "1-30", Images: Images{Proxy: "outrider-proxy"}}).Check(); err != nil {
		t.Error(err)
	}
}

func TestOpenShiftRanges(t *testing.T) {
	for text, want := range map[string]int64{"1000/10": 1009, "1000-1099": 1099, "1000/10,5/5": 1009, "": 1337, "x": 1337, "10-5": 1337, "0/5": 1337} {
		if uid, gid := rangeOf(Namespace{Annotations: map[string]string{uidRange: text}}); uid != want || gid != want {
			t.Errorf("%q: %d, %d, want %d", text, uid, gid, want)
		}
	}
}

// The page names every annotation of ours.
func TestTheDocumentNamesEveryOwnAnnotation(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/inject.md")
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, a := range annotations {
		if strings.HasPrefix(a.name, "outrider.dev/") && !strings.Contains(string(text), a.name) {
			missing = append(missing, a.name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("docs/inject.md does not name %q", missing)
	}
}
