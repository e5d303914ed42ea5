package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/cluster"
	"outrider.dev/internal/doctor/evidence/gather"
)

// patience is the time after which a test fails if an event for which it waits has not happened.
const patience = time.Minute

// A world is a cluster that Follow watches.
type world struct {
	t       *testing.T
	core    *fake.Clientset
	cancel  context.CancelFunc
	lines   chan Line
	watches chan watch.Interface // watches of pods and of the workload, in the order in which they begin
	ended   chan error
	summary Summary
	reads   atomic.Int32
}

// start runs Follow in a cluster with the objects. A pod has the evidence of the incident that its label "incident"
// names. The first watches of pods, as many as the parameter broken says, report no event.
func start(t *testing.T, o Options, broken int, objects ...runtime.Object) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, core: fake.NewClientset(objects...), cancel: cancel, lines: make(chan Line, 100), watches: make(chan watch.Interface, 100), ended: make(chan error, 1)}
	w.core.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		if a.GetResource().Resource == "pods" && broken > 0 { // this watch reports no event
			broken--
			i := watch.NewFake()
			w.watches <- i
			return true, i, nil
		}
		i, err := w.core.Tracker().Watch(a.GetResource(), a.GetNamespace())
		w.watches <- i
		return true, i, err
	})
	if o.read == nil {
		o.read = w.read
	}
	go func() {
		var err error
		w.summary, err = Follow(ctx, cluster.Access{Core: w.core}, o, func(l Line) error {
			w.lines <- l
			return nil
		})
		w.ended <- err
	}()
	t.Cleanup(cancel)
	return w
}

func (w *world) read(ctx context.Context, namespace, name string) (*evidence.Set, error) {
	w.reads.Add(1)
	p, err := w.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	set, err := gather.Read(ctx, gather.Options{}, filepath.Join("../../../../testdata/incidents", p.Labels["incident"]))
	if err == nil {
		set.Pods[0].Object.Namespace, set.Pods[0].Object.Name, set.Pods[0].Object.UID = p.Namespace, p.Name, p.UID
	}
	return set, err
}

func receive[T any](t *testing.T, what string, from chan T) (out T) {
	t.Helper()
	select {
	case out = <-from:
	case <-time.After(patience):
		t.Fatalf("no %s in %s", what, patience)
	}
	return out
}

func (w *world) watched(n int) (last watch.Interface) {
	w.t.Helper()
	for range n {
		last = receive(w.t, "watch", w.watches)
	}
	return last
}

// says waits for a line, and compares its text, without the time, with want.
func (w *world) says(want string) {
	w.t.Helper()
	if diff := cmp.Diff(want, text(w.t, receive(w.t, "line", w.lines))); diff != "" {
		w.t.Errorf("(-want +got):\n%s", diff)
	}
}

func text(t *testing.T, l Line) string {
	t.Helper()
	var b bytes.Buffer
	if err := l.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	_, out, _ := strings.Cut(strings.TrimSpace(b.String()), "  ")
	return out
}

// ends waits for the end of Follow, and checks its summary and exit status. It fails if there is another line before
// the end.
func (w *world) ends(want string, status int) {
	w.t.Helper()
	if err := receive(w.t, "end", w.ended); err != nil {
		w.t.Fatal(err)
	}
	w.says(want)
	if len(w.lines) > 0 {
		w.t.Errorf("one more line: %s", text(w.t, <-w.lines))
	}
	if got := w.summary.Status(); got != status {
		w.t.Errorf("exit status %d, want %d", got, status)
	}
}

