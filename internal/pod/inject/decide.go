package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DefaultRevision is asked for by labels that name none.
const DefaultRevision = "default"

// Labels that decide. A label of ours means the same and goes first.
const (
	injectLabel    = "sidecar.istio.io/inject"
	revisionLabel  = "istio.io/rev"
	namespaceLabel = "istio-injection"
	ownInjectLabel = "outrider.dev/inject"
	ownNamespace   = "outrider.dev/injection"
)

// ignoredNamespaces are never injected (Istio: pkg/kube/inject/initializer.go).
var ignoredNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}

// PodLabels are the labels by which a pod asks for injection, or for none. The first that
// is there decides.
var PodLabels = []string{ownInjectLabel, injectLabel}

// AsksDefault says whether a namespace's labels name the default revision, or nobody.
func AsksDefault(ns Namespace) bool {
	_, istios := ns.Labels[namespaceLabel]
	_, own := ns.Labels[ownNamespace]
	return istios || own
}

// Decide says whether a pod is to be injected; [Pod] begins with it.
func Decide(pod *corev1.Pod, ns Namespace, o Options) Reason {
	reason, _ := decide(pod, ns, o)
	return reason
}

// decide says whether a pod is to be injected, by the labels that are said to us.
func decide(pod *corev1.Pod, ns Namespace, o Options) (Reason, []string) {
	if !o.OwnLabels {
		return byLabels(pod, ns, o)
	}
	heard, of := o.heard(pod, ns)
	reason, warnings := byLabels(heard, of, o)
	if reason.Code == NobodyAsked && o.forOthers(pod, ns) {
		reason = because(OtherInjector, "Istio's labels, which ask for it, are another injector's here: label the namespace %s=enabled or the pod %s=true", ownNamespace, ownInjectLabel)
	}
	return reason, warnings
}

// byLabels decides by all labels. The rules are Istio's, in its order: those that the API
// server applies by the webhook's selectors, here in the middle, then those of
// injectRequired (reference: istio-surface 1.1).
func byLabels(pod *corev1.Pod, ns Namespace, o Options) (Reason, []string) {
	var warnings []string
	for _, rule := range []func(*corev1.Pod, Namespace, Options) (Reason, bool){
		byKindOfPod, byNamespaceName, bySelector,
	} {
		if reason, decided := rule(pod, ns, o); decided {
			return reason, nil
		}
	}
	wish, where := injectWish(pod)
	switch wish {
	case "true":
		return because(Injected, "%s is \"true\"", where), nil
	case "false":
		return because(AskedNotTo, "%s is \"false\"", where), nil
	case "":
	default:
		warnings = append(warnings, where+" is \""+wish+"\", which is neither \"true\" nor \"false\": it is as if it was not there")
	}
	return byPolicy(pod, o), warnings
}

func byKindOfPod(pod *corev1.Pod, _ Namespace, _ Options) (Reason, bool) {
	switch {
	case pod.Spec.HostNetwork:
		return because(HostNetwork, "the pod has hostNetwork: true, and what is captured there is the node's traffic"), true
	case isWindows(pod):
		return because(OtherSystem, "the pod is for Windows nodes; the proxy and the capture are for Linux"), true
	}
	return Reason{}, false
}

func isWindows(pod *corev1.Pod) bool {
	return pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows"
}

func byNamespaceName(_ *corev1.Pod, ns Namespace, _ Options) (Reason, bool) {
	if slices.Contains(ignoredNamespaces, ns.Name) {
		return because(IgnoredNamespace, "the namespace %s is one of %s, which are never injected", ns.Name, strings.Join(ignoredNamespaces, ", ")), true
	}
	return Reason{}, false
}

// injectWish is what the pod itself says: the label if it is there, even if it is empty,
// else the annotation.
func injectWish(pod *corev1.Pod) (wish, where string) {
	for _, key := range PodLabels {
		if v, ok := pod.Labels[key]; ok {
			return v, "label " + key
		}
	}
	for _, key := range PodLabels {
		if v, ok := pod.Annotations[key]; ok {
			return v, "annotation " + key
		}
	}
	return "", ""
}

// bySelector is what the selectors of the webhooks let through. By hand a namespace
// without a label is none that nobody asked for.
func bySelector(pod *corev1.Pod, ns Namespace, o Options) (Reason, bool) {
	if ns.Labels == nil {
		return Reason{}, false
	}
	label := podLabel(pod)
	if label == "false" {
		return because(AskedNotTo, "label %s is \"false\"", injectLabel), true
	}
	injection, hasInjection := ns.Labels[namespaceLabel]
	if v, ok := ns.Labels[ownNamespace]; ok {
		injection, hasInjection = v, true
	}
	nsRevision, hasRevision := ns.Labels[revisionLabel]
	podRevision, podHasRevision := pod.Labels[revisionLabel]
	revision := o.revision()
	switch {
	case hasInjection && injection != "enabled":
		return because(NamespaceSaysNo, "the namespace %s has the label %s=%s", ns.Name, namespaceLabel, injection), true
	case hasInjection && revision != DefaultRevision:
		return because(OtherRevision, "the namespace %s is the default revision's, and this is %s", ns.Name, revision), true
	case hasInjection:
		return Reason{}, false
	case hasRevision && nsRevision != revision:
		return because(OtherRevision, "the namespace %s has %s=%s, and this is %s", ns.Name, revisionLabel, nsRevision, revision), true
	case hasRevision:
		return Reason{}, false
	case podHasRevision && podRevision != revision:
		return because(OtherRevision, "the pod has %s=%s, and this is %s", revisionLabel, podRevision, revision), true
	case podHasRevision, label == "true", o.Manual, o.Values.Injector.EnableNamespacesByDefault:
		return Reason{}, false
	}
	ofNamespace, ofPod := namespaceLabel, injectLabel
	if o.OwnLabels {
		ofNamespace, ofPod = ownNamespace, ownInjectLabel
	}
	return because(NobodyAsked, "neither the namespace %s has the label %s=enabled nor the pod the label %s=true; an annotation alone does not start injection", ns.Name, ofNamespace, ofPod), true
}

func podLabel(pod *corev1.Pod) string {
	if v, ok := pod.Labels[ownInjectLabel]; ok {
		return v
	}
	return pod.Labels[injectLabel]
}

// byPolicy decides where nobody said anything about this pod.
func byPolicy(pod *corev1.Pod, o Options) Reason {
	if s, ok := selected(pod, o.Values.Injector.NeverInjectSelector); ok {
		return because(NeverSelected, "neverInjectSelector %q matches the pod's labels", s)
	}
	if s, ok := selected(pod, o.Values.Injector.AlwaysInjectSelector); ok {
		return because(Injected, "alwaysInjectSelector %q matches the pod's labels", s)
	}
	switch policy := o.Values.Global.Proxy.AutoInject; policy {
	case "", "enabled":
		return because(Injected, "the policy is to inject")
	case "disabled":
		return because(PolicySaysNo, "the policy (global.proxy.autoInject) is \"disabled\", and the pod does not ask for injection")
	default:
		return because(PolicySaysNo, "the policy (global.proxy.autoInject) is %q, which is neither \"enabled\" nor \"disabled\": nothing is injected", policy)
	}
}

// selected is the first selector that matches. An empty one matches nothing here.
func selected(pod *corev1.Pod, selectors []metav1.LabelSelector) (string, bool) {
	for _, s := range selectors {
		m, err := metav1.LabelSelectorAsSelector(&s)
		if err == nil && !m.Empty() && m.Matches(labels.Set(pod.Labels)) {
			return m.String(), true
		}
	}
	return "", false
}
