package remedies

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

func TestReleaseOf(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"docker.io/istio/proxyv2:1.21.2":                          "1.21.2",
		"gcr.io/gke-release/asm/proxyv2:1.20.8-asm.33":            "1.20.8",
		"localhost:5000/istio/proxyv2:1.24-alpha.a1b2c3":          "1.24.0",
		"proxyv2:1.24.1-distroless@sha256:0123":                   "1.24.1",
		"cr.l5d.io/linkerd/proxy:stable-2.14.10":                  "2.14.10",
		"ghcr.io/buoyantio/proxy:enterprise-2.17.1":               "2.17.1",
		"cr.l5d.io/linkerd/proxy:edge-25.10.2":                    "edge-25.10.2",
		"public.ecr.aws/appmesh/aws-appmesh-envoy:v1.29.5.0-prod": "1.29.5",
		"proxyv2":                  "",
		"localhost:5000/proxyv2":   "",
		"proxyv2:latest":           "",
		"proxyv2@sha256:1.24":      "",
		"proxyv2:20240101":         "",
		"proxyv2:99999.1":          "",
		"linkerd/proxy:git-1a2b3c": "",
		"hashicorp/consul-dataplane:1.3.1@sha256:abc:def/with:1.2 odd": "1.3.1",
	} {
		r, known := releaseOf(image)
		if known != (want != "") || known && r.String() != want {
			t.Errorf("%s: %s %v, want %q", image, r, known, want)
		}
	}
}

func FuzzReleaseOf(f *testing.F) {
	for _, image := range []string{"istio/proxyv2:1.24.1-distroless", "linkerd/proxy:edge-25.10.2", "a:b@c", "1.2:3.4/5:6.7"} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		r, known := releaseOf(image)
		for _, n := range r.number {
			if n < 0 || n > 9999 || !known && n != 0 {
				t.Errorf("%q: %v %v", image, r, known)
			}
		}
		if again, ok := releaseOf("mesh/proxy:" + r.String()); known && (!ok || again != r) {
			t.Errorf("%q: %s is read as %s", image, r, again)
		}
	})
}

var web = []evidence.Owner{{Kind: "ReplicaSet", Name: "web-5d9c"}, {Kind: "Deployment", Name: "web"}}

func podOf(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-5d9c-x2", Annotations: annotations}}
}

