package gather

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/doctor/evidence/cluster"
)

// object decodes an object from a manifest.
func object(t *testing.T, text string) runtime.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: awesome-app, namespace: shop}, spec: {selector: {matchLabels: {app: awesome}}}}`

func shop(t *testing.T) *fake.Clientset {
	pod := object(t, awesome).(*corev1.Pod)
	pod.Labels = map[string]string{"app": "awesome"}
	pod.Annotations = map[string]string{contract.Status: "{}"}
	return fake.NewClientset(pod, object(t, replicaSet), object(t, deployment),
		object(t, "{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: shop}, spec: {containers: [{name: app}]}}"),
		object(t, `{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop, uid: e}, involvedObject: {kind: Pod, namespace: shop, name: awesome-app}, reason: Started, source: {component: kubelet}, firstTimestamp: "2026-11-24T13:16:20Z"}`))
}

// stamped returns a log in the form in which the API server sends it with timestamps.
func stamped(text, at string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(at + " " + line)
	}
	return b.String()
}

func TestLive(t *testing.T) {
	record := status.NewJournal(status.JournalOptions{Process: time.Date(2026, 11, 24, 13, 16, 20, 0, time.UTC), Container: time.Date(2026, 11, 24, 13, 16, 19, 0, time.UTC)})
	record.Note("drain", "requested")
	record.Waiter("app", "ready")("released", true)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/startup" {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(record.Record()); err != nil {
			t.Error(err)
		}
	}))
	defer agent.Close()
	var mu sync.Mutex
	asked := map[string]bool{}
	w := cluster.Wanted{Namespace: "shop", Names: []string{"deploy/awesome-app"}, LogBytes: int64(2*len("2026-11-24T13:16:37.123456789Z ") + len(proxyLog)), Now: func() time.Time { return time.Date(2026, 11, 24, 13, 20, 0, 0, time.UTC) },
		OpenLog: func(_ context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[fmt.Sprintf("%s/%s %s previous %v timestamps %v", namespace, pod, o.Container, o.Previous, o.Timestamps)] = true
			text := map[string]string{"app false": stamped(currentLog, "2026-11-24T13:16:37.123456789Z"), "istio-proxy false": stamped(proxyLog, "2026-11-24T13:16:24.000000001Z"),
				"istio-init false": "unable to retrieve container logs for containerd://1"}[fmt.Sprint(o.Container, " ", o.Previous)]
			if o.Previous {
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, pod, nil)
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}}
	s, err := Live(t.Context(), cluster.Access{Core: shop(t), Forward: func(_ context.Context, namespace, pod string, port int) (string, func(), error) {
		if namespace != "shop" || pod != "awesome-app" || port != contract.StatusPort {
			t.Errorf("port %d of %s/%s", port, namespace, pod)
		}
		return strings.TrimPrefix(agent.URL, "http://"), func() {}, nil
	}}, w)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 1 || len(s.Unused) > 0 {
		t.Fatalf("%d pods, %v", len(s.Pods), s.Unused)
	}
	p := s.Pods[0]
	want := `pod shop/awesome-app
