package inject

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
)

// A chooser returns a random number below n, from a random source or from the bytes of a fuzzer.
type chooser func(n int) int

func (c chooser) of(words ...string) string { return words[c(len(words))] }

// often returns the first string with a probability of nine tenths.
func (c chooser) often(usual string, others ...string) string {
	if c(10) > 0 {
		return usual
	}
	return c.of(others...)
}

// randomPod returns the YAML of a random pod that the API server would accept.
func randomPod(c chooser) string {
	var b strings.Builder
	fmt.Fprintf(&b, "metadata:\n  name: shop\n  labels: {app: shop%s}\n  annotations:\n    a: b\n", c.of("", ", version: v1"))
	for _, line := range []string{
		c.of("", "", "", `outrider.dev/start: "gate"`, `outrider.dev/start: "native"`, `outrider.dev/start: "hold"`, `outrider.dev/start: "off"`),
		c.of("", "", `sidecar.istio.io/nativeSidecar: "true"`, `sidecar.istio.io/nativeSidecar: "false"`),
		c.of("", "", `proxy.istio.io/config: "holdApplicationUntilProxyStarts: true"`, `proxy.istio.io/config: "holdApplicationUntilProxyStarts: false"`),
		c.of("", "", "outrider.dev/native-release: probe"),
		c.of("", "", "", "outrider.dev/capture: none"),
		c.of("", "", "", "", "outrider.dev/proxy: none"),
		c.of("", "", "", "outrider.dev/init: none", "outrider.dev/init: node", "outrider.dev/init: image-volume"),
		c.of("", "", `status.sidecar.istio.io/port: "0"`, `status.sidecar.istio.io/port: "15555"`),
		c.of("", "", `sidecar.istio.io/rewriteAppHTTPProbers: "false"`),
		c.of("", `prometheus.io/port: "8080"`, `prometheus.io/scrape: "false"`),
		c.of("", "", "", `prometheus.istio.io/scrape-targets: "8080:/a,8081"`),
		c.often("", `sidecar.istio.io/userVolume: '{"extra": {"emptyDir": {}}}'`, `sidecar.istio.io/userVolume: '{"extra": {"emptyDir": {}}, "data": {"emptyDir": {}}}'`, `sidecar.istio.io/userVolume: '{"outrider-bin": {"emptyDir": {}}}'`),
		c.often("", `sidecar.istio.io/userVolumeMount: '{"extra": {"mountPath": "/extra"}}'`, `sidecar.istio.io/userVolumeMount: '{"data": {"mountPath": "/etc/outrider/pod"}}'`),
		c.of("", "", "outrider.dev/depends-on.app: cache=started", "outrider.dev/depends-on.app: cache, outrider-proxy", `outrider.dev/depends-on: "{app: {cache: {condition: healthy, by: native}}}"`,
			"outrider.dev/depends-on.app: migrate=completed", `outrider.dev/depends-on: "{\"*\": {outrider-proxy: healthy}}"`, "outrider.dev/depends-on.cache: app=started"),
	} {
		if line != "" {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	b.WriteString("spec:\n")
	fmt.Fprintf(&b, "  restartPolicy: %s\n", c.of("Always", "Always", "OnFailure", "Never"))
	if c(3) == 0 {
		b.WriteString("  terminationGracePeriodSeconds: 7\n")
	}
	b.WriteString(c.often("  volumes: [{name: data, emptyDir: {}}]\n", "", "  volumes: [{name: outrider-state, hostPath: {path: /data}}, {name: data, emptyDir: {}}]\n"))
	mounts := c.often("volumeMounts: [{name: data, mountPath: /data}]", "", "volumeMounts: [{name: data, mountPath: /outrider/bin}]", "volumeMounts: [{name: data, mountPath: /outrider/own/x}]")
	if !strings.Contains(b.String(), "name: data") {
		mounts = ""
	}
	switch c(4) {
	case 0:
		b.WriteString("  initContainers: [{name: migrate, image: m, command: [/m]}]\n")
	case 1:
		b.WriteString("  initContainers: [{name: migrate, image: m}, {name: side, image: s, command: [/s], restartPolicy: Always, startupProbe: {exec: {command: [t]}}}]\n")
	}
	b.WriteString("  containers:\n")
	for _, name := range []string{"app", "cache", "web"} {
		if name == "web" && c(2) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  - name: %s\n    image: i\n", name)
		for _, line := range []string{
			c.often(c.of("command: [/c]", "command: [/c]", "command: [/c, x]\n    args: [y]", "args: [z]", ""), "command: [/sbin/init]"),
			c.of("", mounts),
			c.of("", "ports: [{name: http, containerPort: 8080}]"),
			c.of("", "readinessProbe: {tcpSocket: {port: 6379}}", "readinessProbe: {httpGet: {port: 8080, path: /r}}", "readinessProbe: {httpGet: {port: http, path: /r}}", "readinessProbe: {httpGet: {port: 15021, path: /healthz/ready}}"),
			c.of("", "", "livenessProbe: {httpGet: {port: 8080}, initialDelaySeconds: 3}", "livenessProbe: {exec: {command: [l]}}"),
			c.of("", "", "startupProbe: {grpc: {port: 99}}", "startupProbe: {tcpSocket: {port: http}}"),
			c.of("", "", "lifecycle: {postStart: {exec: {command: [warm]}}}", "lifecycle: {preStop: {httpGet: {port: 8080}}}"),
		} {
			if line != "" {
				fmt.Fprintf(&b, "    %s\n", line)
			}
		}
	}
	if c(6) == 0 {
		b.WriteString("  - {name: outrider-proxy, image: auto, env: [{name: X, value: y}]}\n")
	}
	return b.String()
}

// randomOptions returns options with a version of Kubernetes that does or does not support native sidecars, and
// with values that affect the order.
func randomOptions(t testing.TB, c chooser) Options {
	version := c(3)
	return Options{
		NodeServes: c(4) == 0,
		ProbeKey:   []func(string) string{nil, DerivedProbeKey([]byte("secret")), nil}[version],
		Kubernetes: startup.Kubernetes([]int{27, 34, 36}[version]),
		Values: valuesOf(t, c.of("{}", "global: {proxy: {holdApplicationUntilProxyStarts: true}}", "global: {proxy: {lifecycle: {postStart: {exec: {command: [v]}}}}}",
			"pilot: {env: {ENABLE_NATIVE_SIDECARS: true}}", "global: {imagePullSecrets: [s]}")),
	}
}

// checkRandom injects a random pod, and then injects the result again with other options. It returns whether the
// pod was injected.
func checkRandom(t testing.TB, c chooser) bool {
	t.Helper()
	text := randomPod(c)
	p := podOf(t, text)
	o := randomOptions(t, c)
	before := p.DeepCopy()
	r, err := Pod(p, Namespace{Name: "shop"}, o)
	if diff := podDiff(before, p); diff != "" {
		t.Fatalf("the given pod was changed:\n%s", diff)
	}
	var refusal *verdict.Refusal
	if errors.As(err, &refusal) {
		if refusal.Code == "" || refusal.Sentence == "" {
			t.Errorf("refused without a word: %+v", refusal)
		}
		return false
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !r.Injected {
		return false
	}
	checkInjected(t, p, r, o)
	if diff := podDiff(p, mustStrip(t, r.Pod)); diff != "" {
		t.Errorf("the injection undone is not the given pod (-given +undone):\n%s", diff)
	}
	keepsTheOrder(t, p, r)
	starts(t, p, r, o.kubernetes())
	notReadyWhileHeld(t, r)
	other := randomOptions(t, c)
	other.ProbeKey = o.ProbeKey // TestKeyOfTheProbes tests that an injected pod keeps its key
	if second, err := Pod(r.Pod, Namespace{Name: "shop"}, other); err == nil && second.Injected {
		checkInjected(t, p, second, other)
		keepsTheOrder(t, p, second)
		starts(t, p, second, other.kubernetes())
		straight := injected(t, p, other)
		if diff := podDiff(straight.Pod, second.Pod); diff != "" {
			t.Errorf("injected at once, and by way of other options (-want +got):\n%s", diff)
		}
	} else if err != nil && !errors.As(err, &refusal) {
		t.Error(err)
	}
	if t.Failed() {
		out, _ := yaml.Marshal(r.Pod)
		t.Logf("given\n%s\ngot\n%s\nnotes %q", text, out, r.Notes)
	}
	return true
}

// keepsTheOrder checks that the injected pod, when it is read again, has a mechanism for each edge, and that
// every regular container waits for the proxy unless an annotation declines that.
func keepsTheOrder(t testing.TB, given *corev1.Pod, r Result) {
	t.Helper()
	reading, err := podspec.Read(r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	plan := reading.Plan().Expand()
	for _, e := range plan.Edges {
		if e.By == "" {
			t.Errorf("%s: nothing keeps it in the injected pod", e)
		}
	}
	a := given.Annotations
	explicit := false
	for _, e := range requestedEdges(t, given) {
		explicit = explicit || e.From == contract.ProxyContainer
	}
	holds := !strings.Contains(a[contract.ProxyConfig], "false")
	if explicit || a[contract.Proxy] == "none" || a[contract.Start] == "off" || a[contract.Start] == "" && !holds {
		return
	}
	for _, c := range given.Spec.Containers {
		if c.Name == contract.ProxyContainer {
			continue
		}
		waits := false
		for _, e := range plan.Edges {
			waits = waits || e.From == contract.ProxyContainer && e.To == c.Name && e.After == startup.Healthy
		}
		if !waits && !saidToStartFirst(r, c.Name) {
			t.Errorf("%s does not wait for the proxy", c.Name)
		}
	}
}

// starts checks that every container of the injected pod starts by the kubelet's rules, if nothing fails. On
// versions without native sidecars this cannot be tested if the author's pod has such a sidecar, because there
// it is an init container that never completes.
func starts(t testing.TB, given *corev1.Pod, r Result, on startup.Kubernetes) {
	t.Helper()
	if on < 29 && slices.ContainsFunc(given.Spec.InitContainers, func(c corev1.Container) bool { return c.RestartPolicy != nil }) {
		return
	}
	run, err := podrun.Of(r.Pod, on)
	if err != nil {
		t.Fatal(err)
	}
	containers := map[string]simulate.Container{}
	for _, c := range given.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
			containers[c.Name] = simulate.Container{PostStart: simulate.Hook{Fixed: true}} // the hook waits for nothing
		}
	}
	end := func(name string) {
		c := containers[name]
		c.Ends = []simulate.End{{After: time.Second}}
		containers[name] = c
	}
	for _, c := range run.Plan.Containers {
		if c.Kind == startup.Init {
			end(c.Name)
		}
	}
	for _, e := range run.Plan.Edges {
		if e.After == startup.Completed {
			end(e.From)
		}
	}
	out, err := simulate.Run(simulate.Scenario{Pod: podrun.Lifecycle(run.Pod), Plan: run.Plan,
		Behaviour: simulate.Behaviour{Kubernetes: int(on), Containers: containers}})
	if err != nil {
		t.Fatal(err)
	}
	begun := map[string]bool{}
	for _, e := range out.Timeline {
		begun[e.Container] = begun[e.Container] || e.What == startup.IsStarted
	}
	for _, c := range run.Plan.Containers {
		if !begun[c.Name] {
			t.Errorf("%s never begins", c.Name)
		}
	}
}

// saidToStartFirst reports whether two things are true. First, the container became a sidecar although the proxy
// must be a regular container, so the kubelet starts the sidecar before the proxy. Second, a warning says so.
func saidToStartFirst(r Result, name string) bool {
	proxy := containers.Find(&corev1.Pod{Spec: corev1.PodSpec{Containers: r.Pod.Spec.Containers}}, contract.ProxyContainer)
	moved := slices.ContainsFunc(r.Pod.Spec.InitContainers, containers.Named(name))
	return proxy != nil && moved && slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "nothing makes "+name+" wait for") })
}

