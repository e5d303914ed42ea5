package gather

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/decoded"
)

// work returns the workload of that name, perhaps a new one.
func (b *bundle) work(kind, namespace, name string) *evidence.Creator {
	key := evidence.About(kind, namespace, name)
	if b.works[key] == nil {
		b.works[key] = &evidence.Creator{Kind: kind, Namespace: namespace, Name: name, Want: -1, Have: -1}
	}
	return b.works[key]
}

// addCreator reads what an owner says about its pods. What it does not have, or has in another form, is not known.
func (b *bundle) addCreator(kind, namespace, name string, from evidence.Source, raw []byte) {
	var o struct {
		Spec struct {
			Replicas, Parallelism *int
			Template              *corev1.PodTemplateSpec
		}
		Status struct {
			Replicas, Active       *int
			Succeeded, Failed      int
			DesiredNumberScheduled *int
			CurrentNumberScheduled *int
			Conditions             []struct {
				Type, Status, Reason, Message string
				LastTransitionTime            time.Time
			}
		}
	}
	if json.Unmarshal(raw, &o) != nil {
		return
	}
	w := b.work(kind, namespace, name)
	w.Source = evidence.Source{Kind: evidence.FromOwner, File: from.File, Line: from.Line}
	first := func(all ...*int) int {
		for _, n := range all {
			if n != nil {
				return *n
			}
		}
		return -1
	}
	w.Want = first(o.Spec.Replicas, o.Spec.Parallelism, o.Status.DesiredNumberScheduled)
	w.Have = first(o.Status.Replicas, o.Status.Active, o.Status.CurrentNumberScheduled)
	if ended := o.Status.Succeeded + o.Status.Failed; ended > 0 { // pods of a Job
		w.Have = max(w.Have, 0) + ended
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "ReplicaFailure" && c.Status == "True" {
			w.Failing, w.Said, w.Since = true, c.Message, evidence.Second(c.LastTransitionTime, evidence.APIClock)
		}
	}
	if o.Spec.Template != nil {
		w.Asks = decoded.Asks(o.Spec.Template.Spec)
		owner := b.owners[evidence.About(kind, namespace, name)]
		owner.Template = o.Spec.Template
		b.owners[evidence.About(kind, namespace, name)] = owner
	}
}

// creators returns the workloads whose pods cannot be created, sorted. One of which a pod is in the evidence counts
// only if its condition, or a later event, says so now, and one that has all its pods does not count. Of a workload and
// its owner the one nearer to the pods counts.
func (b *bundle) creators() (out []*evidence.Creator) {
	seen := map[string]bool{}
	for _, e := range b.events {
		kind, namespace, name := e.Object()
		if !slices.Contains(evidence.NotCreated, e.Reason) || kind == "Pod" || kind == "" || namespace+name == "" || e.id != "" && seen[e.id] {
			continue
		}
		seen[e.id] = true
		if w := b.work(kind, namespace, name); len(w.Events) < 1000 {
			w.Events = append(w.Events, e.Event)
			if w.Source.File == "" {
				w.Source = e.Source
			}
		}
	}
	newest := map[string]time.Time{} // creation of the newest pod, by its owner
	for _, p := range b.pods {
		for _, o := range p.Owners {
			key := evidence.About(o.Kind, p.Object.Namespace, o.Name)
			if at, owned := newest[key]; !owned || p.Object.CreationTimestamp.After(at) {
				newest[key] = p.Object.CreationTimestamp.Time
			}
		}
	}
	fails := func(key string) bool {
		w := b.works[key]
		switch pod, owned := newest[key]; {
		case w == nil:
			return false
		case w.Failing:
			return true
		case !owned:
			return len(w.Events) > 0 && (w.Want < 0 || w.Have < w.Want)
		case w.Kind == "ReplicaSet" || w.Kind == "Deployment" || pod.IsZero(): // their conditions say it
			return false
		default: // the other kinds have no such condition: pods are lacking, and the last attempt is later than the last pod
			return w.Have >= 0 && w.Have < w.Want && slices.ContainsFunc(w.Events, func(e evidence.Event) bool { return e.Last.At.After(pod) })
		}
	}
	inner := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(b.works)) {
		if o := b.owners[key]; fails(key) && o.Object != nil {
			kind, name := evidence.Controller(o.Object.GetOwnerReferences())
			inner[evidence.About(kind, b.works[key].Namespace, name)] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b.works)) {
		if fails(key) && !inner[key] {
			slices.SortStableFunc(b.works[key].Events, func(a, c evidence.Event) int { return a.Last.At.Compare(c.Last.At) })
			out = append(out, b.works[key])
		}
	}
	return out
}
