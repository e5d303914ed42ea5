package inject

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/merge"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// An otherInjector simulates the injector of another mesh: its containers and their order.
type otherInjector func(*corev1.Pod) *corev1.Pod

// istio simulates Istio's injector: the position of the proxy, and the probes that it rewrites.
func istio(native, hold, cni bool) otherInjector {
	return func(p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		rewrite := func(list []corev1.Container) {
			for i := range list {
				for word, probe := range map[string]*corev1.Probe{"readyz": list[i].ReadinessProbe, "livez": list[i].LivenessProbe, "startupz": list[i].StartupProbe} {
					if probe != nil && probe.Exec == nil {
						probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/app-health/" + list[i].Name + "/" + word, Port: intstr.FromInt32(15020)}}
					}
				}
			}
		}
		rewrite(p.Spec.InitContainers)
		rewrite(p.Spec.Containers)
		ready := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(15021)}}
		proxy := corev1.Container{Name: "istio-proxy", Image: "proxyv2", Args: []string{"proxy", "sidecar"},
			ReadinessProbe: &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 15}, StartupProbe: &corev1.Probe{ProbeHandler: ready, PeriodSeconds: 1, FailureThreshold: 600}}
		first := corev1.Container{Name: "istio-init", Image: "proxyv2"}
		if cni {
			first.Name = "istio-validation"
		}
		list := &p.Spec.InitContainers
		switch always := corev1.ContainerRestartPolicyAlways; {
		case native:
			proxy.RestartPolicy = &always
			*list = slices.Concat([]corev1.Container{first, proxy}, *list)
		case cni:
			*list = slices.Insert(*list, 0, first)
		default:
			*list = append(*list, first)
		}
		switch {
		case native:
		case hold:
			proxy.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "wait"}}}}
			p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, proxy)
		default:
			p.Spec.Containers = append(p.Spec.Containers, proxy)
		}
		p.Annotations[contract.IstioStatus] = `{"initContainers":["` + first.Name + `"],"containers":["istio-proxy"],"revision":"1-27"}`
		p.Annotations[contract.RevisionLabel] = "1-27"
		p.Annotations[settings.DefaultContainer] = "app"
		return p
	}
}

// linkerd simulates Linkerd's injector. If the proxy is a regular container, it is the first one.
func linkerd(native bool) otherInjector {
	return func(p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		ready := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(4191)}}}
		proxy := corev1.Container{Name: "linkerd-proxy", Image: "proxy", ReadinessProbe: ready}
		first := corev1.Container{Name: "linkerd-init", Image: "proxy-init"}
		if native {
			always := corev1.ContainerRestartPolicyAlways
			proxy.RestartPolicy, proxy.StartupProbe = &always, ready
			p.Spec.InitContainers = slices.Concat([]corev1.Container{first, proxy}, p.Spec.InitContainers)
		} else {
			proxy.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/usr/lib/linkerd/linkerd-await", "--timeout=2m"}}}}
			p.Spec.InitContainers = slices.Insert(p.Spec.InitContainers, 0, first)
			p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, proxy)
		}
		p.Annotations["linkerd.io/proxy-version"] = "edge-25.8.3"
		return p
	}
}

var otherInjectors = map[string]struct {
	otherInjector
	proxy string
}{
	"Istio, plain":            {istio(false, false, false), "istio-proxy"},
	"Istio, hold":             {istio(false, true, false), "istio-proxy"},
	"Istio, native":           {istio(true, false, false), "istio-proxy"},
	"Istio, plain, with CNI":  {istio(false, false, true), "istio-proxy"},
	"Istio, native, with CNI": {istio(true, false, true), "istio-proxy"},
	"Linkerd, plain":          {linkerd(false), "linkerd-proxy"},
	"Linkerd, native":         {linkerd(true), "linkerd-proxy"},
}

