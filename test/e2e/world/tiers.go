package world

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/test/e2e/load"
)

// tiers are the services of the suites under load; each calls the next.
var tiers = []string{"front", "middle", "back"}

// TierNamespace is the namespace of the tiers and of the load generators.
const TierNamespace = "tiers"

// TierHost returns the host name of a tier.
func TierHost(name string) string { return name + "." + TierNamespace }

const (
	// tierReplicas is the number of pods of a tier. If one is killed, the other still serves.
	tierReplicas = 2
	// tierMemory is the memory limit of a tier. At SIGUSR2 a tier uses tierEats MiB, which exceeds the limit.
	tierMemory = "64Mi"
	tierEats   = "100"
)

// Rude is a flag for tiers: they close all their connections at SIGTERM.
const Rude = "--rude"

// Tiers creates or updates the tiers, with these annotations on their pods and flags of their program, and waits until
// they are rolled out.
func (w *World) Tiers(ctx context.Context, annotations map[string]string, flags ...string) error {
	return w.tiers(ctx, annotations, "", flags)
}

// Undeclared is the tier whose port declares no protocol after [World.UndeclaredTiers].
const Undeclared = "middle"

// UndeclaredTiers does as [World.Tiers], but the port of [Undeclared] declares no protocol.
func (w *World) UndeclaredTiers(ctx context.Context, annotations map[string]string, flags ...string) error {
	return w.tiers(ctx, annotations, Undeclared, flags)
}

// tiers creates the tiers. The port of undeclared declares no protocol.
func (w *World) tiers(ctx context.Context, annotations map[string]string, undeclared string, flags []string) error {
	var manifest strings.Builder
	for i, name := range tiers {
		command := append([]string{"/app", "tier", "--name=" + name, "--stop=3s", "--eat=" + tierEats}, flags...)
		if i+1 < len(tiers) {
			// The timeout is shorter than the caller's, so that the caller gets the failure as its answer.
			timeout := load.Timeout - time.Duration(i+1)*2*time.Second
			command = append(command, "--call=http://"+TierHost(tiers[i+1])+"/", "--timeout="+timeout.String())
		}
		port := "http"
		if name == undeclared {
			port = "web"
		}
		notes := ""
		for key, value := range annotations { // any order: the keys of a map
			notes += fmt.Sprintf(", %q: %q", key, value)
		}
		fmt.Fprintf(&manifest, tierManifest, name, TierNamespace, tierReplicas, notes, AppImage, strings.Join(command, ", "), tierMemory, port)
	}
	if err := w.Apply(ctx, manifest.String()); err != nil {
		return err
	}
	return w.RolledOut(ctx)
}

const tierManifest = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s, part: tier}
      annotations: {sidecar.istio.io/proxyCPU: 10m, sidecar.istio.io/proxyMemory: 32Mi%[4]s}
    spec:
      terminationGracePeriodSeconds: 15
      containers:
      - name: app
        image: "%[5]s"
        command: [%[6]s]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
        resources: {limits: {memory: %[7]s}}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{name: %[8]s, port: 80, targetPort: 8080}]}
`

// RollOut replaces all pods of the tiers, all tiers at the same time.
func (w *World) RollOut(ctx context.Context) error {
	if _, err := w.Kubectl(ctx, "", append([]string{"rollout", "restart", "--namespace=" + TierNamespace}, deployments()...)...); err != nil {
		return err
	}
	return w.RolledOut(ctx)
}

// RolledOut waits until the pods of the tiers' current templates are ready and all older pods are gone.
func (w *World) RolledOut(ctx context.Context) error {
	for _, of := range deployments() {
		if _, err := w.Kubectl(ctx, "", "rollout", "status", of, "--namespace="+TierNamespace, "--timeout="+Patience.String()); err != nil {
			pods, _ := w.Kubectl(ctx, "", "describe", "pods", "--namespace="+TierNamespace)
			return fmt.Errorf("%w\n%s", err, pods)
		}
	}
	return w.Until(ctx, "the pods before are gone", func() bool { return len(w.RunningTiers()) == tierReplicas*len(tiers) })
}

func deployments() (all []string) {
	for _, name := range tiers {
		all = append(all, "deployment/"+name)
	}
	return all
}

// RunningTiers returns the existing pods of the tiers, in order of creation.
func (w *World) RunningTiers() (out []*Pod) {
	for _, p := range w.In(TierNamespace) {
		if _, there := p.Status(); there && p.asMade.Labels["part"] == "tier" {
			out = append(out, p)
		}
	}
	return out
}

// LoadPod returns a pod that calls the first tier until the pod is deleted. Each client makes the given number of
// calls in a second.
func LoadPod(name string, rate int) *corev1.Pod {
	p := Awesome(TierNamespace, name)
	c := &p.Spec.Containers[0]
	c.Command = []string{"/app", "load", "--call=http://" + TierHost(tiers[0]) + "/", "--want=" + strings.Join(tiers, "<-"), fmt.Sprintf("--rate=%d", rate)}
	c.Ports, c.ReadinessProbe = nil, nil
	grace := int64(load.Timeout/time.Second) + 15 // enough for the last calls to return
	p.Spec.TerminationGracePeriodSeconds = &grace
	return p
}
