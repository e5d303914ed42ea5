package inject

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/request"
)

// NamesDefault reports whether a namespace has a label that requests the default revision.
func NamesDefault(ns Namespace) bool {
	_, istios := ns.Labels[contract.NamespaceLabel]
	_, own := ns.Labels[contract.OwnNamespaceLabel]
	return istios || own
}

// Decide returns whether a pod is injected, and the reason. It is the first step of [Pod].
func Decide(pod *corev1.Pod, ns Namespace, o Options) verdict.Reason {
	reason, _ := decide(pod, ns, o)
	return reason
}

// decide is [Decide] and also returns warnings. With OwnLabels, Istio's labels are meant for another injector, so
// they are removed before the decision.
func decide(pod *corev1.Pod, ns Namespace, o Options) (verdict.Reason, []string) {
	if !o.OwnLabels {
		return decideByLabels(pod, ns, o)
	}
	ownPod, ownNamespace := withoutIstios(pod, ns)
	reason, warnings := decideByLabels(ownPod, ownNamespace, o)
	if reason.Code == verdict.NotRequested {
		o.OwnLabels = false
		if istios, _ := decideByLabels(pod, ns, o); istios.Code == verdict.Injected {
			reason = verdict.Because(verdict.OtherInjector, "Istio's labels, which request injection, belong to another injector here: label the namespace %s=enabled or the pod %s=true",
				contract.OwnNamespaceLabel, contract.OwnInjectLabel)
		}
	}
	return reason, warnings
}

// withoutIstios removes Istio's labels from a pod and its namespace.
func withoutIstios(pod *corev1.Pod, ns Namespace) (*corev1.Pod, Namespace) {
	without := func(m map[string]string, keys ...string) map[string]string {
		m = maps.Clone(m) // nil stays nil
		for _, key := range keys {
			delete(m, key)
		}
		return m
	}
	out := *pod
	out.Labels = without(pod.Labels, contract.InjectLabel, contract.RevisionLabel)
	out.Annotations = without(pod.Annotations, contract.InjectLabel)
	ns.Labels = without(ns.Labels, contract.NamespaceLabel, contract.RevisionLabel)
	return &out, ns
}

// decideByLabels applies Istio's rules in Istio's order. The rules of bySelector are applied by the API
// server too, with the webhooks' selectors. The rules after them come from Istio's function injectRequired.
func decideByLabels(pod *corev1.Pod, ns Namespace, o Options) (verdict.Reason, []string) {
	for _, rule := range []func(*corev1.Pod, Namespace, Options) (verdict.Reason, bool){
		byKindOfPod, byNamespaceName, bySelector,
	} {
		if reason, decided := rule(pod, ns, o); decided {
			return reason, nil
		}
	}
	var warnings []string
	switch value, where := request.Injection(pod); value {
	case "true":
		return verdict.Because(verdict.Injected, "%s is \"true\"", where), nil
	case "false":
		return verdict.Because(verdict.PodOptsOut, "%s is \"false\"", where), nil
	case "":
	default:
		warnings = append(warnings, where+" is \""+value+"\", which is neither \"true\" nor \"false\": it is as if it was not there")
	}
	return byPolicy(pod, o), warnings
}

func byKindOfPod(pod *corev1.Pod, _ Namespace, _ Options) (verdict.Reason, bool) {
	code, sentence := request.ExcludedKind(pod)
	return verdict.Reason{Code: verdict.Code(code), Sentence: sentence}, code != ""
}

func byNamespaceName(_ *corev1.Pod, ns Namespace, _ Options) (verdict.Reason, bool) {
	if slices.Contains(contract.IgnoredNamespaces, ns.Name) {
		return verdict.Because(verdict.IgnoredNamespace, "the namespace %s is one of %s, which are never injected", ns.Name, strings.Join(contract.IgnoredNamespaces, ", ")), true
	}
	return verdict.Reason{}, false
}

