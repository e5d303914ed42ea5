package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/controlplane/webhook"
	"outrider.dev/internal/manifest"
	"outrider.dev/internal/pod/inject"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/internal/replicas"
	"outrider.dev/startup"
)

// ReadMesh reads what decides about pods in a cluster: the control plane's Deployments and their
// values, and the configurations of webhooks.
func ReadMesh(ctx context.Context, core kubernetes.Interface, namespace string) (Mesh, error) {
	m := Mesh{Namespace: namespace, Webhook: true}
	deployments, err := core.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: replicas.Selector})
	if err != nil {
		return m, fmt.Errorf("listing deployments in %s: %w", namespace, err)
	}
	on := kubernetesOf(core)
	others, err := m.readWebhooks(ctx, core)
	if err != nil {
		m.Notes = append(m.Notes, fmt.Sprintf("whether the API server sends pods to the control plane, and to other injectors: %v", err))
	}
	for _, d := range deployments.Items {
		own, serves := ownLabels(d)
		if !serves {
			continue
		}
		name := cmp.Or(d.Labels[replicas.RevisionLabel], inject.DefaultRevision)
		r := Revision{Name: name, Options: inject.Options{Revision: name, Kubernetes: on}}
		r.Options.OwnLabels = own == "on" || own == "auto" && others && name == inject.DefaultRevision
		if r.Options.Values, err = values(ctx, core, namespace, d.Name+"-injection"); err != nil {
			m.Notes = append(m.Notes, fmt.Sprintf("the values of revision %s: %v; what follows is by the defaults", name, err))
		}
		m.Revisions = append(m.Revisions, r)
	}
	slices.SortFunc(m.Revisions, func(a, b Revision) int { // the default one first
		return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return m, nil
}

func rank(revision string) int {
	if revision == inject.DefaultRevision {
		return 0
	}
	return 1
}

func kubernetesOf(core kubernetes.Interface) startup.Kubernetes {
	var v cli.KubeVersion
	if version, err := core.Discovery().ServerVersion(); err == nil && v.Set(version.GitVersion) == nil {
		return startup.Kubernetes(v)
	}
	return 0
}

// readWebhooks reports whether there are other injectors.
func (m *Mesh) readWebhooks(ctx context.Context, core kubernetes.Interface) (others bool, err error) {
	all, err := core.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	m.Webhook = slices.ContainsFunc(all.Items, func(c admission.MutatingWebhookConfiguration) bool {
		return webhook.IsOurs(c) && !slices.ContainsFunc(c.Webhooks, func(w admission.MutatingWebhook) bool {
			return w.ClientConfig.Service != nil && w.ClientConfig.Service.Namespace != m.Namespace
		})
	})
	return len(webhook.OtherInjectors(all.Items)) > 0, nil
}

// ownLabels is the flag --own-labels of a control plane; false: it does not inject.
func ownLabels(d appsv1.Deployment) (own string, serves bool) {
	own, serves = "auto", true
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, a := range c.Args {
			if value, ok := strings.CutPrefix(a, "--own-labels="); ok {
				own = value
			}
			serves = serves && a != "--webhook=off"
		}
	}
	return own, serves
}

func values(ctx context.Context, core kubernetes.Interface, namespace, name string) (inject.Values, error) {
	m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return inject.Values{}, err
	}
	out, _, err := inject.ParseValues([]byte(m.Data["values.yaml"]))
	return out, err
}

// Pods reads the pods of a namespace, or of all, by name or by labels, and their namespaces.
func Pods(ctx context.Context, core kubernetes.Interface, namespace, labels string, names []string) ([]Subject, error) {
	list := metav1.ListOptions{LabelSelector: labels}
	var out []Subject
	known := map[string]inject.Namespace{}
	add := func(o podspec.Object) error {
		ns, ok := known[o.Namespace]
		if !ok {
			read, err := core.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("reading the labels of namespace %s: %w", o.Namespace, err)
			}
			ns = inject.Namespace{Name: o.Namespace, Labels: map[string]string{}, Annotations: read.Annotations}
			if read.Labels != nil { // nil would be unknown
				ns.Labels = read.Labels
			}
			known[o.Namespace] = ns
		}
		out = append(out, Subject{Object: o, Namespace: ns})
		return nil
	}
	for _, name := range names {
		p, err := core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			err = add(podspec.Object{Kind: "Pod", Name: p.Name, Namespace: p.Namespace, APIVersion: "v1", Pod: *p})
		}
		if err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		return out, nil
	}
	all, err := core.CoreV1().Pods(namespace).List(ctx, list)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for _, p := range all.Items {
		if err := add(podspec.Object{Kind: "Pod", Name: p.Name, Namespace: p.Namespace, APIVersion: "v1", Pod: p}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Offline is the mesh of files: that of the defaults, whose webhook is there.
func Offline(on startup.Kubernetes) Mesh {
	return Mesh{Webhook: true, Revisions: []Revision{{Name: inject.DefaultRevision, Options: inject.Options{Kubernetes: on}}},
		Notes: []string{"no cluster was asked: the settings are the defaults, and a namespace has the labels that its document in the files has"}}
}

// InFiles are the pods, and what has a pod template, of a file; namespace is that of objects that
// name none, and known are the namespaces of all files.
func InFiles(objects []podspec.Object, known map[string]manifest.Namespace, namespace string) []Subject {
	var out []Subject
	for _, o := range objects {
		ns := inject.Namespace{Name: cmp.Or(o.Namespace, namespace)}
		if read, ok := known[ns.Name]; ok {
			ns.Labels, ns.Annotations = read.Labels, read.Annotations
			if ns.Labels == nil {
				ns.Labels = map[string]string{} // nil would be unknown
			}
		}
		out = append(out, Subject{Object: o, Namespace: ns, Planned: o.Pod.UID == ""})
	}
	return out
}
