package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// deployment reports whether the roll-out of the control plane is complete.
func (s *survey) deployment(ctx context.Context) answer {
	all, err := s.allDeployments(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(all) == 0 {
		return failed("outrider install; -n names another namespace", "there is no Deployment with the label %s in namespace %s", selector, s.Options.Namespace)
	}
	ready := int32(0)
	for _, d := range all {
		if reason := installation.RolledOut(&d); reason != "" {
			return failed(fmt.Sprintf("kubectl -n %s describe pods -l %s", d.Namespace, selector), "%s/%s: %s", d.Namespace, d.Name, reason)
		}
		ready += d.Status.AvailableReplicas
	}
	return fine("%s", plural(int(ready), "replica is ready", "replicas are ready"))
}

// replicas compares the images of the replicas, by the digests that the kubelet reports.
func (s *survey) replicas(ctx context.Context) answer {
	pods, err := s.allReplicas(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(pods) == 0 {
		return skipped("no replica runs")
	}
	by := map[string][]string{}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			image := c.Image
			if _, digest, ok := strings.Cut(c.ImageID, "@"); ok {
				image = digest
			}
			key := p.Labels[replicas.RevisionLabel] + " " + image // each revision may have its own image
			by[key] = append(by[key], p.Name)
		}
	}
	revisions := map[string]bool{}
	for key := range by { // any order: a set is filled
		revision, _, _ := strings.Cut(key, " ")
		revisions[revision] = true
	}
	if len(by) > len(revisions) {
		var text []string
		for _, key := range slices.Sorted(maps.Keys(by)) {
			text = append(text, cli.Few(by[key])+" run "+strings.TrimSpace(key))
		}
		return warning("kubectl -n "+s.Options.Namespace+" rollout status deployment -l "+selector, "the replicas differ: %s", strings.Join(text, "; "))
	}
	if len(revisions) > 1 {
		return fine("%s, those of each of %d revisions of one image", plural(len(pods), "replica", "replicas"), len(revisions))
	}
	return fine("%s of one image", plural(len(pods), "replica", "replicas"))
}

// roots finds namespaces that have no roots, or other roots than the mesh's. Pods cannot verify certificates there.
func (s *survey) roots(ctx context.Context) answer {
	namespaces, err := s.allNamespaces(ctx)
	if err != nil {
		return unknown(err)
	}
	roots, err := s.allRoots(ctx)
	if err != nil {
		return unknown(err)
	}
	own, ok := roots[s.Options.Namespace]
	if !ok {
		return failed(logs(s.Options.Namespace), "namespace %s has no ConfigMap %s: the control plane has written none", s.Options.Namespace, contract.RootConfigMap)
	}
	if _, err := certificatesOf(own); err != nil {
		return failed(logs(s.Options.Namespace), "ConfigMap %s/%s: %s: %v", s.Options.Namespace, contract.RootConfigMap, contract.RootKey, err)
	}
	var without, other []string
	for _, n := range namespaces {
		pem, ok := roots[n.Name]
		switch {
		case installation.NoRoots(n.Name) && n.Name != s.Options.Namespace:
		case !ok:
			without = append(without, n.Name)
		case pem != own:
			other = append(other, n.Name)
		}
	}
	switch {
	case len(without) > 0:
		return failed(logs(s.Options.Namespace), "no ConfigMap %s in %s: new pods do not start there", contract.RootConfigMap, cli.Few(without))
	case len(other) > 0:
		return failed(logs(s.Options.Namespace), "the roots in %s are not those of %s: proxies there trust other certificates", cli.Few(other), s.Options.Namespace)
	}
	return fine("they are in %s", plural(len(roots), "namespace", "namespaces"))
}

func logs(namespace string) string {
	return fmt.Sprintf("kubectl -n %s logs -l %s says why", namespace, selector)
}

