package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/injectors"
	"outrider.dev/internal/ops/installation"
)

// The oldest and the newest version of Kubernetes that are tested and supported.
const oldest, newest = "1.29", "1.36"

func (s *survey) apiServer(ctx context.Context) answer {
	if _, err := s.askServer(ctx); err != nil {
		return failed("--context and --kubeconfig choose another cluster; kubectl version shows whether this one answers", "%v", err)
	}
	return fine("%s answers", s.Config.Host)
}

func (s *survey) kubernetesVersion(ctx context.Context) answer {
	a, err := s.askServer(ctx)
	if err != nil {
		return unknown(err)
	}
	v, err := version.ParseGeneric(a.version)
	switch {
	case err != nil:
		return skipped("the API server reports the version %q: %v", a.version, err)
	case v.LessThan(version.MustParseGeneric(oldest)):
		return failed("upgrade the cluster", "%s is older than %s, the oldest that is supported", a.version, oldest)
	case version.MustParseGeneric(newest).LessThan(version.MustParseGeneric(fmt.Sprintf("%d.%d", v.Major(), v.Minor()))):
		return warning("", "%s is newer than %s, the newest that was tried", a.version, newest)
	}
	return fine("%s", a.version)
}

// A right is a permission that an installation needs.
type right struct {
	verb      string
	resource  schema.GroupResource
	namespace string
}

func (r right) String() string {
	where := ""
	if r.namespace != "" {
		where = " in namespace " + r.namespace
	}
	return r.verb + " " + r.resource.String() + where
}

// written lists the verbs that Helm needs to apply an object and to remove it.
var written = []string{"get", "create", "patch", "delete"}

// needs returns the rights that an installation needs. It also returns those objects of the release whose kinds are
// missing in the cluster.
func (s *survey) needs() (out []right, unknownKinds []string) {
	add := func(verb string, resource schema.GroupResource, namespace string) {
		if r := (right{verb, resource, namespace}); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	own := s.Options.Namespace
	for _, verb := range []string{"get", "list", "create", "update", "delete"} { // Helm's record of the release
		add(verb, schema.GroupResource{Resource: "secrets"}, own)
	}
	for _, verb := range []string{"get", "create"} {
		add(verb, schema.GroupResource{Resource: "namespaces"}, "")
	}
	for _, verb := range []string{"get", "create", "update", "delete"} { // for the lock, which allows one installation at a time
		add(verb, schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, own)
	}
	for _, o := range slices.Concat(s.Release.Definitions, s.Release.Objects) {
		m, err := s.mapping(o)
		if err != nil {
			unknownKinds = append(unknownKinds, fmt.Sprintf("%s (%v)", nameOf(o), err))
			continue
		}
		for _, verb := range written {
			add(verb, m.Resource.GroupResource(), s.namespaceOf(o, m))
		}
	}
	for _, resource := range []string{"deployments.apps"} { // install waits for the roll-out
		add("list", schema.ParseGroupResource(resource), own)
		add("watch", schema.ParseGroupResource(resource), own)
	}
	return out, unknownKinds
}

func (s *survey) mapping(o *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := o.GroupVersionKind()
	return s.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

func (s *survey) namespaceOf(o *unstructured.Unstructured, m *meta.RESTMapping) string {
	if m.Scope.Name() != meta.RESTScopeNameNamespace {
		return ""
	}
	if o.GetNamespace() != "" {
		return o.GetNamespace()
	}
	return s.Options.Namespace
}

// resource returns the client for the kind and the namespace of an object. It fails if the cluster does not have the
// kind.
func (s *survey) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	m, err := s.mapping(o)
	if err != nil {
		return nil, err
	}
	return s.Dynamic.Resource(m.Resource).Namespace(s.namespaceOf(o, m)), nil
}

func nameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() != "" {
		return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
	}
	return fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
}

// rights checks that the caller has each right. It also creates each role as a dry run, because the API server
// refuses a role with permissions that the caller does not have (unless the caller has the verb "escalate").
func (s *survey) rights(ctx context.Context) answer {
	const hint = "install as cluster-admin, or have the permissions granted that are named"
	needs, unknownKinds := s.needs()
	if len(unknownKinds) > 0 {
		return failed("these come with values that need something else in the cluster first", "the cluster has no such kind: %s", cli.Few(unknownKinds))
	}
	var missing []string
	for _, r := range needs {
		review, err := s.Core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
				Verb: r.verb, Group: r.resource.Group, Resource: r.resource.Resource, Namespace: r.namespace,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return unknown(tried("asking about permissions", err))
		}
		if !review.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return failed(hint, "the caller may not %s", cli.Few(missing))
	}
	for _, o := range s.Release.Objects {
		if o.GetKind() != "ClusterRole" {
			continue
		}
		if err := s.tryRole(ctx, o); err != nil {
			return failed(hint, "the API server refuses %s: %v", nameOf(o), err)
		}
	}
	return fine("all %d permissions that install needs are there", len(needs))
}

// tryRole creates a role as a dry run. It uses another name, because a role with the same name may exist already.
func (s *survey) tryRole(ctx context.Context, o *unstructured.Unstructured) error {
	roles, err := s.resource(o)
	if err != nil {
		return err
	}
	try := o.DeepCopy()
	try.SetName("")
	try.SetGenerateName(o.GetName() + "-check-")
	_, err = roles.Create(ctx, try, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return err
	}
	return nil // another error is not about permissions, and the installation will report it
}

