package groups

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/evidence"
)

// A history has what the evidence shows of changes: revisions of workloads, and when ConfigMaps and Secrets were written.
type history struct {
	revisions map[string][]*revision // by workload, the newest last
	configs   map[string]evidence.Config
	options   diagnose.Options
}

// A revision is a version of a workload's pod template.
type revision struct {
	hash, set string                  // label of its pods; name of its ReplicaSet, empty: it is not in the evidence
	number    int                     // 0: not known
	created   time.Time               // of its ReplicaSet, or of its first pod in the evidence
	template  *corev1.PodTemplateSpec // of its ReplicaSet; may be nil
	pod       *corev1.Pod             // a pod of it; may be nil
}

// Labels by which the controllers mark the pods of a revision (k8s.io/api/apps/v1).
const (
	templateHash   = "pod-template-hash"
	controllerHash = "controller-revision-hash"
	numberOf       = "deployment.kubernetes.io/revision"
)

func hashOf(p *evidence.Pod) string {
	return cmp.Or(p.Object.Labels[templateHash], p.Object.Labels[controllerHash])
}

func newHistory(set *evidence.Set, o diagnose.Options) *history {
	h := &history{revisions: map[string][]*revision{}, configs: map[string]evidence.Config{}, options: o}
	for _, c := range set.Configs {
		h.configs[evidence.About(c.Kind, c.Namespace, c.Name)] = c
	}
	byHash := map[[2]string]*revision{}
	add := func(workload, hash string) *revision {
		key := [2]string{workload, hash}
		if byHash[key] == nil {
			byHash[key] = &revision{hash: hash}
			h.revisions[workload] = append(h.revisions[workload], byHash[key])
		}
		return byHash[key]
	}
	for _, o := range set.Owners {
		if o.Kind != "ReplicaSet" || o.Object == nil {
			continue
		}
		of, namespace := metav1.GetControllerOfNoCopy(o.Object), o.Object.GetNamespace()
		if of == nil || of.Kind != "Deployment" {
			continue
		}
		r := add(evidence.About(of.Kind, namespace, of.Name), cmp.Or(o.Object.GetLabels()[templateHash], strings.TrimPrefix(o.Name, of.Name+"-")))
		r.set, r.created, r.template = o.Name, o.Object.GetCreationTimestamp().Time, o.Template
		r.number, _ = strconv.Atoi(o.Object.GetAnnotations()[numberOf]) // 0: it has none
	}
	for _, p := range set.Pods {
		hash := hashOf(p)
		if hash == "" {
			continue
		}
		r := add(workloadOf(p), hash)
		if at := p.Object.CreationTimestamp.Time; r.set == "" && !at.IsZero() && (r.created.IsZero() || at.Before(r.created)) {
			r.created = at
		}
		if r.pod == nil && !p.Omitted.Spec {
			r.pod = p.Object
		}
	}
	for _, all := range h.revisions { // in any order: each is sorted by itself
		slices.SortFunc(all, func(a, b *revision) int {
			if a.number > 0 && b.number > 0 {
				return cmp.Compare(a.number, b.number)
			}
			return cmp.Or(a.created.Compare(b.created), strings.Compare(a.hash, b.hash))
		})
	}
	return h
}

// named returns the number of a revision, or its hash.
func (r *revision) named() string {
	if r.number > 0 {
		return strconv.Itoa(r.number)
	}
	return r.hash
}

// of returns the revision of a pod, and the one before it; nil: they are not in the evidence.
func (h *history) of(p *evidence.Pod, workload string) (r, before *revision) {
	hash := hashOf(p)
	for _, r := range h.revisions[workload] {
		if r.hash == hash && hash != "" {
			return r, before
		}
		before = r
	}
	return nil, nil
}

