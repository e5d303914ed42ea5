package inject

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
)

func podOf(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return &p
}

func valuesOf(t testing.TB, text string) settings.Values {
	t.Helper()
	v, _, err := settings.ParseValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Decide follows Istio's rules, in Istio's order.
func TestWhoIsInjected(t *testing.T) {
	type labels = map[string]string
	tests := map[string]struct {
		pod      string // the pod's metadata
		spec     string
		ns       Namespace
		revision string
		values   string
		manual   bool
		want     verdict.Code
		warning  string
	}{
		"a pod by default":                      {want: verdict.Injected},
		"hostNetwork goes first":                {pod: `labels: {sidecar.istio.io/inject: "true"}`, spec: "hostNetwork: true", want: verdict.HostNetwork},
		"a pod for Windows":                     {spec: "os: {name: windows}", want: verdict.NotLinux},
		"a pod for Windows nodes":               {spec: "nodeSelector: {kubernetes.io/os: windows}", want: verdict.NotLinux},
		"a pod for Linux":                       {spec: "os: {name: linux}", want: verdict.Injected},
		"our label starts it":                   {ns: Namespace{Name: "x", Labels: labels{}}, pod: `labels: {outrider.dev/inject: "true"}`, want: verdict.Injected},
		"our namespace label goes first":        {ns: Namespace{Name: "x", Labels: labels{"outrider.dev/injection": "disabled", "istio-injection": "enabled"}}, want: verdict.NamespaceOptsOut},
		"namespace by label, pod false":         {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "enabled"}}, pod: `labels: {sidecar.istio.io/inject: "false"}`, want: verdict.PodOptsOut},
		"a pod false beats the namespace's no":  {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "disabled"}}, pod: `labels: {sidecar.istio.io/inject: "false"}`, want: verdict.PodOptsOut},
		"the namespace's revision, and a label": {ns: Namespace{Name: "x", Labels: labels{"istio.io/rev": "canary"}}, pod: `labels: {istio.io/rev: other}`, revision: "canary", want: verdict.Injected},
		"kube-system is never injected":         {pod: `labels: {sidecar.istio.io/inject: "true"}`, ns: Namespace{Name: "kube-system"}, want: verdict.IgnoredNamespace},
		"istio-system is no such namespace":     {ns: Namespace{Name: "istio-system"}, want: verdict.Injected},
		"label false":                           {pod: `labels: {sidecar.istio.io/inject: "false"}`, want: verdict.PodOptsOut},
		"label before annotation":               {pod: "labels: {sidecar.istio.io/inject: \"true\"}\n  annotations: {sidecar.istio.io/inject: \"false\"}", want: verdict.Injected},
		"an empty label hides the annotation":   {pod: "labels: {sidecar.istio.io/inject: \"\"}\n  annotations: {sidecar.istio.io/inject: \"false\"}", want: verdict.Injected},
		"annotation false":                      {pod: `annotations: {sidecar.istio.io/inject: "false"}`, want: verdict.PodOptsOut},
		"annotation no means the default":       {pod: `annotations: {sidecar.istio.io/inject: "no"}`, want: verdict.Injected, warning: `"no", which is neither`},
		"True means the default too":            {pod: `labels: {sidecar.istio.io/inject: "True"}`, values: "global: {proxy: {autoInject: disabled}}", want: verdict.PolicyDisabled, warning: "neither"},
		"our own label goes before Istio's":     {pod: `labels: {outrider.dev/inject: "false", sidecar.istio.io/inject: "true"}`, want: verdict.PodOptsOut},
		"policy disabled":                       {values: "global: {proxy: {autoInject: disabled}}", want: verdict.PolicyDisabled},
		"policy disabled, label true":           {values: "global: {proxy: {autoInject: disabled}}", pod: `labels: {sidecar.istio.io/inject: "true"}`, want: verdict.Injected},
		"an illegal policy injects nothing":     {values: "global: {proxy: {autoInject: maybe}}", want: verdict.PolicyDisabled},
		"neverInjectSelector":                   {values: "sidecarInjectorWebhook: {neverInjectSelector: [{}, {matchLabels: {app: db}}]}", pod: "labels: {app: db}", want: verdict.NeverInjectSelector},
		"a selector for another label":          {values: "sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {app: db}}]}", pod: "labels: {app: web}", want: verdict.Injected},
		"an empty selector is skipped":          {values: "sidecarInjectorWebhook: {neverInjectSelector: [{}]}", want: verdict.Injected},
		"never before always":                   {values: "sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {app: db}}], alwaysInjectSelector: [{matchLabels: {app: db}}]}", pod: "labels: {app: db}", want: verdict.NeverInjectSelector},
		"always before policy":                  {values: "{global: {proxy: {autoInject: disabled}}, sidecarInjectorWebhook: {alwaysInjectSelector: [{matchLabels: {app: db}}]}}", pod: "labels: {app: db}", want: verdict.Injected},
		"annotation true before never":          {values: "sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {app: db}}]}", pod: "labels: {app: db}\n  annotations: {sidecar.istio.io/inject: \"true\"}", want: verdict.Injected},
		"a namespace without labels":            {ns: Namespace{Name: "x", Labels: labels{}}, want: verdict.NotRequested},
		"an annotation does not start it":       {ns: Namespace{Name: "x", Labels: labels{}}, pod: `annotations: {sidecar.istio.io/inject: "true"}`, want: verdict.NotRequested},
		"a label does":                          {ns: Namespace{Name: "x", Labels: labels{}}, pod: `labels: {sidecar.istio.io/inject: "true"}`, want: verdict.Injected},
		"by hand no label is needed":            {ns: Namespace{Name: "x", Labels: labels{}}, manual: true, want: verdict.Injected},
		"namespaces by default":                 {ns: Namespace{Name: "x", Labels: labels{}}, values: "sidecarInjectorWebhook: {enableNamespacesByDefault: true}", want: verdict.Injected},
		"istio-injection=enabled":               {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "enabled"}}, want: verdict.Injected},
		"istio-injection=disabled":              {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "disabled"}}, pod: `labels: {sidecar.istio.io/inject: "true"}`, want: verdict.NamespaceOptsOut},
		"istio-injection=disabled, by hand too": {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "disabled"}}, manual: true, want: verdict.NamespaceOptsOut},
		"istio-injection beats istio.io/rev":    {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "disabled", "istio.io/rev": "default"}}, want: verdict.NamespaceOptsOut},
		"istio-injection is the default's":      {ns: Namespace{Name: "x", Labels: labels{"istio-injection": "enabled"}}, revision: "canary", want: verdict.OtherRevision},
		"the namespace's revision":              {ns: Namespace{Name: "x", Labels: labels{"istio.io/rev": "canary"}}, revision: "canary", want: verdict.Injected},
		"another revision":                      {ns: Namespace{Name: "x", Labels: labels{"istio.io/rev": "canary"}}, want: verdict.OtherRevision},
		"the pod's revision":                    {ns: Namespace{Name: "x", Labels: labels{}}, pod: "labels: {istio.io/rev: canary}", revision: "canary", want: verdict.Injected},
		"the pod's other revision":              {ns: Namespace{Name: "x", Labels: labels{}}, pod: "labels: {istio.io/rev: canary}", want: verdict.OtherRevision},
		"another mesh's pod":                    {spec: "initContainers: [{name: istio-proxy, image: p, restartPolicy: Always}]", want: verdict.OtherMesh},
		"another mesh's pod, order alone":       {pod: "annotations: {outrider.dev/proxy: none}", spec: "initContainers: [{name: istio-proxy, image: proxyv2, restartPolicy: Always}]", want: verdict.Injected},
		"nothing that could be done":            {pod: "annotations: {outrider.dev/proxy: none, outrider.dev/capture: none}", want: verdict.NothingToDo},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, "metadata:\n  name: shop\n  "+tt.pod+"\nspec:\n  containers: [{name: app, image: a, command: [/app]}]\n  "+tt.spec)
			before := p.DeepCopy()
			r, err := Pod(p, tt.ns, Options{Values: valuesOf(t, tt.values), Revision: tt.revision, Manual: tt.manual})
			if err != nil {
				t.Fatal(err)
			}
			if r.Reason.Code != tt.want || r.Injected != (tt.want == verdict.Injected) || r.Reason.Sentence == "" {
				t.Errorf("injected %t: %+v, want %s", r.Injected, r.Reason, tt.want)
			}
			if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got, tt.warning) || tt.warning == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, tt.warning)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the given pod was changed:\n%s", diff)
			}
			if patch := r.Patch(); (len(patch) == 0) == r.Injected {
				t.Errorf("%d operations, %v", len(patch), err)
			}
		})
	}
}