// A remedy advises only settings that exist in that version of the mesh.
func TestRemediesFitTheVersion(t *testing.T) {
	t.Parallel()
	const istio, linkerd, kuma, dapr = "istio/proxyv2:", "linkerd/proxy:", "kumahq/kuma-dp:", "daprio/daprd:"
	for name, c := range map[string]struct {
		proxy, image string
		purpose      Purpose
		port         uint16
		has          map[string]string
		patch        string // part of it; empty: there is none
		says         string // in the sentence
	}{
		"Istio":                             {"istio-proxy", istio + "1.26.2", Start, 80, nil, `proxy.istio.io/config: "{\"holdApplicationUntilProxyStarts\":true}"`, "let app wait for istio-proxy"},
		"Istio, other settings":             {"istio-proxy", istio + "1.26.2", Start, 80, map[string]string{"proxy.istio.io/config": "concurrency: 2"}, `"{\"concurrency\":2,\"holdApplicationUntilProxyStarts\":true}"`, ""},
		"Istio, settings that are none":     {"istio-proxy", istio + "1.26.2", Start, 80, map[string]string{"proxy.istio.io/config": "[]"}, "", "try again"},
		"Istio, held already":               {"istio-proxy", istio + "1.26.2", Start, 80, map[string]string{"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}, "", "try again"},
		"Istio without a hold":              {"istio-proxy", istio + "1.6.8", Start, 80, nil, "", "try again until its calls succeed; this is Istio 1.6.8: from 1.9 on"},
		"Istio, a Job":                      {"istio-proxy", istio + "1.24.0", JobStart, 80, nil, "nativeSidecar", "ends with the pod's work"},
		"older Istio, a Job":                {"istio-proxy", istio + "1.23.9", JobStart, 80, nil, "holdApplication", "quitquitquit"},
		"Istio, after a hold":               {"istio-proxy", istio + "1.24.0", Stronger, 80, nil, "nativeSidecar", ""},
		"older Istio, after a hold":         {"istio-proxy", istio + "1.14.6", Stronger, 80, nil, "", "this is Istio 1.14.6: from 1.24 on"},
		"Istio, an init container":          {"istio-proxy", istio + "1.24.0", Init, 5432, nil, "nativeSidecar", ""},
		"older Istio, an init container":    {"istio-proxy", istio + "1.19.6", Init, 5432, nil, `excludeOutboundPorts: "5432"`, "ENABLE_NATIVE_SIDECARS"},
		"a list goes on":                    {"istio-proxy", istio + "1.19.6", Init, 5432, map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "25,26"}, `excludeOutboundPorts: "25,26,5432"`, ""},
		"a list has it":                     {"istio-proxy", istio + "1.19.6", Init, 5432, map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "25, 5432"}, "", "1337"},
		"the port is not known":             {"istio-proxy", istio + "1.19.6", Init, 0, nil, "", "1337"},
		"Istio, the end of a pod":           {"istio-proxy", istio + "1.24.0", Stop, 0, nil, "nativeSidecar", "stops after app"},
		"older Istio, the end of a pod":     {"istio-proxy", istio + "1.21.2", Stop, 0, nil, `{\"terminationDrainDuration\":\"25s\"}`, "25 s longer"},
		"Istio, a native sidecar requested": {"istio-proxy", istio + "1.26.0", Stop, 0, map[string]string{"sidecar.istio.io/nativeSidecar": "true"}, "terminationDrainDuration", ""},
		"older Istio, the end of a Job":     {"istio-proxy", istio + "1.21.2", End, 0, nil, "", "quitquitquit"},
		"Istio of an unknown version":       {"istio-proxy", "istio/proxyv2:latest", Stop, 0, nil, "nativeSidecar", "needs version 1.24 of the mesh"},
		"Linkerd":                           {"linkerd-proxy", linkerd + "stable-2.14.10", Start, 80, nil, `config.linkerd.io/proxy-await: "enabled"`, ""},
		"Linkerd without a wait":            {"linkerd-proxy", linkerd + "stable-2.10.2", Start, 80, nil, "", "try again"},
		"Linkerd, edge":                     {"linkerd-proxy", linkerd + "edge-21.4.4", Start, 80, nil, "proxy-await", ""},
		"Linkerd 2.14":                      {"linkerd-proxy", linkerd + "stable-2.14.10", Stop, 80, nil, `proxy-wait-before-exit-seconds: "25"`, "this is Linkerd 2.14.10: from 2.15 on"},
		"Linkerd 2.15":                      {"linkerd-proxy", linkerd + "enterprise-2.15.0", Stop, 80, nil, "config.alpha.linkerd.io/proxy-enable-native-sidecar", ""},
		"Linkerd before 2.19":               {"linkerd-proxy", linkerd + "edge-25.10.1", Stop, 80, nil, "config.alpha.linkerd.io/proxy-enable-native-sidecar", ""},
		"Linkerd 2.19":                      {"linkerd-proxy", linkerd + "edge-25.10.2", Stop, 80, nil, "config.beta.linkerd.io/proxy-enable-native-sidecar", ""},
		"Linkerd 2.14, an init container":   {"linkerd-proxy", linkerd + "edge-23.11.3", Init, 5432, nil, `skip-outbound-ports: "5432"`, ""},
		"Linkerd 2.14, the end of a Job":    {"linkerd-proxy", linkerd + "stable-2.14.10", End, 0, nil, "", "linkerd-await --shutdown"},
		"Kuma":                              {"kuma-sidecar", kuma + "2.9.3", Start, 80, nil, "kuma.io/wait-for-dataplane-ready", ""},
		"Kuma without a wait":               {"kuma-sidecar", kuma + "2.3.2", Start, 80, nil, "", "from 2.4 on"},
		"Kuma, the end of a pod":            {"kuma-sidecar", kuma + "2.9.3", Stop, 0, nil, `kuma.io/sidecar-drain-time: "25s"`, "KUMA_EXPERIMENTAL_SIDECAR_CONTAINERS"},
		"Dapr":                              {"daprd", dapr + "1.13.5", Start, 3500, nil, "", "Dapr has no annotation for it"},
		"Dapr, the end of a pod":            {"daprd", dapr + "1.13.5", Stop, 0, nil, `dapr.io/block-shutdown-duration: "25s"`, ""},
		"older Dapr, the end of a pod":      {"daprd", dapr + "1.12.5", Stop, 0, nil, "", "from 1.13 on"},
		"Consul":                            {"consul-dataplane-web", "hashicorp/consul-dataplane:1.3.1", Start, 80, nil, "", "consul-k8s"},
		"App Mesh":                          {"envoy", "aws-appmesh-envoy:v1.29.5.0-prod", Start, 80, nil, "", "sidecar.waitUntilProxyReady"},
		"by hand":                           {"cloud-sql-proxy", "cloud-sql-proxy:2.8.2", Stop, 0, nil, "", "make cloud-sql-proxy a native sidecar (an init container"},
		"ours":                              {"outrider-proxy", "outrider-proxy:dev", Start, 80, nil, "start: \"gate\"", ""},
	} {
		a := Of(Case{Purpose: c.purpose, Pod: podOf(c.has), Owners: web, Proxy: c.proxy, Image: c.image, App: "app", Port: c.port})
		if (a.Patch == "") != (c.patch == "") || !strings.Contains(a.Patch, c.patch) || !strings.Contains(a.Sentence, c.says) {
			t.Errorf("%s: %+v, want a patch with %q and the words %q", name, a, c.patch, c.says)
		}
		if strings.ContainsAny(a.Sentence, "{}") || a.Change != "" || (a.Command != "") != (a.Patch != "") {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Each purpose has words for each proxy in each version, and the order that is kept at the start is none of a way that
// has none.
func TestEachCaseHasARemedy(t *testing.T) {
	t.Parallel()
	proxies := map[string]bool{"cloud-sql-proxy": true, "envoy": true}
	for _, w := range ways {
		proxies[w.proxy] = true
	}
	for proxy := range proxies { // in any order: each is reported
		for p := Start; p <= End; p++ {
			for _, tag := range []string{"0.1.0", "1.20.0", "2.30.0", "edge-19.1.1", "edge-26.1.1", "latest"} {
				a := Of(Case{Purpose: p, Pod: podOf(nil), Owners: web, Proxy: proxy, Image: "proxy:" + tag, App: "app"})
				if a.Sentence == "" || strings.ContainsAny(a.Sentence+a.Command, "{}") || strings.Contains(a.Sentence, "; ;") {
					t.Errorf("%s %d %s: %+v", proxy, p, tag, a)
				}
				if a.By != "" && a.Patch == "" && !strings.Contains(a.Sentence, "native sidecar (an init container") {
					t.Errorf("%s %d %s keeps the order by %s, and nothing changes: %+v", proxy, p, tag, a.By, a)
				}
			}
		}
	}
	osm := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"osm-proxy-uuid": "a"}}}
	if a := Of(Case{Purpose: Start, Pod: osm, Proxy: "envoy", Image: "envoyproxy/envoy:v1.22.0", App: "app"}); strings.Contains(a.Sentence, "native") || a.By != "" {
		t.Errorf("OSM injects its proxy: %+v", a)
	}
	if grace := (Case{Pod: &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64)}}}).grace(); grace != 0 {
		t.Errorf("of no grace period %d s are left", grace)
	}
}

