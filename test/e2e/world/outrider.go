package world

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/test/chart"
)

// Kubectl runs kubectl and returns what it printed.
func (w *World) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = bytes.NewBufferString(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Apply makes or changes the objects of a manifest.
func (w *World) Apply(ctx context.Context, manifest string) error {
	_, err := w.Kubectl(ctx, manifest, "apply", "--filename=-")
	return err
}

// Overloaded is the time that a first call may take where fifty pods at once overload the node.
const Overloaded = 10 * time.Second

// Install puts the chart into the cluster, with one replica, which cases kill, and with the time
// that a first call may take, unless that is 0. It waits until outriderd serves and the API server
// has its webhook's roots.
func (w *World) Install(ctx context.Context, firstUse time.Duration) error {
	values := "pilot: {replicaCount: 1}"
	if firstUse > 0 {
		values += "\nserve: {firstUseTimeout: " + firstUse.String() + "}"
	}
	manifest, err := chart.Manifest(values)
	if err != nil {
		return err
	}
	definitions, err := chart.Definitions()
	if err != nil {
		return err
	}
	for _, d := range definitions { // any order: they do not depend on each other
		manifest += "---\n" + d
	}
	if err := w.Apply(ctx, manifest); err != nil {
		return fmt.Errorf("installing outriderd: %w", err)
	}
	for _, args := range [][]string{
		{"rollout", "status", "deployment/outriderd", "--namespace=" + chart.Namespace, "--timeout=120s"},
		{"wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout=60s", "mutatingwebhookconfiguration/outrider-injector"},
	} {
		if out, err := w.Kubectl(ctx, "", args...); err != nil {
			logs, _ := w.Kubectl(ctx, "", "logs", "deployment/outriderd", "--namespace="+chart.Namespace)
			return fmt.Errorf("installing outriderd: %w\n%s%s", err, out, logs)
		}
	}
	return nil
}

// Inject is what "outrider inject" makes of a pod.
func (w *World) Inject(ctx context.Context, pod *corev1.Pod, flags ...string) (*corev1.Pod, error) {
	in := pod.DeepCopy()
	in.APIVersion, in.Kind = "v1", "Pod"
	text, err := yaml.Marshal(in)
	if err != nil {
		return nil, err
	}
	kube := "--kube=" + w.Version[1:] // v1.34
	cmd := exec.CommandContext(ctx, filepath.Join(w.Root, "bin", "outrider"), append([]string{"inject", "-f", "-", kube}, flags...)...)
	cmd.Stdin = bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("outrider inject: %w: %s", err, &stderr)
	}
	var injected corev1.Pod
	if err := yaml.UnmarshalStrict(out, &injected); err != nil {
		return nil, fmt.Errorf("what outrider inject printed: %w", err)
	}
	return &injected, nil
}

// Tag gives an image another name, as if it had come at last.
func (w *World) Tag(ctx context.Context, image, name string) error {
	out, err := exec.CommandContext(ctx, "ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("naming an image: %w: %s", err, out)
	}
	return nil
}
