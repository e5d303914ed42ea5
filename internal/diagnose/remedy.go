package diagnose

import (
	"fmt"
	"strings"

	"outrider.dev/internal/evidence"
	"outrider.dev/internal/lint/finding"
	"outrider.dev/internal/pod/podspec"
)

// The annotations by which each mesh makes applications wait for its proxy. Sources:
// istio.io/docs/reference/config/annotations and .../istio.mesh.v1alpha1 (holdApplicationUntilProxyStarts);
// linkerd.io/2/reference/proxy-configuration (proxy-enable-native-sidecar).
var waiting = map[string][2]string{
	podspec.OurProxy: {"outrider.dev/start", "gate"},
	"istio-proxy":    {"proxy.istio.io/config", `{"holdApplicationUntilProxyStarts": true}`},
	"linkerd-proxy":  {"config.alpha.linkerd.io/proxy-enable-native-sidecar", "true"},
}

// wait is how an application is made to wait for its proxy.
func (s *subject) wait(app string) finding.Remedy {
	a, has := waiting[s.proxy.Name]
	if !has {
		return finding.Remedy{Sentence: fmt.Sprintf("make %s a native sidecar (an init container with restartPolicy: Always and a startup probe), so that %s starts after it", s.proxy.Name, app)}
	}
	kind, name := s.workload()
	return finding.Remedy{
		Sentence: fmt.Sprintf("let %s wait for %s, by the annotation %s", app, s.proxy.Name, a[0]),
		Command:  s.kubectl("patch %s %s --patch-file patch.yaml", kind, name),
	}
}

// waitPatch is the patch of that remedy.
func (s *subject) waitPatch(string) string {
	a, has := waiting[s.proxy.Name]
	if !has {
		return ""
	}
	annotations := fmt.Sprintf("metadata:\n  annotations:\n    %s: %q\n", a[0], a[1])
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

// workload is what has the pod's template: the farthest owner that is known, or the pod.
func (s *subject) workload() (kind, name string) {
	if n := len(s.Owners); n > 0 {
		return strings.ToLower(s.Owners[n-1].Kind), s.Owners[n-1].Name
	}
	return "pod", s.Object.Name
}

// kubectl is a command with the pod's namespace.
func (s *subject) kubectl(format string, args ...any) string {
	in := ""
	if s.Object.Namespace != "" {
		in = "-n " + s.Object.Namespace + " "
	}
	return "kubectl " + in + fmt.Sprintf(format, args...)
}

// instant is a time in words.
func instant(t evidence.Time) string {
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
	if c := specOf(s.Object, container); c != nil {
		if m, has := c.Resources.Limits["memory"]; has {
			return m.String()
		}
	}
	return "none is set: the node's"
}
