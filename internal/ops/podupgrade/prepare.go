package podupgrade

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

// The kubelet stops a container before it pulls the new image. So a separate pod first runs the image once on each
// node. The image is then present, so that the proxy is down for only about a second; and if the image does not
// exist or does not run on the node, no proxy is stopped.

// pullTimeout is the time limit for a node to pull and run the image.
const pullTimeout = 5 * time.Minute

// prepare runs the image once on the node of c.
func (r *roll) prepare(ctx context.Context, c Candidate) error {
	ctx, cancel := context.WithTimeout(ctx, r.pull)
	defer cancel()
	pod := runOnce(c)
	_, err := r.Core.CoreV1().Pods(c.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: "outrider"})
	if err != nil && !apierrors.IsAlreadyExists(err) { // AlreadyExists: an interrupted upgrade has left the pod
		return fmt.Errorf("%s: running %s once: %w", c.Node, c.To, err)
	}
	// A failure of the deletion is ignored, because the pod has ended and uses nothing.
	defer func() { _ = kubeclient.DeletePod(ctx, r.Core, pod.Namespace, pod.Name) }()
	last := "the kubelet has not begun"
	err = kubeclient.FollowPod(ctx, r.Core, c.Namespace, pod.Name, func(p *corev1.Pod) (bool, error) {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil {
				last = w.Reason + ": " + w.Message
				switch w.Reason {
				case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerError", "RunContainerError", "CreateContainerConfigError":
					return false, errors.New(last)
				}
			}
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
				return false, fmt.Errorf("it ended with status %d: %s", t.ExitCode, t.Message)
			}
		}
		if p.Status.Phase == corev1.PodFailed {
			return false, fmt.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
		}
		return p.Status.Phase == corev1.PodSucceeded, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not run within %s: %s", r.pull, last)
	}
	if err != nil {
		return fmt.Errorf("%s does not run on node %s: %w", c.To, c.Node, err)
	}
	return nil
}

// runOnce returns a pod that runs the image of c on its node, with minimal permissions.
func runOnce(c Candidate) *corev1.Pod {
	yes, no, user, grace := true, false, int64(contract.ProxyUser), int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   c.Namespace,
			Name:        fmt.Sprintf("outrider-upgrade-%x", sha256.Sum256([]byte(c.Node+"\x00"+c.To)))[:32],
			Labels:      map[string]string{"app.kubernetes.io/name": "outrider-upgrade", contract.InjectLabel: "false"},
			Annotations: map[string]string{contract.InjectLabel: "false"},
		},
		Spec: corev1.PodSpec{
			NodeName: c.Node, RestartPolicy: corev1.RestartPolicyNever, ImagePullSecrets: c.pullSecrets,
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "run-once", Image: c.To, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"outrider-agent", "version"},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
