package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/phases"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/cluster"
	"outrider.dev/internal/doctor/evidence/gather"
)

// Options of [Follow]. The zero value of a field means its default.
type Options struct {
	Namespace string // empty: all namespaces
	// Name is POD, or KIND/NAME of a workload, which is followed until its roll-out is complete. If it is empty, the
	// pods of the Selector are followed; pods that are ready or have ended at the beginning are not diagnosed.
	Name     string
	Selector string

	ShowSecrets bool
	Slow        time.Duration // time after which a pod that is not ready is diagnosed; default [phases.SlowStart]
	Parallel    int           // concurrent diagnoses; default 4
	Attempts    int           // attempts to read a pod; default 4
	Waits       func(string)  // is called with a text that names what Follow waits for; may be nil

	read func(ctx context.Context, namespace, name string) (*evidence.Set, error)
}

func (o Options) defaults(c cluster.Access) Options {
	o.Slow = cmp.Or(o.Slow, phases.SlowStart)
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.Attempts = cmp.Or(o.Attempts, 4)
	if o.Waits == nil {
		o.Waits = func(string) {}
	}
	if o.read == nil {
		o.read = func(ctx context.Context, namespace, name string) (*evidence.Set, error) {
			return gather.Live(ctx, c, cluster.Wanted{Namespace: namespace, Names: []string{name}, OwnEvents: true})
		}
	}
	return o
}

// Follow reports diagnoses until ctx ends or the roll-out is complete, and then returns the summary. It passes the
// lines to the function say, one at a time, and stops if that function returns an error. It fails if the pods or the
// workload cannot be watched.
func Follow(ctx context.Context, c cluster.Access, o Options, say func(Line) error) (Summary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &follower{Options: o.defaults(c), say: say, all: map[key]*followed{}, causes: map[string]int{}, changed: make(chan struct{}, 1), failed: make(chan error, 1),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](200*time.Millisecond, 10*time.Second))}
	kind, err := f.watch(ctx, c)
	if err != nil {
		return Summary{}, err
	}
	var workers sync.WaitGroup
	for range f.Parallel {
		workers.Go(func() {
			for f.next(ctx) {
			}
		})
	}
	out, err := f.until(ctx, kind)
	cancel()
	f.queue.ShutDown()
	workers.Wait()
	if err != nil {
		return Summary{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := summary(f.diagnosed, f.problems, f.causes)
	s.Complete, s.Stuck = out.done, out.stuck
	return s, f.say(Line{Version: result.Version, Time: time.Now(), Summary: &s})
}

type follower struct {
	Options
	queue    workqueue.TypedRateLimitingInterface[key]
	pods     cache.SharedIndexInformer
	workload cache.SharedIndexInformer // nil: no workload is named
	changed  chan struct{}             // signals a change that may have completed the roll-out
	failed   chan error

	mu                  sync.Mutex // guards all fields below, and is held during calls of say
	say                 func(Line) error
	all                 map[key]*followed // pods that exist
	diagnosed, problems int               // numbers of pods, including deleted ones
	causes              map[string]int
}

// A key identifies a pod. It contains the UID because another pod may get the same name later.
type key struct {
	types.NamespacedName
	uid types.UID
}

func keyOf(p *corev1.Pod) key {
	return key{types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID}
}

// followed holds what was reported of a pod.
type followed struct {
	state    state    // at the last diagnosis
	said     []string // the most recent reports
	cause    string
	counted  bool
	failures bool // the pod is already counted in problems
}

// watch starts the informers. It fails if the pods or the workload cannot be read now. Later errors are retried by
// the informers.
func (f *follower) watch(ctx context.Context, c cluster.Access) (kind string, err error) {
	selector, fields, of, name := f.Selector, "", "", ""
	switch of, name, _ = strings.Cut(f.Name, "/"); {
	case f.Name == "":
	case name == "":
		fields = "metadata.name=" + f.Name
	case of == "pod" || of == "pods" || of == "po":
		fields = "metadata.name=" + name
	default:
		if kind, selector, err = cluster.Selects(ctx, c, f.Namespace, f.Name); err != nil {
			return "", err
		}
		if resources[kind].Resource == "" {
			return "", fmt.Errorf("%s: a %s has no roll-out: name a Job of it", f.Name, kind)
		}
	}
	one := metav1.ListOptions{LabelSelector: selector, FieldSelector: fields, Limit: 1}
	if _, err := c.Core.CoreV1().Pods(f.Namespace).List(ctx, one); err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	pods := informers.NewSharedInformerFactoryWithOptions(c.Core, 0, informers.WithNamespace(f.Namespace), informers.WithTransform(small),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = selector, fields }))
	f.pods = pods.Core().V1().Pods().Informer()
	if err := f.start(ctx, f.pods, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, first bool) { f.seen(o, first) },
		UpdateFunc: func(_, o any) { f.seen(o, false) },
		DeleteFunc: f.gone,
	}); err != nil || kind == "" {
		return kind, err
	}
	own := informers.NewSharedInformerFactoryWithOptions(c.Core, 0, informers.WithNamespace(f.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }))
	generic, err := own.ForResource(resources[kind])
	if err != nil {
		return "", err
	}
	f.workload = generic.Informer()
	return kind, f.start(ctx, f.workload, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(any, bool) { f.poke() },
		UpdateFunc: func(any, any) { f.poke() },
		DeleteFunc: func(any) { f.poke() },
	})
}

