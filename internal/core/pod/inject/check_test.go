package inject

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/gate"
	agent "outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// injected injects a pod, which must not be refused, and checks the result.
func injected(t testing.TB, pod *corev1.Pod, o Options) Result {
	t.Helper()
	r, err := Pod(pod, Namespace{Name: "shop"}, o)
	if err != nil || !r.Injected {
		t.Fatalf("%v, %+v", err, r.Reason)
	}
	checkInjected(t, pod, r, o)
	return r
}

// checkInjected checks the properties that every injected pod must have.
func checkInjected(t testing.TB, given *corev1.Pod, r Result, o Options) {
	t.Helper()
	validPod(t, r.Pod)
	nothingIsLost(t, given, r.Pod, o)
	again(t, r, o)
	agentReads(t, r.Pod)
	readsAsWritten(t, r.Pod, o)
}

// readsAsWritten checks that reading the injected pod, as other tools do, gives the order that injection wrote: for
// each written edge the reading contains its mechanism.
func readsAsWritten(t testing.TB, pod *corev1.Pod, o Options) {
	t.Helper()
	reading, err := podspec.Read(pod)
	if err != nil {
		t.Fatal(err)
	}
	if reading.Start == request.Off {
		return
	}
	requested := map[string]bool{}
	for _, e := range reading.Requested {
		requested[e.From+" "+e.To] = true
	}
	for _, c := range mechanism.Choose(reading, o.kubernetes()) {
		if requested[c.Edge.From+" "+c.Edge.To] && c.Present == nil {
			t.Errorf("%s: written, and still to be written: %v", c.Edge, c.Why)
		}
	}
}

// validPod checks the API's rules for the fields that injection writes (kubernetes
// pkg/apis/core/validation): names, ports, mounts, init containers, resources.
func validPod(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	bad := func(format string, args ...any) { t.Helper(); t.Errorf("invalid pod: "+format, args...) }
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if volumes[v.Name] {
			bad("two volumes %s", v.Name)
		}
		volumes[v.Name] = true
		if fields := set(v.VolumeSource); fields != 1 {
			bad("volume %s has %d sources", v.Name, fields)
		}
	}
	names := map[string]bool{}
	check := func(c corev1.Container, init bool) {
		if names[c.Name] || len(validation.IsDNS1123Label(c.Name)) > 0 {
			bad("container name %q", c.Name)
		}
		names[c.Name] = true
		if c.Image == "" {
			bad("%s has no image", c.Name)
		}
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if sidecar && !init {
			bad("the plain container %s is a sidecar", c.Name)
		}
		if init && !sidecar && (c.Lifecycle != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil) {
			bad("the init container %s has a probe or a hook", c.Name)
		}
		paths, ports, env := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, m := range c.VolumeMounts {
			if paths[m.MountPath] || !volumes[m.Name] {
				bad("%s mounts %s at %s", c.Name, m.Name, m.MountPath)
			}
			paths[m.MountPath] = true
		}
		for _, p := range c.Ports {
			if ports[p.Name] && p.Name != "" || p.Name != "" && len(validation.IsValidPortName(p.Name)) > 0 {
				bad("%s has port name %q", c.Name, p.Name)
			}
			ports[p.Name] = true
		}
		for _, e := range c.Env {
			if env[e.Name] || e.Name == "" || e.Value != "" && e.ValueFrom != nil {
				bad("%s has variable %q", c.Name, e.Name)
			}
			env[e.Name] = true
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && set(p.ProbeHandler) != 1 {
				bad("%s has a probe with %d handlers", c.Name, set(p.ProbeHandler))
			}
		}
		for name, limit := range c.Resources.Limits {
			if request, ok := c.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
				bad("%s requests more %s than its limit", c.Name, name)
			}
		}
	}
	for _, c := range pod.Spec.InitContainers {
		check(c, true)
	}
	for _, c := range pod.Spec.Containers {
		check(c, false)
	}
	if len(pod.Spec.Containers) == 0 {
		bad("no containers")
	}
	for key, value := range pod.Labels {
		if len(validation.IsQualifiedName(key))+len(validation.IsValidLabelValue(value)) > 0 {
			bad("label %s=%s", key, value)
		}
	}
	for key := range pod.Annotations {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			bad("annotation %s", key)
		}
	}
}

