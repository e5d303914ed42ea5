package inject

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/settings"
)

// set1 contains, for each annotation with an effect, a value that changes the injected pod. An empty value marks
// an annotation that only injection writes.
var set1 = map[string]string{
	contract.InjectLabel: "false", contract.OwnInjectLabel: "false", contract.NativeSidecar: "true", contract.InterceptionMode: "NONE",
	contract.IstioTraffic + "includeInboundPorts": "80", contract.IstioTraffic + "excludeInboundPorts": "80", contract.IstioTraffic + "includeOutboundIPRanges": "10.0.0.0/8",
	contract.IstioTraffic + "excludeOutboundIPRanges": "10.0.0.0/8", contract.IstioTraffic + "includeOutboundPorts": "80", contract.IstioTraffic + "excludeOutboundPorts": "80",
	contract.IstioTraffic + "excludeInterfaces": "eth1", settings.RerouteKey: "eth1", settings.KubevirtKey: "eth1", contract.StatusPortAnnotation: "15555",
	contract.IstioReadiness + "initialDelaySeconds": "3", contract.IstioReadiness + "periodSeconds": "3", contract.IstioReadiness + "failureThreshold": "7",
	contract.RewriteProbes: "false", settings.MergeKey: "false", settings.ScrapeKey: "80:/m", settings.ImageKey: "other", settings.ImageTypeKey: "debug",
	"sidecar.istio.io/proxyCPU": "1m", "sidecar.istio.io/proxyMemory": "1Mi", "sidecar.istio.io/proxyCPULimit": "9", "sidecar.istio.io/proxyMemoryLimit": "9Gi",
	settings.LogKey: "debug", settings.ComponentLogKey: "upstream:debug", settings.AgentLogKey: "debug", settings.BootstrapKey: "b", settings.VolumeKey: `{"v":{"emptyDir":{}}}`, settings.MountKey: `{"outrider-work":{"mountPath":"/x"}}`,
	settings.BindKey: "true", settings.DiscoveryKey: "d:1", settings.TemplatesKey: "grpc", contract.ProxyConfig: "holdApplicationUntilProxyStarts: false", contract.DependsOn: "app: {outrider-proxy: started}",
	contract.Start: "native", contract.Capture: "none", contract.Proxy: "none", contract.Init: "none", contract.NodeAnnotation: "{}", contract.Park: "off", contract.Prewarm: "a", contract.Status: "x", contract.Overrides: "",
	contract.NativeRelease: "probe", contract.RevisionLabel: "",
}

// No annotation is ignored silently: each annotation of the table changes what is injected, or causes a warning
// or a refusal.
func TestEveryAnnotationHasAnEffectOrAWarning(t *testing.T) {
	const text = "metadata: {name: shop}\nspec: {containers: [{name: app, image: a, command: [/app], readinessProbe: {httpGet: {port: 80}}}]}"
	plain := injected(t, podOf(t, text), Options{})
	unset := maps.Clone(set1)
	for _, a := range settings.Keys() {
		if a.Surface != settings.InAnnotations {
			continue
		}
		delete(unset, a.Name)
		t.Run(strings.ReplaceAll(a.Name, "/", " "), func(t *testing.T) {
			value, ok := set1[a.Name]
			if a.Without != "" {
				value, ok = "x", true
			}
			if !ok {
				t.Fatal("no value is known that shows its effect")
			}
			if value == "" {
				return // only injection writes it, and Stripped reads it
			}
			p := podOf(t, text)
			p.Annotations = map[string]string{a.Name: value}
			r, err := Pod(p, Namespace{Name: "shop"}, Options{})
			if err != nil || !r.Injected {
				return
			}
			got := r.Pod.DeepCopy()
			delete(got.Annotations, a.Name)
			delete(got.Annotations, contract.Overrides)
			want := plain.Pod.DeepCopy()
			delete(want.Annotations, contract.Overrides)
			if cmp.Equal(want, got, quantities) && len(r.Warnings) == 0 && cmp.Equal(plain.Notes, r.Notes) {
				t.Errorf("%q changes nothing, without a warning", value)
			}
		})
	}
	if len(unset) > 0 {
		t.Errorf("not in the table: %q", slices.Sorted(maps.Keys(unset)))
	}
}

// Options refuse each value for which a pod would be refused if an annotation had that value.
func TestOptionsThatNoPodCouldUse(t *testing.T) {
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