// With the annotation "outrider.dev/proxy: none" the result does not depend on the order of the injectors. If
// our injector ran first, the API server calls it again (reinvocationPolicy: IfNeeded).
func TestTheOrderOfInjectorsDoesNotMatter(t *testing.T) {
	for name, mesh := range otherInjectors {
		for what, text := range map[string]string{
			"a pod":              "annotations: {outrider.dev/proxy: none}",
			"one with a graph":   "annotations: {outrider.dev/proxy: none, outrider.dev/depends-on.app: PROXY, outrider.dev/depends-on.web: app=started}",
			"one with our label": "labels: {outrider.dev/inject: \"true\"}\n  annotations: {a: b}",
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				p := podOf(t, "metadata:\n  name: shop\n  "+strings.ReplaceAll(text, "PROXY", mesh.proxy)+`
spec:
  initContainers: [{name: migrate, image: m}]
  containers:
  - {name: app, image: a, command: [/app], ports: [{containerPort: 8080}]}
  - {name: web, image: w, command: [/web]}`)
				once := injectedAlongside(t, mesh.otherInjector(p), p)
				if p.Annotations[contract.Proxy] == "none" { // without this annotation our injector would have added a proxy
					ours := injected(t, p, Options{})
					after, want := injectedAlongside(t, mesh.otherInjector(ours.Pod), p), once.DeepCopy()
					delete(after.Annotations, contract.Overrides) // the recorded previous values differ
					delete(want.Annotations, contract.Overrides)
					if diff := podDiff(want, after); diff != "" {
						t.Errorf("(-ours last +ours first):\n%s", diff)
					}
				}
				theirs, was := containers.Find(mesh.otherInjector(p), mesh.proxy), containers.Find(once, mesh.proxy)
				if plain := theirs.RestartPolicy == nil; podspec.StaysUntilEnd(was) != plain {
					t.Errorf("a preStop hook: %t, want %t", !plain, plain)
				}
				if diff := cmp.Diff(theirs, containers.Find(podspec.Ungated(once), mesh.proxy), quantities); diff != "" {
					t.Errorf("the other mesh's proxy was changed:\n%s", diff)
				}
				if c := containers.Find(once, contract.InitContainer); c == nil || !slices.Contains(c.Args, "--park-only") {
					t.Errorf("outrider-init does not park alone: %+v", c)
				}
				if c := containers.Find(once, "app"); !podspec.Gated(c) || !slices.Contains(c.Args, mesh.proxy+" is healthy") {
					t.Errorf("app does not wait for %s: %q", mesh.proxy, c.Args)
				}
			})
		}
	}
}

// injectedAlongside injects a pod that has another mesh's proxy. It checks that the annotations for that mesh
// are kept, whether the author or that mesh's injector wrote them.
func injectedAlongside(t *testing.T, p, author *corev1.Pod) *corev1.Pod {
	t.Helper()
	r := injected(t, p, Options{})
	if containers.Find(r.Pod, contract.ProxyContainer) != nil {
		t.Error("there are two proxies")
	}
	for key, value := range p.Annotations {
		if _, written := author.Annotations[key]; !written && !strings.HasPrefix(key, contract.Prefix) && key != settings.DefaultLogs && key != settings.DefaultContainer && r.Pod.Annotations[key] != value {
			t.Errorf("annotation %s is %q, and was %q", key, r.Pod.Annotations[key], value)
		}
	}
	if got := r.Pod.Annotations[settings.DefaultLogs]; got != "app" {
		t.Errorf("kubectl shows the logs of %s first", got)
	}
	for _, w := range r.Warnings {
		if strings.Contains(w, "istio.io/") {
			t.Errorf("a warning about an annotation of the other mesh: %s", w)
		}
	}
	return r.Pod
}

// If another mesh has put its proxy first, the proxy remains the first container when the author's order is
// restored. Otherwise the proxy's hold would hold back no other container.
func TestAnotherMeshsHoldStaysFirst(t *testing.T) {
	p := podOf(t, `
metadata: {name: shop, annotations: {outrider.dev/proxy: none, outrider.dev/start: native, outrider.dev/depends-on.app: cache}}
spec: {containers: [{name: app, image: a}, {name: cache, image: c, startupProbe: {tcpSocket: {port: 6379}}}]}`)
	r := injected(t, p, Options{})
	if len(r.Pod.Spec.Containers) != 1 {
		t.Fatal("cache should be a sidecar")
	}
	for _, mesh := range []otherInjector{linkerd(false), istio(false, true, false), istio(false, false, false)} {
		both := mesh(r.Pod)
		want := mesh(p).Spec.Containers
		if got := mustStrip(t, both).Spec.Containers; !slices.EqualFunc(got, want, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
			t.Errorf("%v, want %v", containers.Names(got), containers.Names(want))
		}
	}
}

