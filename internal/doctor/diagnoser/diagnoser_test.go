package diagnoser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	fakerest "k8s.io/client-go/rest/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/test/process"
)

// pod returns an injected pod that runs and is ready.
func pod(name string) *corev1.Pod {
	start := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: start, Annotations: map[string]string{contract.Status: "{}"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "other", Image: "other:1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &start,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: start}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: start}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", State: running, Ready: true, ContainerID: "containerd://a"},
				{Name: "other", State: running, Ready: true, ContainerID: "containerd://b"},
			},
		},
	}
}

// outOfMemory adds a restart of the container app, which the kernel killed.
func outOfMemory(p *corev1.Pod) {
	end := metav1.NewTime(time.Now().Truncate(time.Second))
	app := &p.Status.ContainerStatuses[0]
	app.RestartCount++
	app.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", StartedAt: p.CreationTimestamp, FinishedAt: end, ContainerID: "containerd://0"}
	app.State.Running = &corev1.ContainerStateRunning{StartedAt: end}
}

// withoutImage makes the container app wait for an image that cannot be pulled.
func withoutImage(p *corev1.Pod) {
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions[1].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}}
}

// A world is a diagnoser with a fake API server.
type world struct {
	*testing.T
	core *fake.Clientset
	d    *Diagnoser
	stop func()
}

func quick() Options {
	return Options{Slow: time.Millisecond, Settle: time.Millisecond, Retry: time.Millisecond, Rate: 1e6, Instance: "one"}
}

// run starts a diagnoser on a cluster with these objects.
func run(t *testing.T, o Options, objects ...kruntime.Object) *world {
	t.Helper()
	return start(t, o, fake.NewClientset(objects...))
}

func start(t *testing.T, o Options, core *fake.Clientset) *world {
	t.Helper()
	w := &world{T: t, core: core}
	if o.Core == nil {
		o.Core = core
	}
	w.d = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	before := w.watches()
	go func() { defer close(done); w.d.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(w.stop)
	w.until("the watch", func() bool { return w.watches() > before })
	return w
}

func (w *world) watches() (n int) {
	for _, a := range w.core.Actions() {
		if a.Matches("watch", "pods") {
			n++
		}
	}
	return n
}

func (w *world) until(what string, ok func() bool) {
	w.Helper()
	process.Retry(w, func() error {
		if ok() {
			return nil
		}
		return fmt.Errorf("%s: events %q, counts %v", what, w.events(), w.counted())
	})
}

// events returns the Events that were written, as "pod reason count".
func (w *world) events() (out []string) {
	w.Helper()
	list, err := w.core.CoreV1().Events("").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%s %s %d", e.InvolvedObject.Name, e.Reason, e.Count))
	}
	return out
}

// counted returns the counts that are not 0.
func (w *world) counted() map[string]uint64 {
	out := map[string]uint64{}
	for code, n := range w.d.Counts() { // in any order: out is a map
		if n > 0 {
			out[code] = n
		}
	}
	return out
}

