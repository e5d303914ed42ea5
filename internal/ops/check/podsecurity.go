package check

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/injectors"
)

// podSecurity checks that each namespace with injection admits injected pods. It creates there, as a dry run, a pod
// with an init container that needs NET_ADMIN, like the one that injection adds. So Pod Security, and any other
// admission control, decides itself.
func (s *survey) podSecurity(ctx context.Context) answer {
	requested, err := s.requested(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(requested) == 0 {
		return fine("no namespace requests injection by its label yet")
	}
	var refused, without []string
	reason := ""
	for _, n := range requested {
		_, err := s.Core.CoreV1().Pods(n.Name).Create(ctx, capturing(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"):
			return unknown(tried("creating a pod as a dry run", err))
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			if s.passes(ctx, n) {
				without = append(without, n.Name)
				continue
			}
			refused, reason = append(refused, n.Name), err.Error()
		default:
			return unknown(tried("creating a pod as a dry run in "+n.Name, err))
		}
	}
	if len(refused) > 0 {
		return failed("kubectl label namespace NAME pod-security.kubernetes.io/enforce=privileged --overwrite; or annotate the pods with outrider.dev/capture: none, which keeps the order without capture",
			"a pod with an init container that has NET_ADMIN is refused in %s: %s", cli.Few(refused), reason)
	}
	if len(without) > 0 {
		return fine("NET_ADMIN is refused in %s, where no workload needs it: each has %s: none, or is not injected", cli.Few(without), contract.Capture)
	}
	return fine("%s an init container with NET_ADMIN", plural(len(requested), "namespace with injection admits", "namespaces with injection admit"))
}

// passes reports whether no pod of a namespace needs NET_ADMIN when it is injected. It reads the workloads, and not
// only the pods, because pods that were refused do not exist.
func (s *survey) passes(ctx context.Context, n corev1.Namespace) bool {
	templates, err := s.templates(ctx, n.Name)
	if err != nil {
		return false
	}
	if len(templates) == 0 { // an empty namespace: assume a pod without annotations
		templates = []corev1.PodTemplateSpec{{Spec: corev1.PodSpec{Containers: []corev1.Container{sampleContainer()}}}}
	}
	configurations, err := s.allConfigurations(ctx)
	if err != nil {
		return false
	}
	values, err := s.values()
	if err != nil {
		return false
	}
	o := inject.Options{Values: values, OwnLabels: len(injectors.Others(configurations)) > 0, NodeServes: s.nodesServe(ctx)}
	return !slices.ContainsFunc(templates, func(t corev1.PodTemplateSpec) bool {
		pod, err := inject.Stripped(&corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
		if err != nil {
			return true
		}
		r, err := inject.Pod(pod, inject.Namespace{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}, o)
		return err != nil || r.Injected && slices.ContainsFunc(slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers), func(c corev1.Container) bool {
			return c.SecurityContext != nil && c.SecurityContext.Capabilities != nil && slices.Contains(c.SecurityContext.Capabilities.Add, "NET_ADMIN")
		})
	})
}

// templates returns the pods of a namespace and the pod templates of its workloads.
func (s *survey) templates(ctx context.Context, namespace string) (out []corev1.PodTemplateSpec, err error) {
	apps, batch := s.Core.AppsV1(), s.Core.BatchV1()
	for _, list := range []func(context.Context) (runtime.Object, error){
		all(s.Core.CoreV1().Pods(namespace).List), all(apps.ReplicaSets(namespace).List), // includes the ReplicaSets of Deployments
		all(apps.StatefulSets(namespace).List), all(apps.DaemonSets(namespace).List), all(batch.Jobs(namespace).List), all(batch.CronJobs(namespace).List),
	} {
		objects, err := list(ctx)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(objects, func(o runtime.Object) error {
			switch o := o.(type) {
			case *corev1.Pod:
				out = append(out, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
			case *appsv1.ReplicaSet:
				if o.Spec.Replicas == nil || *o.Spec.Replicas > 0 {
					out = append(out, o.Spec.Template)
				}
			case *appsv1.StatefulSet:
				out = append(out, o.Spec.Template)
			case *appsv1.DaemonSet:
				out = append(out, o.Spec.Template)
			case *batchv1.Job:
				if o.Status.CompletionTime == nil {
					out = append(out, o.Spec.Template)
				}
			case *batchv1.CronJob:
				out = append(out, o.Spec.JobTemplate.Spec.Template)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// all returns a function that lists all objects of a client.
func all[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context) (runtime.Object, error) {
	return func(ctx context.Context) (runtime.Object, error) { return list(ctx, metav1.ListOptions{}) }
}

// capturing returns a pod with the privileges of outrider-init. Its labels keep injectors from changing it.
func capturing() *corev1.Pod {
	no := map[string]string{contract.InjectLabel: "false", contract.OwnInjectLabel: "false"}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "outrider-check-", Labels: no},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: contract.InitContainer, Image: "outrider.dev/check", SecurityContext: &corev1.SecurityContext{
				RunAsUser: new(int64(0)), RunAsNonRoot: new(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
			}}},
			Containers: []corev1.Container{sampleContainer()},
		},
	}
}

// sampleContainer returns a container that meets the strictest level of Pod Security.
func sampleContainer() corev1.Container {
	return corev1.Container{
		Name: "app", Image: "outrider.dev/check", Command: []string{"/check"},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), AllowPrivilegeEscalation: new(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}