// The version is also that of the image that runs, or of Linkerd's own annotation; and a native sidecar is not made one.
func TestTheProxyOfThePod(t *testing.T) {
	t.Parallel()
	pod := podOf(map[string]string{"linkerd.io/proxy-version": "stable-2.14.10"})
	if a := Of(Case{Purpose: Stop, Pod: pod, Owners: web, Proxy: "linkerd-proxy", Image: "mirror/proxy@sha256:0", App: "app"}); !strings.Contains(a.Patch, "wait-before-exit") {
		t.Errorf("%+v", a)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app:1.2"}, {Name: "istio-proxy", Image: "istio/proxyv2:1.21.0"}}
	if a := Of(Case{Purpose: Stop, Pod: pod, Owners: web, Proxy: "istio-proxy", Image: "mirror/proxy@sha256:0", App: "app"}); !strings.Contains(a.Patch, "terminationDrain") {
		t.Errorf("%+v", a)
	}
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{{Name: "istio-proxy", RestartPolicy: &always}}
	for p := Start; p <= End; p++ {
		if a := Of(Case{Purpose: p, Pod: pod, Owners: web, Proxy: "istio-proxy", Image: "istio/proxyv2:1.26.2", App: "app"}); a.Patch != "" || !strings.Contains(a.Sentence, "is a native sidecar") || strings.Contains(a.Sentence, "{") {
			t.Errorf("%d: %+v", p, a)
		}
	}
}

// A change goes to the object that made the pod.
func TestPlaces(t *testing.T) {
	t.Parallel()
	object := func(refs ...metav1.OwnerReference) metav1.Object { return &metav1.ObjectMeta{OwnerReferences: refs} }
	ref := func(version, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name}
	}
	const template = "spec:\n  template:\n    metadata:\n      annotations:\n"
	for name, c := range map[string]struct {
		labels, annotations   map[string]string
		refs                  []metav1.OwnerReference
		owners                []evidence.Owner
		patch, change         string
		command, says, sayNot string
	}{
		"Deployment":                       {refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: web, patch: template, command: "patch deployment web --patch-file patch.yaml"},
		"Deployment by the name of a pod":  {labels: map[string]string{"pod-template-hash": "5d9c"}, patch: template, command: "patch deployment web --patch-file patch.yaml"},
		"a ReplicaSet of nothing known":    {refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: web[:1], command: "get ReplicaSet web-5d9c -o yaml", says: "in the template of the object that made ReplicaSet web-5d9c"},
		"a ReplicaSet of its own":          {refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: []evidence.Owner{{Kind: "ReplicaSet", Name: "web-5d9c", Object: object()}}, patch: template, command: "patch replicaset web-5d9c --patch-file patch.yaml", says: "delete the pods"},
		"a Rollout":                        {labels: map[string]string{"rollouts-pod-template-hash": "5d9c"}, refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: web[:1], says: "of Rollout web"},
		"a Deployment of an operator":      {refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: []evidence.Owner{web[0], {Kind: "Deployment", Name: "web", Object: object(ref("x.example/v1", "Shop", "eu"))}, {Kind: "Shop", Name: "eu"}}, says: "where Shop eu has the annotations of its pods"},
		"a Deployment of another group":    {refs: []metav1.OwnerReference{ref("x.example/v1", "Deployment", "web")}, owners: []evidence.Owner{{Kind: "Deployment", Name: "web"}}, says: "where Deployment web has"},
		"a Knative Service, by a label":    {labels: map[string]string{"serving.knative.dev/service": "web", "pod-template-hash": "5d9c"}, refs: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "web-5d9c")}, owners: web, says: "Knative Service web"},
		"StatefulSet":                      {refs: []metav1.OwnerReference{ref("apps/v1", "StatefulSet", "db")}, owners: []evidence.Owner{{Kind: "StatefulSet", Name: "db"}}, patch: template, command: "patch statefulset db --patch-file patch.yaml"},
		"Job":                              {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "migrate")}, owners: []evidence.Owner{{Kind: "Job", Name: "migrate"}}, change: template, command: "replace --force -f job.yaml", says: "the template of a Job cannot be changed"},
		"Job, by a label":                  {labels: map[string]string{"job-name": "migrate"}, change: template, command: "replace --force -f job.yaml", says: "of Job migrate"},
		"CronJob":                          {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "eod-1")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-1", Object: object(ref("batch/v1", "CronJob", "eod"))}, {Kind: "CronJob", Name: "eod"}}, patch: "spec:\n  jobTemplate:\n    spec:\n      template:\n        metadata:\n", command: "patch cronjob eod --patch-file patch.yaml", says: "its next Job has it"},
		"CronJob, by the name of its Job":  {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "eod-29401440")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-29401440"}}, patch: "spec:\n  jobTemplate:\n", command: "patch cronjob eod --patch-file patch.yaml", says: "its next Job has it", sayNot: "delete"},
		"CronJob, by a label":              {labels: map[string]string{"batch.kubernetes.io/job-name": "eod-29401440"}, patch: "spec:\n  jobTemplate:\n", command: "patch cronjob eod --patch-file patch.yaml"},
		"a Job that no CronJob made":       {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "eod-29401440")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-29401440", Object: object()}}, change: template, command: "replace --force -f job.yaml", says: "of Job eod-29401440"},
		"a Job with a date":                {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "eod-20261124")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-20261124"}}, change: template, command: "replace --force -f job.yaml", says: "of Job eod-20261124"},
		"a Job with a number of later":     {refs: []metav1.OwnerReference{ref("batch/v1", "Job", "eod-45123456")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-45123456"}}, change: template, command: "replace --force -f job.yaml", says: "of Job eod-45123456"},
		"a Job of another group":           {refs: []metav1.OwnerReference{ref("x.example/v1", "Job", "eod-29401440")}, owners: []evidence.Owner{{Kind: "Job", Name: "eod-29401440"}}, says: "where Job eod-29401440 has", sayNot: "CronJob"},
		"a static pod, by its source":      {annotations: map[string]string{"kubernetes.io/config.source": "file"}, change: "metadata:\n  annotations:\n", says: "its file on node n1"},
		"a pod by the API server":          {annotations: map[string]string{"kubernetes.io/config.source": "api"}, change: "metadata:\n  annotations:\n", command: "replace --force -f pod.yaml", says: "only when it is created"},
		"a bare pod":                       {change: "metadata:\n  annotations:\n", command: "replace --force -f pod.yaml", says: "only when it is created"},
		"a static pod":                     {annotations: map[string]string{corev1.MirrorPodAnnotationKey: "abc"}, change: "metadata:\n  annotations:\n", says: "its file on node n1"},
		"a static pod, by its owner":       {refs: []metav1.OwnerReference{ref("v1", "Node", "n1")}, owners: []evidence.Owner{{Kind: "Node", Name: "n1"}}, change: "metadata:\n  annotations:\n", says: "its file on node n1"},
		"a pod of a pod":                   {refs: []metav1.OwnerReference{ref("v1", "Pod", "driver")}, owners: []evidence.Owner{{Kind: "Pod", Name: "driver"}}, says: "by which pod driver makes its pods"},
		"Workflow":                         {refs: []metav1.OwnerReference{ref("argoproj.io/v1alpha1", "Workflow", "nightly")}, owners: []evidence.Owner{{Kind: "Workflow", Name: "nightly"}}, says: "spec.podMetadata.annotations", sayNot: "spec.template"},
		"TaskRun":                          {refs: []metav1.OwnerReference{ref("tekton.dev/v1", "TaskRun", "build")}, owners: []evidence.Owner{{Kind: "TaskRun", Name: "build"}}, says: "of the Task of TaskRun build", sayNot: "spec.template"},
		"Cluster of CNPG":                  {refs: []metav1.OwnerReference{ref("postgresql.cnpg.io/v1", "Cluster", "pg")}, owners: []evidence.Owner{{Kind: "Cluster", Name: "pg"}}, says: "spec.inheritedMetadata.annotations of Cluster pg"},
		"a cluster of something else":      {refs: []metav1.OwnerReference{ref("x.example/v1", "Cluster", "pg")}, owners: []evidence.Owner{{Kind: "Cluster", Name: "pg"}}, says: "where Cluster pg has", sayNot: "inheritedMetadata"},
		"a StatefulSet or DaemonSet":       {labels: map[string]string{"controller-revision-hash": "a"}, says: "not among the evidence"},
		"a label that does not fit a name": {labels: map[string]string{"pod-template-hash": "77"}, change: "metadata:\n", command: "replace --force -f pod.yaml"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-5d9c-x2", Labels: c.labels, Annotations: c.annotations, OwnerReferences: c.refs, CreationTimestamp: metav1.Date(2026, 3, 2, 13, 0, 8, 0, time.UTC)}, Spec: corev1.PodSpec{NodeName: "n1"}}
		a := Of(Case{Purpose: Start, Pod: pod, Owners: c.owners, Proxy: "istio-proxy", Image: "proxyv2:1.26.2", App: "app"})
		if !strings.HasPrefix(a.Patch, c.patch) || !strings.HasPrefix(a.Change, c.change) || (a.Patch == "") != (c.patch == "") || (a.Change == "") != (c.change == "") {
			t.Errorf("%s: patch %q and change %q", name, a.Patch, a.Change)
		}
		if a.Command != c.command || !strings.Contains(a.Sentence, c.says) || c.sayNot != "" && strings.Contains(a.Sentence, c.sayNot) || a.By != startup.Hold {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A Job, or a pod, that does its work by now is not deleted for a remedy: the change is for its next run.
func TestWhatWorksIsNotDeleted(t *testing.T) {
	t.Parallel()
	for _, owners := range [][]evidence.Owner{nil, {{Kind: "Job", Name: "migrate"}}} {
		for works, want := range map[bool]string{true: "for its next run", false: "create it anew"} { // in any order
			pod := podOf(nil)
			if owners != nil {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "migrate"}}
			}
			a := Of(Case{Purpose: Start, Pod: pod, Owners: owners, Proxy: "istio-proxy", Image: "proxyv2:1.26.2", App: "app", Works: works})
			if !strings.Contains(a.Sentence, want) || (a.Command == "") != works || a.Change == "" {
				t.Errorf("%v %v: %+v", owners, works, a)
			}
		}
	}
}

// Only an owner that replaces its pods creates another one.
func TestAgain(t *testing.T) {
	t.Parallel()
	left := evidence.Omitted{Meta: true}
	for _, c := range []struct {
		kind   string
		static bool
		left   evidence.Omitted
		want   string
	}{
		{"StatefulSet", false, evidence.Omitted{}, "StatefulSet db creates another one"}, {"Job", false, left, "backoffLimit"}, {"", false, evidence.Omitted{}, "no owner that creates another one"},
		{"", false, left, "its owner, if it has one"}, {"TaskRun", false, evidence.Omitted{}, "TaskRun db made it: whether"}, {"Node", true, evidence.Omitted{}, "from its file"},
	} {
		pod, owners := podOf(nil), []evidence.Owner{{Kind: c.kind, Name: "db"}}
		if c.kind == "" {
			owners = nil
		}
		if c.static {
			pod.Annotations = map[string]string{"kubernetes.io/config.source": "http"}
		}
		if got := Again(pod, owners, c.left); !strings.Contains(got, c.want) || strings.Contains(got, "{") {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A pod whose owners are not in the evidence is not replaced by hand: one that has none is.
func TestAPodWithoutItsOwners(t *testing.T) {
	for unowned, want := range map[bool]string{true: "", false: "replace --force -f pod.yaml"} { // in any order: each is of its own
		a := Of(Case{Purpose: Start, Pod: &corev1.Pod{}, Proxy: "istio-proxy", Image: "istio/proxyv2:1.21.0", App: "app", Unowned: unowned})
		if a.Command != want || strings.Contains(a.Sentence, "pod.yaml") == unowned {
			t.Errorf("%+v", a)
		}
	}
}