// bySelector applies the rules of the webhooks' selectors. With Manual, a namespace without a label is injected
// like one with a label.
//
// complexity: a single switch shows Istio's order of precedence; several functions would hide it.
func bySelector(pod *corev1.Pod, ns Namespace, o Options) (verdict.Reason, bool) {
	if ns.Labels == nil {
		return verdict.Reason{}, false
	}
	label := podLabel(pod)
	if label == "false" {
		return verdict.Because(verdict.PodOptsOut, "label %s is \"false\"", contract.InjectLabel), true
	}
	injection, hasInjection := ns.Labels[contract.NamespaceLabel]
	if v, ok := ns.Labels[contract.OwnNamespaceLabel]; ok {
		injection, hasInjection = v, true
	}
	nsRevision, hasRevision := ns.Labels[contract.RevisionLabel]
	podRevision, podHasRevision := pod.Labels[contract.RevisionLabel]
	revision := o.revision()
	switch {
	case hasInjection && injection != "enabled":
		return verdict.Because(verdict.NamespaceOptsOut, "the namespace %s has the label %s=%s", ns.Name, contract.NamespaceLabel, injection), true
	case hasInjection && revision != contract.DefaultRevision:
		return verdict.Because(verdict.OtherRevision, "the namespace %s is the default revision's, and this is %s", ns.Name, revision), true
	case hasInjection:
		return verdict.Reason{}, false
	case hasRevision && nsRevision != revision:
		return verdict.Because(verdict.OtherRevision, "the namespace %s has %s=%s, and this is %s", ns.Name, contract.RevisionLabel, nsRevision, revision), true
	case hasRevision:
		return verdict.Reason{}, false
	case podHasRevision && podRevision != revision:
		return verdict.Because(verdict.OtherRevision, "the pod has %s=%s, and this is %s", contract.RevisionLabel, podRevision, revision), true
	case podHasRevision, label == "true", o.Manual, o.Values.Injector.EnableNamespacesByDefault:
		return verdict.Reason{}, false
	}
	ofNamespace, ofPod := contract.NamespaceLabel, contract.InjectLabel
	if o.OwnLabels {
		ofNamespace, ofPod = contract.OwnNamespaceLabel, contract.OwnInjectLabel
	}
	return verdict.Because(verdict.NotRequested, "neither the namespace %s has the label %s=enabled nor the pod the label %s=true; an annotation alone does not start injection", ns.Name, ofNamespace, ofPod), true
}

func podLabel(pod *corev1.Pod) string {
	if v, ok := pod.Labels[contract.OwnInjectLabel]; ok {
		return v
	}
	return pod.Labels[contract.InjectLabel]
}

// byPolicy decides by the mesh's selectors and its policy. It is used if neither labels nor annotations decide.
func byPolicy(pod *corev1.Pod, o Options) verdict.Reason {
	if s, ok := selected(pod, o.Values.Injector.NeverInjectSelector); ok {
		return verdict.Because(verdict.NeverInjectSelector, "neverInjectSelector %q matches the pod's labels", s)
	}
	if s, ok := selected(pod, o.Values.Injector.AlwaysInjectSelector); ok {
		return verdict.Because(verdict.Injected, "alwaysInjectSelector %q matches the pod's labels", s)
	}
	switch policy := o.Values.Global.Proxy.AutoInject; policy {
	case "", "enabled":
		return verdict.Because(verdict.Injected, "the policy is to inject")
	case "disabled":
		return verdict.Because(verdict.PolicyDisabled, "the policy (global.proxy.autoInject) is \"disabled\", and the pod does not request injection")
	default:
		return verdict.Because(verdict.PolicyDisabled, "the policy (global.proxy.autoInject) is %q, which is neither \"enabled\" nor \"disabled\": nothing is injected", policy)
	}
}

// selected returns the first selector that matches the pod. An empty selector matches no pod, unlike in
// Kubernetes.
func selected(pod *corev1.Pod, selectors []metav1.LabelSelector) (string, bool) {
	for _, s := range selectors {
		m, err := metav1.LabelSelectorAsSelector(&s)
		if err == nil && !m.Empty() && m.Matches(labels.Set(pod.Labels)) {
			return m.String(), true
		}
	}
	return "", false
}

// decideProxy decides which proxy a pod gets. If another mesh provides the proxy (alongside), our injection adds
// only order and parking, with an outrider-init that captures nothing. This must be requested: by one of our own
// labels, which no other injector reads, or by the annotation "outrider.dev/proxy: none". If the other injector
// runs after our injector, the API server calls our webhook again (reinvocationPolicy: IfNeeded), and the pod is
// injected anew.
func decideProxy(pod *corev1.Pod, ns Namespace) (alongside bool, reason verdict.Reason) {
	mesh := ProxyOfOtherMesh(pod)
	requested := pod.Annotations[contract.OwnInjectLabel] == "true" || ns.Labels[contract.OwnNamespaceLabel] == "enabled"
	if v, ok := pod.Labels[contract.OwnInjectLabel]; ok {
		requested = v == "true"
	}
	switch {
	case pod.Annotations[contract.Proxy] == "none":
		return true, verdict.Reason{Code: verdict.Injected}
	case mesh == "":
		return false, verdict.Reason{Code: verdict.Injected}
	case !requested:
		return false, verdict.Because(verdict.OtherMesh, "the container %s is another mesh's; annotate the pod %s: none to add order and parking to it", mesh, contract.Proxy)
	}
	return true, verdict.Because(verdict.Injected, "the container %s is another mesh's: order and parking are added, and no second proxy", mesh)
}

// ProxyOfOtherMesh returns the name of another mesh's proxy container in the pod; empty if there is none.
func ProxyOfOtherMesh(pod *corev1.Pod) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if knownproxy.OtherMesh(c.Name) {
				return c.Name
			}
		}
	}
	return knownproxy.OfTemplate(pod)
}