// set counts the fields of a union that are set.
func set(union any) (n int) {
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

// nothingIsLost checks three things: all of the author's containers are present, only fields that injection may
// change have changed, and each gate runs the container's own command.
func nothingIsLost(t testing.TB, given, got *corev1.Pod, o Options) {
	t.Helper()
	original, err := Stripped(given)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][]corev1.Container{original.Spec.InitContainers, original.Spec.Containers} {
		for _, want := range list {
			if ours := overridden(want); ours != "" && requestsUs(original, o) {
				want.Name = ours
			}
			c := containers.Find(got, want.Name)
			if c == nil {
				t.Errorf("container %s is lost", want.Name)
				continue
			}
			if want.Name == contract.ProxyContainer || want.Name == contract.InitContainer {
				continue
			}
			if k := o.Commands[want.Image]; len(want.Command) == 0 && podspec.Gated(c) {
				want = asItsImage(want, k)
			}
			ignored := cmpopts.IgnoreFields(corev1.Container{}, "Command", "Args", "VolumeMounts", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle", "RestartPolicy")
			if diff := cmp.Diff(want, *c, ignored, quantities); diff != "" {
				t.Errorf("container %s is another one:\n%s", want.Name, diff)
			}
			argv, own := slices.Concat(c.Command, c.Args), slices.Concat(want.Command, want.Args)
			if podspec.Gated(c) {
				argv = argv[slices.Index(argv, "--")+1:]
			}
			if !slices.Equal(argv, own) {
				t.Errorf("container %s runs %q, not %q", want.Name, argv, own)
			}
		}
	}
}

// asItsImage returns a container with the command of its image.
func asItsImage(c corev1.Container, k imagecmd.Command) corev1.Container {
	escape := func(words []string) (out []string) {
		for _, w := range words {
			out = append(out, strings.Join(strings.Split(w, "$"), "$$"))
		}
		return out
	}
	c.Command = escape(k.Entrypoint)
	if len(c.Args) == 0 {
		c.Args = escape(k.Cmd)
	}
	if !strings.Contains(c.Image, "@") {
		c.Image += "@" + k.Digest
	}
	return c
}

// podDiff returns the difference of two pods. It is fast if there is none, which is the common case.
func podDiff(want, got *corev1.Pod) string {
	if equality.Semantic.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), quantities)
}

var quantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

// again checks that a second injection with the same options changes nothing. Only its warnings may differ.
func again(t testing.TB, r Result, o Options) {
	t.Helper()
	second, err := Pod(r.Pod, Namespace{Name: "shop"}, o)
	if err != nil {
		t.Errorf("injecting it again: %v", err)
		return
	}
	first, err := Pod(mustStrip(t, r.Pod), Namespace{Name: "shop"}, o)
	if err != nil {
		t.Errorf("injecting the stripped one: %v", err)
		return
	}
	if diff := podDiff(first.Pod, second.Pod); diff != "" {
		t.Errorf("injecting twice is not injecting once (-once +twice):\n%s", diff)
	}
	if diff := cmp.Diff(r.Notes, second.Notes); diff != "" {
		t.Errorf("decided anew, and otherwise:\n%s", diff)
	}
}

