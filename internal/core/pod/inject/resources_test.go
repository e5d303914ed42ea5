package inject

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
)

// amounts returns the resources of a container as text, such as "requests cpu=100m memory=128Mi limits cpu=2".
func amounts(c corev1.ResourceRequirements) string {
	var out []string
	for _, l := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", c.Requests}, {"limits", c.Limits}} {
		if len(l.list) > 0 {
			out = append(out, l.name)
		}
		for _, name := range slices.Sorted(maps.Keys(l.list)) {
			q := l.list[name]
			out = append(out, string(name)+"="+q.String())
		}
	}
	return strings.Join(out, " ")
}

// Values override the chart's defaults as in Helm. The pod-level resources limit the proxy's resources.
func TestProxyResources(t *testing.T) {
	const usual = "requests cpu=100m memory=128Mi limits cpu=2 memory=1Gi"
	tests := map[string]struct{ values, pod, want string }{
		"none":              {"{}", "", usual},
		"empty":             {"{global: {proxy: {resources: {}}}}", "", usual},
		"null":              {"{global: {proxy: {resources: null}}}", "", ""},
		"a limit of null":   {"{global: {proxy: {resources: {limits: {cpu: null}}}}}", "", "requests cpu=100m memory=128Mi limits memory=1Gi"},
		"no limits":         {"{global: {proxy: {resources: {limits: null}}}}", "", "requests cpu=100m memory=128Mi"},
		"one request":       {"{global: {proxy: {resources: {requests: {cpu: 10m}}}}}", "", "requests cpu=10m memory=128Mi limits cpu=2 memory=1Gi"},
		"another resource":  {"{global: {proxy: {resources: {limits: {ephemeral-storage: 1Gi}}}}}", "", "requests cpu=100m memory=128Mi limits cpu=2 ephemeral-storage=1Gi memory=1Gi"},
		"the pod's is less": {"{}", "{limits: {cpu: 500m, memory: 512Mi}}", "requests cpu=100m memory=128Mi limits cpu=500m memory=512Mi"},
		"little is left":    {"{}", "{requests: {cpu: 250m}, limits: {cpu: 500m}}", "requests cpu=50m memory=128Mi limits cpu=500m memory=1Gi"},
		"nothing is left":   {"{}", "{requests: {cpu: 200m, memory: 64Mi}}", "requests cpu=0 memory=0 limits cpu=2 memory=1Gi"},
		"the pod has more":  {"{}", "{requests: {cpu: 4, memory: 4Gi}, limits: {cpu: 8, memory: 8Gi}}", usual},
		"only a limit":      {"{global: {proxy: {resources: {requests: null}}}}", "{requests: {cpu: 300m}, limits: {cpu: 1}}", "requests cpu=100m limits cpu=1 memory=1Gi"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := "spec: {initContainers: [{name: migrate}], containers: [{name: app, resources: {requests: {cpu: 200m, memory: 64Mi}}}]}"
			if tt.pod != "" {
				text = strings.Replace(text, "spec: {", "spec: {resources: "+tt.pod+", ", 1)
			}
			r, err := Pod(podOf(t, text), Namespace{}, Options{Values: valuesOf(t, tt.values)})
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range []string{contract.ProxyContainer, contract.InitContainer} {
				if diff := cmp.Diff(tt.want, amounts(containers.Find(r.Pod, of).Resources)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", of, diff)
				}
			}
		})
	}
}

func TestOwnContainersResources(t *testing.T) {
	for own, want := range map[string]string{
		"{limits: {cpu: 50m}}":   "requests cpu=50m memory=128Mi limits cpu=50m memory=1Gi",
		"{requests: {cpu: 3}}":   "requests cpu=3 memory=128Mi limits cpu=3 memory=1Gi",
		"{requests: {cpu: 10m}}": "requests cpu=10m memory=128Mi limits cpu=2 memory=1Gi",
	} {
		r, err := Pod(podOf(t, "spec: {containers: [{name: app}, {name: outrider-proxy, image: auto, resources: "+own+"}]}"), Namespace{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, amounts(containers.Find(r.Pod, contract.ProxyContainer).Resources)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", own, diff)
		}
	}
}