// A pod with an impossible request is refused, with a code, a sentence and a hint.
func TestRefusals(t *testing.T) {
	psa := func(level string) Namespace {
		return Namespace{Name: "shop", Labels: map[string]string{"istio-injection": "enabled", contract.PodSecurityLabel: level}}
	}
	tests := map[string]struct {
		annotations string
		more        string // more fields of the pod's spec
		volumes     string
		mounts      string // mounts of the app
		ns          Namespace
		kube        int
		code        verdict.Code
		want        string
	}{
		"baseline refuses the capture":     {ns: psa("baseline"), code: verdict.PodSecurity, want: "the namespace shop has the label pod-security.kubernetes.io/enforce=baseline"},
		"restricted does too":              {ns: psa("restricted"), code: verdict.PodSecurity, want: "NET_ADMIN"},
		"without an init container too":    {ns: psa("baseline"), annotations: "{outrider.dev/init: none}", code: verdict.PodSecurity, want: "NET_ADMIN"},
		"restricted, a proxy as root":      {ns: psa("restricted"), annotations: `{outrider.dev/capture: none, sidecar.istio.io/capNetBindService: "true"}`, code: verdict.PodSecurity, want: "runs as root"},
		"a mode that is none":              {annotations: "{sidecar.istio.io/interceptionMode: MAGIC}", code: verdict.InvalidAnnotation, want: `"MAGIC": want REDIRECT, TPROXY or NONE`},
		"a port that is none":              {annotations: `{traffic.sidecar.istio.io/excludeOutboundPorts: "80,http"}`, code: verdict.InvalidAnnotation, want: "ports from 1 to 65535"},
		"a range that is none":             {annotations: `{traffic.sidecar.istio.io/includeOutboundIPRanges: "10.0.0.0/99"}`, code: verdict.InvalidAnnotation, want: "address ranges"},
		"an amount that is none":           {annotations: `{sidecar.istio.io/proxyCPU: much}`, code: verdict.InvalidAnnotation, want: "an amount"},
		"a request above the limit":        {annotations: `{sidecar.istio.io/proxyCPU: "2", sidecar.istio.io/proxyCPULimit: "1"}`, code: verdict.InvalidAnnotation, want: "more than its limit"},
		"volumes that are no JSON":         {annotations: `{sidecar.istio.io/userVolume: "x"}`, code: verdict.InvalidAnnotation, want: "a JSON object"},
		"a ProxyConfig that is none":       {annotations: `{proxy.istio.io/config: "concurrency: [1"}`, code: verdict.InvalidAnnotation, want: "want Istio's ProxyConfig"},
		"one that the agent cannot use":    {annotations: `{proxy.istio.io/config: "terminationDrainDuration: soon"}`, code: verdict.InvalidAnnotation, want: "the agent could not use it"},
		"a template that is not there":     {annotations: "{inject.istio.io/templates: grpc-agent}", code: verdict.InvalidAnnotation, want: "no template but"},
		"two status ports":                 {annotations: `{status.sidecar.istio.io/port: "1234", proxy.istio.io/config: "statusPort: 1235"}`, code: verdict.InvalidAnnotation, want: "is 1234"},
		"a status port of Envoy's":         {annotations: `{status.sidecar.istio.io/port: "15006"}`, code: verdict.PortConflict, want: "15006"},
		"start by a word":                  {annotations: "{outrider.dev/start: first}", code: verdict.InvalidAnnotation, want: "is none of gate, native, hold, off"},
		"a gate without a command":         {annotations: "{outrider.dev/start: gate}", code: verdict.NoMechanism, want: "the command of web is not in the pod spec"},
		"native before 1.29":               {annotations: "{outrider.dev/start: native}", kube: 28, code: verdict.NoMechanism, want: "off by default before Kubernetes 1.29"},
		"a state of what is process 1":     {annotations: "{outrider.dev/depends-on.app: init=started}", more: "- {name: init, image: i, command: [/sbin/init]}", code: verdict.NoMechanism, want: "the command of init has to be process 1"},
		"a hold of an init container":      {annotations: "{outrider.dev/start: hold, outrider.dev/depends-on.app: outrider-proxy, outrider.dev/depends-on.migrate: outrider-proxy}", code: verdict.NoMechanism, want: "by hold"},
		"started, without a command":       {annotations: "{outrider.dev/depends-on.app: web=started}", code: verdict.NoMechanism, want: "by gate: the command of web is not in the pod spec, so nothing can publish its state"},
		"a cycle":                          {annotations: "{outrider.dev/depends-on.app: web=started, outrider.dev/depends-on.web: app=started}", code: verdict.InvalidGraph, want: "start-up cycle: app -> web -> app"},
		"a stranger":                       {annotations: "{outrider.dev/depends-on.app: db}", code: verdict.InvalidGraph, want: "container that the pod does not have"},
		"an order that is no YAML":         {annotations: `{outrider.dev/depends-on: "app: ["}`, code: verdict.InvalidAnnotation, want: "want CONTAINER: {DEPENDENCY: CONDITION}"},
		"a proxy that there will not be":   {annotations: "{outrider.dev/proxy: none, outrider.dev/depends-on.app: outrider-proxy}", code: verdict.InvalidGraph, want: "app waits for a container that the pod does not have: \"outrider-proxy\""},
		"an own proxy and none":            {annotations: "{outrider.dev/proxy: none}", more: "- {name: outrider-proxy, image: auto}", code: verdict.InvalidOverride, want: "its own container outrider-proxy"},
		"a status that is no JSON":         {annotations: "{outrider.dev/status: x}", code: verdict.InvalidAnnotation, want: "annotation outrider.dev/status"},
		"metrics that are nowhere":         {annotations: `{prometheus.istio.io/scrape-targets: garbage}`, code: verdict.InvalidAnnotation, want: `annotation prometheus.istio.io/scrape-targets: "garbage": want port:path`},
		"a path that is none":              {annotations: `{prometheus.istio.io/scrape-targets: "80:/%zz"}`, code: verdict.InvalidAnnotation, want: "scrape-targets"},
		"targets of the mesh":              {annotations: `{prometheus.istio.io/scrape-targets: "80:/a,15090:/b"}`, code: verdict.PortConflict, want: "scrape-targets: 15090 is a port of the mesh"},
		"volumes of a list without a name": {annotations: `{sidecar.istio.io/userVolume: '[{"emptyDir": {}}]'}`, code: verdict.InvalidAnnotation, want: "a name for each volume of the list"},
		"two of a list with one name":      {annotations: `{sidecar.istio.io/userVolume: '[{"name": "a"}, {"name": "a"}]'}`, code: verdict.InvalidAnnotation, want: "item 1"},
		"a level that is none":             {annotations: `{sidecar.istio.io/logLevel: zz}`, code: verdict.InvalidAnnotation, want: "want trace"},
		"a component's that is none":       {annotations: `{sidecar.istio.io/componentLogLevel: "x:y"}`, code: verdict.InvalidAnnotation, want: "component:level"},
		"the agent's that is none":         {annotations: `{sidecar.istio.io/agentLogLevel: loud}`, code: verdict.InvalidAnnotation, want: "debug, info, warn or error"},
		"an image that is none":            {annotations: `{sidecar.istio.io/proxyImage: "Bad Name"}`, code: verdict.InvalidAnnotation, want: "an image"},
		"a ConfigMap that is none":         {annotations: `{sidecar.istio.io/bootstrapOverride: Bad_Name}`, code: verdict.InvalidAnnotation, want: "lower-case"},
		"an address that is none":          {annotations: `{sidecar.istio.io/discoveryAddress: x}`, code: verdict.InvalidAnnotation, want: "host:port"},

		"a mount of no volume":             {annotations: `{sidecar.istio.io/userVolumeMount: '{"q": {"mountPath": "/q"}}'}`, code: verdict.InvalidAnnotation, want: "there is no volume q"},
		"a mount nowhere":                  {annotations: `{sidecar.istio.io/userVolumeMount: '{"data": {}}'}`, code: verdict.InvalidAnnotation, want: "a mountPath for data"},
		"a mount over ours":                {annotations: `{sidecar.istio.io/userVolumeMount: '{"data": {"mountPath": "/var/run/secrets//tokens/"}}'}`, code: verdict.MountConflict, want: "/var/run/secrets//tokens/ already"},
		"a mount over the gate":            {annotations: `{sidecar.istio.io/userVolumeMount: '{"data": {"mountPath": "/outrider"}}'}`, code: verdict.MountConflict, want: "/outrider already"},
		"two mounts at one place":          {annotations: `{sidecar.istio.io/userVolume: '{"a": {"emptyDir": {}}}', sidecar.istio.io/userVolumeMount: '{"a": {"mountPath": "/d"}, "data": {"mountPath": "/d"}}'}`, code: verdict.MountConflict, want: "/d already"},
		"a volume by our name":             {annotations: `{sidecar.istio.io/userVolume: '{"outrider-token": {"emptyDir": {}}}'}`, code: verdict.VolumeConflict, want: "outrider-token itself"},
		"a volume by one of the pod's":     {annotations: `{sidecar.istio.io/userVolume: '{"data": {"emptyDir": {"medium": "Memory"}}}'}`, code: verdict.VolumeConflict, want: "another volume data"},
		"a volume of two sources":          {annotations: `{sidecar.istio.io/userVolume: '{"a": {"emptyDir": {}, "secret": {}}}'}`, code: verdict.InvalidAnnotation, want: "not emptyDir and secret"},
		"a volume with a stray field":      {annotations: `{sidecar.istio.io/userVolume: '{"a": {"emptyDri": {}}}'}`, code: verdict.InvalidAnnotation, want: "emptyDri"},
		"a volume's name that is none":     {annotations: `{sidecar.istio.io/userVolume: '{"A_b": {"emptyDir": {}}}'}`, code: verdict.InvalidAnnotation, want: "A_b"},
		"an own volume by our name":        {volumes: "[{name: outrider-state, hostPath: {path: /data}}]", code: verdict.VolumeConflict, want: "its own volume outrider-state"},
		"one of the proxy's names":         {volumes: "[{name: outrider-root, emptyDir: {}}]", code: verdict.VolumeConflict, want: "its own volume outrider-root"},
		"an own mount where the gate is":   {mounts: "[{name: data, mountPath: /outrider/bin}]", code: verdict.MountConflict, want: "app mounts its volume data at /outrider/bin"},
		"an own mount in it":               {mounts: "[{name: data, mountPath: /outrider/bin/x/}]", code: verdict.MountConflict, want: "at /outrider/bin/x/"},
		"an own mount over it":             {mounts: "[{name: data, mountPath: //outrider}]", code: verdict.MountConflict, want: "at //outrider"},
		"one that leads there":             {mounts: "[{name: data, mountPath: /proc/self/cwd/outrider/bin}]", code: verdict.MountConflict, want: "at /proc/self/cwd"},
		"a boolean that is none":           {annotations: `{prometheus.istio.io/merge-metrics: maybe}`, code: verdict.InvalidAnnotation, want: "true or false"},
		"a port of the agent that is none": {annotations: `{status.sidecar.istio.io/port: x}`, code: verdict.InvalidAnnotation, want: "a port, or 0"},
		"a period that is none":            {annotations: `{readiness.status.sidecar.istio.io/periodSeconds: "-1"}`, code: verdict.InvalidAnnotation, want: "not negative"},
		"an interface that is none":        {annotations: `{traffic.sidecar.istio.io/excludeInterfaces: "eth 0"}`, code: verdict.InvalidAnnotation, want: "network interfaces"},
		"another ProxyConfig's mode":       {annotations: `{proxy.istio.io/config: "interceptionMode: ALL"}`, code: verdict.InvalidAnnotation, want: "interceptionMode"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for text, usual := range map[*string]string{&tt.annotations: "{}", &tt.volumes: "[{name: data, emptyDir: {}}]", &tt.mounts: "[]"} {
				if *text == "" {
					*text = usual
				}
			}
			p := podOf(t, "metadata:\n  name: shop\n  annotations: "+tt.annotations+`
spec:
  volumes: `+tt.volumes+`
  initContainers: [{name: migrate, image: m}]
  containers:
  - {name: app, image: a, command: [/app], volumeMounts: `+tt.mounts+`}
  - {name: web, image: w}
  `+tt.more)
			if tt.code == verdict.InvalidGraph {
				p.Spec.Containers[1].Command = []string{"/web"}
			}
			r, err := Pod(p, tt.ns, Options{Kubernetes: kubernetes(tt.kube)})
			refusal, ok := err.(*verdict.Refusal)
			if !ok {
				t.Fatalf("not refused: %v, %+v, %q", err, r.Reason, r.Notes)
			}
			if refusal.Code != tt.code || !strings.Contains(refusal.Sentence, tt.want) {
				t.Errorf("%s: %s\nwant %s: ...%s...", refusal.Code, refusal.Sentence, tt.code, tt.want)
			}
			if r.Injected {
				t.Error("refused, and injected")
			}
		})
	}
}