// notReadyWhileHeld checks that a pod is not ready while a gate holds an application. If no probe delays the
// readiness of a container, it is ready from its start, even while a gate holds its command. But the container
// for which it waits has such a probe, and a pod is ready only if all its containers are ready.
func notReadyWhileHeld(t testing.TB, r Result) {
	t.Helper()
	reading, err := podspec.Read(r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range reading.Plan().Expand().Edges {
		from, to := containers.Find(r.Pod, e.From), containers.Find(r.Pod, e.To)
		unprobed := e.From == contract.ProxyContainer && r.Pod.Annotations[contract.StatusPortAnnotation] == "0" // port 0 disables the probe
		if e.By == startup.Gate && e.After == startup.Healthy && !delays(to) && !delays(from) && !unprobed {
			t.Errorf("the pod is ready while the gate of %s waits for %s", e.To, e.From)
		}
	}
}

func delays(c *corev1.Container) bool { return c.ReadinessProbe != nil || podspec.IsStarted(c) }

func requestedEdges(t testing.TB, pod *corev1.Pod) []startup.Edge {
	t.Helper()
	edges, err := request.Edges(mustStrip(t, pod).Annotations, manifest.DecodeAnnotationStrict)
	if err != nil {
		t.Fatal(err)
	}
	return edges
}

var seeds = flag.Uint64("seeds", 1, "sequences of 500 random pods to inject")

func TestRandomPods(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1+seed, 2))
			injected := 0
			for range 500 {
				if checkRandom(t, rng.IntN) {
					injected++
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			if injected < 200 {
				t.Errorf("only %d of 500 were injected: the test shows little", injected)
			}
		})
	}
}