// set changes the status of a pod.
func (w *world) set(p *corev1.Pod) {
	w.Helper()
	if _, err := w.core.CoreV1().Pods(p.Namespace).UpdateStatus(w.Context(), p.DeepCopy(), metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// last creates another pod with a restart, and waits for its Event. If there is only one worker, all diagnoses that
// were queued before are then done.
func (w *world) last(name string) {
	w.Helper()
	p, before := pod(name), w.counted()["out-of-memory"]
	outOfMemory(p)
	if _, err := w.core.CoreV1().Pods(p.Namespace).Create(w.Context(), p, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until("the Event of "+name, func() bool {
		return strings.Contains(strings.Join(w.events(), ","), name+" ") && w.counted()["out-of-memory"] > before
	})
}

// is compares the Events and the counts with the expected ones. It waits for the counts, because a cause is counted
// after its Event is written.
func (w *world) is(events []string, counts map[string]uint64) {
	w.Helper()
	total := func(counts map[string]uint64) (n uint64) {
		for _, c := range counts { // in any order: a sum
			n += c
		}
		return n
	}
	w.until("the counts", func() bool { return total(w.counted()) >= total(counts) })
	if d := cmp.Diff(events, w.events()); d != "" {
		w.Errorf("Events (-want +got):\n%s", d)
	}
	if d := cmp.Diff(counts, w.counted()); d != "" {
		w.Errorf("counts (-want +got):\n%s", d)
	}
}

// A restart gets an Event with its cause, and the next restart for the same cause increases its count. Other
// changes, healthy pods and pods of another injector get no Event.
func TestARestartGetsAnEvent(t *testing.T) {
	app, well, other := pod("app"), pod("well"), pod("theirs")
	other.Annotations = map[string]string{contract.IstioStatus: "{}"}
	o := quick()
	o.Parallel = 1
	w := run(t, o, app, well, other)
	outOfMemory(app)
	outOfMemory(other)
	w.set(other)
	w.set(app)
	w.until("an Event", func() bool { return len(w.events()) == 1 })
	list, err := w.core.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := list.Items[0]
	if e.Reason != "OutOfMemory" || e.ReportingController != "outriderd" || e.ReportingInstance != "one" || e.Type != corev1.EventTypeWarning ||
		e.InvolvedObject != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "app", UID: "uid-app", FieldPath: "spec.containers{app}"}) {
		t.Errorf("%+v", e)
	}
	if want := "app ran out of memory (out-of-memory: outrider diagnose app -n shop)"; e.Message != want {
		t.Errorf("message %q, want %q", e.Message, want)
	}
	app.Labels = map[string]string{"changed": "yes"} // no restart
	w.set(app)
	w.last("next")
	w.is([]string{"app OutOfMemory 1", "next OutOfMemory 1"}, map[string]uint64{"out-of-memory": 2})
	outOfMemory(app)
	w.set(app)
	w.until("it is counted up", func() bool { return w.counted()["out-of-memory"] == 3 })
	w.is([]string{"app OutOfMemory 2", "next OutOfMemory 1"}, map[string]uint64{"out-of-memory": 3})
}

// The replica that takes over finds the existing Events, and does not write them again.
func TestAnotherReplicaWritesNothingTwice(t *testing.T) {
	app := pod("app")
	outOfMemory(app)
	o := quick()
	o.Parallel = 1
	one := run(t, o, app)
	one.until("an Event", func() bool { return len(one.events()) == 1 })
	one.stop()
	two := start(t, o, one.core)
	two.last("next")
	two.is([]string{"app OutOfMemory 1", "next OutOfMemory 1"}, map[string]uint64{"out-of-memory": 1})
}

// A restart that is older than the time limit recent gets no Event; a cluster has many such restarts.
func TestAnOldRestart(t *testing.T) {
	old := pod("old")
	outOfMemory(old)
	old.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(time.Now().Add(-recent))
	o := quick()
	o.Parallel = 1
	w := run(t, o, old)
	w.last("new")
	w.is([]string{"new OutOfMemory 1"}, map[string]uint64{"out-of-memory": 1})
}

// A slow start is diagnosed several times. If the diagnosis does not change, its Event is written only once.
func TestASlowStart(t *testing.T) {
	slow := pod("slow")
	withoutImage(slow)
	w := run(t, quick(), slow, pod("well"))
	reads := func() (n int) {
		for _, a := range w.core.Actions() {
			if get, is := a.(clienttesting.GetAction); is && a.Matches("get", "pods") && get.GetName() == "slow" {
				n++
			}
		}
		return n
	}
	w.until("all looks", func() bool { return reads() == looks })
	w.last("next")
	w.is([]string{"next OutOfMemory 1", "slow ImageMissing 1"}, map[string]uint64{"image-missing": 1, "out-of-memory": 1})
	if n := reads(); n != looks {
		t.Errorf("%d looks, want %d", n, looks)
	}
}

// The time of a start counts from the pod's scheduling. A pod that is ready in time is not diagnosed.
func TestAStartBeginsWithTheNode(t *testing.T) {
	waits, quickly := pod("waits"), pod("quickly")
	for _, p := range []*corev1.Pod{waits, quickly} {
		withoutImage(p)
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	w := run(t, quick(), waits, quickly)
	w.set(pod("quickly"))
	waits.Status.Conditions[0].Status = corev1.ConditionTrue
	w.set(waits)
	w.until("an Event", func() bool { return len(w.events()) == 1 })
	w.is([]string{"waits ImageMissing 1"}, map[string]uint64{"image-missing": 1})
}

// A failed request is repeated, with a growing delay, and each failure is noted until it succeeds.
func TestFailuresAreRetried(t *testing.T) {
	app := pod("app")
	var failures atomic.Int32
	var noted atomic.Int32
	o := quick()
	o.Note = func(_ string, err error) {
		if err != nil {
			noted.Add(1)
		}
	}
	core := fake.NewClientset(app)
	for _, request := range [][2]string{{"get", "pods"}, {"get", "events"}, {"create", "events"}} {
		var n atomic.Int32
		core.PrependReactor(request[0], request[1], func(clienttesting.Action) (bool, kruntime.Object, error) {
			if n.Add(1) <= 2 {
				failures.Add(1)
				return true, nil, apierrors.NewServiceUnavailable("the API server is away")
			}
			return false, nil, nil
		})
	}
	core.PrependReactor("list", "events", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		return a.GetNamespace() != "", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no role"))
	})
	w := start(t, o, core)
	outOfMemory(app)
	w.set(app)
	w.until("an Event", func() bool { return w.counted()["out-of-memory"] == 1 })
	w.is([]string{"app OutOfMemory 1"}, map[string]uint64{"out-of-memory": 1})
	if failures.Load() != 6 || noted.Load() != 6 {
		t.Errorf("%d failures, %d noted; want 6", failures.Load(), noted.Load())
	}
}

// The memory for a pod does not grow with its manifest. The test uses 10,000 pods of 20 KiB each.
func TestMemory(t *testing.T) {
	const pods, most = 10_000, 1 << 10
	kept := make([]any, 0, pods)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range pods {
		p := pod(fmt.Sprintf("pod-%d", i))
		p.Annotations["large"] = strings.Repeat("x", 20<<10)
		if i%2 == 0 {
			delete(p.Annotations, contract.Status)
		}
		r, err := keep(p)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, r)
	}
	if each := (heap() - before) / pods; each > most {
		t.Errorf("%d bytes of each pod, want at most %d", each, most)
	}
	runtime.KeepAlive(kept)
	w := run(t, quick(), pod("app"))
	w.until("the pod", func() bool { return len(w.d.store.List()) == 1 })
	if _, ok := w.d.store.List()[0].(*record); !ok {
		t.Errorf("the informer keeps %T", w.d.store.List()[0])
	}
}

