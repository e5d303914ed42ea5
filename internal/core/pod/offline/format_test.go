package offline

import (
	"fmt"
	"testing"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/test/formats"
)

// The webhook of one version writes the pod: annotations, flags and variables that an agent of another version reads, as
// the image alone is replaced in place, and that this version undoes.
func TestFormats(t *testing.T) {
	for _, way := range []string{"gate", "native", "hold"} {
		pod := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: app, namespace: shop, labels: {app: app, sidecar.istio.io/inject: "true"}, annotations: {outrider.dev/start: %q, outrider.dev/prewarm: cache.shop}}
spec:
  containers:
  - {name: app, image: "x:1", command: [app], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /r, port: 8080}}, livenessProbe: {httpGet: {path: /l, port: 8080}}}
`, way)
		text := func(r Result, err error) (string, error) { return string(r.Text()), err }
		silent := func(Message) {}
		injected, err := text(Inject([]File{{Name: "pod.yaml", Data: []byte(pod)}}, Options{Inject: inject.Options{Manual: true}}, silent))
		if err != nil {
			t.Fatal(err)
		}
		undone, err := text(Uninject([]File{{Name: "pod.yaml", Data: []byte(injected)}}, silent))
		if err != nil {
			t.Fatal(err)
		}
		formats.Check(t, "pod-"+way, injected, func(earlier string) (string, error) {
			back, err := text(Uninject([]File{{Name: "pod.yaml", Data: []byte(earlier)}}, silent))
			if err == nil && back != undone {
				err = fmt.Errorf("it is undone to\n%s, want\n%s", back, undone)
			}
			return injected, err
		})
	}
}