func FuzzPod(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte("a longer one, for other branches of the choice"))
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		checkRandom(t, func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		})
	})
}

// Injection does not panic for any pod, whatever its annotations, and every injected pod is valid.
func FuzzAnnotations(f *testing.F) {
	for _, a := range settings.Keys() {
		if a.Surface == settings.InAnnotations {
			f.Add(a.Name, "1")
			f.Add(a.Name, "{}")
			f.Add(a.Name, `{"app":{"x":"y"}}`)
		}
	}
	f.Add(settings.VolumeKey, `{"q": {"emptyDir": {}}, "data": {"emptyDir": {}}, "outrider-root": {"secret": {"secretName": "a"}}}`)
	f.Add(settings.MountKey, `{"data": {"mountPath": "/outrider/bin"}}`)
	f.Add(settings.MountKey, `{"q": {"mountPath": "/q"}}`)
	f.Add(settings.ScrapeKey, "80:/a,81:/%zz")
	f.Add(settings.ScrapeKey, "80:/a,81:/b")
	f.Add(scrapePrefix+"path", "/%zz")
	f.Add(contract.IstioTraffic+"includeInboundPorts", "8080:8090,0x1f9b")
	f.Add(contract.IstioTraffic+"excludeInterfaces", "eth+")
	f.Fuzz(func(t *testing.T, key, value string) {
		p := podOf(t, "metadata: {name: shop}\nspec: {volumes: [{name: data, emptyDir: {}}], containers: [{name: app, image: a, command: [/app], ports: [{containerPort: 80}], readinessProbe: {httpGet: {port: 80}}}]}")
		p.Annotations = map[string]string{key: value}
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 || !utf8.ValidString(value) || key == contract.Status || key == contract.Overrides {
			return // the API server refuses it, or it is an annotation that only injection writes
		}
		r, err := Pod(p, Namespace{Name: "shop"}, Options{})
		if err == nil && r.Injected {
			checkInjected(t, p, r, Options{})
		}
	})
}