func mustStrip(t testing.TB, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := Stripped(pod)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// agentReads checks that the agent can read its variables, and the flags of the proxy, the capture and the
// gates.
func agentReads(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	if c := containers.Find(pod, contract.ProxyContainer); c != nil {
		readProxy(t, pod, c)
	}
	if c := containers.Find(pod, contract.InitContainer); c != nil && len(c.Args) > 0 && c.Args[0] == "init" {
		readCapture(t, c.Args[1:])
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if podspec.Gated(&list[i]) {
				readGate(t, pod, list[i])
			}
			var ours []*corev1.ExecAction
			if p := list[i].LivenessProbe; p != nil {
				ours = append(ours, p.Exec)
			}
			if l := list[i].Lifecycle; l != nil && l.PostStart != nil {
				ours = append(ours, l.PostStart.Exec)
			}
			for _, e := range ours {
				if e == nil || e.Command[0] != contract.AgentPath {
					continue
				}
				if _, err := gate.ParseProbe(e.Command[len(e.Command)-1]); err != nil {
					t.Errorf("probe that the agent makes for %s: %v", list[i].Name, err)
				}
			}
		}
	}
}

// fieldValues contains the values that the kubelet would substitute for fields of the pod.
var fieldValues = map[string]string{"metadata.name": "shop-1", "metadata.namespace": "shop", "status.podIP": "10.0.0.1", "status.podIPs": "10.0.0.1,fd00::1",
	"spec.serviceAccountName": "shop", "status.hostIP": "10.0.0.9", "spec.nodeName": "node"}

func readProxy(t testing.TB, pod *corev1.Pod, c *corev1.Container) {
	t.Helper()
	var environ []string
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			if value = fieldValues[e.ValueFrom.FieldRef.FieldPath]; value == "" {
				t.Errorf("variable %s is of field %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
			}
		} else if e.ValueFrom != nil {
			value = "2"
		}
		environ = append(environ, e.Name+"="+value)
	}
	flags := map[string]string{}
	fset := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	for _, f := range config.Flags {
		fset.String(f.Name, "", "")
	}
	args := c.Args
	if podspec.Staged(c) {
		end := slices.Index(args, "--")
		readCapture(t, args[1:end])
		args = args[end+1:]
	}
	if err := fset.Parse(args[2:]); err != nil {
		t.Errorf("arguments of the proxy: %v", err)
	}
	fset.Visit(func(f *pflag.Flag) { flags[f.Name] = f.Value.String() })
	got, err := config.Read(config.Inputs{Flags: flags, Environ: environ,
		ReadFile:  func(name string) ([]byte, error) { return annotationsAsFile(pod, name) },
		Addresses: func() ([]netip.Addr, error) { return nil, nil }})
	if err != nil {
		t.Errorf("the agent cannot use what it gets: %v", err)
		return
	}
	for _, want := range []struct{ what, path string }{{"its work", got.Work}, {"the token", got.ControlPlane.Token}, {"the roots", got.ControlPlane.Roots}, {"annotations", got.Annotations}} {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(want.path, m.MountPath) }) {
			t.Errorf("nothing is mounted where the agent looks for %s: %s", want.what, want.path)
		}
	}
	if _, err := agent.ParseProbes(string(got.AppProbes), "", got.Ports.Status, got.Ports.Readiness); err != nil {
		t.Error(err)
	}
	if _, err := agent.ParseTargets(string(got.AppMetrics), got.Ports.Status, got.Ports.Readiness); err != nil {
		t.Error(err)
	}
}

func annotationsAsFile(pod *corev1.Pod, name string) ([]byte, error) {
	switch name {
	case config.Default().Annotations:
	case contract.BootstrapDir + "/" + contract.BootstrapFile:
		return []byte("{}"), nil
	default:
		return nil, fs.ErrNotExist
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(pod.Annotations)) {
		b.WriteString(k + "=" + strconv.Quote(pod.Annotations[k]) + "\n")
	}
	return []byte(b.String()), nil
}

func readCapture(t testing.TB, args []string) {
	t.Helper()
	in := capture.Defaults()
	fset := pflag.NewFlagSet("init", pflag.ContinueOnError)
	fset.String("copy", "", "")
	fset.UintSlice("groups", nil, "") // this flag belongs to root-stage, not to the capture
	fset.Bool("native-nftables", false, "")
	for _, f := range capture.Flags(&in, nil, nil) {
		p := fset.VarPF(f, f.Name, f.Short, "")
		if f.IsBoolFlag() {
			p.NoOptDefVal = "true"
		}
	}
	if err := fset.Parse(args); err != nil {
		t.Errorf("arguments of outrider-init: %v", err)
	} else if err := in.Check(); err != nil {
		t.Errorf("arguments of outrider-init: %v", err)
	}
}

