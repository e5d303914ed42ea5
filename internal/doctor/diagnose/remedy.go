package diagnose

import (
	"fmt"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/replay"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A way is an annotation that makes the applications of a mesh wait for its proxy.
type way struct {
	annotation, value string
	by                startup.Mechanism
}

// Sources: istio.io/docs/reference/config/annotations and .../istio.mesh.v1alpha1
// (holdApplicationUntilProxyStarts); linkerd.io/2/reference/proxy-configuration
// (proxy-enable-native-sidecar); kuma.io/docs/latest/reference/kubernetes-annotations.
var (
	waiting = map[string]way{
		podspec.OurProxy: {contract.Start, "gate", startup.Gate},
		"istio-proxy":    {contract.ProxyConfig, `{"holdApplicationUntilProxyStarts": true}`, startup.Hold},
		"linkerd-proxy":  native("linkerd-proxy"),
		"kuma-sidecar":   {"kuma.io/wait-for-dataplane-ready", "true", startup.Hold},
	}
	// For applications that a hold did not protect, the map stronger is used in place of the map waiting.
	stronger = map[string]way{
		podspec.OurProxy: waiting[podspec.OurProxy],
		"istio-proxy":    native("istio-proxy"),
		"linkerd-proxy":  waiting["linkerd-proxy"],
	}
)

// native returns the way by which a mesh makes its proxy a native sidecar.
func native(proxy string) way {
	m, _ := knownproxy.MeshOf(proxy)
	return way{m.Native, "true", startup.Native}
}

// wait adds to a finding the remedy that makes an application wait for its proxy: the annotation for the proxy's mesh
// in the map ways, or else a native sidecar. It also adds the result of a replay in the model of the kubelet.
func (s *subject) wait(f *Finding, app *evidence.Container, y calls.Call, ways map[string]way) {
	w, has := ways[s.Proxy.Name]
	if !has {
		w.by = startup.Native
		f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar (an init container with restartPolicy: Always and a startup probe), so that %s starts after it", s.Proxy.Name, app.Name)}
	} else {
		kind, name := s.workload()
		f.Remedy = finding.Remedy{
			Sentence: fmt.Sprintf("let %s wait for %s, by the annotation %s", app.Name, s.Proxy.Name, w.annotation),
			Command:  s.kubectl("patch %s %s --patch-file patch.yaml", kind, name),
		}
		f.Patch = s.annotate(w)
	}
	f.Replay = replay.Of(s.Pod, s.Calls, y, w.by)
}

// annotate returns a patch of the workload that adds an annotation to its pod template.
func (s *subject) annotate(w way) string {
	annotations := fmt.Sprintf("metadata:\n  annotations:\n    %s: %q\n", w.annotation, w.value)
	switch kind, _ := s.workload(); kind {
	case "pod":
		return annotations
	case "cronjob":
		return nest("spec", nest("jobTemplate", nest("spec", nest("template", annotations))))
	}
	return nest("spec", nest("template", annotations))
}

func nest(field, text string) string {
	return field + ":\n  " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n  "), "  ")
}

// workload returns the object that has the pod template: the topmost owner that is known, or else the pod itself.
func (s *subject) workload() (kind, name string) {
	if n := len(s.Owners); n > 0 {
		return strings.ToLower(s.Owners[n-1].Kind), s.Owners[n-1].Name
	}
	return "pod", s.Object.Name
}

// Instant formats a time with the precision that its error allows. An unknown time becomes the word "that", as in
// "before that".
func Instant(t evidence.Time) string {
	switch {
	case !t.Known():
		return "that"
	case t.Error >= 2e9:
		return fmt.Sprintf("%s (to within %s)", t.At.UTC().Format("15:04:05Z"), t.Error.Round(1e9))
	case t.Error >= 1e9:
		return t.At.UTC().Format("15:04:05Z")
	}
	return t.At.UTC().Format("15:04:05.000Z")
}

func (s *subject) memoryLimit(container string) string {
	if c := s.Spec(container); c != nil {
		if m, has := c.Resources.Limits["memory"]; has {
			return m.String()
		}
	}
	if s.Omitted.Spec {
		return "it is not in the evidence"
	}
	return "none is set: the node's"
}
