package gather

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/doctor/evidence"
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

// withoutGaps removes lines that stand for lines which a person left out, and returns false if there are none.
func withoutGaps(text []byte) ([]byte, bool) {
	var out []byte
	for line := range bytes.Lines(text) {
		if t := bytes.TrimSpace(line); len(t) == 0 || !evidence.LeftOut(string(t)) {
			out = append(out, line...)
		}
	}
	return out, len(out) < len(text)
}

// filled returns an object without the values that stand for something else, as "spec: ..." does, and false if there
// are none. In lists of words, as those of arguments are, such a word stays.
func filled(raw []byte) ([]byte, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil, false
	}
	n := 0
	out, err := json.Marshal(withoutWords(v, &n))
	return out, n > 0 && err == nil
}

func withoutWords(v any, removed *int) any {
	stands := func(v any) bool {
		text, is := v.(string)
		return is && evidence.LeftOut(text)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v { // in any order: each is looked at by itself
			if stands(value) {
				delete(v, key)
				*removed++
				continue
			}
			v[key] = withoutWords(value, removed)
		}
	case []any:
		words := !slices.ContainsFunc(v, func(v any) bool { _, is := v.(string); return !is })
		var out []any
		for _, item := range v {
			if stands(item) && !words {
				*removed++
				continue
			}
			out = append(out, withoutWords(item, removed))
		}
		return out
	}
	return v
}

// forms are the parts of a pod that people copy, by a field that shows which it is. The first that fits counts. The
// part replaces %s.
var forms = []struct {
	field, whole string
}{
	{"spec.containers", `%s`},
	{"spec.initContainers", `%s`},
	{"status.containerStatuses", `%s`},
	{"status.initContainerStatuses", `%s`},
	{"status.reason", `%s`},
	{"status.phase", `%s`},
	{"containerStatuses", `{"status":%s}`},
	{"initContainerStatuses", `{"status":%s}`},
	{"containers", `{"spec":%s}`},
	{"initContainers", `{"spec":%s}`},
	{"phase", `{"status":%s}`},
	{"lastState", `{"status":{"containerStatuses":[%s]}}`},
	{"restartCount", `{"status":{"containerStatuses":[%s]}}`},
	{"state", `{"status":{"containerStatuses":[%s]}}`},
}

// whole returns the pod of which raw is a part, and false if it looks like none. A list is one of statuses.
func whole(raw []byte) ([]byte, bool) {
	if raw[0] == '[' {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil || len(items) == 0 || !has(items[0], "state") && !has(items[0], "lastState") || !has(items[0], "name") {
			return nil, false
		}
		return fmt.Appendf(nil, `{"status":{"containerStatuses":%s}}`, raw), true
	}
	for _, f := range forms {
		if has(raw, strings.Split(f.field, ".")...) {
			return fmt.Appendf(nil, f.whole, raw), true
		}
	}
	return nil, false
}

// has reports whether an object has a field.
func has(raw []byte, fields ...string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		return false
	}
	value, there := o[fields[0]]
	return there && (len(fields) == 1 || has(value, fields[1:]...))
}

// addPart adds a part of a pod without a kind. It returns false if raw is none.
func (b *bundle) addPart(folder string, from evidence.Source, raw []byte) bool {
	if len(raw) > maxObject {
		return !b.hold(from, raw)
	}
	raw, is := whole(raw)
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
	if rest, are := filled(raw); are {
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