// If another mesh injects a pod after our injection, our next injection removes our proxy, because two proxies
// would capture each other's connections.
func TestOurProxyGivesWayToAnotherMesh(t *testing.T) {
	p := podOf(t, "metadata: {name: shop, annotations: {a: b}}\nspec: {containers: [{name: app, image: a, command: [/app]}]}")
	ours := injected(t, p, Options{})
	both := linkerd(false)(ours.Pod)
	r, err := Pod(both, Namespace{Name: "shop"}, Options{})
	if err != nil || r.Injected || r.Reason.Code != verdict.OtherMesh {
		t.Fatalf("%v, %+v", err, r.Reason)
	}
	if diff := podDiff(linkerd(false)(p), r.Pod); diff != "" {
		t.Errorf("(-what Linkerd alone would make +got):\n%s", diff)
	}
	if ops := r.Patch(); len(ops) == 0 {
		t.Errorf("nothing is taken out: %v, %v", ops, err)
	}
}

// If Istio's labels belong to another injector, only our labels request injection.
func TestOwnLabels(t *testing.T) {
	type labels = map[string]string
	for name, tt := range map[string]struct {
		pod  string
		ns   labels
		want verdict.Code
	}{
		"Istio's namespace label":                {ns: labels{"istio-injection": "enabled"}, want: verdict.OtherInjector},
		"Istio's pod label":                      {pod: "labels: {sidecar.istio.io/inject: \"true\"}", ns: labels{}, want: verdict.OtherInjector},
		"Istio's revision":                       {pod: "labels: {istio.io/rev: default}", ns: labels{"istio.io/rev": "default"}, want: verdict.OtherInjector},
		"no label at all":                        {ns: labels{}, want: verdict.NotRequested},
		"Istio: no":                              {pod: "labels: {sidecar.istio.io/inject: \"false\"}", ns: labels{"istio-injection": "enabled"}, want: verdict.NotRequested},
		"another revision of Istio":              {pod: "labels: {istio.io/rev: canary}", ns: labels{}, want: verdict.NotRequested},
		"Istio: no, our label: yes":              {pod: "labels: {sidecar.istio.io/inject: \"false\", outrider.dev/inject: \"true\"}", ns: labels{"istio-injection": "disabled"}, want: verdict.Injected},
		"our namespace label":                    {ns: labels{"outrider.dev/injection": "enabled"}, want: verdict.Injected},
		"our namespace label, Istio: no":         {pod: "annotations: {sidecar.istio.io/inject: \"false\"}", ns: labels{"outrider.dev/injection": "enabled"}, want: verdict.Injected},
		"our annotation: no, Istio's label: yes": {pod: "labels: {sidecar.istio.io/inject: \"true\"}\n  annotations: {outrider.dev/inject: \"false\"}", ns: labels{"outrider.dev/injection": "enabled"}, want: verdict.PodOptsOut},
		"our pod label: no":                      {pod: "labels: {outrider.dev/inject: \"false\"}", ns: labels{"outrider.dev/injection": "enabled"}, want: verdict.PodOptsOut},
	} {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, "metadata:\n  name: shop\n  "+tt.pod+"\nspec:\n  containers: [{name: app, image: a, command: [/app]}]")
			before := p.DeepCopy()
			r, err := Pod(p, Namespace{Name: "shop", Labels: tt.ns}, Options{OwnLabels: true})
			if err != nil || r.Reason.Code != tt.want {
				t.Errorf("%v, %+v, want %s", err, r.Reason, tt.want)
			}
			if tt.want == verdict.OtherInjector && !strings.Contains(r.Reason.Sentence, "another injector") {
				t.Errorf("the sentence has no reason: %s", r.Reason.Sentence)
			}
			if tt.want == verdict.NotRequested && !strings.Contains(r.Reason.Sentence, "label outrider.dev/injection=enabled nor the pod the label outrider.dev/inject=true") {
				t.Errorf("it does not name our labels: %s", r.Reason.Sentence)
			}
			if diff := podDiff(before, p); diff != "" {
				t.Errorf("the given pod was changed:\n%s", diff)
			}
		})
	}
}

