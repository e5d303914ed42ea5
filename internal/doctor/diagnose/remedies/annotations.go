package remedies

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
)

// An Annotation of a pod serves a purpose.
type Annotation struct {
	Mesh string // with the version from which on it has the annotation
	YAML string // one line; in capitals stands what only a case knows
}

// meshes has the names of meshes by their proxies. A proxy that is not here has no annotation of its own.
var meshes = map[string]string{
	podspec.OurProxy: "Outrider", "istio-proxy": "Istio", "linkerd-proxy": "Linkerd", "kuma-sidecar": "Kuma", "daprd": "Dapr",
}

// placeholders has what only a case knows; the grace period is the default one.
var placeholders = strings.NewReplacer("{app}", "CONTAINER", "{port}", "PORT", "{grace}", fmt.Sprint(corev1.DefaultTerminationGracePeriodSeconds-reserve))

// Annotations returns the annotations that serve a purpose, by mesh and version. The first is Outrider's own.
func Annotations(p Purpose) (out []Annotation) {
	for _, w := range ways {
		mesh, name, value := meshes[w.proxy], w.annotation, w.value
		if w.config != "" {
			name, value = contract.ProxyConfig, w.config+": "+strings.Trim(w.value, `"`)
		}
		if mesh == "" || name == "" || !slices.Contains(w.purposes, p) {
			continue
		}
		if from := w.since.release; from != [3]int{} {
			mesh += fmt.Sprintf(" %d.%d", from[0], from[1])
		}
		out = append(out, Annotation{mesh, placeholders.Replace(fmt.Sprintf("%s: %q", name, value))})
	}
	return out
}
