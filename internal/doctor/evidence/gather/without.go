package gather

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
)

// A workload is one that was asked for by its name.
type workload struct{ kind, name, selector string }

// readWithout reads the workloads that have no pod, and the ReplicaSets of their Deployments: these say why pods cannot
// be created.
func (l *live) readWithout(ctx context.Context) {
	for _, w := range l.without {
		l.request(ctx, func(ctx context.Context) {
			object, err := l.owner(ctx, l.Namespace, w.kind, w.name)
			if err != nil {
				return // its events may say enough
			}
			l.addOwner(w.kind, object)
			if w.kind != "Deployment" {
				return
			}
			sets, err := l.Core.AppsV1().ReplicaSets(l.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.selector, Limit: 500})
			if err != nil {
				return
			}
			for i := range sets.Items {
				l.addOwner("ReplicaSet", &sets.Items[i])
			}
		})
	}
}

// addOwner adds a workload to the bundle.
func (l *live) addOwner(kind string, object metav1.Object) {
	raw, err := json.Marshal(object)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	namespace, name := object.GetNamespace(), object.GetName()
	l.owners[evidence.About(kind, namespace, name)] = evidence.Owner{Kind: kind, Name: name, Object: object}
	l.addCreator(kind, namespace, name, evidence.Source{File: "kubectl get " + kind + " " + name + " -n " + namespace}, raw)
}

// wantedCreators returns the workloads whose pods cannot be created: of all that the namespaces have if no name was
// asked for, or else those without a pod, and what these own.
func (l *live) wantedCreators() []*evidence.Creator {
	all := l.creators()
	if len(l.Names) == 0 && l.Selector == "" {
		return all
	}
	return slices.DeleteFunc(all, func(c *evidence.Creator) bool {
		return !slices.ContainsFunc(l.without, func(w workload) bool {
			if w.kind == c.Kind && w.name == c.Name {
				return true
			}
			o := l.owners[c.About()]
			if o.Object == nil {
				return false
			}
			kind, name := controller(o.Object.GetOwnerReferences())
			return kind == w.kind && name == w.name
		})
	})
}
