package inject

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
)

// The API server accepts our containers with the fields of an author's own container of the same name, in every
// combination. test/validation found each of these cases.
func TestMergedContainersKeepTheAPIsRules(t *testing.T) {
	for name, tt := range map[string]struct {
		own, values string // own container, and values of the mesh
		annotation  string
		of          string
		part        func(corev1.Container) any
		want        string
	}{
		"a probe has one handler": {
			own:  "{name: outrider-proxy, image: auto, readinessProbe: {tcpSocket: {port: 1}}}",
			part: func(c corev1.Container) any { return c.ReadinessProbe.ProbeHandler }, want: "{tcpSocket: {port: 1}}",
		},
		"a hook has one handler": {
			own: "{name: outrider-proxy, image: auto, lifecycle: {preStop: {exec: {command: [a]}}}}", values: "{global: {proxy: {lifecycle: {preStop: {sleep: {seconds: 3}}}}}}",
			part: func(c corev1.Container) any { return c.Lifecycle.PreStop }, want: "{exec: {command: [a]}}",
		},
		"a probe with a handler is the author's": {
			own:  "{name: outrider-proxy, image: auto, readinessProbe: {httpGet: {port: 1}}}",
			part: func(c corev1.Container) any { return c.ReadinessProbe }, want: "{httpGet: {port: 1}}",
		},
		"a probe without one has ours": {
			own:  "{name: outrider-proxy, image: auto, readinessProbe: {periodSeconds: 7}}",
			part: func(c corev1.Container) any { return c.ReadinessProbe }, want: "{httpGet: {path: /healthz/ready, port: 15021}, periodSeconds: 7}",
		},
		"what the API server sets is not the author's": {
			own: "{name: outrider-proxy, image: auto, imagePullPolicy: Always, terminationMessagePolicy: File}", values: "{global: {imagePullPolicy: Never}}",
			part: func(c corev1.Container) any { return []any{c.ImagePullPolicy, c.TerminationMessagePolicy} }, want: "[Never, FallbackToLogsOnError]",
		},
		"a profile without a file takes the place of one with": {
			own: "{name: outrider-proxy, image: auto, securityContext: {seccompProfile: {type: Unconfined}}}", values: "{global: {proxy: {seccompProfile: {type: Localhost, localhostProfile: p}}}}",
			part: func(c corev1.Container) any { return c.SecurityContext.SeccompProfile }, want: "{type: Unconfined}",
		},
		"privileged allows more privileges": {
			own:  "{name: outrider-proxy, image: auto, securityContext: {privileged: true}}",
			part: func(c corev1.Container) any { return c.SecurityContext.AllowPrivilegeEscalation }, want: "null",
		},
		"so does SYS_ADMIN": {
			own:  "{name: outrider-proxy, image: auto, securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}}",
			part: func(c corev1.Container) any { return c.SecurityContext.AllowPrivilegeEscalation }, want: "null",
		},
		"root is root": {
			own: "{name: outrider-init, image: auto, securityContext: {runAsUser: 0}}", annotation: contract.Capture + ": none", of: contract.InitContainer,
			part: func(c corev1.Container) any { return c.SecurityContext.RunAsNonRoot }, want: "false",
		},
		"an init container has no hooks and probes": {
			own: "{name: outrider-init, image: auto, lifecycle: {preStop: {exec: {command: [a]}}}, livenessProbe: {tcpSocket: {port: 1}}, ports: [{containerPort: 15021}], resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}", of: contract.InitContainer,
			part: func(c corev1.Container) any {
				return []any{c.Lifecycle, c.LivenessProbe, len(c.Ports) + len(c.ResizePolicy)}
			}, want: "[null, null, 0]",
		},
		"no port has the name of another one of the same container": {
			own:  "{name: outrider-proxy, image: auto, ports: [{name: http-ready, containerPort: 8080}]}",
			part: portsWithNames, want: "[http-envoy-prom 15090, 15021, http-ready 8080]",
		},
		"nor that of another container": {
			own:  "{name: more, image: more, ports: [{name: http-envoy-prom, containerPort: 9090}]}",
			part: portsWithNames, want: "[15090, http-ready 15021]",
		},
		"a hook sleeps as long as the pod may": {
			own: "{name: more, image: more}", values: "{global: {proxy: {lifecycle: {preStop: {sleep: {seconds: 30}}}}}}",
			part: func(c corev1.Container) any { return c.Lifecycle.PreStop.Sleep }, want: "{seconds: 5}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Pod(podOf(t, "metadata: {annotations: {"+tt.annotation+"}}\nspec: {terminationGracePeriodSeconds: 5, containers: [{name: app, image: app, command: [/app]}, "+tt.own+"]}"), Namespace{}, Options{Values: valuesOf(t, tt.values)})
			if err != nil {
				t.Fatal(err)
			}
			if tt.of == "" {
				tt.of = contract.ProxyContainer
			}
			got, err := yaml.Marshal(tt.part(*containers.Find(r.Pod, tt.of)))
			if err != nil {
				t.Fatal(err)
			}
			var want, is any
			if err := yaml.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(got, &is); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// portsWithNames returns the ports of a container with their names.
func portsWithNames(c corev1.Container) any {
	var out []any
	for _, p := range c.Ports {
		if p.Name == "" {
			out = append(out, p.ContainerPort)
		} else {
			out = append(out, p.Name+" "+strconv.Itoa(int(p.ContainerPort)))
		}
	}
	return out
}

// A hook that sleeps is omitted in a pod whose grace period is 0, because the API server would refuse it.
func TestNoSleepWithoutAGracePeriod(t *testing.T) {
	r, err := Pod(podOf(t, "spec: {terminationGracePeriodSeconds: 0, containers: [{name: app, image: app}]}"), Namespace{},
		Options{Values: valuesOf(t, "{global: {proxy: {lifecycle: {postStart: {sleep: {seconds: 3}}}}}}")})
	if err != nil {
		t.Fatal(err)
	}
	if c := containers.Find(r.Pod, contract.ProxyContainer); c.Lifecycle.PostStart.Sleep != nil || !strings.Contains(strings.Join(r.Warnings, "\n"), "sleeps for 0 s") {
		t.Errorf("%v, %q", c.Lifecycle.PostStart, r.Warnings)
	}
}

// Settings with which the API server would refuse every pod are refused. The message says what would be valid.
func TestSettingsThatNoPodTakes(t *testing.T) {
	values := map[string]string{
		"global: {proxy: {resources: {limits: {gpu: 1}}}}":                                     `"gpu": want cpu, memory`,
		"global: {proxy: {resources: {limits: {memory: 100m}}}}":                               "100m is no whole number",
		"global: {proxy: {resources: {requests: {x.example/y: 1}}}}":                           "x.example/y: want a limit",
		"global: {proxy: {resources: {requests: {x.example/y: 1}, limits: {x.example/y: 2}}}}": "x.example/y: want a limit, and the same request",
		"global: {proxy: {seccompProfile: {}}}":                                                `type: "": want RuntimeDefault`,
		"global: {proxy: {seccompProfile: {type: Localhost}}}":                                 "localhostProfile: want a path",
		"global: {proxy: {seccompProfile: {type: Localhost, localhostProfile: ../p}}}":         "localhostProfile: want a path",
		"global: {proxy: {seccompProfile: {type: Unconfined, localhostProfile: p}}}":           "with type: Localhost alone",
		"global: {proxy: {lifecycle: {preStop: {}}}}":                                          "preStop: want one of exec",
		"global: {proxy: {lifecycle: {preStop: {exec: {command: [a]}, sleep: {seconds: 1}}}}}": "preStop: want one of exec",
		"global: {proxy: {lifecycle: {preStop: {exec: {}}}}}":                                  "preStop: want exec with a command",
		"global: {proxy: {lifecycle: {postStart: {httpGet: {path: /}}}}}":                      "postStart: want a port",
		"global: {proxy: {lifecycle: {postStart: {tcpSocket: {port: a_b}}}}}":                  "postStart: want a port",
		"global: {proxy: {lifecycle: {postStart: {httpGet: {port: 1, scheme: ftp}}}}}":         "want the scheme HTTP",
		"global: {proxy: {lifecycle: {postStart: {httpGet: {port: 1, httpHeaders: [{}]}}}}}":   "want names of HTTP headers",
		"global: {proxy: {lifecycle: {postStart: {sleep: {seconds: -1}}}}}":                    "want seconds of 1 or more",
		`global: {imagePullSecrets: [""]}`:                                                     "imagePullSecrets: one has no name",
		"sidecarInjectorWebhook: {injectedAnnotations: {a b: c}}":                              `"a b": want the name of an annotation`,
		`meshConfig: {defaultConfig: {proxyMetadata: {"a=b": c}}}`:                             `proxyMetadata: "a=b": want the name`,
	}
	for text, want := range values {
		if _, _, err := settings.ParseValues([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	annotations := map[[2]string]string{
		{"sidecar.istio.io/proxyMemory", "128m"}:                                               "want an amount of bytes",
		{contract.ProxyConfig, `proxyMetadata: {"": c}`}:                                       `proxyMetadata: "": want the name`,
		{settings.VolumeKey, `{"a": {"configMap": {}}}`}:                                       "the name of the configMap of a",
		{settings.VolumeKey, `{"a": {"secret": {}}}`}:                                          "the secretName of a",
		{settings.VolumeKey, `{"a": {"persistentVolumeClaim": {"claimName": ""}}}`}:            "the claimName of a",
		{settings.VolumeKey, `{"a": {"csi": {"driver": ""}}}`}:                                 "the driver of a",
		{settings.VolumeKey, `{"a": {"hostPath": {"path": "/a/../b"}}}`}:                       `the hostPath's path, without ".."`,
		{settings.VolumeKey, `{"a": {"emptyDir": {"sizeLimit": "-1"}}}`}:                       "a sizeLimit that is not negative",
		{settings.MountKey, `{"a": {"mountPath": "/a", "subPath": "../b"}}`}:                   "subPath",
		{settings.MountKey, `{"a": {"mountPath": "/a", "subPathExpr": "/b"}}`}:                 "subPath",
		{settings.MountKey, `{"a": {"mountPath": "/a", "mountPropagation": "Bidirectional"}}`}: "mountPropagation None or",
	}
	for a, want := range annotations {
		p := podOf(t, "spec: {containers: [{name: app, image: app}]}")
		p.Annotations = map[string]string{a[0]: a[1]}
		if _, err := Pod(p, Namespace{}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", a, err, want)
		}
	}
}

// If the namespace's pod security level would refuse the proxy, injection refuses the pod first, with the reason.
func TestPodSecurityOfTheProxy(t *testing.T) {
	for name, tt := range map[string]struct{ level, volume, values, want string }{
		"a volume of the node":                  {"baseline", `{"a": {"hostPath": {"path": "/a"}}}`, "", "a volume of the node"},
		"a volume of a network":                 {"restricted", `{"a": {"nfs": {"server": "s", "path": "/a"}}}`, "", "a volume of the node or of a network"},
		"which baseline allows":                 {"baseline", `{"a": {"nfs": {"server": "s", "path": "/a"}}}`, "", ""},
		"a claim":                               {"restricted", `{"a": {"persistentVolumeClaim": {"claimName": "a"}}}`, "", ""},
		"Unconfined":                            {"baseline", "{}", "{global: {proxy: {seccompProfile: {type: Unconfined}}}}", "is Unconfined"},
		"everything, where nothing is enforced": {"privileged", `{"a": {"hostPath": {"path": "/a"}}}`, "{global: {proxy: {seccompProfile: {type: Unconfined}}}}", ""},
	} {
		p := podOf(t, "spec: {containers: [{name: app, image: app}]}")
		p.Annotations = map[string]string{contract.Capture: "none", settings.VolumeKey: tt.volume}
		_, err := Pod(p, Namespace{Name: "shop", Labels: map[string]string{contract.PodSecurityLabel: tt.level}}, Options{Values: valuesOf(t, tt.values), Manual: true})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A volumeClaimTemplate of a StatefulSet counts as a volume of its pods, although the pod template does not
// contain it.
func TestClaimsAreVolumes(t *testing.T) {
	for claim, want := range map[string]string{"data": "", "other": "there is no volume data", contract.WorkVolume: "its own volume " + contract.WorkVolume} {
		p := podOf(t, "spec: {containers: [{name: app, image: app}]}")
		p.Annotations = map[string]string{settings.MountKey: `{"data": {"mountPath": "/data"}}`}
		_, err := Pod(p, Namespace{}, Options{Claims: []string{claim}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", claim, err, want)
		}
	}
}
