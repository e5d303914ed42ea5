package partial

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/pasted"
)

// NoName stands for the name of a pod that the evidence does not name. No pod can have it.
const NoName = "POD"

// NoContainer stands for the name of a container that the evidence does not name.
const NoContainer = "CONTAINER"

// Pod returns a pod whose object may have been shortened. Containers of which only the status is there are added
// to its spec.
func Pod(pod *corev1.Pod, from evidence.Source, gaps bool) *evidence.Pod {
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
				s.Name = NoContainer
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

// Completed returns a pod with the containers, and what is known of them, that another text about it has.
func Completed(p, other *evidence.Pod) *evidence.Pod {
	to, from := p.Object, other.Object
	for _, list := range []struct{ to, from *[]corev1.Container }{{&to.Spec.InitContainers, &from.Spec.InitContainers}, {&to.Spec.Containers, &from.Spec.Containers}} {
		for _, c := range *list.from {
			i := slices.IndexFunc(*list.to, func(o corev1.Container) bool { return o.Name == c.Name })
			switch {
			case i < 0:
				*list.to = append(*list.to, c)
			case (*list.to)[i].Image == "": // known by its status
				(*list.to)[i] = c
			}
		}
	}
	for _, list := range []struct{ to, from *[]corev1.ContainerStatus }{{&to.Status.InitContainerStatuses, &from.Status.InitContainerStatuses}, {&to.Status.ContainerStatuses, &from.Status.ContainerStatuses}} {
		for _, s := range *list.from {
			if !slices.ContainsFunc(*list.to, func(o corev1.ContainerStatus) bool { return o.Name == s.Name }) {
				*list.to = append(*list.to, s)
			}
		}
	}
	out := Pod(to, p.Source, false)
	out.Omitted, out.Missing = p.Omitted, p.Missing
	return out
}

// FindContainer finds the container of an event of a text whose message names none: the only one that has the probe that
// failed, or the image, or that waits.
func FindContainer(p *evidence.Pod, e *evidence.Event) {
	if e.Container != "" {
		return
	}
	var probed, atPort, others []string
	for _, c := range slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers) {
		if probe := probeOf(c, e.Message); probe != nil {
			probed = append(probed, c.Name)
			if at := portOf(probe); at != "" && strings.Contains(e.Message, at) {
				atPort = append(atPort, c.Name)
			}
		}
		if c.Image != "" && strings.Contains(e.Message, `"`+c.Image+`"`) {
			others = append(others, c.Name)
		}
	}
	if len(others) == 0 && (e.Reason == "Failed" || e.Reason == "BackOff") {
		for _, c := range p.Containers {
			if c.Waiting != nil && c.Waiting.Reason != "PodInitializing" {
				others = append(others, c.Name)
			}
		}
	}
	for _, found := range [][]string{atPort, probed, others} {
		if len(found) == 1 {
			e.Container = found[0]
			return
		}
	}
}

// probeOf returns the probe of a container whose failure a message reports; nil: it has none.
func probeOf(c corev1.Container, message string) *corev1.Probe {
	switch {
	case strings.HasPrefix(message, "Liveness probe "):
		return c.LivenessProbe
	case strings.HasPrefix(message, "Readiness probe "):
		return c.ReadinessProbe
	case strings.HasPrefix(message, "Startup probe "):
		return c.StartupProbe
	}
	return nil
}

// portOf returns the port of a probe as it stands in the messages of its failures; empty: it has none, or one with a name.
func portOf(p *corev1.Probe) string {
	switch {
	case p.HTTPGet != nil && p.HTTPGet.Port.IntValue() > 0:
		return ":" + p.HTTPGet.Port.String() + "/"
	case p.TCPSocket != nil && p.TCPSocket.Port.IntValue() > 0:
		return ":" + p.TCPSocket.Port.String() + ":"
	}
	return ""
}

// ProxyIn returns the proxy that a heading has by the name of its container; empty: none, or several.
func ProxyIn(heading string) (found string) {
	for _, proxy := range knownproxy.Names() {
		if Names([]byte(heading), proxy) {
			if found != "" {
				return ""
			}
			found = proxy
		}
	}
	return found
}

var IsLabel = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?$`)

// Names reports whether a text has a name as a word of its own.
func Names(text []byte, name string) bool {
	return regexp.MustCompile(`(?:^|[^-\w./])` + regexp.QuoteMeta(name) + `(?:$|[^-\w./]|[.]\s)`).Match(text)
}

// ImageIn returns the image and the arguments that a text has in parentheses behind a container, if it has them.
func ImageIn(text []byte, container string) (image string, args []string) {
	m := regexp.MustCompile(`(?:^|[^-\w./])` + regexp.QuoteMeta(container) + `[ \t]*\(([^()\r\n]{1,1000})\)`).FindSubmatch(text)
	if m == nil {
		return "", nil
	}
	words := strings.Fields(string(m[1]))
	if len(words) == 0 || !strings.ContainsAny(words[0], "/:") {
		return "", nil // a remark
	}
	return words[0], words[1:]
}

// Log returns the log that a text of people has as a piece.
func Log(from evidence.Source, p pasted.Piece) *evidence.Log {
	from.Line = p.Line
	l := evidence.NewLog(from, func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.Text)), nil },
		func(most int) ([]byte, error) { return p.Text[max(0, len(p.Text)-most):], nil })
	l.First, l.Lines, l.Truncated = p.Line, p.Lines, p.Cut
	return l
}

// Shows reports whether a line of kubectl get pods has the state of some containers.
func Shows(isReady, of, restarted int, all []corev1.ContainerStatus) bool {
	ready, restarts := 0, 0
	for _, c := range all {
		restarts += int(c.RestartCount)
		if c.Ready {
			ready++
		}
	}
	return len(all) == of && ready == isReady && restarts == restarted
}
