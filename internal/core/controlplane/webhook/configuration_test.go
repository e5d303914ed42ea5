package webhook

import (
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/injectors"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// selecting returns the webhooks in c that match a pod.
func selecting(t *testing.T, c *admission.MutatingWebhookConfiguration, namespace, pod map[string]string) []string {
	t.Helper()
	matches := func(s *metav1.LabelSelector, of map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return selector.Matches(labels.Set(of))
	}
	var out []string
	for _, w := range c.Webhooks {
		if matches(w.NamespaceSelector, namespace) && matches(w.ObjectSelector, pod) {
			out = append(out, w.Name)
		}
	}
	return out
}

// For each combination of labels of a pod and its namespace, exactly one webhook matches if the labels
// request injection, and none otherwise.
func TestTheSelectorsSayWhatInjectionSays(t *testing.T) {
	const unset = "-"
	combine := func(keys []string, values [][]string) []map[string]string {
		out := []map[string]string{{}}
		for i, key := range keys {
			var next []map[string]string
			for _, m := range out {
				for _, v := range values[i] {
					c := map[string]string{}
					for k, x := range m {
						c[k] = x
					}
					if v != unset {
						c[key] = v
					}
					next = append(next, c)
				}
			}
			out = next
		}
		return out
	}
	revisions := []string{unset, "default", "canary"}
	namespaces := combine([]string{contract.OwnNamespaceLabel, contract.NamespaceLabel, contract.RevisionLabel}, [][]string{{unset, "enabled", "disabled"}, {unset, "enabled", "disabled"}, revisions})
	podLabels := combine([]string{contract.OwnInjectLabel, contract.InjectLabel, contract.RevisionLabel}, [][]string{{unset, "true", "false", "yes"}, {unset, "true", "false", "yes"}, revisions})
	notRequested := []verdict.Code{verdict.PodOptsOut, verdict.NamespaceOptsOut, verdict.OtherRevision, verdict.NotRequested, verdict.OtherInjector}
	n := 0
	for _, byDefault := range []bool{false, true} {
		for _, revision := range []string{"default", "canary", ""} {
			ownLabels := revision == ""
			if ownLabels {
				revision = "default"
			}
			c, err := Configuration(ConfigurationOptions{Revision: revision, ByDefault: byDefault, OwnLabels: ownLabels})
			if err != nil {
				t.Fatal(err)
			}
			o := inject.Options{Revision: revision, OwnLabels: ownLabels}
			o.Values.Injector.EnableNamespacesByDefault = byDefault
			for _, ns := range namespaces {
				for _, pl := range podLabels {
					n++
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: pl},
						Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a", Command: []string{"/a"}}}}}
					r, err := inject.Pod(pod, inject.Namespace{Name: "shop", Labels: ns}, o)
					if err != nil {
						t.Fatal(err)
					}
					want := !slices.Contains(notRequested, r.Reason.Code)
					_, namesRevision := pl[contract.RevisionLabel]
					if _, nsNames := ns[contract.RevisionLabel]; revision != "default" && !namesRevision && !nsNames {
						want = false // as in Istio (webhooks "object.", "auto."), no revision means the default one
					}
					got := selecting(t, c, ns, pl)
					if len(got) > 1 || (len(got) == 1) != want {
						t.Errorf("revision %s, own labels %v, by default %v, namespace %v, pod %v: selected by %v, and injection says %s", revision, ownLabels, byDefault, ns, pl, got, r.Reason.Code)
					}
				}
			}
		}
	}
	if n < 7500 {
		t.Errorf("%d combinations only", n)
	}
}

func TestNoPodOfTheControlPlaneIsEverSelected(t *testing.T) {
	c, err := Configuration(ConfigurationOptions{Namespace: "mesh-system", ByDefault: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"mesh-system"}, contract.IgnoredNamespaces...) {
		ns := map[string]string{corev1.LabelMetadataName: name, contract.NamespaceLabel: "enabled", contract.OwnNamespaceLabel: "enabled"}
		for _, pod := range []map[string]string{nil, {contract.InjectLabel: "true"}, {contract.OwnInjectLabel: "true"}, {contract.RevisionLabel: "default"}} {
			if got := selecting(t, c, ns, pod); len(got) > 0 {
				t.Errorf("a pod %v of %s is selected by %v", pod, name, got)
			}
			delete(ns, contract.OwnNamespaceLabel)
		}
	}
	names := map[string]bool{}
	for _, w := range c.Webhooks {
		if names[w.Name] || strings.Count(w.Name, ".") < 2 {
			t.Errorf("name %q: want names of at least three parts, each once", w.Name)
		}
		names[w.Name] = true
		if *w.FailurePolicy != admission.Fail || *w.SideEffects != admission.SideEffectClassNone || *w.ReinvocationPolicy != admission.IfNeededReinvocationPolicy ||
			*w.TimeoutSeconds != 10 || *w.MatchPolicy != admission.Equivalent || w.ClientConfig.Service.Namespace != "mesh-system" {
			t.Errorf("%s: %+v", w.Name, w)
		}
	}
}

