package webhook

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/pod/inject"
)

// A Place is where the API server finds the webhook: a service, or a URL.
type Place struct {
	URL                string // https://host:port; a path that it has is kept
	Namespace, Service string // else; default outrider-system/outriderd, port 443
}

// ConfigurationOptions say whom a webhook is asked about. The zero value of a field means
// its default.
type ConfigurationOptions struct {
	Name      string // default outrider-injector, and -REVISION for another one than the default
	Revision  string // default "default", which also answers for labels that name none
	Namespace string // the control plane's; default outrider-system
	ByDefault bool   // namespaces that say nothing too (enableNamespacesByDefault)
	OwnLabels bool   // Istio's labels are another injector's (see [Rivals]): ours alone ask; the default revision only
	Place     Place
	Bundle    []byte // the certificates that the webhook's must come from, PEM
}

// never are namespaces that no webhook is asked about, besides the control plane's
// (Istio: pkg/kube/inject/initializer.go): a webhook that does not answer must not keep
// back what it needs itself.
var never = []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}

// Labels, Istio's and ours; ours goes first where it is there.
const (
	istioNamespace = "istio-injection"
	ownNamespaces  = "outrider.dev/injection"
	istioPod       = "sidecar.istio.io/inject"
	ownPod         = "outrider.dev/inject"
	revisionKey    = "istio.io/rev"
	nameKey        = "kubernetes.io/metadata.name"
)

type requirements = []metav1.LabelSelectorRequirement

func is(key string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
}

// isNot holds where the label is not there, too.
func isNot(key string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}
}

func has(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists}
}

func hasNo(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}
}

// A row is one webhook of the configuration. Selectors know no "or": each way to ask for
// injection is a row of its own, and no pod is in two.
type row struct {
	name      string
	namespace requirements
	pod       requirements
}

// rows are Istio's selectors (its chart's mutatingwebhook.yaml; reference istio-surface
// 1.1), once for its labels and once for ours.
func (o ConfigurationOptions) rows() []row {
	if o.OwnLabels {
		return o.ownRows()
	}
	var out []row
	unsaid := requirements{hasNo(ownNamespaces), hasNo(istioNamespace)}
	add := func(name string, namespace, pod requirements) {
		out = append(out, row{name, namespace, pod})
	}
	// Where the namespace asks, or the pod's revision, a pod is out if it says "false".
	unlessFalse := func(name string, namespace, pod requirements) {
		add(name, namespace, append(slices.Clone(pod), hasNo(ownPod), isNot(istioPod, "false")))
		add("own-"+name, namespace, append(slices.Clone(pod), has(ownPod), isNot(ownPod, "false")))
	}
	unlessFalse("rev.namespace", append(slices.Clone(unsaid), is(revisionKey, o.Revision)), nil)
	unlessFalse("rev.object", append(slices.Clone(unsaid), hasNo(revisionKey)), requirements{is(revisionKey, o.Revision)})
	if o.Revision != inject.DefaultRevision {
		return out
	}
	unlessFalse("namespace", requirements{hasNo(ownNamespaces), is(istioNamespace, "enabled")}, nil)
	unlessFalse("injection.namespace", requirements{is(ownNamespaces, "enabled")}, nil)
	silent := append(slices.Clone(unsaid), hasNo(revisionKey))
	add("object", silent, requirements{hasNo(revisionKey), hasNo(ownPod), is(istioPod, "true")})
	add("own-object", silent, requirements{hasNo(revisionKey), is(ownPod, "true")})
	if o.ByDefault {
		add("auto", silent, requirements{hasNo(revisionKey), hasNo(ownPod), isNot(istioPod, "true", "false")})
		add("own-auto", silent, requirements{hasNo(revisionKey), has(ownPod), isNot(ownPod, "true", "false")})
	}
	return out
}

// ownRows know our labels alone.
func (o ConfigurationOptions) ownRows() []row {
	unsaid := requirements{hasNo(ownNamespaces)}
	out := []row{
		{"own-namespace", requirements{is(ownNamespaces, "enabled")}, requirements{isNot(ownPod, "false")}},
		{"own-object", unsaid, requirements{is(ownPod, "true")}},
	}
	if o.ByDefault {
		out = append(out, row{"own-auto", unsaid, requirements{isNot(ownPod, "true", "false")}})
	}
	return out
}

