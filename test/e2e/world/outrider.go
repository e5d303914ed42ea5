package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
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

// Install puts outriderd into the cluster, as deploy/ has it but for its state, which is to
// outlive its pod, and for the time that a first call may take, unless that is 0. It waits until
// it serves and its webhook takes part in admission.
func (w *World) Install(ctx context.Context, firstUse time.Duration) error {
	env := ""
	if firstUse > 0 {
		env = `{"name":"OUTRIDER_FIRST_USE_TIMEOUT","value":"` + firstUse.String() + `"}`
	}
	state := filepath.Join(w.Dir, "outriderd-state")
	if err := errors.Join(os.MkdirAll(state, 0o700), os.Chown(state, 65532, 65532)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--filename=" + filepath.Join(w.Root, "test", "e2e", "world", "crds.yaml")},
		{"apply", "--filename=" + filepath.Join(w.Root, "deploy", "outriderd.yaml")},
		{"patch", "deployment/outriderd", "--namespace=outrider-system", "--patch",
			`{"spec":{"template":{"spec":{"volumes":[{"name":"state","emptyDir":null,"hostPath":{"path":"` + state + `"}}],` +
				`"containers":[{"name":"outriderd","env":[` + env + `]}]}}}}`},
		{"rollout", "status", "deployment/outriderd", "--namespace=outrider-system", "--timeout=120s"},
	} {
		if out, err := w.Kubectl(ctx, "", args...); err != nil {
			logs, _ := w.Kubectl(ctx, "", "logs", "deployment/outriderd", "--namespace=outrider-system")
			return fmt.Errorf("installing outriderd: %w\n%s%s", err, out, logs)
		}
	}
	hook, err := w.Kubectl(ctx, "", "exec", "deployment/outriderd", "--namespace=outrider-system", "--", "/usr/local/bin/outriderd", "webhook-config")
	if err != nil {
		return err
	}
	return w.Apply(ctx, hook)
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
