package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/injectors"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/replicas"
	"outrider.dev/startup"
)

// readMesh reads the settings that determine injection in a cluster. They are in the control plane's Deployments,
// their values, and the webhook configurations.
func readMesh(ctx context.Context, core kubernetes.Interface, namespace string) (Mesh, error) {
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
		name := cmp.Or(d.Labels[replicas.RevisionLabel], contract.DefaultRevision)
		r := Revision{Name: name, Options: inject.Options{Revision: name, Kubernetes: on}}
		r.Options.OwnLabels = own == "on" || own == "auto" && others && name == contract.DefaultRevision
		if r.Options.Values, err = values(ctx, core, namespace, d.Name+"-injection"); err != nil {
			m.Notes = append(m.Notes, fmt.Sprintf("the values of revision %s: %v; what follows is by the defaults", name, err))
		}
		m.Revisions = append(m.Revisions, r)
	}
	slices.SortFunc(m.Revisions, func(a, b Revision) int { // the default revision first
		return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return m, nil
}

func rank(revision string) int {
	if revision == contract.DefaultRevision {
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

// readWebhooks reads the webhook configurations. It sets m.Webhook, and reports whether there are other injectors.
func (m *Mesh) readWebhooks(ctx context.Context, core kubernetes.Interface) (others bool, err error) {
	all, err := core.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	m.Webhook = len(installation.Injectors(all.Items, m.Namespace)) > 0
	return len(injectors.Others(all.Items)) > 0, nil
}

// ownLabels returns the value of a control plane's flag --own-labels. serves is false if the control plane does not
// inject.
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

func values(ctx context.Context, core kubernetes.Interface, namespace, name string) (settings.Values, error) {
	m, err := core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return settings.Values{}, err
	}
	out, _, err := settings.ParseValues([]byte(m.Data["values.yaml"]))
	return out, err
}

// InCluster reads pods of a namespace, by names or by labels; an empty namespace means all. It also reads the
// settings that determine their injection, from the API server, and the connected proxies, from the replicas of the
// control plane.
func InCluster(ctx context.Context, set *replicas.Set, namespace, labels string, names []string) (Mesh, []Subject, error) {
	pods, err := read(ctx, set.Core, namespace, labels, names)
	if err != nil {
		return Mesh{}, nil, err
	}
	mesh, err := readMesh(ctx, set.Core, set.Namespace)
	if err != nil {
		return mesh, nil, err
	}
	answers, failed := set.All(ctx)
	if failed != nil {
		mesh.Notes = append(mesh.Notes, fmt.Sprintf("whether the proxy is synced: %v", failed))
	}
	for _, r := range answers {
		if r.Problem != "" {
			mesh.Notes = append(mesh.Notes, fmt.Sprintf("what replica %s has: %s", r.Name, r.Problem))
		}
	}
	var out []Subject
	namespaces := map[string]inject.Namespace{}
	connected := replicas.Newest(replicas.Proxies(answers))
	for _, p := range pods {
		ns, ok := namespaces[p.Namespace]
		if !ok {
			found, err := set.Core.CoreV1().Namespaces().Get(ctx, p.Namespace, metav1.GetOptions{})
			if err != nil {
				return mesh, nil, fmt.Errorf("reading the labels of namespace %s: %w", p.Namespace, err)
			}
			ns = known(p.Namespace, found.Labels, found.Annotations)
			namespaces[p.Namespace] = ns
		}
		o := podfile.Object{APIVersion: "v1", Kind: "Pod", Name: p.Name, Namespace: p.Namespace, Pod: p}
		out = append(out, Subject{Object: o, Namespace: ns, Connected: connected, Asked: failed == nil})
	}
	return mesh, out, nil
}

func read(ctx context.Context, core kubernetes.Interface, namespace, labels string, names []string) (out []corev1.Pod, err error) {
	if len(names) == 0 {
		l, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		return l.Items, nil
	}
	for _, name := range names {
		p, err := core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// Offline returns the mesh that is assumed if there is no cluster: default settings, with an installed webhook.
func Offline(on startup.Kubernetes) Mesh {
	return Mesh{Webhook: true, Revisions: []Revision{{Name: contract.DefaultRevision, Options: inject.Options{Kubernetes: on}}},
		Notes: []string{"no cluster was asked: the settings are the defaults, and a namespace has the labels that its document in the files has"}}
}

// Files collects the pods, the workloads with a pod template, and the namespaces of several files.
type Files struct {
	objects    []podfile.Object
	namespaces map[string]inject.Namespace
}

// Add adds the objects of a file. It fails if the file cannot be parsed.
func (f *Files) Add(name string, data []byte) error {
	if f.namespaces == nil {
		f.namespaces = map[string]inject.Namespace{}
	}
	for _, ns := range manifest.Namespaces(data) {
		f.namespaces[ns.Name] = known(ns.Name, ns.Labels, ns.Annotations)
	}
	found, _, err := podfile.Parse(name, data)
	f.objects = append(f.objects, found...)
	return err
}

// Subjects returns the pods and workloads of the files. namespace is the namespace of objects that name none.
func (f *Files) Subjects(namespace string) []Subject {
	var out []Subject
	for _, o := range f.objects {
		name := cmp.Or(o.Namespace, namespace)
		ns, ok := f.namespaces[name]
		if !ok {
			ns.Name = name
		}
		out = append(out, Subject{Object: o, Namespace: ns, Planned: o.Pod.UID == ""})
	}
	return out
}

// known returns a namespace whose labels are known. Labels that are nil would mean that they are not known, so known
// replaces them by an empty map.
func known(name string, labels, annotations map[string]string) inject.Namespace {
	if labels == nil {
		labels = map[string]string{}
	}
	return inject.Namespace{Name: name, Labels: labels, Annotations: annotations}
}
