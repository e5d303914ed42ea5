package gather

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/cluster"
)

// Live collects the evidence that a cluster has of the wanted pods. Logs are read later, by [Log.Lines] and
// [Log.Scan]. Evidence that is forbidden or gone is listed in [Pod.Missing]. Live fails only if the pods themselves cannot
// be read or do not exist, or if ctx ends.
func Live(ctx context.Context, c cluster.Access, w cluster.Wanted) (*evidence.Set, error) {
	found, err := cluster.Read(ctx, c, w)
	if err != nil {
		return nil, err
	}
	b := newBundle(0)
	b.found(found)
	set := &evidence.Set{}
	set.Pods, set.Unused = b.finish(ctx)
	set.Creators = b.wanted(found, w)
	set.Owners, set.Configs = b.others()
	if ctx.Err() == nil && len(set.Pods)+len(set.Creators) == 0 && len(found.Without) > 0 {
		return nil, fmt.Errorf("%s %s in namespace %s has no pod, and no event says why", found.Without[0].Kind, found.Without[0].Name, w.Namespace)
	}
	return set, ctx.Err()
}

// found adds what a cluster has.
func (b *bundle) found(f *cluster.Found) {
	b.taken, b.noEvents, b.left = f.Taken, f.NoEvents, f.Unused
	for i := range f.Events {
		b.oneEvent(evidence.Source{Kind: evidence.FromEvent, File: "kubectl get events -n " + f.Events[i].Namespace}, &f.Events[i])
	}
	for _, p := range f.Pods {
		b.pod(p.Object.Namespace+"/"+p.Object.Name, p)
	}
	for _, o := range f.Owners {
		namespace, n := o.Object.GetNamespace(), o.Object.GetName()
		if raw, err := json.Marshal(o.Object); err == nil {
			b.owners[evidence.About(o.Kind, namespace, n)] = evidence.Owner{Kind: o.Kind, Name: n, Object: o.Object}
			b.addCreator(o.Kind, namespace, n, evidence.Source{File: "kubectl get " + o.Kind + " " + n + " -n " + namespace}, raw)
		}
	}
	for _, l := range f.Logs {
		of := l.Pod.Object
		b.logs = append(b.logs, placedLog{Log: l.Log, name: name{namespace: of.Namespace, pod: of.Name, uid: string(of.UID), container: l.Container, previous: l.Previous, run: l.Run}})
	}
	for _, m := range f.Missing {
		b.missing = append(b.missing, placedMissing{m.Pod, m.Missing})
	}
}

// wanted returns the workloads whose pods cannot be created: of all that the namespaces have if nothing was asked for, or
// else those that were asked for, and what these own.
func (b *bundle) wanted(f *cluster.Found, w cluster.Wanted) []*evidence.Creator {
	all := b.creators()
	switch {
	case len(w.Names) > 0:
		return slices.DeleteFunc(all, func(c *evidence.Creator) bool {
			return !slices.ContainsFunc(f.Named, func(w cluster.Workload) bool { return b.owns(w, c) })
		})
	case w.Selector != "":
		selector, err := labels.Parse(w.Selector)
		return slices.DeleteFunc(all, func(c *evidence.Creator) bool {
			t := b.owners[c.About()].Template
			return err != nil || t == nil || !selector.Matches(labels.Set(t.Labels))
		})
	}
	return all
}

// owns reports whether a workload is another one, or owns it.
func (b *bundle) owns(w cluster.Workload, c *evidence.Creator) bool {
	kind, name := c.Kind, c.Name
	for range 4 {
		if w.Kind == kind && w.Name == name {
			return true
		}
		o := b.owners[evidence.About(kind, c.Namespace, name)]
		if o.Object == nil {
			return false
		}
		kind, name = evidence.Controller(o.Object.GetOwnerReferences())
	}
	return false
}
