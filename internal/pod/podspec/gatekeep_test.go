package podspec

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/contract"
	"outrider.dev/startup"
)

// What the kubelet would do while the command still waits is the gate's, and comes back
// with [Ungated].
func TestTheGateTakesOver(t *testing.T) {
	const proxy = "\n  - {name: istio-proxy, image: p}"
	tests := map[string]struct {
		container string
		spec      string
		want      []string // in the YAML of the container
		not       []string
	}{
		"a startup probe, which says what ready means too": {
			container: "startupProbe: {httpGet: {port: web, path: /s}, terminationGracePeriodSeconds: 3}, ports: [{name: web, containerPort: 8080}]",
			want:      []string{"--startup-probe\n- '{\"httpGet\":{\"path\":\"/s\",\"port\":8080},\"terminationGracePeriodSeconds\":3}'", "readinessProbe:\n  httpGet:\n    path: /s\n    port: 8080\n"},
			not:       []string{"startupProbe:"},
		},
		"a readiness probe stays as it is": {
			container: "startupProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 2}}",
			want:      []string{"readinessProbe:\n  tcpSocket:\n    port: 2\n"},
		},
		"a liveness probe asks whether the command is held": {
			container: "livenessProbe: {grpc: {port: 5}, periodSeconds: 7}",
			want:      []string{"exec:\n    command:\n    - /outrider/bin/outrider-agent\n    - held\n    - --name\n    - app\n    - --probe\n", "  periodSeconds: 7\n"},
		},
		"its delay is one of the command": {
			container: "livenessProbe: {tcpSocket: {port: 5}, initialDelaySeconds: 30}",
			want:      []string{"--startup-probe\n- '{\"exec\":{\"command\":[\"/outrider/bin/outrider-agent\",\"version\"]},\"initialDelaySeconds\":30}'"},
		},
		"a postStart hook": {
			container: "lifecycle: {postStart: {httpGet: {port: web}}}, ports: [{name: web, containerPort: 80}]",
			want:      []string{"--post-start\n- '{\"httpGet\":{\"port\":80}}'"},
			not:       []string{"lifecycle"},
		},
		"a preStop hook stays, and the gate knows": {
			container: "lifecycle: {postStart: {exec: {command: [w]}}, preStop: {exec: {command: [s]}}}",
			want:      []string{"- --pre-stop\n", "preStop:"},
			not:       []string{"postStart:"},
		},
		"a hook by which others are held": {
			container: "ports: [{containerPort: 6379}], lifecycle: {postStart: {exec: {command: [sh, -c, 'until nc -z localhost 6379; do sleep 1; done']}}}",
			want:      []string{"postStart:"},
			not:       []string{"--post-start"},
		},
		"a port that the container does not have stays the kubelet's": {
			container: "startupProbe: {tcpSocket: {port: web}}, livenessProbe: {tcpSocket: {port: web}}, lifecycle: {postStart: {httpGet: {port: web}}}",
			want:      []string{"startupProbe:\n  tcpSocket:\n    port: web\n", "livenessProbe:\n  tcpSocket:\n    port: web\n", "postStart:"},
			not:       []string{"--startup-probe", "--post-start"},
		},
		"restart policy and grace period of the pod": {
			spec: "restartPolicy: Never\n  terminationGracePeriodSeconds: 5\n  ",
			want: []string{"- --restart-policy\n- Never\n- --stop-grace\n- 5s\n"},
		},
		"no grace period at all": {
			spec: "terminationGracePeriodSeconds: 0\n  ",
			want: []string{"- --stop-grace\n- 0s\n"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.container != "" {
				tt.container = ", " + tt.container
			}
			in := pod(t, "metadata: {name: x}\nspec:\n  "+tt.spec+"containers:\n  - {name: app, image: a, command: [/app, x]"+tt.container+"}"+proxy)
			out, err := Write(in, edges(t, "app after istio-proxy is healthy, by gate"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			text, _ := yaml.Marshal(out.Spec.Containers[0])
			for _, want := range tt.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("want %q in\n%s", want, text)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(string(text), not) {
					t.Errorf("%q in\n%s", not, text)
				}
			}
			if !Gated(&out.Spec.Containers[0]) || !NeedsAgent(&out.Spec.Containers[0]) || Gated(&out.Spec.Containers[1]) {
				t.Error("the command behind the gate is not found")
			}
			again, err := Write(out, edges(t, "app after istio-proxy is healthy, by gate"), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(out, again); diff != "" {
				t.Errorf("writing twice is not writing once:\n%s", diff)
			}
			back := Ungated(out)
			want := in.DeepCopy()
			number := want.Spec.Containers[0]
			for _, p := range []*corev1.Probe{number.StartupProbe, number.LivenessProbe} {
				if p != nil {
					*p = *numbered(&number, p) // names of ports are resolved on the way
				}
			}
			if l := number.Lifecycle; l != nil && l.PostStart != nil {
				l.PostStart = numberedHook(&number, l.PostStart)
			}
			if diff := cmp.Diff(want.Spec.Containers, back.Spec.Containers); diff != "" {
				t.Errorf("without its gate (-want +got):\n%s", diff)
			}
			if len(back.Spec.Volumes) > 0 {
				t.Errorf("volumes are left: %v", back.Spec.Volumes)
			}
		})
	}
}

// A sidecar's startup probe and hook are what the kubelet lets others go by.
func TestTheGateLeavesASidecarWhatHoldsOthers(t *testing.T) {
	in := pod(t, `
spec:
  initContainers: [{name: cache, image: c, command: [/c], restartPolicy: Always, startupProbe: {tcpSocket: {port: 1}}, lifecycle: {postStart: {exec: {command: [w]}}}}]
  containers: [{name: app, image: a, command: [/app]}]`)
	out, err := Write(in, edges(t, "app after cache is healthy, by gate"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(out.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "cache" })
	if c := out.Spec.InitContainers[i]; c.StartupProbe == nil || c.Lifecycle == nil || !Gated(&c) {
		t.Errorf("%+v", c)
	}
}

// Our proxy hears of the gates, and tells them.
func TestTheProxyHasItsPlaceAmongTheStates(t *testing.T) {
	in := pod(t, "spec: {containers: [{name: outrider-proxy, image: p}, {name: app, image: a, command: [/app]}]}")
	out, err := Write(in, edges(t, "app after outrider-proxy is healthy, by gate"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []corev1.VolumeMount{{Name: StateVolume, MountPath: contract.StatesDir, ReadOnly: true}, {Name: StateVolume, MountPath: contract.OwnDir, SubPath: OurProxy}}
	if diff := cmp.Diff(want, out.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A mechanism that the edge names wins over all other preferences.
func TestMechanismThatTheEdgeNames(t *testing.T) {
	const proxied = "spec: {containers: [{name: app, image: a}, {name: web, image: w}, {name: istio-proxy, image: p}]}"
	tests := map[string]struct {
		pod   string
		avoid []startup.Mechanism
		want  map[string]startup.Mechanism // by the container that waits
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
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Read(pod(t, tt.pod))
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

func TestNoTwoEdgesBetweenTheSame(t *testing.T) {
	_, err := Write(pod(t, shop), edges(t, "app after cache is started, by gate\napp after cache is healthy, by gate"), Options{})
	if err == nil || !strings.Contains(err.Error(), "app waits for cache twice") {
		t.Errorf("%v", err)
	}
}