// A pod with another mesh's proxy never gets a second one. Order and parking for such a pod must be requested by
// one of our labels or annotations.
func TestOtherMeshes(t *testing.T) {
	const plain, own = "containers: [{name: app, image: a}]", "containers: [{name: app, image: a}, {name: my-proxy, image: p}]"
	const istioProxy = "initContainers: [{name: istio-proxy, image: p, restartPolicy: Always}], " + plain
	status := func(name string) string {
		return `annotations: {sidecar.istio.io/status: '{"containers":["` + name + `"]}'}`
	}
	for name, tt := range map[string]struct {
		metadata, spec string
		ns             map[string]string
		alongside      bool
		want           verdict.Code
	}{
		"no other mesh":                             {spec: plain, want: verdict.Injected},
		"another mesh":                              {spec: istioProxy, want: verdict.OtherMesh},
		"another mesh's plain container":            {spec: "containers: [{name: app, image: a}, {name: kuma-sidecar, image: k}]", want: verdict.OtherMesh},
		"our annotation proxy: none":                {metadata: "annotations: {outrider.dev/proxy: none}", spec: istioProxy, alongside: true, want: verdict.Injected},
		"our annotation":                            {metadata: `annotations: {outrider.dev/inject: "true"}`, spec: istioProxy, alongside: true, want: verdict.Injected},
		"our namespace label":                       {ns: map[string]string{contract.OwnNamespaceLabel: "enabled"}, spec: istioProxy, alongside: true, want: verdict.Injected},
		"our pod label":                             {metadata: `labels: {outrider.dev/inject: "true"}`, spec: istioProxy, alongside: true, want: verdict.Injected},
		"our pod label with another value":          {metadata: `labels: {outrider.dev/inject: "yes"}`, ns: map[string]string{contract.OwnNamespaceLabel: "enabled"}, spec: istioProxy, want: verdict.OtherMesh},
		"Istio's template with a name of its own":   {metadata: status("my-proxy"), spec: own, want: verdict.OtherMesh},
		"Istio's status, and its container is gone": {metadata: status("my-proxy"), spec: plain, want: verdict.Injected},
		"Istio's status names ours":                 {metadata: status("outrider-proxy"), spec: "containers: [{name: app, image: a}, {name: outrider-proxy, image: auto}]", want: verdict.Injected},
	} {
		t.Run(name, func(t *testing.T) {
			alongside, reason := decideProxy(podOf(t, "metadata: {"+tt.metadata+"}\nspec: {"+tt.spec+"}"), Namespace{Name: "shop", Labels: tt.ns})
			if alongside != tt.alongside || reason.Code != tt.want {
				t.Errorf("alongside %v, %+v; want %v, %s", alongside, reason, tt.alongside, tt.want)
			}
		})
	}
}

// A container with Istio's name and the image "auto" is meant for the injector to which Istio's labels belong. An
// uninjection restores it.
func TestIstiosNameAndOurImage(t *testing.T) {
	for name, tt := range map[string]struct {
		metadata, image string
		o               Options
		want            verdict.Code
	}{
		"auto":                      {image: "auto", want: verdict.Injected},
		"an image":                  {image: "istio/proxyv2", want: verdict.OtherMesh},
		"another injector's labels": {metadata: `labels: {outrider.dev/inject: "true"}`, image: "auto", o: Options{OwnLabels: true}, want: verdict.Injected},
		"Istio has been here":       {metadata: `annotations: {sidecar.istio.io/status: "{}"}`, image: "auto", want: verdict.OtherMesh},
		"a gateway":                 {metadata: `annotations: {inject.istio.io/templates: gateway}`, image: "auto", want: verdict.OtherMesh},
		"a sidecar's template":      {metadata: `annotations: {inject.istio.io/templates: sidecar}`, image: "auto", want: verdict.Injected},
		"order alone":               {metadata: `annotations: {outrider.dev/proxy: none}`, image: "auto", want: verdict.Injected},
	} {
		t.Run(name, func(t *testing.T) {
			given := podOf(t, "metadata: {name: shop, "+tt.metadata+"}\nspec: {containers: [{name: app, image: a, command: [/app]}, {name: istio-proxy, image: "+tt.image+", env: [{name: A, value: b}]}]}")
			r, err := Pod(given, Namespace{Name: "shop"}, tt.o)
			if err != nil || r.Reason.Code != tt.want {
				t.Fatalf("%v, %+v, want %s", err, r.Reason, tt.want)
			}
			own, second := containers.Find(r.Pod, contract.ProxyContainer), containers.Find(r.Pod, "istio-proxy")
			filled := tt.want == verdict.Injected && !tt.o.OwnLabels && given.Annotations[contract.Proxy] == ""
			if (own != nil) != filled || (second == nil) != filled {
				t.Errorf("outrider-proxy %t, istio-proxy %t", own != nil, second != nil)
			}
			if filled && (own.Image == merge.AutoImage || !slices.Contains(own.Env, corev1.EnvVar{Name: "A", Value: "b"})) {
				t.Errorf("not filled in: %+v", own)
			}
			if diff := podDiff(given, mustStrip(t, r.Pod)); diff != "" {
				t.Errorf("(-given +stripped):\n%s", diff)
			}
		})
	}
}

