package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// In returns all pods that were ever seen in a namespace, in order of creation.
func (w *World) In(namespace string) (out []*Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.pods { // any order: sorted below
		if first := all[0].pod; first.Namespace == namespace {
			out = append(out, w.adopt(first, first.CreationTimestamp.Time))
		}
	}
	slices.SortFunc(out, func(a, b *Pod) int { return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.Name, b.Name)) })
	return out
}

// Around returns the events of pods near a time, one per line: the output of applications and proxies,
// containerd's events, and changes in the API.
func (w *World) Around(pods []*Pod, at time.Time, within time.Duration) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, p := range pods {
		add := func(t time.Time, format string, args ...any) {
			if t.Sub(at).Abs() <= within {
				lines = append(lines, line{t, p.Name + ": " + fmt.Sprintf(format, args...)})
			}
		}
		for _, l := range w.logs.of(p.UID) {
			add(l.At, "%s: %.300s", l.Container, brief(l.Text))
		}
		for _, e := range w.runtime.Of(p.UID) {
			add(e.At, "containerd: %s %q status %d", e.Topic, e.Container, e.Status)
		}
		before := ""
		for _, s := range p.statuses() {
			if now := s.words(); now != before {
				add(s.at, "API server: %s", now)
				before = now
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "    %s %s\n", l.at.UTC().Format("15:04:05.000"), l.text)
	}
	return b.String()
}

// words describes the fields of a pod to which clients of the API react.
func (s seen) words() string {
	if s.gone {
		return "gone"
	}
	w := []string{string(s.pod.Status.Phase)}
	if s.pod.DeletionTimestamp != nil {
		w = append(w, "deleted")
	}
	for _, c := range s.pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			w = append(w, "Ready="+string(c.Status))
		}
	}
	for _, c := range slices.Concat(s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses) {
		w = append(w, fmt.Sprintf("%s ready=%t restarts=%d", c.Name, c.Ready, c.RestartCount))
	}
	return strings.Join(w, ", ")
}

// brief returns a log line without the fields that all lines have.
func brief(text string) string {
	var entry map[string]any
	if json.Unmarshal([]byte(text), &entry) != nil {
		return strings.TrimPrefix(text, "e2e ")
	}
	delete(entry, "time")
	delete(entry, "level")
	words := []string{fmt.Sprint(entry["msg"])}
	delete(entry, "msg")
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		words = append(words, fmt.Sprintf("%s=%v", key, entry[key]))
	}
	return strings.Join(words, " ")
}