// start runs an informer until ctx ends. It returns when the handler has received all existing objects.
func (f *follower) start(ctx context.Context, i cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	if err := i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			select {
			case f.failed <- fmt.Errorf("watching: %w", err):
			default:
			}
			return
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			f.Waits("the watch ended, and begins again: " + err.Error())
		}
	}); err != nil {
		return err
	}
	handled, err := i.AddEventHandler(handler)
	if err != nil {
		return err
	}
	go i.RunWithContext(ctx)
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		cache.WaitForCacheSync(ctx.Done(), handled.HasSynced)
	}()
	select {
	case <-synced:
		return nil // also if ctx has ended: then there is nothing to report
	case err := <-f.failed:
		return err
	}
}

func (f *follower) poke() {
	select {
	case f.changed <- struct{}{}:
	default: // a signal is already pending
	}
}

// until waits until the roll-out or ctx has ended. It returns the result of the roll-out, or the zero value if ctx
// ended first.
func (f *follower) until(ctx context.Context, kind string) (rollout, error) {
	for {
		if kind != "" {
			out, err := f.progress(kind)
			if err != nil || out.done || out.stuck != "" {
				return out, err
			}
			f.Waits(fmt.Sprintf("%s: %s", f.Name, out.waits))
		}
		select {
		case <-ctx.Done():
			return rollout{}, nil
		case err := <-f.failed:
			return rollout{}, err
		case <-f.changed:
		}
	}
}

// progress returns the progress of the workload. The roll-out is not reported as done or stuck before all its pods
// have been diagnosed.
func (f *follower) progress(kind string) (rollout, error) {
	var out rollout
	there := false
	_, name, _ := strings.Cut(f.Name, "/")
	for _, o := range f.workload.GetStore().List() {
		if m, ok := o.(metav1.Object); ok && m.GetName() == name {
			out, there = rolloutOf(o), true
		}
	}
	if !there {
		return out, fmt.Errorf("%s %s/%s was deleted", kind, f.Namespace, name)
	}
	if !out.done && out.stuck == "" {
		return out, nil
	}
	left, ready := 0, 0
	for _, o := range f.pods.GetStore().List() { // in any order: they are only counted
		p := o.(*corev1.Pod)
		if p.DeletionTimestamp != nil {
			continue
		}
		if isReady(p) {
			ready++
		}
		if f.isLeft(p, kind, out.stuck != "") {
			left++
		}
	}
	if left > 0 || out.stuck == "" && ready < out.pods {
		return rollout{waits: fmt.Sprintf("%d pods are to be diagnosed", max(left, out.pods-ready))}, nil
	}
	return out, nil
}

// isLeft reports whether a pod must still be diagnosed, or will still change: the new status of the workload may
// arrive before the new statuses of its pods.
func (f *follower) isLeft(p *corev1.Pod, kind string, stuck bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, s := f.all[keyOf(p)], stateOf(p, f.isSlow(p))
	switch {
	case known == nil || s.due() && known.state != s:
		return true
	case stuck:
		return false
	case kind == "Job":
		return !s.ended
	}
	return !s.ready && !s.ended
}

func (f *follower) isSlow(p *corev1.Pod) bool { return slowIn(p, f.Slow, time.Now()) <= 0 }