func TestNamesDefault(t *testing.T) {
	for label, want := range map[string]bool{"istio-injection": true, "outrider.dev/injection": true, "istio.io/rev": false} {
		if got := NamesDefault(Namespace{Labels: map[string]string{label: "x"}}); got != want {
			t.Errorf("%s: %v, want %v", label, got, want)
		}
	}
}

func TestSelectorsThatAreNoneAreRefused(t *testing.T) {
	_, _, err := settings.ParseValues([]byte("sidecarInjectorWebhook: {neverInjectSelector: [{matchExpressions: [{key: a, operator: Near}]}]}"))
	if err == nil || !strings.Contains(err.Error(), "neverInjectSelector[0]") {
		t.Errorf("%v", err)
	}
	if s, ok := selected(&corev1.Pod{}, []metav1.LabelSelector{{}}); ok {
		t.Errorf("an empty selector matches: %q", s)
	}
}

// Annotations for Prometheus are not meant for the mesh. So a pod is not refused if the agent cannot follow them.
// A port may be the name of a container's port.
func TestPrometheusAnnotations(t *testing.T) {
	for name, tt := range map[string]struct{ annotations, app, warning string }{ // any order: each is tested by itself
		"a number":                       {`{prometheus.io/port: "8080"}`, `"port":"8080"`, ""},
		"a declared name":                {`{prometheus.io/port: metrics}`, `"port":"9402"`, ""},
		"a name that nothing declares":   {`{prometheus.io/port: http}`, "", `"http" is no port, and no container declares one of that name`},
		"zero":                           {`{prometheus.io/port: "0"}`, "", `"0" is no port`},
		"a port of the mesh":             {`{prometheus.io/port: "15090"}`, "", "15090 is a port of the mesh"},
		"one of the mesh and an own one": {`{prometheus.io/port: "15020, 8080"}`, `"port":"8080"`, "15020 is a port of the mesh"},
		"a path that is none":            {`{prometheus.io/port: "80", prometheus.io/path: "/%zz"}`, "", "prometheus.io/path"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, "metadata: {name: shop, annotations: "+tt.annotations+"}\nspec:\n  containers:\n  - {name: app, image: a, command: [/app], ports: [{name: metrics, containerPort: 9402}]}")
			r, err := Pod(p, Namespace{Name: "x", Labels: map[string]string{"istio-injection": "enabled"}}, Options{})
			if err != nil || r.Pod == nil {
				t.Fatalf("%v, %+v", err, r.Reason)
			}
			app := ""
			for _, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
				for _, e := range c.Env {
					if e.Name == metricsEnv {
						app = e.Value
					}
				}
			}
			warnings := strings.Join(r.Warnings, "\n")
			if !strings.Contains(app, tt.app) || (app == "") != (tt.app == "") {
				t.Errorf("the agent scrapes %q, want %q", app, tt.app)
			}
			if !strings.Contains(warnings, tt.warning) || (warnings == "") != (tt.warning == "") {
				t.Errorf("warnings %q, want %q", warnings, tt.warning)
			}
		})
	}
}

// The annotation userVolumeMount may be a list of objects with names, as in Istio's samples.
func TestVolumesAsList(t *testing.T) {
	list, err := settings.UserMounts(`[{"name": "certs", "mountPath": "/etc/certs"}]`)
	byName, err2 := settings.UserMounts(`{"certs": {"mountPath": "/etc/certs"}}`)
	if err != nil || err2 != nil || len(list) != 1 || list[0] != byName[0] {
		t.Errorf("%v (%v), want %v (%v)", list, err, byName, err2)
	}
}