// readGate checks that the parser in package contract and the agent accept the command line of a gate.
func readGate(t testing.TB, pod *corev1.Pod, c corev1.Container) {
	t.Helper()
	g, ok := contract.ParseGate(c.Args)
	if !ok || g.Name != c.Name {
		t.Errorf("the gate of %s is %q", c.Name, c.Args)
	}
	var errs []error
	check := func(_ any, err error) { errs = append(errs, err) }
	names := g.HelperOf
	for _, after := range g.After {
		e, err := gate.ParseAfter(c.Name, after)
		check(e, err)
		names = append(names, e.From)
	}
	for _, url := range g.At {
		check(gate.ParseAddress(url))
	}
	for _, probe := range []string{g.Probe, g.StartupProbe} {
		if probe != "" {
			check(gate.ParseProbe(probe))
		}
	}
	if g.PostStart != "" {
		check(gate.ParseHook(g.PostStart))
	}
	for _, name := range names {
		if containers.Find(pod, name) == nil {
			check(nil, fmt.Errorf("it waits for %s, which is not there", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("the gate of %s: %v", c.Name, err)
	}
}

// If a gated sidecar is injected again, two things must be undone: what was added for its own edges, and what was
// added for the containers that wait for it. Once, the hook was kept but not the volume with the program that the
// hook runs.
func TestAGatedSidecarIsInjectedAgain(t *testing.T) {
	p := podOf(t, `metadata: {name: shop, annotations: {outrider.dev/capture: none, outrider.dev/depends-on: "{app: {cache: {condition: healthy, by: native}}}"}}
spec: {containers: [{name: app, image: i}, {name: cache, image: i, command: [/c], ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {port: http}}}]}`)
	first := injected(t, p, Options{})
	if c := containers.Find(first.Pod, "cache"); !podspec.Gated(c) || c.Lifecycle == nil {
		t.Fatalf("cache has no gate, or no hook: %+v", c)
	}
	back, err := Stripped(first.Pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := podDiff(p, back); diff != "" {
		t.Errorf("without the injection (-want +got):\n%s", diff)
	}
	for _, minor := range []startup.Kubernetes{27, 34, 36} {
		var refusal *verdict.Refusal
		if second, err := Pod(first.Pod, Namespace{Name: "shop"}, Options{Kubernetes: minor}); err == nil {
			checkInjected(t, p, second, Options{Kubernetes: minor})
		} else if !errors.As(err, &refusal) {
			t.Error(err)
		}
	}
}

// A probe of a port that its container does not declare never succeeds, and the agent refuses such a probe. While
// a startup probe has not succeeded, the kubelet runs no other probe. So no edge can wait for such a container.
func TestNoEdgeWaitsForAProbeWithoutItsPort(t *testing.T) {
	for _, probes := range []string{"readinessProbe: {tcpSocket: {port: http}}", "startupProbe: {tcpSocket: {port: http}}, readinessProbe: {tcpSocket: {port: 80}}"} {
		for _, by := range []string{"gate", "native", "hold"} {
			_, err := Pod(podOf(t, `metadata: {name: shop, annotations: {outrider.dev/depends-on: "{app: {cache: {condition: healthy, by: `+by+`}}}"}}
spec: {containers: [{name: cache, image: i, command: [/c], `+probes+`}, {name: app, image: i, command: [/a]}]}`), Namespace{Name: "shop"}, Options{Manual: true})
			var refusal *verdict.Refusal
			if !errors.As(err, &refusal) || refusal.Code != verdict.InvalidGraph {
				t.Errorf("%s, %s: %v, want a refusal with %s", probes, by, err, verdict.InvalidGraph)
			}
		}
	}
}

// Injection must handle unusual pods. Each of these once caused a panic in a command, or the result of injection
// differed from that of "outrider plan".
func TestWhatOthersWrote(t *testing.T) {
	const db = "{name: db, image: a, command: [/db]}"
	for name, tt := range map[string]struct{ annotations, containers, want string }{
		"a hook that waits for a proxy which is left out": {"outrider.dev/proxy: none, outrider.dev/depends-on.app: cache",
			`{name: cache, image: a, command: [/cache], readinessProbe: {tcpSocket: {port: 6379}}}, {name: app, image: a, command: [/app], lifecycle: {postStart: {exec: {command: [sh, -c, "until curl -fs localhost:15021/healthz/ready; do sleep 1; done"]}}}}`,
			"app after cache is healthy, by gate"},
		"a container after itself": {`outrider.dev/depends-on: "{db: {db: {condition: healthy, by: native}}}"`, db, "start-up cycle: db -> db"},
		"only a gate gives up": {`sidecar.istio.io/nativeSidecar: "true", outrider.dev/depends-on: "{db: {outrider-proxy: {condition: healthy, timeout: 20s, on-timeout: continue}}}"`, db,
			"db after outrider-proxy is healthy, within 20s or continue, by gate"},
		"no hook holds until a container has completed": {"outrider.dev/depends-on.worker: web=completed", "{name: web, image: a, command: [/app], readinessProbe: {tcpSocket: {port: 80}}}, {name: worker, image: a}",
			"by hold: a hook holds until its container is healthy, and not until it is completed"},
		"a sidecar of the author's is none that is made": {`sidecar.istio.io/nativeSidecar: "false", outrider.dev/depends-on.worker: vault`,
			"{name: worker, image: a, command: [/app]}], initContainers: [{name: vault, image: a, restartPolicy: Always, startupProbe: {exec: {command: [/check]}}}",
			"worker after vault is healthy, by native"},
		"nor where all are to be held": {"outrider.dev/start: hold, outrider.dev/depends-on.agent: shipper",
			"{name: agent, image: a, command: [/agent]}], initContainers: [{name: shipper, image: a, command: [/s], restartPolicy: Always, startupProbe: {tcpSocket: {port: 81}}}",
			"agent after shipper is healthy, by native"},
		"a sidecar before a plain proxy that only the proxy answers for": {`sidecar.istio.io/nativeSidecar: "false", outrider.dev/depends-on: "{app: {cache: {condition: healthy, by: native}}}"`,
			"{name: app, image: i, command: [/a]}, {name: cache, image: i, command: [/c], readinessProbe: {httpGet: {port: 15021, path: /healthz/ready}}}",
			"the injected pod would never start: outrider-proxy waits for the health of cache"},
		"but an edge that names hold means it": {`outrider.dev/depends-on: "{a: {s: {condition: healthy, by: hold}}}"`, "{name: a, image: a}], initContainers: [{name: s, image: a, restartPolicy: Always, startupProbe: {tcpSocket: {port: 81}}}", `"a after s is healthy" cannot be kept: by hold: s and a are not both plain containers`},
		"a command that waits for the one behind its gate": {"outrider.dev/depends-on.app: cache",
			`{name: app, image: a, command: [/app], ports: [{containerPort: 8080}]}, {name: cache, image: a, command: [sh, -c, "until curl -fs localhost:8080; do sleep 1; done; exec /cache"], readinessProbe: {tcpSocket: {port: 6379}}}`,
			"start-up cycle: app -> cache -> app, if a command waits for what it seems to"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, "metadata: {name: x, annotations: {"+tt.annotations+"}}\nspec: {restartPolicy: Never, containers: ["+tt.containers+"]}")
			r, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true})
			said := strings.Join(append(r.Notes, r.Warnings...), "\n") + fmt.Sprint(err)
			if !strings.Contains(said, tt.want) {
				t.Errorf("%s; want %q", said, tt.want)
			}
			if reading, err := podspec.Read(pod); err == nil {
				mechanism.Choose(reading, 34) // the commands plan and lint do the same
			}
		})
	}
}