// seen handles each new state of a pod.
func (f *follower) seen(o any, first bool) {
	p := o.(*corev1.Pod)
	k, s := keyOf(p), stateOf(p, f.isSlow(p))
	f.mu.Lock()
	known := f.all[k]
	fresh := known == nil
	if fresh {
		known = &followed{}
		if first && f.Name == "" && (s.ready || s.ended) {
			known.state = s // a pod that was healthy from the beginning is not followed
		}
		f.all[k] = known
	}
	changed := s != known.state
	f.mu.Unlock()
	if fresh && !s.ready && !s.ended && !s.slow {
		f.queue.AddAfter(k, slowIn(p, f.Slow, time.Now())+time.Millisecond)
	}
	if changed && s.due() {
		f.queue.Add(k)
	}
	f.poke()
}

func (f *follower) gone(o any) {
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = t.Obj
	}
	if p, ok := o.(*corev1.Pod); ok {
		f.mu.Lock()
		delete(f.all, keyOf(p))
		f.mu.Unlock()
	}
	f.poke()
}

// next waits for the next pod of the queue, and diagnoses it if its state has changed. It returns false when the
// queue is shut down.
func (f *follower) next(ctx context.Context) bool {
	k, end := f.queue.Get()
	if end {
		return false
	}
	defer f.queue.Done(k)
	o, there, err := f.pods.GetStore().GetByKey(k.String())
	p, ok := o.(*corev1.Pod)
	if err != nil || !there || !ok || p.UID != k.uid || p.DeletionTimestamp != nil {
		f.queue.Forget(k)
		return true
	}
	s := stateOf(p, f.isSlow(p))
	f.mu.Lock()
	known := f.all[k]
	same := known == nil || known.state == s || !s.due()
	f.mu.Unlock()
	if same {
		f.queue.Forget(k)
		return true
	}
	r, err := f.diagnose(ctx, k)
	switch {
	case ctx.Err() != nil:
		return true
	case err != nil && !errors.Is(err, errGone) && f.queue.NumRequeues(k) < f.Attempts-1:
		f.queue.AddRateLimited(k)
		return true
	case err == nil:
		f.tell(k, s, lineOf(r, time.Now()))
	case !errors.Is(err, errGone):
		f.tell(k, s, Line{Version: result.Version, Time: time.Now(), Pod: k.String(), Problem: err.Error()})
	}
	f.queue.Forget(k)
	f.poke()
	return true
}

// errGone means that the pod no longer exists, so that its last report is final.
var errGone = errors.New("the pod is gone")

func (f *follower) diagnose(ctx context.Context, k key) (result.Report, error) {
	set, err := f.read(ctx, k.Namespace, k.Name)
	if apierrors.IsNotFound(err) {
		return result.Report{}, errGone
	}
	if err != nil {
		return result.Report{}, err
	}
	if len(set.Pods) != 1 || set.Pods[0].Object.UID != k.uid {
		return result.Report{}, errGone
	}
	return diagnose.Diagnose(ctx, set.Pods[0], diagnose.Options{ShowSecrets: f.ShowSecrets, Slow: f.Slow})
}

// tell reports a line, unless the same text was recently reported for that pod.
func (f *follower) tell(k key, s state, l Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.all[k]
	if known == nil {
		return // the pod was deleted meanwhile
	}
	known.state = s
	if slices.Contains(known.said, l.said()) {
		return
	}
	known.said = append(known.said[max(len(known.said)+1-mostSaid, 0):], l.said())
	f.count(known, l)
	if err := f.say(l); err != nil {
		select {
		case f.failed <- err:
		default:
		}
	}
}

// mostSaid is the number of a pod's latest reports that are kept, for pods that keep restarting.
const mostSaid = 16

// count counts a pod under its latest cause, and no longer under the one before.
func (f *follower) count(known *followed, l Line) {
	if l.Problem != "" {
		if !known.failures {
			f.problems++
		}
		known.failures = true
		return
	}
	if !known.counted {
		known.counted = true
		f.diagnosed++
	}
	if l.Code == "" || l.Code == known.cause {
		return
	}
	if f.causes[l.Code]++; known.cause != "" {
		if f.causes[known.cause]--; f.causes[known.cause] == 0 {
			delete(f.causes, known.cause)
		}
	}
	known.cause = l.Code
}