func TestTwoContainersForOne(t *testing.T) {
	_, err := Pod(podOf(t, "spec: {containers: [{name: app}, {name: istio-proxy, image: auto}, {name: outrider-proxy, image: auto}]}"), Namespace{}, Options{})
	if err == nil || !strings.Contains(err.Error(), "istio-proxy and outrider-proxy both change outrider-proxy") {
		t.Error(err)
	}
}

// A proxy of another mesh that is a regular container gets a hook that keeps it until the applications have ended, also
// if only parking is requested. Its own hook runs meanwhile, and is restored by an uninjection.
func TestAnotherMeshsProxyStaysUntilTheEnd(t *testing.T) {
	const containersOf = "spec: {terminationGracePeriodSeconds: 60, containers: [{name: app, image: a, command: [/app]}, {name: istio-proxy, image: p, ports: [{name: status, containerPort: 15021}]%s}]}"
	drain := "--drain http://127.0.0.1:15020/drain"
	for name, tt := range map[string]struct{ annotations, proxy, want string }{
		"a gate":                 {"", "", drain + " --stop-grace 60s"},
		"another status port":    {`, status.sidecar.istio.io/port: "16020"`, "", "--drain http://127.0.0.1:16020/drain --stop-grace 60s"},
		"a status port of none":  {`, status.sidecar.istio.io/port: "x"`, "", drain + " --stop-grace 60s"},
		"parking alone":          {`, outrider.dev/start: "off"`, "", drain + " --sockets --stop-grace 60s"},
		"a sidecar's sockets":    {`, outrider.dev/start: "off", sidecar: yes`, "", drain + " --stop-grace 60s"},
		"order alone":            {`, outrider.dev/park: "off", outrider.dev/capture: none`, "", drain + " --stop-grace 60s"},
		"its own hook":           {"", ", lifecycle: {preStop: {exec: {command: [sleep, '9']}}}", `--hook {"exec":{"command":["sleep","9"]}} --stop-grace 60s`},
		"its own hook by a port": {"", ", lifecycle: {preStop: {httpGet: {path: /stop, port: status}}}", `--hook {"httpGet":{"path":"/stop","port":15021}} --stop-grace 60s`},
		"hooks of both kinds":    {"", ", lifecycle: {preStop: {sleep: {seconds: 9}}, postStart: {exec: {command: [a]}}}", `--hook {"sleep":{"seconds":9}} --stop-grace 60s`},
		"neither order nor park": {`, outrider.dev/start: "off", outrider.dev/capture: none`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			given := podOf(t, "metadata: {name: shop, annotations: {outrider.dev/proxy: none"+tt.annotations+"}}\n"+fmt.Sprintf(containersOf, tt.proxy))
			_, sidecar := given.Annotations["sidecar"]
			if sidecar {
				given.Spec.InitContainers = []corev1.Container{{Name: "log", Image: "l", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			}
			r, err := Pod(given, Namespace{Name: "shop"}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if warned := slices.ContainsFunc(r.Warnings, func(w string) bool {
				return strings.Contains(w, "istio-proxy may stop before app") && strings.Contains(w, "sockets of log")
			}); warned != sidecar {
				t.Errorf("warnings: %q", r.Warnings)
			}
			c := containers.Find(r.Pod, "istio-proxy")
			if tt.want == "" {
				if podspec.StaysUntilEnd(c) {
					t.Errorf("%v", c.Lifecycle.PreStop.Exec.Command)
				}
				return
			}
			if !podspec.StaysUntilEnd(c) {
				t.Fatalf("no hook: %+v", c.Lifecycle)
			}
			got := strings.Join(c.Lifecycle.PreStop.Exec.Command[1:], " ")
			if want := "pre-stop --name istio-proxy --at http://127.0.0.1:15021/healthz/ready " + tt.want; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "istio-proxy gets a preStop hook") }) {
				t.Errorf("no note: %q", r.Notes)
			}
			if init := containers.Find(r.Pod, contract.InitContainer); !slices.Contains(init.Args, contract.AgentPath) {
				t.Errorf("nothing copies the agent that the hook runs: %q", init.Args)
			}
			if again := injected(t, r.Pod, Options{}); podDiff(r.Pod, again.Pod) != "" {
				t.Errorf("(-once +twice):\n%s", podDiff(r.Pod, again.Pod))
			}
			if diff := podDiff(given, mustStrip(t, r.Pod)); diff != "" {
				t.Errorf("(-given +stripped):\n%s", diff)
			}
		})
	}
}

