// Package rotate requests a rotation of the mesh's root certificate from the control plane of a cluster, and
// follows the progress. The replicas make the steps (package ca), so a wait can be interrupted and repeated
// at any time.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/ops/kubeclient"
)

// Steps of a rotation for which [Run] can wait.
const (
	Published = "published" // the next root is in every namespace that has the roots
	Signs     = "signs"     // the next root signs certificates
	Retired   = "retired"   // the old root is no longer trusted
)

// Steps lists all steps, in order.
var Steps = []string{Published, Signs, Retired}

// A rotation follows the progress of a rotation until it reaches a step.
type rotation struct {
	*kubeclient.Client
	until string
	said  map[string]bool // texts that were already shown
}

// notOurs returns a usage error about a root that outriderd does not replace, because it has not made it.
func notOurs(instead, format string, args ...any) error {
	return &cli.UsageError{Err: fmt.Errorf(format, args...), Hint: instead}
}

// Status returns the roots of the control plane and the progress of a rotation. It fails if they cannot be read, or
// if another authority signs certificates.
func Status(ctx context.Context, c *kubeclient.Client) (ca.RotationStatus, error) {
	store, err := storeOf(ctx, c)
	if err != nil {
		return ca.RotationStatus{}, err
	}
	return ca.StatusOf(ctx, store, kube.Using(c.Core).AuthoritySecret(c.Namespace, contract.SeenRootsSecret), time.Now())
}

// storeOf returns the store of the control plane's authority: a Secret that the control plane's Deployments name. It
// fails if they name no Secret or different ones, or if another authority signs.
func storeOf(ctx context.Context, c *kubeclient.Client) (ca.Store, error) {
	list, err := c.Core.AppsV1().Deployments(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + contract.ControlPlaneName})
	if err != nil {
		return nil, fmt.Errorf("finding the control plane: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no control plane is in namespace %s: --namespace is where it is", c.Namespace)
	}
	var names []string
	for _, d := range list.Items {
		if signsElsewhere(d) {
			return nil, notOurs("replace the root there: outriderd publishes the roots that it sees in authority.rootConfigMap and authority.servingSecretName, and keeps those that leave while certificates of them are valid",
				"deployment %s/%s signs no certificates: another authority does (global.caAddress)", c.Namespace, d.Name)
		}
		name := secretOf(d)
		if name == "" {
			return nil, fmt.Errorf("deployment %s/%s has its authority in no Secret: its replicas would lose it (authority.secretName)", c.Namespace, d.Name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > 1 {
		return nil, fmt.Errorf("the control planes in namespace %s have different authorities (%s): give them one authority.secretName first", c.Namespace, strings.Join(names, ", "))
	}
	return kube.Using(c.Core).AuthoritySecret(c.Namespace, names[0]), nil
}

// signsElsewhere reports whether another authority signs the proxies' certificates.
func signsElsewhere(d appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, contract.ServingFlag+"=") })
	})
}

// secretOf returns the name of the Secret from an environment variable that the chart writes into the Deployment.
func secretOf(d appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == contract.AuthoritySecretEnv {
				return e.Value
			}
		}
	}
	return ""
}

// Run requests a rotation of the root of the control plane in the client's namespace, unless one is in progress, and
// waits for a step, one of [Steps]. It returns the progress; the replicas continue in any case.
func Run(ctx context.Context, c *kubeclient.Client, until string) (ca.RotationStatus, error) {
	store, err := storeOf(ctx, c)
	if err != nil {
		return ca.RotationStatus{}, err
	}
	return rotation{c, until, map[string]bool{}}.run(ctx, store)
}

func (o rotation) run(ctx context.Context, store ca.Store) (ca.RotationStatus, error) {
	begin, err := ca.StatusOf(ctx, store, nil, time.Now())
	if err != nil {
		return begin, err
	}
	if begin.Foreign != "" {
		return begin, notOurs(begin.Instead(), "%s: %s", begin.Store, begin.Foreign)
	}
	old, _ := begin.Root(ca.RootSigns)
	switch begin.Step() {
	case "":
		if _, err := ca.RequestRotation(ctx, store, time.Now()); err != nil {
			return begin, err
		}
		o.Progress.Step("%s: rotation requested; now signs %s", store, old.Subject)
	default:
		o.Progress.Step("%s: a rotation is under way, which is followed; none is begun", store)
		if last, ok := begin.Root(ca.RootRetiring); ok && !begin.Requested {
			if _, published := begin.Root(ca.RootNext); !published {
				old = last
			}
		}
	}
	last, err := o.follow(ctx, store, old)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("not in time: %s", waits(last))
		}
		return last, fmt.Errorf("%s: %w", store, err)
	}
	return last, nil
}

