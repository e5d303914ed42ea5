// Package podrestart takes namespaces of a cluster out of the mesh: it removes the labels that request
// injection, and restarts the workloads whose pods have a proxy, until no pod has one.
//
// Before it restarts a workload, it creates one of the workload's pods as a dry run, after the labels are removed. If
// that pod gets a proxy again, a restart would not help, and the workload is not restarted. All decisions depend only
// on the state of the cluster, so the next run can continue an interrupted one.
package podrestart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/podupgrade"
)

// Options of [Run].
type Options struct {
	*kubeclient.Client
	Namespace string // empty: all namespaces
	DryRun    bool   // change nothing

	lag time.Duration // replaces cacheLag in tests
}

// A Pod is a pod whose proxy cannot be removed by a restart, with the reason.
type Pod struct{ Namespace, Name, Reason string }

// Run takes the namespaces out of the mesh, and waits until no pod of the restarted workloads has a proxy. It returns
// the pods with a proxy that no restart replaces. It fails if a request fails or ctx ends.
func Run(ctx context.Context, o Options) ([]Pod, error) {
	if err := o.removeLabels(ctx); err != nil {
		return nil, err
	}
	pods, err := kubeclient.Meshed(ctx, o.Core, o.Namespace, "")
	if err != nil {
		return nil, err
	}
	byOwner := map[workload][]corev1.Pod{}
	var owners []workload
	for _, p := range pods {
		w := ownerOf(&p)
		if byOwner[w] == nil {
			owners = append(owners, w)
		}
		byOwner[w] = append(byOwner[w], p)
	}
	slices.SortFunc(owners, func(a, b workload) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	var left []Pod
	restarted := map[workload]bool{}
	for _, w := range owners {
		why, err := o.replace(ctx, w, byOwner[w])
		if err != nil {
			return left, fmt.Errorf("%s: %w", w, err)
		}
		if why == "" {
			restarted[w] = true
			continue
		}
		for _, p := range byOwner[w] {
			left = append(left, Pod{p.Namespace, p.Name, why})
		}
	}
	if o.DryRun || len(restarted) == 0 {
		return left, nil
	}
	return left, o.await(ctx, restarted)
}

// replace restarts a workload, or returns the reason why its pods would still have a proxy.
func (o Options) replace(ctx context.Context, w workload, pods []corev1.Pod) (why string, err error) {
	s, err := o.stateOf(ctx, w)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("its %s does not exist: delete the pod", w.kind), nil
	case err != nil || s.never != "":
		return s.never, err
	}
	if o.DryRun { // whether a new pod gets a proxy is not known, because a dry run does not remove the labels
		o.Progress.Step("%s: would be restarted, %d pods", w, len(pods))
		return "", nil
	}
	if why, err := o.again(ctx, &pods[0]); err != nil || why != "" {
		return why, err
	}
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	if s.underWay(newest.CreationTimestamp.Time) {
		o.Progress.Step("%s: its restart is under way", w)
		return "", nil
	}
	if err := o.restart(ctx, w); err != nil {
		return "", err
	}
	o.Progress.Step("%s: restarted, %d pods", w, len(pods))
	return "", nil
}

// After a label of a namespace was removed, the API server may still call the webhook for some time, because it
// selects webhooks by a cache of namespaces.
const (
	cacheLag = 10 * time.Second
	askEvery = 500 * time.Millisecond
)

// again returns the reason why a new pod would get a proxy again, or an empty string if it would not.
func (o Options) again(ctx context.Context, pod *corev1.Pod) (string, error) {
	until := time.NewTimer(cmp.Or(o.lag, cacheLag))
	defer until.Stop()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		next, err := podupgrade.Next(ctx, o.Core, pod)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return err.Error(), nil
		case kubeclient.Proxy(next) == nil:
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-until.C:
			return "a new pod would get a proxy again, by a label of the pod's template or by the mesh's values: change these, and run it again", nil
		case <-tick.C:
		}
	}
}

// await waits until no pod of the workloads has a proxy.
func (o Options) await(ctx context.Context, restarted map[workload]bool) error {
	left, err := kubeclient.AwaitNone(ctx, o.Core.CoreV1().Pods(o.Namespace), metav1.ListOptions{}, &corev1.Pod{}, func(p *corev1.Pod) bool {
		return kubeclient.IsMeshed(p) && restarted[ownerOf(p)]
	}, func(left, _ int) {
		if left > 0 {
			o.Progress.Wait("pods with a proxy: %d", left)
		}
	})
	if err == nil {
		o.Progress.Step("no pod of the restarted workloads has a proxy")
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("not in time; run it again to go on waiting")
	}
	return fmt.Errorf("pods that still have a proxy: %s: %w", cli.Few(left), err)
}
