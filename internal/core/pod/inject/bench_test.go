package inject

import (
	"encoding/json"
	"errors"
	"testing"

	"outrider.dev/internal/core/pod/inject/verdict"
)

// The benchmark injects or refuses the largest pods: 300 containers, each of which waits for all previous ones.
// Such a plan has 44,850 edges.
func BenchmarkPodOf300Containers(b *testing.B) {
	for name, pod := range largePods(300) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var refusal *verdict.Refusal
				if _, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true}); err != nil && !errors.As(err, &refusal) {
					b.Fatal(err)
				}
			}
		})
	}
}

// The benchmark injects one pod, as at admission. Run it with -benchmem.
func BenchmarkPod(b *testing.B) {
	const plain = "metadata: {name: shop, labels: {app: shop}}\nspec: {containers: [{name: app, image: shop, command: [/app], ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}}]}"
	for _, bb := range []struct {
		name, pod string
		patch     bool // the JSON patch is part of the work
	}{
		{"gate", plain, false},
		{"gate, with the patch", plain, true},
		{"native", "metadata: {name: shop}\nspec: {containers: [{name: app, image: shop}]}", false},
		{"not injected", "metadata: {name: shop}\nspec: {hostNetwork: true, containers: [{name: app, image: shop}]}", false},
		{"five containers and a graph", `
metadata: {name: shop, annotations: {outrider.dev/depends-on: "{a: {b: healthy}, b: {c: started}, c: {d: started}}"}}
spec:
  containers:
  - {name: a, image: i, command: [/a]}
  - {name: b, image: i, command: [/b], readinessProbe: {tcpSocket: {port: 1}}}
  - {name: c, image: i, command: [/c]}
  - {name: d, image: i, command: [/d]}
  - {name: e, image: i, command: [/e]}`, false},
	} {
		b.Run(bb.name, func(b *testing.B) {
			pod := podOf(b, bb.pod)
			for b.Loop() {
				r, err := Pod(pod, Namespace{Name: "shop"}, Options{})
				if err == nil && bb.patch {
					_, err = json.Marshal(r.Patch())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