// In every run of the injected pod the gates keep their edges: at every start, whatever fails.
func TestTheGatedPodKeepsItsPlanAtEveryStart(t *testing.T) {
	for name, text := range map[string]string{
		"a service":         "metadata: {name: shop}\nspec: {containers: [{name: app, image: a, command: [/app]}]}",
		"no init container": "metadata: {name: shop, annotations: {outrider.dev/init: none}}\nspec: {containers: [{name: app, image: a, command: [/app]}]}",
		"a job":             "metadata: {name: shop}\nspec: {restartPolicy: OnFailure, containers: [{name: app, image: a, command: [/app]}]}",
	} {
		t.Run(name, func(t *testing.T) {
			r := injected(t, podOf(t, text), Options{})
			run, err := podrun.Of(r.Pod, 34)
			if err != nil {
				t.Fatal(err)
			}
			edge := startup.Edge{From: contract.ProxyContainer, To: "app", After: startup.Healthy, By: startup.Gate}
			found := false
			for _, e := range run.Plan.Edges {
				found = found || e == edge
			}
			if !found || len(run.Written) > 0 || len(run.Supposed) > 0 {
				t.Fatalf("the pod as it runs has\n%s\nwritten %v, supposed %v", run.Plan, run.Written, run.Supposed)
			}
			result, err := verify.Explore(context.Background(), verify.Question{
				Pod: podrun.Lifecycle(run.Pod), Plan: run.Plan, Version: kubelet.Minor(34), Promise: verify.Starts,
			}, verify.Bound{Faults: 1, Time: 5 * time.Minute, States: 2_000_000}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !result.Holds() {
				t.Errorf("%+v", result)
			}
		})
	}
}