// common returns what all members have in common, and none of the other pods of their workloads.
func (h *history) common(members []member, beside iter.Seq[member]) (out []string) {
	if len(members) < 2 || members[0].pod == nil {
		return nil
	}
	others := 0
	for range beside {
		others++
	}
	for _, what := range []struct {
		text string
		of   func(member) string
	}{
		{"all of them are on node %s, and %s", func(m member) string { return m.pod.Object.Spec.NodeName }},
		{"all of them are of revision %s, and %s", func(m member) string {
			if r, _ := h.of(m.pod, m.workload); r != nil {
				return r.named()
			}
			return ""
		}},
	} {
		value := what.of(members[0])
		differs := func(m member) bool { return what.of(m) != value }
		if value == "" || others == 0 || slices.ContainsFunc(members, differs) {
			continue
		}
		alone := true
		for m := range beside {
			alone = alone && differs(m)
		}
		if rest := "the other pod is not"; alone {
			if others > 1 {
				rest = fmt.Sprintf("none of the %d other pods is", others)
			}
			out = append(out, fmt.Sprintf(what.text, value, rest))
		}
	}
	return out
}

// Limits of a group.
const (
	mostChanges  = 5
	mostCompared = 3 // workloads whose changes are shown
)

// before returns what changed before the first sign of a cause, the latest change first. What changed when is not known
// counts too.
func (h *history) before(members []member, since evidence.Time) (out []evidence.Quote) {
	byWorkload := map[string][]member{}
	for _, m := range members {
		if m.pod != nil {
			byWorkload[m.workload] = append(byWorkload[m.workload], m)
		}
	}
	all := workloads(members)
	configs := map[string]bool{}
	for _, w := range all[:min(len(all), mostCompared)] {
		of := byWorkload[w]
		if len(of) == 0 {
			continue
		}
		if q, changed := h.rolledOut(of); changed {
			out = append(out, q)
		}
		for _, name := range configsOf(of[0].pod.Object) {
			if !configs[name] {
				configs[name] = true
				out = append(out, h.written(name)...)
			}
		}
	}
	out = slices.DeleteFunc(out, func(q evidence.Quote) bool { return q.At.Known() && since.Known() && q.At.At.After(since.Latest()) })
	slices.SortStableFunc(out, func(a, b evidence.Quote) int { return b.At.At.Compare(a.At.At) })
	return out[:min(len(out), mostChanges)]
}

// rolledOut returns what the revision of the members changed; false: the evidence does not show it, or the members are of
// several revisions.
func (h *history) rolledOut(members []member) (evidence.Quote, bool) {
	m := members[0]
	r, before := h.of(m.pod, m.workload)
	if r == nil || slices.ContainsFunc(members, func(o member) bool { return hashOf(o.pod) != r.hash }) {
		return evidence.Quote{}, false
	}
	q := evidence.Quote{Source: evidence.Source{Kind: evidence.FromOwner, File: m.pod.Source.File, Line: m.pod.Source.Line}, At: r.began(m.pod)}
	if before != nil && r.created.Before(before.created) && r.set != "" { // it was there before: a roll-back
		q.At = scaled(m.pod, r.set)
	}
	q.Text = fmt.Sprintf("revision %s of %s began", r.named(), m.workload)
	switch what, known := changed(before, r); {
	case before == nil && r.number == 1:
		q.Text = fmt.Sprintf("the first revision of %s began", m.workload)
	case before == nil && r.set == "":
		return q, false
	case before == nil:
		q.Text += "; the one before it is not in the evidence"
	case !known:
		q.Text += fmt.Sprintf(" after revision %s; what it changed is not in the evidence", before.named())
	case len(what) == 0:
		q.Text += fmt.Sprintf(" after revision %s, with the same containers and volumes", before.named())
	default:
		did := "changed"
		if before.template == nil || r.template == nil { // admission may have added what differs
			did = "its pods differ in"
		}
		q.Text += fmt.Sprintf(" after revision %s, and %s %s", before.named(), did, strings.Join(what, "; "))
	}
	return q, true
}