// A configuration belongs to another injector if its selectors match Istio's labels. It belongs to none if it
// selects all pods, excludes those with Istio's labels, or selects only a revision of its own.
func TestRivals(t *testing.T) {
	pods := []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}}
	one := func(name string, w admission.MutatingWebhook) admission.MutatingWebhookConfiguration {
		return admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admission.MutatingWebhook{w}}
	}
	labels := func(m ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: m}
	}
	ours, err := Configuration(ConfigurationOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := []admission.MutatingWebhookConfiguration{
		*ours,
		one("istio-sidecar-injector", admission.MutatingWebhook{Name: "namespace.sidecar-injector.istio.io", Rules: pods, NamespaceSelector: labels(is(contract.NamespaceLabel, "enabled"))}),
		one("istio-by-pod", admission.MutatingWebhook{Name: "object.sidecar-injector.istio.io", Rules: pods, ObjectSelector: labels(is(contract.InjectLabel, "true"))}),
		one("old-istio", admission.MutatingWebhook{Name: "a.b.c", Rules: pods, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.NamespaceLabel: "enabled"}}}),
		one("tag", admission.MutatingWebhook{Name: "rev.namespace.sidecar-injector.istio.io", Rules: pods, NamespaceSelector: labels(is(contract.RevisionLabel, "default"))}),
		one("canary", admission.MutatingWebhook{Name: "rev.namespace.sidecar-injector.istio.io", Rules: pods, NamespaceSelector: labels(is(contract.RevisionLabel, "canary"), hasNo(contract.NamespaceLabel))}),
		one("canary-by-pod", admission.MutatingWebhook{Name: "a.b.h", Rules: pods, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.RevisionLabel: "canary"}}}),
		one("deactivated", admission.MutatingWebhook{Name: "a.b.i", Rules: pods, NamespaceSelector: labels(is(contract.NamespaceLabel, "never-match"))}),
		one("linkerd", admission.MutatingWebhook{Name: "linkerd-proxy-injector.linkerd.io", Rules: pods, NamespaceSelector: labels(isNot("config.linkerd.io/admission-webhooks", "disabled"))}),
		one("polite", admission.MutatingWebhook{Name: "a.b.d", Rules: pods, NamespaceSelector: labels(hasNo(contract.NamespaceLabel), isNot(contract.InjectLabel, "true"))}),
		one("of-services", admission.MutatingWebhook{Name: "a.b.e", NamespaceSelector: labels(is(contract.NamespaceLabel, "enabled")),
			Rules: []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{""}, Resources: []string{"services"}}}}}),
		one("of-updates", admission.MutatingWebhook{Name: "a.b.f", NamespaceSelector: labels(is(contract.NamespaceLabel, "enabled")),
			Rules: []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Update}, Rule: admission.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}}}),
		one("of-everything", admission.MutatingWebhook{Name: "a.b.g", NamespaceSelector: labels(has(contract.RevisionLabel)),
			Rules: []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.OperationAll}, Rule: admission.Rule{APIGroups: []string{"*"}, Resources: []string{"*"}}}}}),
	}
	if got, want := injectors.Others(all), []string{"istio-by-pod", "istio-sidecar-injector", "of-everything", "old-istio", "tag"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := Configuration(ConfigurationOptions{OwnLabels: true, Revision: "canary"}); err == nil || !strings.Contains(err.Error(), "canary") {
		t.Errorf("a revision with our own labels: %v", err)
	}
}

func TestPlaces(t *testing.T) {
	tests := map[string]struct{ in, want, err string }{
		"a host gets the path":  {"https://10.0.0.1:15017", "https://10.0.0.1:15017/inject", ""},
		"a path is kept":        {"https://h:1/inject/cluster/a", "https://h:1/inject/cluster/a", ""},
		"without TLS is none":   {"http://h:1", "", "want https://"},
		"a query is refused":    {"https://h:1?a=b", "", "query"},
		"another path is none":  {"https://h:1/other", "", "/inject"},
		"what is no URL is not": {"https://h:%", "", "invalid"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Configuration(ConfigurationOptions{Place: Place{URL: tt.in}})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || *c.Webhooks[0].ClientConfig.URL != tt.want || c.Webhooks[0].ClientConfig.Service != nil {
				t.Errorf("%v, %+v; want %s", err, c, tt.want)
			}
		})
	}
}
