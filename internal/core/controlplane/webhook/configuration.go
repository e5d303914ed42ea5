package webhook

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/injectors"
)

// A Place is the webhook's address: a Service or a URL.
type Place struct {
	URL                string // https://host:port, with or without a path
	Namespace, Service string // used if URL is empty; default outrider-system/outriderd, port 443
}

// ConfigurationOptions determine which pods the API server sends to the webhook. The zero value of a field
// means its default.
type ConfigurationOptions struct {
	Name      string // default outrider-injector, followed by -REVISION for a named revision
	Revision  string // default "default", to which labels without a revision refer
	Namespace string // namespace of the control plane; default outrider-system
	ByDefault bool   // the webhook also selects namespaces without a label (enableNamespacesByDefault)
	// OwnLabels is for a cluster where Istio's labels belong to another injector (see [injectors.Others]).
	// Then only Outrider's labels request injection. It requires the default revision.
	OwnLabels bool
	Place     Place
	Bundle    []byte // roots in PEM that verify the webhook's certificate
}

type requirements = []metav1.LabelSelectorRequirement

func is(key string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
}

// isNot returns the requirement that a label has none of the values. Objects without the label also match.
func isNot(key string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}
}

func has(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists}
}

func hasNo(key string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}
}

// A row is one webhook of the configuration. Selectors cannot express "or", so each variant of requesting
// injection has its own row. No pod matches two rows.
type row struct {
	name      string
	namespace requirements
	pod       requirements
}

// rows returns the selectors of Istio's chart (mutatingwebhook.yaml), once with Outrider's labels and once
// with Istio's. Outrider's labels take precedence.
func (o ConfigurationOptions) rows() []row {
	if o.OwnLabels {
		return o.ownRows()
	}
	var out []row
	unset := requirements{hasNo(contract.OwnNamespaceLabel), hasNo(contract.NamespaceLabel)}
	add := func(name string, namespace, pod requirements) {
		out = append(out, row{name, namespace, pod})
	}
	// Even if the revision of the namespace or the pod requests injection, the pod can decline it.
	unlessFalse := func(name string, namespace, pod requirements) {
		add(name, namespace, append(slices.Clone(pod), hasNo(contract.OwnInjectLabel), isNot(contract.InjectLabel, "false")))
		add("own-"+name, namespace, append(slices.Clone(pod), has(contract.OwnInjectLabel), isNot(contract.OwnInjectLabel, "false")))
	}
	unlessFalse("rev.namespace", append(slices.Clone(unset), is(contract.RevisionLabel, o.Revision)), nil)
	unlessFalse("rev.object", append(slices.Clone(unset), hasNo(contract.RevisionLabel)), requirements{is(contract.RevisionLabel, o.Revision)})
	if o.Revision != contract.DefaultRevision {
		return out
	}
	unlessFalse("namespace", requirements{hasNo(contract.OwnNamespaceLabel), is(contract.NamespaceLabel, "enabled")}, nil)
	unlessFalse("injection.namespace", requirements{is(contract.OwnNamespaceLabel, "enabled")}, nil)
	noLabel := append(slices.Clone(unset), hasNo(contract.RevisionLabel))
	add("object", noLabel, requirements{hasNo(contract.RevisionLabel), hasNo(contract.OwnInjectLabel), is(contract.InjectLabel, "true")})
	add("own-object", noLabel, requirements{hasNo(contract.RevisionLabel), is(contract.OwnInjectLabel, "true")})
	if o.ByDefault {
		add("auto", noLabel, requirements{hasNo(contract.RevisionLabel), hasNo(contract.OwnInjectLabel), isNot(contract.InjectLabel, "true", "false")})
		add("own-auto", noLabel, requirements{hasNo(contract.RevisionLabel), has(contract.OwnInjectLabel), isNot(contract.OwnInjectLabel, "true", "false")})
	}
	return out
}

// ownRows returns the selectors for Outrider's labels only.
func (o ConfigurationOptions) ownRows() []row {
	unset := requirements{hasNo(contract.OwnNamespaceLabel)}
	out := []row{
		{"own-namespace", requirements{is(contract.OwnNamespaceLabel, "enabled")}, requirements{isNot(contract.OwnInjectLabel, "false")}},
		{"own-object", unset, requirements{is(contract.OwnInjectLabel, "true")}},
	}
	if o.ByDefault {
		out = append(out, row{"own-auto", unset, requirements{isNot(contract.OwnInjectLabel, "true", "false")}})
	}
	return out
}

func (o ConfigurationOptions) complete() ConfigurationOptions {
	o.Revision = cmp.Or(o.Revision, contract.DefaultRevision)
	o.Namespace = cmp.Or(o.Namespace, ownNamespace)
	o.Place.Namespace = cmp.Or(o.Place.Namespace, o.Namespace)
	o.Place.Service = cmp.Or(o.Place.Service, "outriderd")
	name := "outrider-injector"
	if o.Revision != contract.DefaultRevision {
		name += "-" + o.Revision
	}
	o.Name = cmp.Or(o.Name, name)
	return o
}

// Configuration returns the MutatingWebhookConfiguration that makes the API server send pods to the webhook.
// It fails for an invalid URL, and for OwnLabels with a named revision.
func Configuration(o ConfigurationOptions) (*admission.MutatingWebhookConfiguration, error) {
	o = o.complete()
	if o.OwnLabels && o.Revision != contract.DefaultRevision {
		return nil, fmt.Errorf("revision %q with labels of our own alone: a revision is requested by Istio's label %s", o.Revision, contract.RevisionLabel)
	}
	client, err := o.Place.client()
	if err != nil {
		return nil, fmt.Errorf("the webhook's URL: %w", err)
	}
	client.CABundle = o.Bundle
	out := &admission.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: map[string]string{contract.RevisionLabel: o.Revision, "app": "outriderd"}},
	}
	outside := isNot(corev1.LabelMetadataName, append([]string{o.Namespace}, contract.IgnoredNamespaces...)...)
	for _, r := range o.rows() {
		out.Webhooks = append(out.Webhooks, admission.MutatingWebhook{
			Name:         r.name + injectors.Suffix,
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
			// Webhooks that are called later may add containers, which must be injected too.
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
