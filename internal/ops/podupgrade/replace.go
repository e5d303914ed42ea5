package podupgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh/objects"
	"outrider.dev/internal/ops/kubeclient"
)

// An exec runs a command in a pod's proxy container and returns its output.
type exec func(ctx context.Context, namespace, pod string, command ...string) (string, error)

// inCluster returns an exec that works like kubectl exec.
func inCluster(c *kubeclient.Client) exec {
	return func(ctx context.Context, namespace, pod string, command ...string) (string, error) {
		at := c.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: contract.ProxyContainer, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
		socket, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", at.String())
		if err != nil {
			return "", err
		}
		spdy, err := remotecommand.NewSPDYExecutor(c.Config, "POST", at)
		if err != nil {
			return "", err
		}
		run, err := remotecommand.NewFallbackExecutor(socket, spdy, func(error) bool { return true })
		if err != nil {
			return "", err
		}
		var out, wrong bytes.Buffer // two buffers, because two goroutines write
		err = run.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &wrong})
		return out.String() + wrong.String(), err
	}
}

// announce tells the agent that its container will be replaced while the rest of the pod keeps running, so that it
// drains.
func (r *roll) announce(ctx context.Context, c Candidate) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := r.exec(ctx, c.Namespace, c.Name, "outrider-agent", "request", "POST", "/replace", "--debug-port", c.statusPort, "--status-port", c.statusPort)
	if err != nil {
		return fmt.Errorf("its agent cannot drain for a replacement: %s: %w", firstOf(out), err)
	}
	return nil
}

// firstOf returns the first line of a command's output, at most 200 bytes.
func firstOf(out string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return line[:min(len(line), 200)]
}

// get returns the pod of c. It returns [kubeclient.ErrGone] if that pod does not exist or is being deleted, also if
// another pod has the same name.
func (r *roll) get(ctx context.Context, c Candidate) (*corev1.Pod, error) {
	pod, err := r.Core.CoreV1().Pods(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (pod.UID != c.UID || pod.DeletionTimestamp != nil) {
		return nil, kubeclient.ErrGone
	}
	return pod, err
}

// setImage changes the image of the pod's proxy.
func (r *roll) setImage(ctx context.Context, c Candidate, image string) error {
	pod, err := r.get(ctx, c)
	if err != nil {
		return err
	}
	list := "containers"
	for _, init := range pod.Spec.InitContainers {
		if init.Name == contract.ProxyContainer {
			list = "initContainers"
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.UID},
		"spec":     map[string]any{list: []any{map[string]string{"name": contract.ProxyContainer, "image": image}}},
	})
	if err != nil {
		return err
	}
	_, err = r.Core.CoreV1().Pods(c.Namespace).Patch(ctx, c.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "outrider"})
	return err
}

// await waits until the pod is ready with a new proxy container; before is the ID of the old one. It fails after
// r.Timeout, with the reason why the pod is not ready.
func (r *roll) await(ctx context.Context, c Candidate, before string) error {
	last := "the kubelet has not begun"
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	err := kubeclient.FollowPod(ctx, r.Core, c.Namespace, c.Name, func(pod *corev1.Pod) (bool, error) {
		if pod.UID != c.UID || pod.DeletionTimestamp != nil {
			return false, kubeclient.ErrGone
		}
		s := kubeclient.Status(pod, contract.ProxyContainer)
		switch {
		case s == nil || s.ContainerID == before && s.State.Running != nil:
			return false, nil
		case s.State.Waiting != nil:
			last = strings.TrimSpace(s.State.Waiting.Reason + " " + s.State.Waiting.Message)
			return false, nil
		case s.State.Terminated != nil:
			last = fmt.Sprintf("the proxy ended with status %d: %s", s.State.Terminated.ExitCode, s.State.Terminated.Message)
			return false, nil
		case !objects.PodReady(&pod.Status):
			last = "the pod is not ready"
			return false, nil
		}
		return true, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not ready within %s: %s", r.Timeout, last)
	}
	return err
}