istio-init run 0: 13:16:17Z to 13:16:18Z exit 0 signal 0 ""
app run 1: 13:16:22Z to 13:16:23Z exit 1 signal 0 "Connection refused"
app run 2: 13:16:36Z to running
app log of run 2: 2 lines, first 13:16:37.001Z ±1ms node
istio-proxy run 0: 13:16:20Z to running
istio-proxy log of run 0: 2 lines, first 13:16:20.480123Z ±1µs node
`
	if diff := cmp.Diff(want, summary(t, p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, m := range p.Missing {
		got[m.What] = m.Why
	}
	if diff := cmp.Diff(map[string]string{"previous log of container app": "forbidden: the user may not read it", "log of container istio-init": "unable to retrieve container logs for containerd://1"}, got); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if app := p.Container("app").Log(2); app.Truncated || !p.Container("istio-proxy").Log(0).Truncated {
		t.Error("a log is truncated if the API server sent as much as was requested, and else not")
	}
	if len(p.Owners) != 2 || p.Owners[1].Kind != "Deployment" || p.Owners[1].Object == nil || len(p.Events) != 1 {
		t.Errorf("owners %+v, events %+v", p.Owners, p.Events)
	}
	if !asked["shop/awesome-app app previous true timestamps true"] || len(asked) != 4 {
		t.Errorf("asked for %v", asked)
	}
	// The journal contains what the agent recorded.
	if j := p.Journal; j == nil || len(j.Entries) != 2 || j.Entries[0].Begin.At.Before(record.Process()) || j.Entries[0].Name != "drain" || !j.Entries[1].Failed || !j.Entries[1].End.Known() {
		t.Errorf("journal %+v", j)
	}
}

// Evidence that the user may not read, or that cannot be read in time, is listed as missing, and stops nothing.
func TestLiveWithoutRights(t *testing.T) {
	core := shop(t)
	for _, kind := range []string{"events", "replicasets"} {
		core.PrependReactor("*", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
		})
	}
	s, err := Live(t.Context(), cluster.Access{Core: core}, cluster.Wanted{Namespace: "shop", Names: []string{"pod/awesome-app"}, OpenLog: func(context.Context, string, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
		return nil, context.DeadlineExceeded
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range s.Pods[0].Missing {
		got[m.What] = m.Why
	}
	late := "the API server did not answer in time"
	if diff := cmp.Diff(map[string]string{"ReplicaSet shop/awesome-app-7d9": "it is not among the evidence", "events of namespace shop": "forbidden: the user may not read it", "log of container app": late,
		"previous log of container app": late, "log of container istio-proxy": late, "log of container istio-init": late}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLivePods(t *testing.T) {
	for name, tt := range map[string]struct {
		wanted cluster.Wanted
		want   string
	}{
		"all of all namespaces":      {cluster.Wanted{}, "shop/awesome-app shop/other"},
		"by label":                   {cluster.Wanted{Selector: "app=awesome"}, "shop/awesome-app"},
		"the first ones":             {cluster.Wanted{Pods: 1}, "shop/awesome-app; there are 2 pods, of which the first 1 are read"},
		"one that is not there":      {cluster.Wanted{Namespace: "shop", Names: []string{"x"}}, `reading pod shop/x: pods "x" not found`},
		"a kind without pods":        {cluster.Wanted{Namespace: "shop", Names: []string{"svc/x"}}, "svc/x: want POD, deploy/NAME, job/NAME, cronjob/NAME, sts/NAME, ds/NAME or rs/NAME"},
		"a workload that is no more": {cluster.Wanted{Namespace: "shop", Names: []string{"job/x"}}, `reading Job shop/x: jobs.batch "x" not found`},
		"one without a selector":     {cluster.Wanted{Namespace: "shop", Names: []string{"rs/awesome-app-7d9"}}, "ReplicaSet shop/awesome-app-7d9: it selects no pods"},
		"a name without a namespace": {cluster.Wanted{Names: []string{"x"}}, "x: a name needs a namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Live(t.Context(), cluster.Access{Core: shop(t)}, tt.wanted)
			var got []string
			if err != nil {
				got = append(got, err.Error())
			} else {
				for _, p := range s.Pods {
					got = append(got, p.Name())
				}
				got = []string{strings.Join(got, " ")}
				for _, u := range s.Unused {
					got = append(got, u.Why)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A CronJob has the pods of its Jobs, and no other ones.
func TestLiveCronJob(t *testing.T) {
	var objects []runtime.Object
	for i, name := range []string{"nightly", "weekly", "yearly"} {
		objects = append(objects, object(t, fmt.Sprintf("{apiVersion: batch/v1, kind: CronJob, metadata: {name: %s, namespace: shop, uid: c%d}}", name, i)))
		for _, job := range []string{name + "-1", name + "-2"}[i:] {
			objects = append(objects, object(t, fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: %s, namespace: shop, uid: %s, ownerReferences: [{kind: CronJob, name: %s, uid: c%d, controller: true}]}}", job, job, name, i)),
				object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s-x, namespace: shop, labels: {job-name: %s}, ownerReferences: [{kind: Job, name: %s, uid: %s, controller: true}]}, spec: {containers: [{name: app}]}}", job, job, job, job)))
		}
	}
	for name, want := range map[string]string{"cronjob/nightly": "shop/nightly-1-x shop/nightly-2-x", "cj/weekly": "shop/weekly-2-x", "cronjobs/yearly": ""} {
		s, err := Live(t.Context(), cluster.Access{Core: fake.NewClientset(objects...)}, cluster.Wanted{Namespace: "shop", Names: []string{name}})
		var got []string
		if err == nil {
			for _, p := range s.Pods {
				got = append(got, p.Name())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
}

// A workload without a pod is evidence, if its ReplicaSet or an event says why it has none.
func TestLiveWithoutPods(t *testing.T) {
	objects := []runtime.Object{
		object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: web}}}}"),
		object(t, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop, labels: {app: web}, ownerReferences: [{kind: Deployment, name: web, controller: true}]}, spec: {replicas: 2, selector: {matchLabels: {app: web}}}}"),
		object(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {replicas: 0, selector: {matchLabels: {app: db}}}}"),
		object(t, "{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop, uid: e}, involvedObject: {kind: ReplicaSet, namespace: shop, name: web-1}, reason: FailedCreate, message: 'Error creating: x'}"),
		object(t, "{apiVersion: v1, kind: Event, metadata: {name: f, namespace: shop, uid: f}, involvedObject: {kind: ReplicaSet, namespace: shop, name: other}, reason: FailedCreate, message: 'Error creating: x'}"),
	}
	core := fake.NewClientset(objects...)
	s, err := Live(t.Context(), cluster.Access{Core: core}, cluster.Wanted{Namespace: "shop", Names: []string{"deploy/web"}})
	if err != nil || len(s.Creators) != 1 || s.Creators[0].About() != "ReplicaSet shop/web-1" || s.Creators[0].Want != 2 || len(s.Creators[0].Events) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Live(t.Context(), cluster.Access{Core: core}, cluster.Wanted{Namespace: "shop", Names: []string{"sts/db"}}); err == nil || !strings.Contains(err.Error(), "StatefulSet db in namespace shop has no pod") {
		t.Error(err)
	}
	if s, err := Live(t.Context(), cluster.Access{Core: core}, cluster.Wanted{Namespace: "shop"}); err != nil || len(s.Creators) != 2 {
		t.Errorf("all of the namespace: %+v, %v", s, err)
	}
}