func (w *world) create(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.core.CoreV1().Pods(p.Namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(p *corev1.Pod) {
	w.t.Helper()
	if _, err := w.core.CoreV1().Pods(p.Namespace).UpdateStatus(w.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(p *corev1.Pod) {
	w.t.Helper()
	if err := w.core.CoreV1().Pods(p.Namespace).Delete(w.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// made returns a pod that was created now, with the evidence of an incident.
func made(name, incident string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid of " + name), CreationTimestamp: metav1.Now(),
		Labels: map[string]string{"app": "web", "incident": incident}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func ready(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func restarted(p *corev1.Pod, times int32) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: times}}
	return p
}

func web(replicas, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2},
		Spec:   appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: available}}
}

func (w *world) status(d *appsv1.Deployment) {
	w.t.Helper()
	if _, err := w.core.AppsV1().Deployments(d.Namespace).UpdateStatus(w.t.Context(), d, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

const (
	race  = "startup race: awesome-app made a call before its proxy was ready, was refused, and ended (exit code 1) (startup-race)"
	well  = "nothing is wrong as far as the evidence shows; some of it is missing"
	never = time.Hour // so long that no start in a test counts as slow
)

// A roll-out of two pods, one with a race, ends when both are ready and diagnosed. It does not end before, when the
// Deployment reports that both are available.
func TestRollout(t *testing.T) {
	a, b := made("web-a", "clean"), made("web-b", "awesome-app")
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never}, 0, web(2, 0), a)
	w.watched(2)
	w.update(ready(a))
	w.says("shop/web-a " + well)
	w.create(b)
	w.update(restarted(b, 1))
	w.says("shop/web-b " + race)
	w.update(restarted(b, 2)) // the same diagnosis is not reported again
	w.status(web(2, 2))
	w.update(ready(restarted(b, 2)))
	w.ends("the roll-out is complete: 2 pods diagnosed, 1 startup-race", 1)
}

func TestRolloutWithoutFindings(t *testing.T) {
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never}, 0, web(1, 1), ready(made("web-a", "clean")))
	w.says("shop/web-a " + well)
	w.ends("the roll-out is complete: 1 pod diagnosed, nothing found", 0)
}

// A roll-out whose progress deadline is exceeded is reported as stuck, after the diagnoses of its pods.
func TestRolloutThatIsStuck(t *testing.T) {
	d := web(1, 0)
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never}, 0, d, restarted(made("web-a", "awesome-app"), 3), made("web-b", "clean"))
	w.says("shop/web-a " + race)
	w.ends("the roll-out does not complete, its progress deadline is exceeded: 1 pod diagnosed, 1 startup-race", 1)
}

// Pods that were ready at the beginning are not diagnosed. Pods that are created later are diagnosed, until Ctrl-C.
func TestSelection(t *testing.T) {
	w := start(t, Options{Selector: "app=web", Slow: never}, 0, ready(made("old", "awesome-app")))
	w.watched(1)
	w.create(ready(made("new", "clean")))
	w.says("shop/new " + well)
	w.cancel()
	w.ends("ended: 1 pod diagnosed, nothing found", 0)
	if w.summary.Complete {
		t.Error("it was ended, and is not complete")
	}
}

// If a watch ends, because its resource version is too old for the API server (410) or the connection is lost, the
// pods are listed again, so that changes in the meantime are noticed.
func TestResumes(t *testing.T) {
	for name, end := range map[string]func(*watch.FakeWatcher){
		"expired": func(f *watch.FakeWatcher) {
			f.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		},
		"closed": func(f *watch.FakeWatcher) { f.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			gone := made("web-gone", "clean")
			w := start(t, Options{Namespace: "shop", Slow: never}, 1, gone)
			broken := w.watched(1).(*watch.FakeWatcher)
			w.create(ready(made("web-a", "awesome-app")))
			w.delete(gone)
			end(broken)
			w.says("shop/web-a " + race)
			w.watched(1)
			w.create(ready(made("web-b", "clean")))
			w.says("shop/web-b " + well)
			w.cancel()
			w.ends("ended: 2 pods diagnosed, 1 startup-race", 1)
		})
	}
}

// A pod that is deleted while its evidence is read is not reported. A new pod with the same name is another pod.
func TestDeletedMeanwhile(t *testing.T) {
	reading, goOn := make(chan bool), make(chan bool)
	var w *world
	first := true
	o := Options{Namespace: "shop", Slow: never, Parallel: 1}
	o.read = func(ctx context.Context, namespace, name string) (*evidence.Set, error) {
		if first {
			first = false
			reading <- true
			<-goOn
		}
		return w.read(ctx, namespace, name)
	}
	old := made("web-0", "awesome-app")
	again := made("web-0", "clean")
	again.UID = "another"
	w = start(t, o, 0, old)
	w.watched(1)
	w.update(ready(old))
	<-reading
	w.delete(old)
	w.create(ready(again))
	close(goOn)
	w.says("shop/web-0 " + well)
	w.cancel()
	w.ends("ended: 1 pod diagnosed, nothing found", 0)
}