// logging is an API server whose logs never end.
type logging struct {
	kubernetes.Interface
	read *atomic.Int64
}

func (l logging) CoreV1() typedcorev1.CoreV1Interface {
	return loggingCore{l.Interface.CoreV1(), l.read}
}

type loggingCore struct {
	typedcorev1.CoreV1Interface
	read *atomic.Int64
}

func (l loggingCore) Pods(namespace string) typedcorev1.PodInterface {
	return loggingPods{l.CoreV1Interface.Pods(namespace), l.read}
}

type loggingPods struct {
	typedcorev1.PodInterface
	read *atomic.Int64
}

func (l loggingPods) GetLogs(string, *corev1.PodLogOptions) *rest.Request {
	c := &fakerest.RESTClient{NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: corev1.SchemeGroupVersion, VersionedAPIPath: "/api/v1",
		Client: fakerest.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless{l.read})}, nil
		})}
	return c.Request()
}

type endless struct{ read *atomic.Int64 }

func (e endless) Read(p []byte) (int, error) {
	n := copy(p, "2026-11-24T13:16:22Z a line of a log that does not end\n")
	e.read.Add(int64(n))
	return n, nil
}

// Logs without an end are read only up to the limit. They may be read a few times, for their time zone and for scans.
func TestLogsAreBounded(t *testing.T) {
	app := pod("app")
	o := quick()
	o.LogBytes = 1 << 20
	core, read := fake.NewClientset(app), &atomic.Int64{}
	o.Core = logging{core, read}
	w := start(t, o, core)
	outOfMemory(app)
	w.set(app)
	w.until("an Event", func() bool { return len(w.events()) == 1 })
	if n := read.Load(); n > 8*o.LogBytes || n < 1000 {
		t.Errorf("%d bytes were read, with a limit of %d", n, o.LogBytes)
	}
}

// Causes have only codes of the catalogue, and a reason contains only letters.
func TestCausesAreBounded(t *testing.T) {
	counts := New(Options{}).Counts()
	if len(counts) != len(kinds.All())+1 {
		t.Errorf("%d causes of %d codes", len(counts), len(kinds.All()))
	}
	for code := range counts { // in any order: each is checked independently
		if strings.ContainsFunc(reason(code), func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) {
			t.Errorf("%s: reason %q", code, reason(code))
		}
	}
}

// causes returns the most certain cause of each container. For an undecided diagnosis, it returns one cause with the
// suspects and the command that would decide. A message that is too long is cut between characters.
func TestCauses(t *testing.T) {
	p := pod("app")
	outOfMemory(p)
	found := result.Report{Verdict: result.Found, Findings: []result.Finding{
		{Code: "proxy-died", Container: "other", Sentence: "a"}, {Code: "out-of-memory", Container: "app", Sentence: "b"}, {Code: "app-crash", Container: "app", Sentence: "c"},
	}}
	want := []cause{{"proxy-died", "other", "a", 0}, {"out-of-memory", "app", "b", 1}}
	if d := cmp.Diff(want, causes(found, p), cmp.AllowUnexported(cause{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	open := result.Report{Verdict: result.Undecided, Sentence: "undecided: it fits a and b", Decide: "kubectl logs app"}
	if got := causes(open, p); len(got) != 1 || got[0] != (cause{"undecided", "", "undecided: it fits a and b; this would decide: kubectl logs app", 1}) {
		t.Errorf("%+v", got)
	}
	if got := causes(result.Report{Verdict: result.Nothing}, p); got != nil {
		t.Errorf("%+v", got)
	}
	text := cause{code: "app-crash", sentence: strings.Repeat("é", 600)}.message(p)
	if len(text) > longest || len(text) < longest-2 || !strings.HasSuffix(text, "é… (app-crash: outrider diagnose app -n shop)") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// A panic during the diagnosis of a pod becomes an error for that pod.
func TestAPanicIsAnError(t *testing.T) {
	if _, err := judge(t.Context(), &evidence.Pod{Object: pod("app"), Containers: []*evidence.Container{nil}}, 0); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("error %v", err)
	}
}
