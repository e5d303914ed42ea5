package gather

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/doctor/evidence/cluster"
)

// halfway are a Deployment with a pod that is not ready and no room for another, an earlier revision, and workloads
// without pods in two other namespaces.
func halfway(t *testing.T) *fake.Clientset {
	set := func(name, hash, revision, status string) runtime.Object {
		return object(t, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: "+name+", namespace: shop, labels: {app: web, pod-template-hash: '"+hash+"'}, annotations: {deployment.kubernetes.io/revision: '"+revision+"'}, "+
			"ownerReferences: [{kind: Deployment, name: web, controller: true}]}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: 'web:"+revision+"'}]}}}, status: {"+status+"}}")
	}
	failed := func(kind, namespace, name string) runtime.Object {
		return object(t, fmt.Sprintf("{apiVersion: v1, kind: Event, metadata: {name: %[3]s, namespace: %[2]s, uid: %[2]s-%[3]s}, involvedObject: {kind: %[1]s, namespace: %[2]s, name: %[3]s}, reason: FailedCreate, message: 'Error creating: x', lastTimestamp: '2026-11-24T14:00:00Z'}", kind, namespace, name))
	}
	return fake.NewClientset(
		object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: web}}}}"),
		set("web-1", "1", "1", "replicas: 0"),
		set("web-2", "2", "2", "replicas: 1, conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}]"),
		object(t, "{apiVersion: v1, kind: Pod, metadata: {name: web-2-a, namespace: shop, labels: {app: web}, ownerReferences: [{kind: ReplicaSet, name: web-2, controller: true}]}, spec: {containers: [{name: app}]}, status: {phase: Pending}}"),
		object(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: data}, spec: {replicas: 3, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}}}, status: {replicas: 1}}"),
		object(t, "{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: data, creationTimestamp: '2026-11-24T13:00:00Z', labels: {app: db}, ownerReferences: [{kind: StatefulSet, name: db, controller: true}]}, spec: {containers: [{name: app}]}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}"),
		object(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: mig, namespace: empty}, spec: {parallelism: 1, selector: {matchLabels: {app: mig}}, template: {metadata: {labels: {app: mig}}}}}"),
		failed("ReplicaSet", "shop", "web-2"), failed("StatefulSet", "data", "db"), failed("Job", "empty", "mig"))
}

// A workload that has some pods and cannot create others is found by its name, by a namespace, a label, and in all
// namespaces, also in those that have no pod.
func TestLiveCreators(t *testing.T) {
	for name, tt := range map[string]struct {
		wanted cluster.Wanted
		want   []string
	}{
		"by name":                         {cluster.Wanted{Namespace: "shop", Names: []string{"deploy/web"}}, []string{"ReplicaSet shop/web-2 1 of 2"}},
		"the StatefulSet has a later one": {cluster.Wanted{Namespace: "data", Names: []string{"sts/db"}}, []string{"StatefulSet data/db 1 of 3"}},
		"a pod by its name":               {cluster.Wanted{Namespace: "shop", Names: []string{"web-2-a"}}, nil},
		"a namespace":                     {cluster.Wanted{Namespace: "shop"}, []string{"ReplicaSet shop/web-2 1 of 2"}},
		"a label":                         {cluster.Wanted{Selector: "app=db"}, []string{"StatefulSet data/db 1 of 3"}},
		"all namespaces":                  {cluster.Wanted{}, []string{"Job empty/mig -1 of 1", "ReplicaSet shop/web-2 1 of 2", "StatefulSet data/db 1 of 3"}},
		"without the events of others":    {cluster.Wanted{Namespace: "shop", Names: []string{"web-2-a"}, OwnEvents: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Live(t.Context(), cluster.Access{Core: halfway(t)}, tt.wanted)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range s.Creators {
				got = append(got, fmt.Sprintf("%s %d of %d", c.About(), c.Have, c.Want))
				if len(c.Events) > 1 {
					t.Errorf("%s: an event that was read twice counts twice", c.About())
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A StatefulSet that made a pod after the last failure is not stuck.
func TestALaterPod(t *testing.T) {
	core := halfway(t)
	p, err := core.CoreV1().Pods("data").Get(t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.CreationTimestamp.Time = time.Date(2026, 11, 24, 14, 0, 1, 0, time.UTC)
	if _, err := core.CoreV1().Pods("data").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := Live(t.Context(), cluster.Access{Core: core}, cluster.Wanted{Namespace: "data", Names: []string{"sts/db"}})
	if err != nil || len(s.Creators) != 0 {
		t.Errorf("%+v, %v", s.Creators, err)
	}
}

// Of a Deployment with a pod that is not well all revisions are read, with their templates; else only what owns pods.
func TestLiveRevisions(t *testing.T) {
	templates := func(w cluster.Wanted, core *fake.Clientset) (out []string) {
		s, err := Live(t.Context(), cluster.Access{Core: core}, w)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range s.Owners {
			if o.Template != nil && o.Kind == "ReplicaSet" {
				out = append(out, o.Template.Spec.Containers[0].Image)
			}
		}
		return out
	}
	if got := templates(cluster.Wanted{Namespace: "shop"}, halfway(t)); !slices.Equal(got, []string{"web:1", "web:2"}) {
		t.Error(got)
	}
	if got := templates(cluster.Wanted{Namespace: "shop", Names: []string{"web-2-a"}, OwnEvents: true}, halfway(t)); !slices.Equal(got, []string{"web:2"}) {
		t.Errorf("for one pod, as the control plane asks: %v", got)
	}
	core := halfway(t)
	core.PrependReactor("list", "replicasets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("no right")
	})
	if got := templates(cluster.Wanted{Namespace: "shop"}, core); !slices.Equal(got, []string{"web:2"}) {
		t.Errorf("without the right: %v", got)
	}
}

// Of very many pods the logs are read of those that are not well.
func TestLogsOfManyPods(t *testing.T) {
	var all []runtime.Object
	for i := range cluster.MostLogged + 1 {
		state, ready := "running: {startedAt: '2026-11-24T13:00:00Z'}", "True"
		if i == 7 {
			ready = "False"
		}
		all = append(all, object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: shop}, spec: {containers: [{name: app}]}, status: {phase: Running, conditions: [{type: Ready, status: '%s'}], containerStatuses: [{name: app, state: {%s}}]}}", i, ready, state)))
	}
	var read atomic.Int32
	s, err := Live(t.Context(), cluster.Access{Core: fake.NewClientset(all...)}, cluster.Wanted{Namespace: "shop", OpenLog: func(_ context.Context, _, pod string, _ *corev1.PodLogOptions) (io.ReadCloser, error) {
		read.Add(1)
		if pod != "p7" {
			t.Errorf("the log of %s", pod)
		}
		return io.NopCloser(strings.NewReader("")), nil
	}})
	if err != nil || read.Load() != 1 || len(s.Pods) != cluster.MostLogged+1 {
		t.Errorf("%d logs, %v", read.Load(), err)
	}
	if lines := s.Left(); len(lines) != 1 || !strings.Contains(lines[0], "there are more than 1000 pods: of the 1000 that are ready and did not restart") {
		t.Error(lines)
	}
}