// began returns when a revision began: its first pods were wanted, or it was created.
func (r *revision) began(p *evidence.Pod) evidence.Time {
	if at := scaled(p, r.set); at.Known() {
		return at
	}
	return evidence.Second(r.created, evidence.APIClock)
}

// scaled returns when a Deployment scaled up a ReplicaSet first, by its events.
func scaled(p *evidence.Pod, set string) (first evidence.Time) {
	for _, e := range p.Events {
		about := strings.HasPrefix(e.About, "Deployment ") && e.Reason == "ScalingReplicaSet" && strings.HasPrefix(e.Message, "Scaled up replica set "+set+" ")
		if about && set != "" && e.First.Known() && (!first.Known() || e.First.At.Before(first.At)) {
			first = e.First
		}
	}
	return first
}

// written returns when a ConfigMap or Secret was written, and its events.
func (h *history) written(name string) (out []evidence.Quote) {
	c, known := h.configs[name]
	if !known {
		return nil
	}
	by := ""
	if c.By != "" {
		by = " by " + c.By
	}
	switch {
	case c.Written.Known() && c.Created.Known() && c.Written.At.Sub(c.Created.At) <= time.Second:
		out = append(out, evidence.Quote{Source: c.Source, At: c.Written, Text: name + " was created" + by})
	case c.Written.Known():
		out = append(out, evidence.Quote{Source: c.Source, At: c.Written, Text: name + " was last written" + by})
	case c.Created.Known():
		out = append(out, evidence.Quote{Source: c.Source, At: c.Created, Text: name + " was created; whether it was written later is not in the evidence"})
	}
	for _, e := range c.Events {
		out = append(out, evidence.Quote{Source: e.Source, At: e.First, Text: evidence.Show([]byte(fmt.Sprintf("%s: %s: %s", name, e.Reason, e.Message)), h.options.ShowSecrets)})
	}
	return out
}

// configsOf returns the ConfigMaps and Secrets that a pod names, as KIND NAMESPACE/NAME, sorted. Whichever kind of
// reference the API has, its name stands in one of these fields.
func configsOf(p *corev1.Pod) []string {
	names := map[string]bool{}
	add := func(kind, name string) { names[evidence.About(kind, p.Namespace, name)] = true }
	configMap := func(r *corev1.LocalObjectReference) { add("ConfigMap", r.Name) }
	secret := func(r *corev1.LocalObjectReference) { add("Secret", r.Name) }
	for _, v := range p.Spec.Volumes {
		visit(v.ConfigMap, func(s *corev1.ConfigMapVolumeSource) { configMap(&s.LocalObjectReference) })
		visit(v.Secret, func(s *corev1.SecretVolumeSource) { add("Secret", s.SecretName) })
		visit(v.Projected, func(s *corev1.ProjectedVolumeSource) {
			for _, one := range s.Sources {
				visit(one.ConfigMap, func(s *corev1.ConfigMapProjection) { configMap(&s.LocalObjectReference) })
				visit(one.Secret, func(s *corev1.SecretProjection) { secret(&s.LocalObjectReference) })
			}
		})
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, e := range c.EnvFrom {
			visit(e.ConfigMapRef, func(s *corev1.ConfigMapEnvSource) { configMap(&s.LocalObjectReference) })
			visit(e.SecretRef, func(s *corev1.SecretEnvSource) { secret(&s.LocalObjectReference) })
		}
		for _, e := range c.Env {
			visit(e.ValueFrom, func(s *corev1.EnvVarSource) {
				visit(s.ConfigMapKeyRef, func(s *corev1.ConfigMapKeySelector) { configMap(&s.LocalObjectReference) })
				visit(s.SecretKeyRef, func(s *corev1.SecretKeySelector) { secret(&s.LocalObjectReference) })
			})
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// visit calls a function with a part of an object, if it is there.
func visit[T any](part *T, do func(*T)) {
	if part != nil {
		do(part)
	}
}
