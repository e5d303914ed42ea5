package gather

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/doctor/evidence"
)

// A workload is one that was asked for by its name.
type workload struct{ kind, name, selector string }

// Limits of the requests for workloads.
const (
	mostFailing   = 200 // workloads that cannot create pods, by their events
	mostRevisions = 100 // Deployments whose ReplicaSets are read
)

// ownerReader reads workloads and their owners, each once.
type ownerReader struct {
	*live
	once      map[string]*sync.Once // by kind, namespace and name
	revisions int                   // Deployments whose ReplicaSets are read
}

// first runs the function do, unless it was run with the same key; if it runs now, first waits for its end.
func (r *ownerReader) first(key string, do func()) {
	r.mu.Lock()
	if r.once[key] == nil {
		r.once[key] = &sync.Once{}
	}
	once := r.once[key]
	r.mu.Unlock()
	once.Do(do)
}

// readOwners reads the owners of the pods, the workloads that were asked for, and those whose events say that their pods
// cannot be created; then the owners of these, and so on. Of a Deployment with pods that are not well, all ReplicaSets
// are read: they show what its revisions changed, and whether pods of the newest one cannot be created.
func (l *live) readOwners(ctx context.Context, pods []corev1.Pod) {
	r := &ownerReader{live: l, once: map[string]*sync.Once{}}
	read := func(namespace, kind, name string, whole bool) {
		l.request(ctx, func(ctx context.Context) { r.follow(ctx, namespace, kind, name, whole) })
	}
	for _, w := range l.named {
		read(l.Namespace, w.kind, w.name, true)
	}
	failing := map[string]bool{}
	for _, e := range l.events {
		kind, namespace, name := e.Object()
		if !l.OwnEvents && namespace != "" && slices.Contains(notCreated, e.Reason) && len(failing) < mostFailing && !failing[e.About] {
			failing[e.About] = true
			read(namespace, kind, name, false)
		}
	}
	byOwner := map[string]*corev1.Pod{} // one pod of each owner, an ill one if there is one
	for i := range pods {
		p := &pods[i]
		kind, name := controller(p.OwnerReferences)
		if key := evidence.About(kind, p.Namespace, name); byOwner[key] == nil || ill(p) && !ill(byOwner[key]) {
			byOwner[key] = p
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byOwner)) {
		p := byOwner[key]
		kind, name := controller(p.OwnerReferences)
		read(p.Namespace, kind, name, !l.OwnEvents && ill(p))
	}
}

// follow reads a workload and its owners. If whole is set, it reads all ReplicaSets of a Deployment.
func (r *ownerReader) follow(ctx context.Context, namespace, kind, name string, whole bool) {
	for range 4 {
		if !owners[kind] {
			return
		}
		key := evidence.About(kind, namespace, name)
		r.first(key, func() {
			if object, err := r.owner(ctx, namespace, kind, name); err == nil { // else it is reported as missing
				r.addOwner(kind, object)
			}
		})
		r.mu.Lock()
		known := r.owners[key].Object
		r.mu.Unlock()
		if known == nil {
			return
		}
		if whole && kind == "Deployment" {
			r.readRevisions(ctx, known)
		}
		kind, name = controller(known.GetOwnerReferences())
	}
}

// readRevisions reads the ReplicaSets of a Deployment. If it cannot, what changed is not known.
func (r *ownerReader) readRevisions(ctx context.Context, deployment metav1.Object) {
	namespace := deployment.GetNamespace()
	r.first("revisions of "+evidence.About("Deployment", namespace, deployment.GetName()), func() {
		r.mu.Lock()
		r.revisions++
		many := r.revisions > mostRevisions
		r.mu.Unlock()
		selector, err := selectorIn(deployment)
		if many || err != nil {
			return
		}
		sets, err := r.Core.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 500})
		if err != nil {
			return
		}
		for i := range sets.Items {
			r.addOwner("ReplicaSet", &sets.Items[i])
		}
	})
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

// wantedCreators returns the workloads whose pods cannot be created: of all that the namespaces have if nothing was asked
// for, or else those that were asked for, and what these own.
func (l *live) wantedCreators() []*evidence.Creator {
	all := l.creators()
	switch {
	case len(l.Names) > 0:
		return slices.DeleteFunc(all, func(c *evidence.Creator) bool {
			return !slices.ContainsFunc(l.named, func(w workload) bool { return l.owns(w, c) })
		})
	case l.Selector != "":
		selector, err := labels.Parse(l.Selector)
		return slices.DeleteFunc(all, func(c *evidence.Creator) bool {
			t := l.owners[c.About()].Template
			return err != nil || t == nil || !selector.Matches(labels.Set(t.Labels))
		})
	}
	return all
}

// owns reports whether a workload is another one, or owns it.
func (l *live) owns(w workload, c *evidence.Creator) bool {
	kind, name := c.Kind, c.Name
	for range 4 {
		if w.kind == kind && w.name == name {
			return true
		}
		o := l.owners[evidence.About(kind, c.Namespace, name)]
		if o.Object == nil {
			return false
		}
		kind, name = controller(o.Object.GetOwnerReferences())
	}
	return false
}
