package gather

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/partial"
)

// A part is a pod without a name: a person copied only a part of it.
type part struct {
	folder string
	from   evidence.Source
	pod    *corev1.Pod
	gaps   bool
	of     name // the pod, by the command that printed it
	words  bool // a person's
}

// addPart adds a part of a pod without a kind. It returns false if raw is none.
func (b *bundle) addPart(folder string, from evidence.Source, raw []byte) bool {
	if len(raw) > maxObject {
		return !b.hold(from, raw)
	}
	raw, is := partial.Whole(raw)
	if is && b.hold(from, raw) {
		b.addPod(folder, from, raw)
	}
	return is
}

// decodePod decodes a pod, also one in which words stand for what was left out.
func (b *bundle) decodePod(raw []byte) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &pod)
	if err == nil {
		return &pod, nil
	}
	if rest, are := partial.Filled(raw); are {
		pod = corev1.Pod{}
		if kjson.UnmarshalCaseSensitivePreserveInts(rest, &pod) == nil {
			b.gaps = true
			return &pod, nil
		}
	}
	return nil, err
}

// addParts makes pods of the parts. Those of one folder are parts of one pod, and of the pod that is there, if it is
// the only one. A part whose command names its pod is of that.
func (b *bundle) addParts() {
	type key struct{ folder, namespace, pod string }
	groups := map[key][]part{}
	var keys []key
	for _, q := range b.parts {
		k := key{q.folder, q.of.namespace, q.of.pod}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], q)
	}
	slices.SortStableFunc(keys, func(a, c key) int { return cmp.Compare(c.pod, a.pod) }) // those without a name last
	for _, k := range keys {
		parts := groups[k]
		one := parts[0]
		there := slices.DeleteFunc(b.inFolder(k.folder), func(p *evidence.Pod) bool {
			return p.Object.Name == partial.NoName || k.pod != "" && !one.of.means(p.Object)
		})
		if len(there) == 1 {
			one = part{folder: k.folder, from: there[0].Source, pod: there[0].Object, gaps: there[0].Omitted != evidence.Omitted{}}
		}
		for _, q := range parts {
			one.fill(q.pod)
			one.gaps = one.gaps || q.gaps
		}
		p := partial.Pod(one.pod, one.from, one.gaps)
		if len(there) == 1 {
			*there[0] = *p
			continue
		}
		p.Omitted.Words = slices.ContainsFunc(parts, func(q part) bool { return q.words })
		what := noNames
		if k.pod != "" {
			p.Object.Name, p.Object.Namespace, what = k.pod, k.namespace, noLabels
		}
		p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromPod, What: what, Why: "the object was shortened"})
		b.pod(k.folder, p)
	}
}

// fill adds to a part what it lacks and another one has.
func (q *part) fill(other *corev1.Pod) {
	if len(q.pod.Spec.Containers) == 0 {
		q.pod.Spec = other.Spec
	}
	if len(q.pod.Status.ContainerStatuses) == 0 {
		q.pod.Status = other.Status
	}
}

// inFolder returns the pods of a folder.
func (b *bundle) inFolder(folder string) (out []*evidence.Pod) {
	for _, p := range b.pods {
		if slices.Contains(p.folders, folder) {
			out = append(out, p.Pod)
		}
	}
	return out
}

// noteOmitted lists what the evidence leaves out of the pod's object.
func noteOmitted(p *evidence.Pod) {
	if p.Omitted.Spec {
		p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromPod, What: "the spec of the pod", Why: "it was left out, or a part of it: what it would show is not known"})
	}
}
