package settings

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
)

func annotationWarnings(given map[string]string) ([]string, error) {
	var out []string
	ignored, err := CheckAnnotations(given)
	for _, i := range ignored {
		out = append(out, i.Warning)
	}
	return out, err
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
	if v.Global.Proxy.ExcludeInboundPorts != "22" || v.Native() != "true" {
		t.Errorf("%+v, native %s", v.Global.Proxy, v.Native())
	}
	m, err := v.MeshOver(Mesh{TrustDomain: "cluster.local", DefaultConfig: map[string]any{"drainDuration": "1s"}})
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

// A value is refused if a pod would be refused because of the same value in an annotation.
func TestValuesThatNoPodCouldUse(t *testing.T) {
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
		"meshConfig: {meshMTLS: {minProtocolVersion: TLSv1.3}}":  `meshConfig: meshMTLS.minProtocolVersion: "TLSv1.3": want TLSV1_2, the default, or TLSV1_3`,
	} {
		if _, _, err := ParseValues([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	good := "global: {hub: 'localhost:5000/a_b/c', tag: v1.2-x, proxy: {image: 'docker.io/istio/proxyv2:1@sha256:" + strings.Repeat("a", 64) + "', componentLogLevel: 'misc:warn, upstream:debug', includeInboundPorts: '', clusterDomain: cluster.local}}"
	if _, _, err := ParseValues([]byte(good)); err != nil {
		t.Error(err)
	}
}

// The documentation page names each of our own annotations.
func TestTheDocumentNamesEveryOwnAnnotation(t *testing.T) {
	text, err := os.ReadFile("../../../../../docs/inject.md")
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for _, a := range annotations {
		if strings.HasPrefix(a.name, "outrider.dev/") && a.without == "" && !strings.Contains(string(text), a.name) {
			missing = append(missing, a.name)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("docs/inject.md does not name %q", missing)
	}
}

func TestBadProxyResources(t *testing.T) {
	for values, want := range map[string]string{
		"{limits: {cpu: 50m}}":     "the cpu request 100m is more than the limit 50m",
		"{limits: {cpu: much}}":    "want requests and limits",
		"{limit: {cpu: 1}}":        "resources.limit: want requests or limits",
		"{requests: {cpu: -100m}}": "cpu: -100m is negative",
	} {
		_, _, err := ParseValues([]byte("global: {proxy: {resources: " + values + "}}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// A null in the values removes a default, as in Helm. It never becomes the text "null".
func TestNullValues(t *testing.T) {
	v, _, err := ParseValues([]byte("{global: {tag: null, proxy: {includeIPRanges: null, excludeInboundPorts: null, logLevel: null, statusPort: null, lifecycle: null}}, pilot: {env: null}}"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Values{}, v, cmp.AllowUnexported(Resources{})); diff != "" {
		t.Errorf("(-default +null):\n%s", diff)
	}
}

// Every setting in names.txt is in the table of keys. Package test/istioapi compares names.txt with Istio's
// modules.
func TestEveryPublishedSettingIsInTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../../../test/istioapi/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range Keys() {
		known[string(k.Surface)+" "+strings.TrimSuffix(k.Name, ".*")] = true
		if k.Surface == InMesh {
			object, _, _ := strings.Cut(k.Name, ".") // names.txt does not list the fields of a MeshConfig's objects
			known["MeshConfig "+object] = true
		}
	}
	_, list, _ := strings.Cut(string(text), "\n\n")
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		// The key of an object covers all fields of the object.
		object := name
		for dot := 0; !known[object] && dot >= 0 && strings.HasPrefix(name, "value "); object = object[:max(dot, 0)] {
			dot = strings.LastIndexByte(object, '.')
		}
		if !known[object] {
			t.Errorf("%s has no row in keys.go or annotations.go", name)
		}
	}
}

// If a setting is misspelt, or written where it is not read, the warning names the setting that was probably
// meant.
func TestMistakesInSettingsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: install.istio.io/v1alpha1":                                        "apiVersion: it is a field of an IstioOperator",
		"spec: {values: {}}":                                                           "spec: it is a field of an IstioOperator",
		"global: {hub: a}\nglobal: {hub: b}":                                           `key "global" already set`,
		"globl: {hub: a}":                                                              "value globl is not known (did you mean global?)",
		"components: {cni: {enabled: true}}":                                           "value components has no effect: the capture is written",
		"meshConfig: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}":                   "value meshConfig.outboundTrafficPolicy.mode has no effect: addresses outside the mesh stay reachable",
		"meshConfig: {inboundTrafficPolicy: {mode: LOCALHOST}}":                        "value meshConfig.inboundTrafficPolicy.mode has no effect: connections reach",
		"meshConfig: {inboundTrafficPolicy: {moode: LOCALHOST}}":                       "value meshConfig.inboundTrafficPolicy.moode is not known (did you mean mode?)",
		"meshConfig: {trustDomainAliases: [old]}":                                      "value meshConfig.trustDomainAliases has no effect",
		"meshConfig: {defaultConfig: {image: {imagetype: debug}}}":                     "value meshConfig.defaultConfig.image.imagetype: no such setting is known (did you mean imageType?)",
		"meshConfig: {defaultConfig: {proxyStatsMatcher: {inclusionPrefixs: [a]}}}":    "proxyStatsMatcher.inclusionPrefixs: no such setting is known (did you mean inclusionPrefixes?)",
		"global: {proxy: {lifecycle: {preStopp: {}}}}":                                 "value global.proxy.lifecycle.preStopp is not known (did you mean preStop?)",
		"global: {proxy: {lifecycle: {preStop: {exec: {command: [a], comand: [a]}}}}}": "value global.proxy.lifecycle.preStop.exec.comand is not known (did you mean command?)",
		"sidecarInjectorWebhook: {neverInjectSelector: [{matchLabel: {a: b}}]}":        "value sidecarInjectorWebhook.neverInjectSelector[0].matchLabel is not known (did you mean matchLabels?)",
		"meshConfig: {enableTracing: true, ca: {}, rootNamespace: a, configSources: [b], dnsRefreshRate: 1s, tcpKeepalive: {time: 1s}}": "values meshConfig.dnsRefreshRate, meshConfig.tcpKeepalive have no effect",
		"pilot: {env: {ENABLE_NATIVE_SIDECAR: true}}":                                        "value pilot.env.ENABLE_NATIVE_SIDECAR has no effect: it is a variable of istiod",
		"autoscaleMin: 2\nautoscaleMax: 5\nreplicaCount: 3\nresources: {requests: {cpu: 1}}": "values autoscaleMax, autoscaleMin, replicaCount, resources have no effect: want it below pilot",
	} {
		_, warnings, err := ParseValues([]byte(text))
		if all := fmt.Sprint(warnings, err); strings.Count(all, want) != 1 {
			t.Errorf("%s: %s\nwant %s", text, all, want)
		}
	}
	// A value that requests the usual behaviour needs no warning.
	_, warnings, err := ParseValues([]byte(`
global: {proxy: {privileged: false, tracer: none, outlierLogPath: "", resources: {limits: {cpu: 2}}}, variant: distroless, sds: {token: {aud: istio-ca}}, multiCluster: {enabled: false}}
pilot: {cni: {enabled: false, provider: default}, env: {}}
sidecarInjectorWebhook: {templates: {}, defaultTemplates: []}
meshConfig: {inboundTrafficPolicy: {mode: PASSTHROUGH}, outboundTrafficPolicy: {mode: ALLOW_ANY}, enableAutoMtls: true, accessLogFile: ""}
`))
	if err != nil || len(warnings) > 0 {
		t.Error(warnings, err)
	}
}

var update = flag.Bool("update", false, "write docs/settings.md anew")

// The documentation page contains the table of keys; go test -update writes it.
func TestThePageHasEveryKey(t *testing.T) {
	const page, mark = "../../../../../docs/settings.md", "<!-- written by go test ./internal/core/pod/inject/settings -run TestThePageHasEveryKey -update -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("%s has no line %q", page, mark)
	}
	want := keyTable()
	if *update {
		if err := os.WriteFile(page, []byte(before+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, after); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// keyTable returns the table for the page. Settings with the same text share a row.
func keyTable() string {
	var b strings.Builder
	titles := []struct {
		of    Surface
		title string
	}{{InValues, "Values of the charts"}, {InMesh, "MeshConfig"}, {InProxyConfig, "ProxyConfig"}, {InVariables, "Variables of proxyMetadata"}, {InAnnotations, "Annotations of a pod"}, {InLabels, "Labels of a pod and its namespace"}}
	for _, s := range titles {
		fmt.Fprintf(&b, "\n## %s\n\n| name | effect |\n| --- | --- |\n", s.title)
		for _, effect := range []func(Key) (string, string){
			func(k Key) (string, string) { return "", k.Means },
			func(k Key) (string, string) { return "of the chart: ", k.Chart },
			func(k Key) (string, string) { return "of the control plane: ", k.Plane },
			func(k Key) (string, string) { return "refused: ", k.Refused },
			func(k Key) (string, string) { return "none: ", k.Without },
		} {
			var texts []string
			names := map[string][]string{}
			for _, k := range Keys() {
				if _, text := effect(k); k.Surface == s.of && text != "" {
					if names[text] == nil {
						texts = append(texts, text)
					}
					names[text] = append(names[text], "`"+k.Name+"`")
				}
			}
			prefix, _ := effect(Key{})
			for _, text := range texts {
				fmt.Fprintf(&b, "| %s | %s%s |\n", strings.Join(names[text], ", "), prefix, strings.ReplaceAll(text, "|", `\|`))
			}
		}
	}
	return b.String()
}

func warningsOf(labels map[string]string, of string, alongside bool) (out []string) {
	for _, i := range CheckLabels(labels, of, alongside) {
		out = append(out, i.Warning)
	}
	return out
}

// A label that is not read causes a warning. If another mesh has the proxy, only labels of our own cause a
// warning.
func TestLabelsWithoutEffect(t *testing.T) {
	labels := map[string]string{"app": "shop", "istio.io/rve": "canary", "sidecar.istio.io/injct": "true", "traffic.sidecar.istio.io/excludeOutboundPorts": "80", "outrider.dev/strat": "gate", "istio.io/dataplane-mode": "none"}
	const own = "label outrider.dev/strat is not known (did you mean outrider.dev/start?); it has no effect"
	want := []string{
		"label istio.io/rve is not known (did you mean istio.io/rev?); it has no effect",
		own,
		"label sidecar.istio.io/injct is not known (did you mean sidecar.istio.io/inject?); it has no effect",
		"label traffic.sidecar.istio.io/excludeOutboundPorts has no effect: it is an annotation",
	}
	if diff := cmp.Diff(want, warningsOf(labels, "", false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{own}, warningsOf(labels, "", true)); diff != "" {
		t.Errorf("alongside another mesh (-want +got):\n%s", diff)
	}
	want = []string{"label istio.io/dataplane-mode of the namespace shop has no effect: " + noAmbient + "; Istio's would take the pod's connections too, unless the label is none",
		"label outrider.dev/injecton of the namespace shop is not known (did you mean outrider.dev/injection?); it has no effect"}
	got := warningsOf(map[string]string{contract.NamespaceLabel: "enabled", "istio.io/dataplane-mode": "ambient", "app.kubernetes.io/name": "x", "outrider.dev/injecton": "enabled"}, " of the namespace shop", false)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of a namespace (-want +got):\n%s", diff)
	}
}

// The number of warnings is limited if a pod has many labels without effect.
func TestManyLabelsWithoutEffect(t *testing.T) {
	labels := map[string]string{}
	for i := range 1000 {
		labels[fmt.Sprintf("outrider.dev/x%d", i)] = "y"
	}
	got := warningsOf(labels, "", false)
	if last := fmt.Sprintf("more than %d labels have no effect", mostLabels); len(got) != mostLabels+1 || got[mostLabels] != last {
		t.Errorf("%d warnings, the last %q", len(got), got[len(got)-1])
	}
}

// A label of an author's own below istio.io causes no warning. Only so many are compared with the known ones: of more, a
// misspelling is not seen.
func TestLabelsOfAnAuthor(t *testing.T) {
	labels := map[string]string{"test.istio.io/class": "standard", "sidecar.istio.io/injct": "true"}
	if got := warningsOf(labels, "", false); len(got) != 1 || !strings.Contains(got[0], "did you mean") {
		t.Errorf("%q", got)
	}
	for i := range mostLabels {
		labels[fmt.Sprintf("a.istio.io/%d", i)] = "y"
	}
	if got := warningsOf(labels, "", false); len(got) != 0 {
		t.Errorf("after %d others: %q", mostLabels, got)
	}
}

func TestOpenShiftRanges(t *testing.T) {
	for text, want := range map[string]int64{"1000/10": 1009, "1000-1099": 1099, "1000/10,5/5": 1009, "": 1337, "x": 1337, "10-5": 1337, "0/5": 1337} {
		if uid, gid := ProxyUser(map[string]string{userRange: text}); uid != want || gid != want {
			t.Errorf("%q: %d, %d, want %d", text, uid, gid, want)
		}
	}
}
