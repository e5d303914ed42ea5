package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/decoded"
)

// A Workload is one that was asked for by its name.
type Workload struct{ Kind, Name string }

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
	for _, w := range l.Named {
		read(l.Namespace, w.Kind, w.Name, true)
	}
	failing := map[string]bool{}
	for i := range l.Events {
		e := &l.Events[i]
		of := e.InvolvedObject
		about := evidence.About(of.Kind, of.Namespace, of.Name)
		if !l.OwnEvents && of.Namespace != "" && slices.Contains(evidence.NotCreated, e.Reason) && len(failing) < mostFailing && !failing[about] {
			failing[about] = true
			read(of.Namespace, of.Kind, of.Name, false)
		}
	}
	byOwner := map[string]*corev1.Pod{} // one pod of each owner, an ill one if there is one
	for i := range pods {
		p := &pods[i]
		kind, name := evidence.Controller(p.OwnerReferences)
		if key := evidence.About(kind, p.Namespace, name); byOwner[key] == nil || ill(p) && !ill(byOwner[key]) {
			byOwner[key] = p
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byOwner)) {
		p := byOwner[key]
		kind, name := evidence.Controller(p.OwnerReferences)
		read(p.Namespace, kind, name, !l.OwnEvents && ill(p))
	}
}

// follow reads a workload and its owners. If whole is set, it reads all ReplicaSets of a Deployment.
func (r *ownerReader) follow(ctx context.Context, namespace, kind, name string, whole bool) {
	for range 4 {
		if !evidence.OwnsPods[kind] {
			return
		}
		key := evidence.About(kind, namespace, name)
		r.first(key, func() {
			if object, err := r.owner(ctx, namespace, kind, name); err == nil { // else it is reported as missing
				r.addOwner(kind, object)
			}
		})
		r.mu.Lock()
		known := r.owned[key]
		r.mu.Unlock()
		if known == nil {
			return
		}
		if whole && kind == "Deployment" {
			r.readRevisions(ctx, known)
		}
		kind, name = evidence.Controller(known.GetOwnerReferences())
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
		selector, err := decoded.Selector(deployment)
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

// addOwner adds a workload.
func (l *live) addOwner(kind string, object metav1.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := evidence.About(kind, object.GetNamespace(), object.GetName())
	if _, known := l.owned[key]; !known {
		l.Owners = append(l.Owners, Owner{kind, object})
	}
	l.owned[key] = object
}
