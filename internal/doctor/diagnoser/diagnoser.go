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
	"outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/cluster"
	"outrider.dev/internal/doctor/evidence/gather"
)

// DefaultSlow is the time after which a start counts as slow.
const DefaultSlow = 30 * time.Second

// Options of a diagnoser. The zero value of a field means its default, unless it is required.
type Options struct {
	Core     kubernetes.Interface          // Required.
	Slow     time.Duration                 // time from a pod's scheduling until it must be ready; default [DefaultSlow]
	Settle   time.Duration                 // delay after a restart, so that several restarts share one diagnosis; default 5s
	Parallel int                           // concurrent diagnoses; default 2
	Rate     rate.Limit                    // diagnoses a second; default 2
	LogBytes int64                         // limit of the bytes that are read from all logs of a pod; default 16 MiB
	Timeout  time.Duration                 // limit of one diagnosis; default 1m
	Retry    time.Duration                 // first delay after a failure, doubled each time; default 5s
	Instance string                        // name of this replica, written into the Events
	Log      *slog.Logger                  // default: none
	Note     func(tried string, err error) // receives the result of each request; default: none
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
	tries        = 8                // attempts of a diagnosis that fails
	looks        = 5                // diagnoses of one slow start: after Options.Slow, then after 1, 2, 4 and 8 times that time
	recent       = 10 * time.Minute // a restart before the watch began is diagnosed if it is younger: the previous replica may have missed it
)

// A Diagnoser diagnoses pods. Only one runs in a cluster at a time.
type Diagnoser struct {
	o       Options
	limiter *rate.Limiter

	mu     sync.Mutex
	counts map[string]uint64 // by cause; contains all causes from the beginning
	pods   map[types.UID]*progress
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	store  cache.Store
}

// progress records the diagnoses of a pod and the Events that were written on it.
type progress struct {
	ends    int32 // value of record.ends at the last diagnosis
	looks   int
	written map[string]int32 // restarts at the last Event, by code and container
}

// New returns a diagnoser. It does nothing before Run.
func New(o Options) *Diagnoser {
	d := &Diagnoser{o: o.withDefaults(), counts: map[string]uint64{undecided: 0}}
	d.limiter = rate.NewLimiter(d.o.Rate, 10)
	for _, k := range kinds.All() {
		d.counts[string(k.Code)] = 0
	}
	return d
}

// Counts returns the number of diagnoses by cause: the codes of package diagnose, and undecided. Each cause has a
// count of 0 from the beginning, so that a metric shows its first diagnosis as an increase.
func (d *Diagnoser) Counts() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

// Run watches and diagnoses until ctx ends. It may be called again, but not concurrently.
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

// watched lists and watches all pods, because the API server cannot select pods by an annotation.
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

// note passes the result of a request to Options.Note, except an error that is caused by the end of ctx.
func (d *Diagnoser) note(ctx context.Context, tried string, err error) {
	if err == nil || ctx.Err() == nil {
		d.o.Note(tried, err)
	}
}

// changed decides whether and when a pod is to be diagnosed.
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

// starting reports whether a pod is scheduled and not ready yet.
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

// work diagnoses pods of the queue, one after another, until the queue is shut down.
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

// look diagnoses a pod if there is a reason, and schedules the next diagnosis of a slow start.
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
	case p.looks == 0: // the queue keeps only the earliest time for a pod: a restart replaces the time of the slow start
		d.queue.AddAfter(name, time.Until(r.scheduled.Add(d.o.Slow)))
	default:
		d.queue.AddAfter(name, d.o.Slow<<(p.looks-1))
	}
	return nil
}

// current returns a pod and its progress, or nil if the pod is gone or not injected. The queue ensures that only one
// worker at a time uses the progress of a pod.
func (d *Diagnoser) current(name types.NamespacedName) (*record, *progress, error) {
	d.mu.Lock() // while it is locked, deleted waits: if the store still has the pod, its progress will be deleted later
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

// diagnose diagnoses a pod and writes Events for the findings. If again is set, the pod will be diagnosed once more,
// so an undecided result is not written: there may be more evidence by then.
func (d *Diagnoser) diagnose(ctx context.Context, r *record, p *progress, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	set, err := gather.Live(ctx, cluster.Access{Core: d.o.Core}, cluster.Wanted{
		Namespace: r.Namespace, Names: []string{r.Name}, OwnEvents: true, LogBytes: max(d.o.LogBytes/int64(max(r.logs, 1)), 64<<10), Parallel: 4,
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	pod := set.Pods[0]
	if pod.Object.UID != r.uid { // another pod with the same name
		return nil
	}
	report, err := judge(ctx, pod, d.o.Slow)
	if err != nil || report.Verdict == result.Undecided && again {
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

// judge calls [diagnose.Diagnose], and turns a panic into an error. The evidence contains text that workloads write;
// a workload must not be able to stop the control plane by a text that triggers a bug.
func judge(ctx context.Context, pod *evidence.Pod, slow time.Duration) (r result.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("diagnosing pod %s: panic: %v\n%s", pod.Name(), p, debug.Stack())
		}
	}()
	return diagnose.Diagnose(ctx, pod, diagnose.Options{Slow: slow})
}
