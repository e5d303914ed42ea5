package diagnoser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/evidence"
)

// DefaultSlow is after which time a start is slow.
const DefaultSlow = 30 * time.Second

// Options of a diagnoser. The zero value of a field means its default, unless it is required.
type Options struct {
	Core     kubernetes.Interface          // required
	Slow     time.Duration                 // after a pod has a node, until it must be ready; default [DefaultSlow]
	Settle   time.Duration                 // after a restart: restarts that come together are one diagnosis; default 5s
	Parallel int                           // diagnoses at a time; default 2
	Rate     rate.Limit                    // of diagnoses a second; default 2
	LogBytes int64                         // of all logs of a pod; default 16 MiB
	Timeout  time.Duration                 // of one diagnosis; default 1m
	Retry    time.Duration                 // the first wait after a failure, which doubles; default 5s
	Instance string                        // name of this replica, for the Events
	Log      *slog.Logger                  // default: none
	Note     func(tried string, err error) // is called with what requests came to; default: nothing
}

func (o Options) withDefaults() Options {
	o.Slow = cmp.Or(o.Slow, DefaultSlow)
	o.Settle = cmp.Or(o.Settle, 5*time.Second)
	o.Parallel = cmp.Or(o.Parallel, 2)
	o.Rate = cmp.Or(o.Rate, 2)
	o.LogBytes = cmp.Or(o.LogBytes, 16<<20)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Retry = cmp.Or(o.Retry, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Note == nil {
		o.Note = func(string, error) {}
	}
	return o
}

const (
	longestRetry = 5 * time.Minute
	tries        = 8                // of one diagnosis that fails
	looks        = 5                // at a slow start: at once, after as long again, twice as long, and so on
	recent       = 10 * time.Minute // a restart before the watch began, as under the replica before
)

// A Diagnoser diagnoses pods. One of it runs in a cluster at a time.
type Diagnoser struct {
	o       Options
	limiter *rate.Limiter

	mu     sync.Mutex
	counts map[string]uint64 // has each cause from the beginning
	pods   map[types.UID]*progress
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	store  cache.Store
}

// progress is what was done for a pod that had to be diagnosed.
type progress struct {
	ends    int32 // of the last diagnosis
	looks   int
	written map[string]int32 // by code and container: the restarts then
}

// New returns a diagnoser, which does nothing until it runs.
func New(o Options) *Diagnoser {
	d := &Diagnoser{o: o.withDefaults(), counts: map[string]uint64{undecided: 0}}
	d.limiter = rate.NewLimiter(d.o.Rate, 10)
	for _, k := range diagnose.Kinds() {
		d.counts[string(k.Code)] = 0
	}
	return d
}

// Counts are the diagnoses by their causes, the codes of package diagnose and undecided. Each is
// there from the beginning, so that the first diagnosis is an increase.
func (d *Diagnoser) Counts() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

// Run watches and diagnoses until ctx ends. It may run again, but not twice at a time.
func (d *Diagnoser) Run(ctx context.Context) {
	d.o.Log.Info("this replica diagnoses pods", "slow_start", d.o.Slow)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](d.o.Retry, longestRetry))
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: d.watched(), ObjectType: &corev1.Pod{}, Transform: keep,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { d.changed(nil, o) },
			UpdateFunc: d.changed,
			DeleteFunc: d.deleted,
		},
	})
	d.mu.Lock()
	d.pods, d.queue, d.store = map[types.UID]*progress{}, queue, store
	d.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	for range d.o.Parallel {
		running.Go(func() { d.work(ctx) })
	}
	<-ctx.Done()
	queue.ShutDown()
}

// watched lists and watches all pods: the API server cannot select them by an annotation.
func (d *Diagnoser) watched() cache.ListerWatcher {
	const tried = "reading pods, to diagnose them"
	pods := d.o.Core.CoreV1().Pods(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := pods.List(ctx, o)
			d.note(ctx, tried, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := pods.Watch(ctx, o)
			d.note(ctx, tried, err)
			return w, err
		},
	}
}

// note leaves out what failed because this replica ends.
func (d *Diagnoser) note(ctx context.Context, tried string, err error) {
	if err == nil || ctx.Err() == nil {
		d.o.Note(tried, err)
	}
}

// changed decides whether and when a pod is looked at.
func (d *Diagnoser) changed(before, now any) {
	r, ok := now.(*record)
	if !ok || !r.injected {
		return
	}
	old, had := before.(*record)
	had = had && old.uid == r.uid
	switch {
	case had && r.ends > old.ends, !had && r.ends > 0 && time.Since(r.lastEnd) < recent:
		d.queue.AddAfter(r.NamespacedName, d.o.Settle)
	case !r.starting() || had && !old.scheduled.IsZero():
	default:
		d.queue.AddAfter(r.NamespacedName, time.Until(r.scheduled.Add(d.o.Slow)))
	}
}