// waits describes the event that a rotation waits for.
func waits(s ca.RotationStatus) string {
	if step := s.Step(); step != "" {
		return step
	}
	return "a replica has not begun the rotation"
}

// follow waits until the replacement of the root old has reached the step o.until. It prints each step.
func (o rotation) follow(ctx context.Context, store ca.Store, old ca.RootStatus) (last ca.RotationStatus, err error) {
	hints := make(chan struct{}, 1)
	stop := store.Watch(func() {
		select {
		case hints <- struct{}{}:
		default: // a notification is already pending, and the Secret will be read after it
		}
	})
	defer stop()
	published := ""
	for {
		last, err = ca.StatusOf(ctx, store, nil, time.Now())
		if err != nil {
			return last, err
		}
		next, ok := successor(last, old)
		if ok && next.SHA256 != published && next.State == ca.RootNext {
			o.Progress.Step("next root published: %s, valid until %s", next.Subject, next.NotAfter.Format(time.DateOnly))
			if err := o.awaitRoots(ctx, old, next); err != nil {
				return last, err
			}
			published = next.SHA256
		}
		if done := o.reached(last, old); done {
			return last, nil
		}
		o.Progress.Wait("%s", waits(last))
		select {
		case <-hints:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// successor returns the root that replaces old.
func successor(s ca.RotationStatus, old ca.RootStatus) (ca.RootStatus, bool) {
	if next, ok := s.Root(ca.RootNext); ok {
		return next, true
	}
	now, ok := s.Root(ca.RootSigns)
	return now, ok && now.SHA256 != old.SHA256
}

// reached prints the steps that the rotation has reached, and reports whether o.until is one of them.
func (o rotation) reached(s ca.RotationStatus, old ca.RootStatus) bool {
	next, ok := successor(s, old)
	if !ok {
		return false
	}
	signs := next.State == ca.RootSigns
	if signs {
		o.say("next root signs: " + next.Subject)
	}
	gone := signs && !slices.ContainsFunc(s.Roots, func(r ca.RootStatus) bool { return r.SHA256 == old.SHA256 })
	if gone {
		o.say("old root removed: " + old.Subject)
	}
	switch o.until {
	case Retired:
		return gone
	case Signs:
		return signs
	}
	return true
}

// say prints a step, unless it was printed already.
func (o rotation) say(step string) {
	if !o.said[step] {
		o.said[step] = true
		o.Progress.Step("%s", step)
	}
}

// awaitRoots waits until the next root is in every namespace that has the roots.
func (o rotation) awaitRoots(ctx context.Context, old, next ca.RootStatus) error {
	all := 0
	without, err := kubeclient.AwaitNone(ctx, o.Core.CoreV1().ConfigMaps(metav1.NamespaceAll), kubeclient.Named(contract.RootConfigMap), &corev1.ConfigMap{},
		func(m *corev1.ConfigMap) bool { return !has(m, next) }, // a deleted ConfigMap counts as up to date: the control plane writes it again with the current roots
		func(left, of int) {
			if all = of; left > 0 {
				o.Progress.Wait("next root: in %d of %d namespaces", all-left, all)
			}
		})
	if err != nil {
		return fmt.Errorf("waiting until the next root is in %d more of %d namespaces: %w", len(without), all, err)
	}
	o.Progress.Step("next root: in %d namespaces; %s stays trusted", all, old.Subject)
	return nil
}

// has reports whether a namespace's ConfigMap contains a root.
func has(m *corev1.ConfigMap, root ca.RootStatus) bool {
	return ca.HasRoot([]byte(m.Data[contract.RootKey]), root.SHA256)
}
