package gather

import (
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
}

// NoName stands for the name of a pod that the evidence does not name. No pod can have it.
const NoName = "POD"

// noContainer stands for the name of a container that the evidence does not name.
const noContainer = "CONTAINER"

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

// shortened returns a pod whose object may have been shortened. Containers of which only the status is there are added
// to its spec.
func shortened(pod *corev1.Pod, from evidence.Source, gaps bool) *evidence.Pod {
	o := evidence.Omitted{Meta: gaps || pod.Name == "", Spec: gaps || len(pod.Spec.Containers) == 0, Hooks: gaps}
	if evidence.LeftOut(pod.Name) {
		pod.Name, o.Meta = "", true
	}
	runs := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
	for _, list := range []struct {
		statuses []corev1.ContainerStatus
		specs    *[]corev1.Container
		init     bool
	}{{pod.Status.InitContainerStatuses, &pod.Spec.InitContainers, true}, {pod.Status.ContainerStatuses, &pod.Spec.Containers, false}} {
		for i := range list.statuses {
			s := &list.statuses[i]
			if s.Name == "" {
				s.Name = noContainer
			}
			if s.RestartCount == 0 && s.LastTerminationState.Terminated != nil && s.State.Waiting == nil {
				s.RestartCount = 1 // or more: the count was left out
			}
			if slices.ContainsFunc(*list.specs, func(c corev1.Container) bool { return c.Name == s.Name }) {
				continue
			}
			c := corev1.Container{Name: s.Name, Image: s.Image}
			if list.init && runs && s.State.Running != nil { // only a native sidecar runs beside others
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			*list.specs, o.Spec = append(*list.specs, c), true
		}
	}
	if pod.Name == "" {
		pod.Name = NoName
	}
	o.Hooks = o.Hooks || o.Spec
	p := evidence.NewPod(pod, from)
	p.Omitted = o
	return p
}

// addParts makes pods of the parts. Those of one folder are parts of one pod, and of the pod that is there, if it is
// the only one.
func (b *bundle) addParts() {
	byFolder := map[string][]part{}
	var folders []string
	for _, q := range b.parts {
		if byFolder[q.folder] == nil {
			folders = append(folders, q.folder)
		}
		byFolder[q.folder] = append(byFolder[q.folder], q)
	}
	for _, folder := range folders {
		parts := byFolder[folder]
		one := parts[0]
		there := slices.DeleteFunc(b.inFolder(folder), func(p *evidence.Pod) bool { return p.Object.Name == NoName })
		if len(there) == 1 {
			one = part{folder, there[0].Source, there[0].Object, there[0].Omitted != evidence.Omitted{}}
		}
		for _, q := range parts {
			one.fill(q.pod)
			one.gaps = one.gaps || q.gaps
		}
		p := shortened(one.pod, one.from, one.gaps)
		if len(there) == 1 {
			*there[0] = *p
			continue
		}
		p.Missing = append(p.Missing, evidence.Missing{Kind: evidence.FromPod, What: "the name of the pod, its labels and annotations", Why: "the object was shortened"})
		b.pod(folder, p)
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
