package podupgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

// Options of Run.
type Options struct {
	*kubeclient.Client
	MaxUnavailable int           // limit of proxies that are replaced at the same time, besides a quarter of each workload; default 1
	Timeout        time.Duration // limit of the time until a pod is ready; default DefaultTimeout
	Progress       func(Event)   // called for each step, never concurrently; default: none

	exec exec          // default: in the cluster
	pull time.Duration // time for a node to pull and run the image; default pullTimeout
}

// A Step names an event in the upgrade of a pod.
type Step string

// DefaultTimeout is the default of [Options.Timeout].
const DefaultTimeout = 2 * time.Minute

// The steps.
const (
	Prepared   Step = "prepared"    // its node has run the new image
	Replacing  Step = "replacing"   // the image was changed
	Replaced   Step = "replaced"    // the pod is ready again
	Gone       Step = "gone"        // the pod was deleted meanwhile, and its successor has the new proxy
	RolledBack Step = "rolled back" // the pod is ready with its old image
	Failed     Step = "failed"
)

// An Event is a step of one pod.
type Event struct {
	Pod      Candidate     `json:"pod"`
	Step     Step          `json:"step"`
	Took     time.Duration `json:"took,omitempty"`     // time from the change of the image until the pod was ready
	Restarts []string      `json:"restarts,omitempty"` // other containers that restarted meanwhile
	Err      error         `json:"-"`
}

// A Result has the outdated candidates by their outcome.
type Result struct {
	Replaced, Gone, Left []Candidate // Left: not begun
	Failed               []Event
}

type roll struct {
	Options

	mu     sync.Mutex
	result Result
}

// Run replaces the proxies of the candidates that are outdated. After a failure it does not begin with other pods,
// and returns the error of the first failure.
func Run(ctx context.Context, all []Candidate, o Options) (Result, error) {
	r := &roll{Options: o}
	r.MaxUnavailable = max(r.MaxUnavailable, 1)
	if r.Timeout <= 0 {
		r.Timeout = DefaultTimeout
	}
	r.pull = cmp.Or(r.pull, pullTimeout)
	if r.exec == nil {
		r.exec = inCluster(o.Client)
	}
	var due []Candidate
	for _, c := range all {
		if c.State == Outdated {
			due = append(due, c)
		}
	}
	prepared := map[string]bool{}
	for _, c := range due {
		if key := c.Node + "\x00" + c.To; !prepared[key] {
			if err := r.prepare(ctx, c); err != nil {
				r.result.Left = due
				return r.result, err
			}
			prepared[key] = true
			r.tell(Event{Pod: c, Step: Prepared})
		}
	}
	err := r.replaceAll(ctx, all, due)
	return r.result, err
}

// replaceAll replaces several proxies at a time, until one has failed or ctx ends.
func (r *roll) replaceAll(ctx context.Context, all, due []Candidate) error {
	q := newQueue(all, due)
	defer context.AfterFunc(ctx, q.stop)()
	var workers sync.WaitGroup
	for range min(r.MaxUnavailable, len(due)) {
		workers.Go(func() {
			for c, more := q.next(); more; c, more = q.next() {
				if !r.replace(ctx, c) || ctx.Err() != nil {
					q.stop()
				}
				q.done(c)
			}
		})
	}
	workers.Wait()
	r.result.Left = q.due
	if len(r.result.Failed) > 0 {
		return fmt.Errorf("%s: %w", r.result.Failed[0].Pod, r.result.Failed[0].Err)
	}
	return ctx.Err()
}

// replace replaces one pod's proxy. It returns false if this failed, so that no replacement of another proxy begins.
func (r *roll) replace(ctx context.Context, c Candidate) bool {
	// A replacement that has begun is completed even if ctx ends, so that no pod is left without a proxy that works.
	ctx = context.WithoutCancel(ctx)
	fail := func(err error) bool {
		if errors.Is(err, kubeclient.ErrGone) {
			return r.end(Event{Pod: c, Step: Gone})
		}
		return r.end(Event{Pod: c, Step: Failed, Err: err})
	}
	pod, err := r.get(ctx, c)
	if err != nil {
		return fail(err)
	}
	before := kubeclient.Status(pod, contract.ProxyContainer)
	if before == nil {
		return fail(errors.New("the kubelet reports no proxy"))
	}
	if err := r.announce(ctx, c); err != nil {
		if _, gone := r.get(ctx, c); errors.Is(gone, kubeclient.ErrGone) {
			err = gone
		}
		return fail(err)
	}
	begin := time.Now()
	if err := r.setImage(ctx, c, c.To); err != nil {
		return fail(fmt.Errorf("changing its image: %w", err))
	}
	r.tell(Event{Pod: c, Step: Replacing})
	err = r.await(ctx, c, before.ContainerID)
	switch {
	case errors.Is(err, kubeclient.ErrGone):
		return fail(err)
	case err != nil:
		return r.end(r.rollBack(ctx, c, err))
	}
	return r.end(Event{Pod: c, Step: Replaced, Took: time.Since(begin), Restarts: r.restarted(ctx, pod)})
}

// rollBack restores the pod's old image, and returns the event with the outcome. The error because is the failure
// that led to the roll-back.
func (r *roll) rollBack(ctx context.Context, c Candidate, because error) Event {
	failed := ""
	if pod, err := r.Core.CoreV1().Pods(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{}); err == nil {
		if s := kubeclient.Status(pod, contract.ProxyContainer); s != nil {
			failed = s.ContainerID
		}
	}
	if err := r.setImage(ctx, c, c.From); err != nil {
		return Event{Pod: c, Step: Failed, Err: fmt.Errorf("%w; it could not be rolled back: %w", because, err)}
	}
	if err := r.await(ctx, c, failed); err != nil {
		return Event{Pod: c, Step: Failed, Err: fmt.Errorf("%w; with the image before: %w", because, err)}
	}
	return Event{Pod: c, Step: RolledBack, Err: because}
}

// restarted returns the containers, other than the proxy, that have restarted since the given state.
func (r *roll) restarted(ctx context.Context, since *corev1.Pod) (out []string) {
	now, err := r.Core.CoreV1().Pods(since.Namespace).Get(ctx, since.Name, metav1.GetOptions{})
	if err != nil {
		return nil // the pod is gone
	}
	for _, c := range now.Spec.Containers {
		a, b := kubeclient.Status(since, c.Name), kubeclient.Status(now, c.Name)
		if c.Name != contract.ProxyContainer && a != nil && b != nil && b.RestartCount > a.RestartCount {
			out = append(out, c.Name)
		}
	}
	return out
}

// end records the outcome for a pod. It returns false if the replacement failed, so that no replacement of another
// proxy begins.
func (r *roll) end(e Event) bool {
	r.mu.Lock()
	switch e.Step {
	case Replaced:
		r.result.Replaced = append(r.result.Replaced, e.Pod)
	case Gone:
		r.result.Gone = append(r.result.Gone, e.Pod)
	default:
		r.result.Failed = append(r.result.Failed, e)
	}
	r.mu.Unlock()
	r.tell(e)
	return e.Err == nil
}

func (r *roll) tell(e Event) {
	if r.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Progress(e)
}
