package mechanism

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

func TestChoose(t *testing.T) {
	pods.Goldens(t, "../podspec/testdata/pods", ".choose", func(t *testing.T, pod *corev1.Pod) string {
		r, _ := podspec.Read(pod)
		var b strings.Builder
		for _, on := range []startup.Kubernetes{28, 34} {
			fmt.Fprintf(&b, "Kubernetes 1.%d\n", on)
			for _, c := range Choose(r, on) {
				fmt.Fprintf(&b, "  %s\n    %s\n", c.Edge, strings.Join(c.Why, "; "))
				if c.Warning != "" {
					fmt.Fprintf(&b, "    warning: %s\n", c.Warning)
				}
				for _, n := range c.Refused {
					fmt.Fprintf(&b, "    not %s: %s\n", n.By, n.WhyNot())
				}
			}
		}
		return b.String()
	})
}

// If injection does not change a pod, a requested order is not written into it. An order that the author wrote by
// hand is kept.
func TestExcluded(t *testing.T) {
	const order = ", annotations: {outrider.dev/depends-on.b: a}}\nspec:\n  %scontainers:\n  - {name: b, command: [%s]}\n%s"
	const plain = "  - {name: a, command: [a], readinessProbe: {tcpSocket: {port: 1}}}\n"
	const sidecar = "  initContainers: [{name: a, restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}}]\n"
	const gate = "/outrider/bin/outrider-agent, gate, --name, b, --after, a is healthy, --, "
	for name, test := range map[string]struct {
		labels, spec, command, a string
		want                     startup.Mechanism
	}{
		"may be injected":             {"a: b", "", "b", plain, startup.Gate},
		"declined":                    {`sidecar.istio.io/inject: "false"`, "", "b", plain, ""},
		"declined by our own":         {`outrider.dev/inject: "false", sidecar.istio.io/inject: "true"`, "", "b", plain, ""},
		"on the node's network":       {"a: b", "hostNetwork: true\n  ", "b", plain, ""},
		"of Windows":                  {"a: b", "os: {name: windows}\n  ", "b", plain, ""},
		"of Windows, by selector":     {"a: b", "nodeSelector: {kubernetes.io/os: windows}\n  ", "b", plain, ""},
		"of Linux":                    {"a: b", "os: {name: linux}\n  ", "b", plain, startup.Gate},
		"declined, a gate by hand":    {`sidecar.istio.io/inject: "false"`, "", gate + "b", plain, startup.Gate},
		"declined, a sidecar by hand": {`sidecar.istio.io/inject: "false"`, "", "b", sidecar, startup.Native},
		"neither \"true\" nor false":  {`sidecar.istio.io/inject: "no"`, "", "b", plain, startup.Gate},
	} {
		r, err := podspec.Read(pods.Parse(t, "metadata: {name: x, labels: {"+test.labels+"}"+fmt.Sprintf(order, test.spec, test.command, test.a)))
		if err != nil {
			t.Fatal(err)
		}
		if got := Choose(r, 34); len(got) != 1 || got[0].Edge.By != test.want || (test.want == "" && got[0].Warning == "") {
			t.Errorf("%s: %+v, want by %q", name, got, test.want)
		}
	}
}

// A mechanism that the edge names takes precedence over all other preferences.
func TestMechanismThatTheEdgeNames(t *testing.T) {
	const proxied = "spec: {containers: [{name: app, image: a}, {name: web, image: w}, {name: istio-proxy, image: p}]}"
	tests := map[string]struct {
		pod   string
		avoid []startup.Mechanism
		want  map[string]startup.Mechanism // by waiting container
	}{
		"one that is not to be preferred": {
			pod:   "metadata: {annotations: {outrider.dev/depends-on: '{app: {istio-proxy: healthy}, web: {istio-proxy: {condition: healthy, by: native}}}'}}\n" + proxied,
			avoid: []startup.Mechanism{startup.Native},
			want:  map[string]startup.Mechanism{"app": startup.Hold, "web": startup.Native},
		},
		"native, of a container of the application": {
			pod: "metadata: {annotations: {outrider.dev/depends-on: '{app: {cache: {condition: healthy, by: native}}}'}}\n" +
				"spec: {containers: [{name: app, image: a}, {name: web, image: w}, {name: cache, image: c, readinessProbe: {tcpSocket: {port: 1}}}]}",
			want: map[string]startup.Mechanism{"app": startup.Native},
		},
		"what the kubelet keeps anyway": {
			pod: "metadata: {annotations: {outrider.dev/depends-on: '{app: {migrate: {condition: completed, by: gate}}}'}}\n" +
				"spec: {initContainers: [{name: migrate, image: m}], containers: [{name: app, image: a, command: [/app]}]}",
			want: map[string]startup.Mechanism{"app": startup.InitDone},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := podspec.Read(pods.Parse(t, tt.pod))
			if err != nil {
				t.Fatal(err)
			}
			r.Avoid = tt.avoid
			by := map[string]startup.Mechanism{}
			for _, c := range Choose(r, 34) {
				by[c.Edge.To] = c.Edge.By
			}
			if diff := cmp.Diff(tt.want, by); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// If the pod does not set a command, a gate in the pod is impossible, but Advise offers a gate that the node
// adds.
func TestAdviceHasGatesOfTheNode(t *testing.T) {
	const containers = "\nspec: {containers: [{name: outrider-proxy, image: a}, {name: app, image: a}]}"
	for _, tt := range []struct {
		pod  string
		want string // mechanisms that can be used; * marks the chosen one
	}{
		{containers, "gate by the node, native*, native, hold"},
		{`metadata: {annotations: {outrider.dev/node-work: '{"containers": {"app": ["gate", "--name=app", "--after=outrider-proxy:healthy", "--"]}}'}}` + containers, "gate by the node*, native, native, hold"},
	} {
		r, err := podspec.Read(pods.Parse(t, tt.pod))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range Advise(r, 34)[0].Ways {
			if text := string(w.By); w.Fits {
				if w.ByNode {
					text += " by the node"
				}
				if w.Chosen {
					text += "*"
				}
				got = append(got, text)
			}
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.pod, got, tt.want)
		}
	}
}