// leftovers finds objects that have the names of the release's objects, but do not belong to it. Helm refuses to
// change them.
func (s *survey) leftovers(ctx context.Context) answer {
	var others, commands []string
	own := 0
	for _, o := range s.Release.Objects {
		client, err := s.resource(o)
		if err != nil {
			continue // the cluster does not have the kind, and so no objects of it
		}
		is, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return unknown(tried("reading "+nameOf(o), err))
		}
		a := is.GetAnnotations()
		if a[installation.NameAnnotation] == s.Release.Name && a[installation.NamespaceAnnotation] == s.Options.Namespace {
			own++
			continue
		}
		others = append(others, nameOf(is))
		commands = append(commands, strings.ToLower(is.GetKind())+"/"+is.GetName())
	}
	if len(others) > 0 {
		return failed(fmt.Sprintf("remove what is left of an installation without Helm: kubectl delete -n %s %s", s.Options.Namespace, strings.Join(commands, " ")),
			"not of release %s/%s: %s", s.Options.Namespace, s.Release.Name, cli.Few(others))
	}
	if a, bad := s.deadWebhooks(ctx); bad {
		return a
	}
	if own > 0 {
		return fine("release %s is installed: install upgrades it", s.Release.Name)
	}
	roots, err := s.allRoots(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(roots) > 0 {
		return warning("outrider uninstall --purge removes them", "%s %s of an earlier mesh; the roots in them will be replaced", plural(len(roots), "namespace has a ConfigMap", "namespaces have a ConfigMap"), contract.RootConfigMap)
	}
	return fine("nothing of Outrider is in the cluster")
}

// deadWebhooks finds Outrider's webhooks whose service does not exist. The API server refuses each pod that such a
// webhook selects.
func (s *survey) deadWebhooks(ctx context.Context) (answer, bool) {
	all, err := s.allConfigurations(ctx)
	if err != nil {
		return unknown(err), true
	}
	for _, c := range all {
		if !injectors.Ours(c) {
			continue
		}
		for _, w := range c.Webhooks {
			at := w.ClientConfig.Service
			if at == nil {
				continue
			}
			_, err := s.Core.CoreV1().Services(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return failed("kubectl delete mutatingwebhookconfiguration "+c.Name, "MutatingWebhookConfiguration %s leads to the service %s/%s, which does not exist: pods that it selects are refused", c.Name, at.Namespace, at.Name), true
			}
			break // all webhooks of a configuration have the same service
		}
	}
	return answer{}, false
}

// definitions reports which CustomResourceDefinitions the cluster has, and which of them an installation adds.
func (s *survey) definitions(ctx context.Context) answer {
	var absent, present []string
	for _, d := range s.Release.Definitions {
		client, err := s.resource(d)
		if err != nil {
			return unknown(err)
		}
		is, err := client.Get(ctx, d.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			absent = append(absent, d.GetName())
		case err != nil:
			return unknown(tried("reading the CustomResourceDefinition "+d.GetName(), err))
		case !established(is):
			return failed("kubectl describe crd "+d.GetName(), "the API server does not serve %s yet, or refuses its names", d.GetName())
		default:
			present = append(present, d.GetName())
		}
	}
	switch {
	case len(absent) == 0:
		return fine("the cluster has %s", cli.Few(present))
	case s.Before:
		return fine("install adds %s", cli.Few(absent))
	}
	return warning("outrider install adds them", "the cluster has no %s: objects of these kinds cannot be written", cli.Few(absent))
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}

// requested returns the namespaces whose labels request injection.
func (s *survey) requested(ctx context.Context) ([]corev1.Namespace, error) {
	all, err := s.allNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	configurations, err := s.allConfigurations(ctx)
	if err != nil {
		return nil, err
	}
	// If there is another injector, only our own labels request injection, because that is the default of the values.
	own := len(injectors.Others(configurations)) > 0
	return slices.DeleteFunc(slices.Clone(all), func(n corev1.Namespace) bool {
		if v, ok := n.Labels[contract.OwnNamespaceLabel]; ok {
			return v != "enabled"
		}
		return own || n.Labels[contract.NamespaceLabel] != "enabled"
	}), nil
}

func (s *survey) otherInjectors(ctx context.Context) answer {
	all, err := s.allConfigurations(ctx)
	if err != nil {
		return unknown(err)
	}
	if others := injectors.Others(all); len(others) > 0 {
		return warning("label namespaces with outrider.dev/injection=enabled, or remove the other injector", "Istio's labels select pods for %s too: only Outrider's own labels request injection here", cli.Few(others))
	}
	return fine("Istio's and Outrider's labels select pods for no other injector")
}

// Differences of clocks. A certificate is valid from two minutes before it is signed, and tokens tolerate a
// difference of one minute.
const (
	skewWarning = 5 * time.Second
	skewFailure = time.Minute
)

// clock compares the API server's clock with the clocks of this machine and of the replicas.
func (s *survey) clock(ctx context.Context) answer {
	server, err := s.askServer(ctx)
	if err != nil {
		return unknown(err)
	}
	if server.date.IsZero() {
		return skipped("the API server's answer has no date")
	}
	if s.Before {
		return clockAnswer(nil, server.local.Sub(server.date))
	}
	skews := map[string]time.Duration{}
	var errs []error
	replicas, err := s.allReplicas(ctx)
	errs = append(errs, err)
	for _, p := range replicas {
		skew, err := s.skewOf(ctx, p.Name)
		if errs = append(errs, err); err == nil {
			skews[p.Name] = skew + server.local.Sub(server.date)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return unknown(err)
	}
	return clockAnswer(skews, server.local.Sub(server.date))
}