// Rivals are the configurations of other injectors that are asked by the labels of Istio's
// that our default revision is, such as Istio's own: a pod would get a proxy of each. Ours
// then listens to its own labels alone.
func Rivals(all []admission.MutatingWebhookConfiguration) []string {
	var out []string
	for _, c := range all {
		if slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool {
			return !strings.HasSuffix(w.Name, suffix) && onPods(w) && (asks(w.NamespaceSelector) || asks(w.ObjectSelector))
		}) {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// onPods says whether a webhook is asked about new pods.
func onPods(w admission.MutatingWebhook) bool {
	among := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(w.Rules, func(r admission.RuleWithOperations) bool {
		creates := slices.Contains(r.Operations, admission.Create) || slices.Contains(r.Operations, admission.OperationAll)
		return creates && among(r.APIGroups, "") && (among(r.Resources, "pods") || slices.Contains(r.Resources, "*/*"))
	})
}

// yes is what Istio's labels say to ask for the default revision. A revision with a name
// has its own pods.
var yes = map[string]string{istioNamespace: "enabled", istioPod: "true", revisionKey: inject.DefaultRevision}

// asks says whether a selector wants a label of Istio's to say yes. One that only wants it
// not to say no is anybody's.
func asks(s *metav1.LabelSelector) bool {
	if s == nil {
		return false
	}
	for key, value := range yes {
		if s.MatchLabels[key] == value {
			return true
		}
	}
	return slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		value, ok := yes[r.Key]
		return ok && (r.Operator == metav1.LabelSelectorOpExists || r.Operator == metav1.LabelSelectorOpIn && slices.Contains(r.Values, value))
	})
}

// suffix is the end of our webhooks' names.
const suffix = ".inject.outrider.dev"

func (o ConfigurationOptions) complete() ConfigurationOptions {
	fill := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	fill(&o.Revision, inject.DefaultRevision)
	fill(&o.Namespace, ownNamespace)
	fill(&o.Place.Namespace, o.Namespace)
	fill(&o.Place.Service, "outriderd")
	name := "outrider-injector"
	if o.Revision != inject.DefaultRevision {
		name += "-" + o.Revision
	}
	fill(&o.Name, name)
	return o
}

// Configuration is the MutatingWebhookConfiguration that makes the API server ask.
func Configuration(o ConfigurationOptions) (*admission.MutatingWebhookConfiguration, error) {
	o = o.complete()
	if o.OwnLabels && o.Revision != inject.DefaultRevision {
		return nil, fmt.Errorf("revision %q with labels of our own alone: a revision is asked for by Istio's label %s", o.Revision, revisionKey)
	}
	client, err := o.Place.client()
	if err != nil {
		return nil, fmt.Errorf("the webhook's URL: %w", err)
	}
	client.CABundle = o.Bundle
	out := &admission.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{revisionKey: o.Revision, "app": "outriderd"}},
	}
	outside := isNot(nameKey, append([]string{o.Namespace}, never...)...)
	for _, r := range o.rows() {
		out.Webhooks = append(out.Webhooks, admission.MutatingWebhook{
			Name:         r.name + suffix,
			ClientConfig: client,
			Rules: []admission.RuleWithOperations{{
				Operations: []admission.OperationType{admission.Create},
				Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
					Scope: new(admission.NamespacedScope)},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: append(slices.Clone(r.namespace), outside)},
			ObjectSelector:    &metav1.LabelSelector{MatchExpressions: r.pod},
			FailurePolicy:     new(admission.Fail),
			MatchPolicy:       new(admission.Equivalent),
			SideEffects:       new(admission.SideEffectClassNone),
			// Others may add containers after us: those are to be injected too.
			ReinvocationPolicy:      new(admission.IfNeededReinvocationPolicy),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	return out, nil
}

func (p Place) client() (admission.WebhookClientConfig, error) {
	if p.URL == "" {
		return admission.WebhookClientConfig{Service: &admission.ServiceReference{
			Namespace: p.Namespace, Name: p.Service, Path: new(Path), Port: new(int32(443)),
		}}, nil
	}
	u, err := url.Parse(p.URL)
	switch {
	case err != nil:
		return admission.WebhookClientConfig{}, err
	case u.Scheme != "https" || u.Host == "":
		return admission.WebhookClientConfig{}, fmt.Errorf("%q: want https://HOST:PORT", p.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return admission.WebhookClientConfig{}, fmt.Errorf("%q: the API takes no user, query or fragment in a webhook's URL", p.URL)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = Path
	}
	if _, err := environOf(u.EscapedPath()); err != nil {
		return admission.WebhookClientConfig{}, err
	}
	return admission.WebhookClientConfig{URL: new(u.String())}, nil
}