// Injection warns where it cannot order the stop of another mesh's proxy, and of a Job that this proxy keeps from
// completing.
func TestWarningsOfAnotherMeshsStop(t *testing.T) {
	for name, tt := range map[string]struct {
		spec, want string
	}{
		"grace 30 s":              {"", ""},
		"grace 4 s":               {"terminationGracePeriodSeconds: 4, ", ""},
		"grace 3 s":               {"terminationGracePeriodSeconds: 3, ", "of a grace period of 3s istio-proxy stays for 1.5s only"},
		"no grace":                {"terminationGracePeriodSeconds: 0, ", "of a grace period of 0s istio-proxy stays for 0s only"},
		"a Job":                   {"restartPolicy: Never, ", `istio-proxy is a plain container that does not end with the others: the pod never completes unless the command ends it; make it a native sidecar (sidecar.istio.io/nativeSidecar: "true")`},
		"a pod that starts again": {"restartPolicy: Always, ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Pod(podOf(t, "metadata: {name: shop, annotations: {outrider.dev/proxy: none}}\nspec: {"+tt.spec+"containers: [{name: app, image: a, command: [/app]}, {name: istio-proxy, image: proxyv2}]}"), Namespace{Name: "shop"}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(r.Warnings, "\n")
			if tt.want == "" && strings.Contains(got, "istio-proxy") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// Each known proxy gets the hook, and a warning says what is not known of one.
func TestProxiesThatNothingKeeps(t *testing.T) {
	const app = "{name: app, image: a, command: [/a]}"
	for name, tt := range map[string]struct {
		metadata, others string
		kept             []string
		warning          string // empty: none
	}{
		"a proxy of no known name":      {others: "{name: envoy, image: aws-appmesh-envoy}", warning: "none of the pod's containers is known as that proxy"},
		"no parking":                    {metadata: "outrider.dev/park: 'off', 'outrider.dev/depends-on.app': 'helper=started'", others: "{name: helper, image: h, command: [/h]}"},
		"a template's proxy":            {metadata: `outrider.dev/start: "off", sidecar.istio.io/status: '{"containers":["my-proxy"]}'`, others: "{name: my-proxy, image: proxyv2}", kept: []string{"my-proxy"}},
		"one proxy for each service":    {others: "{name: consul-dataplane-a, image: consul-dataplane, securityContext: {runAsUser: 5995}}, {name: consul-dataplane-b, image: consul-dataplane, securityContext: {runAsUser: 5996}}", kept: []string{"consul-dataplane-a", "consul-dataplane-b"}},
		"another program":               {others: "{name: istio-proxy, image: nginx}", kept: []string{"istio-proxy"}, warning: "istio-proxy has the name of a mesh's proxy, and neither a probe"},
		"sockets that are not told":     {others: "{name: free, image: f}, {name: consul-dataplane-a, image: consul-dataplane}, {name: consul-dataplane-b, image: consul-dataplane}", kept: []string{"consul-dataplane-a", "consul-dataplane-b"}, warning: "the sockets of consul-dataplane-b are not told from those of applications"},
		"an image volume and two hooks": {metadata: "outrider.dev/init: image-volume", others: "{name: istio-proxy, image: proxyv2}", kept: []string{"istio-proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, "metadata: {annotations: {outrider.dev/proxy: none, "+tt.metadata+"}}\nspec: {containers: ["+app+", "+tt.others+"]}")
			r, err := Pod(pod, Namespace{Name: "shop"}, Options{Kubernetes: 35})
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, c := range r.Pod.Spec.Containers {
				if podspec.StaysUntilEnd(&c) {
					kept = append(kept, c.Name)
				}
			}
			if diff := cmp.Diff(tt.kept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			said := strings.Join(r.Warnings, "\n")
			if !strings.Contains(said, tt.warning) || tt.warning == "" && (strings.Contains(said, "that proxy") || strings.Contains(said, "not told") || strings.Contains(said, "has the name")) {
				t.Errorf("warnings %q, want %q", r.Warnings, tt.warning)
			}
		})
	}
}