// starting reports whether a pod has a node and is not ready.
func (r *record) starting() bool { return !r.ready && !r.over && !r.scheduled.IsZero() }

func (d *Diagnoser) deleted(object any) {
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	if r, ok := object.(*record); ok {
		d.mu.Lock()
		delete(d.pods, r.uid)
		d.mu.Unlock()
	}
}

// work diagnoses one pod after the other.
func (d *Diagnoser) work(ctx context.Context) {
	for {
		name, ended := d.queue.Get()
		if ended {
			return
		}
		err := d.look(ctx, name)
		if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) && !apierrors.IsConflict(err) {
			d.note(ctx, "diagnosing pods", err)
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			d.queue.Forget(name)
		case d.queue.NumRequeues(name) < tries:
			d.queue.AddRateLimited(name)
		default:
			d.queue.Forget(name)
			d.o.Log.Warn("a pod is not diagnosed", "pod", name.String(), "error", err)
		}
		d.queue.Done(name)
	}
}

// look diagnoses a pod if there is a reason, and sets the time of the next look at a slow start.
func (d *Diagnoser) look(ctx context.Context, name types.NamespacedName) error {
	r, p, err := d.current(name)
	if r == nil || err != nil {
		return err
	}
	restarted := r.ends > p.ends
	slow := r.starting() && p.looks < looks && time.Since(r.scheduled) >= d.o.Slow
	if restarted || slow {
		if err := d.limiter.Wait(ctx); err != nil {
			return err
		}
		if err := d.diagnose(ctx, r, p, slow && !restarted && p.looks+1 < looks); err != nil {
			return err
		}
		p.ends = r.ends
		if slow {
			p.looks++
		}
	}
	switch {
	case !r.starting() || p.looks >= looks:
	case p.looks == 0: // the queue keeps one time for a pod, the earliest: a restart replaced this one
		d.queue.AddAfter(name, time.Until(r.scheduled.Add(d.o.Slow)))
	default:
		d.queue.AddAfter(name, d.o.Slow<<(p.looks-1))
	}
	return nil
}

// current returns a pod and what was done for it; nil: it is gone, or not injected. One worker at a
// time has a pod.
func (d *Diagnoser) current(name types.NamespacedName) (*record, *progress, error) {
	d.mu.Lock() // of a pod that is in the store now, deleted is called later
	defer d.mu.Unlock()
	object, exists, err := d.store.GetByKey(name.String())
	r, _ := object.(*record)
	if err != nil || !exists || !r.injected {
		return nil, nil, err
	}
	p := d.pods[r.uid]
	if p == nil {
		p = &progress{written: map[string]int32{}}
		d.pods[r.uid] = p
	}
	return r, p, nil
}

// diagnose writes what is found. If the pod is looked at again, what is undecided is not written yet:
// the evidence may decide by then.
func (d *Diagnoser) diagnose(ctx context.Context, r *record, p *progress, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	set, err := evidence.Live(ctx, evidence.Cluster{Core: d.o.Core}, evidence.Wanted{
		Namespace: r.Namespace, Names: []string{r.Name}, OwnEvents: true, LogBytes: max(d.o.LogBytes/int64(max(r.logs, 1)), 64<<10), Parallel: 4,
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	pod := set.Pods[0]
	if pod.Object.UID != r.uid { // another one of that name
		return nil
	}
	report, err := judge(ctx, pod, d.o.Slow)
	if err != nil || report.Verdict == diagnose.Undecided && again {
		return err
	}
	for _, c := range causes(report, pod.Object) {
		if n, done := p.written[c.key()]; done && n == c.restarts {
			continue
		}
		fresh, err := d.write(ctx, pod.Object, c)
		if err != nil {
			return fmt.Errorf("writing an Event on pod %s: %w", report.Pod, err)
		}
		p.written[c.key()] = c.restarts
		if fresh {
			d.mu.Lock()
			d.counts[c.code]++
			d.mu.Unlock()
			d.o.Log.Info("diagnosis", "pod", report.Pod, "code", c.code, "sentence", c.sentence)
		}
	}
	return nil
}

// judge is [diagnose.Diagnose]. The evidence is what workloads write: a panic by some of it, which
// would be a bug there, must not end the control plane of all others.
func judge(ctx context.Context, pod *evidence.Pod, slow time.Duration) (r diagnose.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("diagnosing pod %s: panic: %v\n%s", pod.Name(), p, debug.Stack())
		}
	}()
	return diagnose.Diagnose(ctx, pod, diagnose.Options{Slow: slow})
}