// A pod that is not ready in time is diagnosed even if it does not change.
func TestSlow(t *testing.T) {
	w := start(t, Options{Namespace: "shop", Slow: 50 * time.Millisecond}, 0, made("web-a", "awesome-app"))
	w.says("shop/web-a " + race)
	w.cancel()
	w.ends("ended: 1 pod diagnosed, 1 startup-race", 1)
}

// Reading evidence is repeated if it fails, and the failure is reported if all attempts fail.
func TestProblem(t *testing.T) {
	reads := 0
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never, Attempts: 2, read: func(context.Context, string, string) (*evidence.Set, error) {
		reads++
		return nil, errors.New("the API server is away")
	}}, 0, web(1, 1), ready(made("web-a", "clean")))
	w.says("shop/web-a cannot be looked at: the API server is away")
	w.ends("the roll-out is complete: 0 pods diagnosed, nothing found, 1 could not be looked at", 2)
	if reads != 2 {
		t.Errorf("read %d times", reads)
	}
}

// With one diagnosis at a time, lines are in the order in which the API server lists the pods.
func TestOrder(t *testing.T) {
	var objects []runtime.Object
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("web-%02d", i)
		objects = append(objects, ready(made(name, "clean")))
		want = append(want, "shop/"+name)
	}
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never, Parallel: 1}, 0, append(objects, web(20, 20))...)
	var got []string
	for range want {
		got = append(got, receive(t, "line", w.lines).Pod)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	w.ends("the roll-out is complete: 20 pods diagnosed, nothing found", 0)
	if n := w.reads.Load(); n != 20 {
		t.Errorf("20 pods were read %d times", n)
	}
}

// Follow fails immediately if a resource cannot be watched or the workload is deleted.
func TestCannotLook(t *testing.T) {
	forbidden := func(kind string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("no role has it"))
	}
	for name, tt := range map[string]struct {
		name string
		deny func(*fake.Clientset)
		want string
	}{
		"list": {"", func(c *fake.Clientset) {
			c.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden("pods") })
		}, "listing pods: pods is forbidden: no role has it"},
		"watch": {"", func(c *fake.Clientset) {
			c.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, forbidden("pods") })
		}, "watching: pods is forbidden: no role has it"},
		"none": {"deploy/api", func(*fake.Clientset) {}, `reading Deployment shop/api: deployments.apps "api" not found`},
		"CronJob": {"cronjob/web", func(c *fake.Clientset) {
			_ = c.Tracker().Add(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
		}, "cronjob/web: a CronJob has no roll-out: name a Job of it"},
		"kind": {"svc/web", func(*fake.Clientset) {}, "svc/web: want POD, deploy/NAME, job/NAME, cronjob/NAME, sts/NAME, ds/NAME or rs/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			core := fake.NewClientset(web(1, 0))
			tt.deny(core)
			_, err := Follow(t.Context(), cluster.Access{Core: core}, Options{Namespace: "shop", Name: tt.name}, func(Line) error { return nil })
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	w := start(t, Options{Namespace: "shop", Name: "deploy/web", Slow: never}, 0, web(1, 0))
	w.watched(2)
	if err := w.core.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "end", w.ended); err == nil || err.Error() != "Deployment shop/web was deleted" {
		t.Errorf("got %v", err)
	}
}

// Without the option read, which only tests set, Follow reads a pod like "outrider diagnose POD".
func TestReadsTheCluster(t *testing.T) {
	p := ready(made("web-a", ""))
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	var got []Line
	_, err := Follow(t.Context(), cluster.Access{Core: fake.NewClientset(web(1, 1), p)}, Options{Namespace: "shop", Name: "deploy/web", Slow: never}, func(l Line) error {
		got = append(got, l)
		return nil
	})
	if err != nil || len(got) != 2 || got[0].Report == nil || got[0].Report.Pod != "shop/web-a" || got[1].Summary == nil {
		t.Errorf("%+v, %v", got, err)
	}
}