// webhookCA compares the bundle in the webhook's configuration with the mesh's roots.
func (s *survey) webhookCA(ctx context.Context) answer {
	ours, err := s.ourConfigurations(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(ours) == 0 {
		return failed("outrider install", "no MutatingWebhookConfiguration leads to namespace %s: no pod is injected", s.Options.Namespace)
	}
	roots, err := s.allRoots(ctx)
	if err != nil {
		return unknown(err)
	}
	for _, c := range ours {
		for _, w := range c.Webhooks {
			if reason := wrongBundle(w, roots[s.Options.Namespace]); reason != "" {
				return failed(logs(s.Options.Namespace), "MutatingWebhookConfiguration %s: %s: pods that it selects are refused", c.Name, reason)
			}
		}
	}
	return fine("%s the mesh's roots", plural(len(ours), "webhook configuration has", "webhook configurations have"))
}

func wrongBundle(w admission.MutatingWebhook, roots string) string {
	bundle := string(w.ClientConfig.CABundle)
	if bundle == "" {
		return w.Name + " has no CA bundle"
	}
	if _, err := certificatesOf(bundle); err != nil {
		return fmt.Sprintf("%s: CA bundle: %v", w.Name, err)
	}
	if strings.TrimSpace(bundle) != strings.TrimSpace(roots) {
		return w.Name + " has a CA bundle that is not the mesh's roots"
	}
	return ""
}

// warnings collects the warnings in responses of the API server, which contain the webhook's reasons.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.texts = append(w.texts, text)
}

// webhook creates a pod as a dry run, and checks that the result has a proxy. This shows that the API server reaches
// the control plane, and that the control plane injects.
func (s *survey) webhook(ctx context.Context) answer {
	pod, namespace, heard, err := s.injected(ctx)
	if err != nil {
		return s.webhookError(namespace, err)
	}
	if kubeclient.Proxy(pod) == nil {
		reason := "the webhook was not called: its selectors do not match"
		if i := slices.IndexFunc(heard, func(text string) bool { return strings.Contains(text, "outrider: ") }); i >= 0 {
			reason = heard[i]
		}
		return failed("outrider inject -f POD explains which pods are injected", "a pod in namespace %s was admitted without a proxy: %s", namespace, reason)
	}
	return fine("a pod in namespace %s was injected (as a dry run)", namespace)
}

func (s *survey) webhookError(namespace string, err error) answer {
	text := err.Error()
	switch {
	case strings.Contains(text, "denied the request") && strings.Contains(text, "pod-security.kubernetes.io"), strings.Contains(text, "violates PodSecurity"):
		return skipped("the webhook answers, but Pod Security refuses the pod in namespace %s: see the check pod-security", namespace)
	case strings.Contains(text, "denied the request"):
		return failed("outrider inject -f POD explains what is refused", "a pod in namespace %s is refused: %v", namespace, err)
	case strings.Contains(text, "failed calling webhook"):
		return failed("the API server must reach port 15017 of the control plane's pods: look at firewalls and NetworkPolicies; "+logs(s.Options.Namespace),
			"a pod in namespace %s is refused: %v", namespace, err)
	}
	return unknown(tried("creating a pod as a dry run in namespace "+namespace, err))
}

// injected creates, as a dry run, a pod that must be injected: in a namespace whose label requests injection or, if
// there is none, with a label of its own. It returns the result, and the warnings of the API server.
func (s *survey) injected(ctx context.Context) (pod *corev1.Pod, namespace string, heard []string, err error) {
	namespace = metav1.NamespaceDefault
	try := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "outrider-check-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{sampleContainer()}},
	}
	requested, err := s.requested(ctx)
	if err != nil {
		return nil, namespace, nil, err
	}
	if len(requested) > 0 {
		namespace = requested[0].Name
	} else {
		try.Labels = map[string]string{contract.OwnInjectLabel: "true"}
	}
	var w warnings
	config := rest.CopyConfig(s.Config)
	config.WarningHandler = &w
	dry, err := s.dry(config)
	if err != nil {
		return nil, namespace, nil, err
	}
	pod, err = s.sample.get(func() (*corev1.Pod, error) {
		return dry.CoreV1().Pods(namespace).Create(ctx, try, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") {
		err = &permissionError{err}
	}
	return pod, namespace, w.texts, err
}
