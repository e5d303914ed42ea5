package offline

import (
	"testing"

	"outrider.dev/internal/core/pod/inject"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: app, image: "registry.example/shop:1", command: [/app], ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /ready, port: http}}}
`

// The benchmark does the work of "outrider inject" for one file: it reads, injects and writes. It does not start
// a process.
func BenchmarkInjectFile(b *testing.B) {
	o := Options{Namespace: "shop", Inject: inject.Options{Manual: true, Kubernetes: 34}}
	for b.Loop() {
		if _, err := Inject([]File{{"shop.yaml", []byte(deployment)}}, o, func(Message) {}); err != nil {
			b.Fatal(err)
		}
	}
}
