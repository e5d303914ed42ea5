package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/ops/kubeclient"
)

// kernel is the check that tries capture on nodes.
var kernel = probe{id: "kernel", title: "capture works on the nodes' kernels"}

// Limits of the pods that try capture.
const (
	kernelPatience = 2 * time.Minute // limit of the time until all pods have ended
	maxKinds       = 20              // number of kinds of nodes, each with one pod
)

// kernelLabel marks the pods that try capture, so that a later run finds the pods of an interrupted run.
const kernelLabel = contract.Prefix + "check"

// A nodeKind is a kind of nodes. Capture behaves in the same way on all nodes of a kind.
type nodeKind struct{ kernel, image, architecture, system string }

func (k nodeKind) String() string {
	return strings.Join([]string{cmp.Or(k.kernel, "unknown kernel"), k.image, k.architecture}, ", ")
}

// kindsOf groups nodes by kind, and lists for each kind the names of the nodes that are ready.
func kindsOf(nodes []corev1.Node) map[nodeKind][]string {
	out := map[nodeKind][]string{}
	for _, n := range nodes {
		i := n.Status.NodeInfo
		k := nodeKind{i.KernelVersion, i.OSImage, i.Architecture, i.OperatingSystem}
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		names := out[k] // the result contains the kind even if none of its nodes is ready
		if ready {
			names = append(names, n.Name)
		}
		out[k] = names
	}
	return out
}

// kernels runs a pod on a node of each kind. The pod has the container that injection adds, with outrider-init, which
// writes the capture rules in the pod's own network namespace, and proves there that capture works.
func (s *survey) kernels(ctx context.Context) []Check {
	ctx, cancel := context.WithTimeout(ctx, kernelPatience)
	defer cancel()
	nodes, err := s.allNodes(ctx)
	if err != nil {
		return []Check{kernel.check(unknown(err))}
	}
	trial, err := s.trial(ctx)
	if err != nil {
		return []Check{kernel.check(unknown(err))}
	}
	if err := s.deleteLeft(ctx, trial.Namespace); err != nil {
		return []Check{kernel.check(unknown(err))}
	}
	kinds := kindsOf(nodes)
	sorted := slices.SortedFunc(maps.Keys(kinds), func(a, b nodeKind) int { return strings.Compare(a.String(), b.String()) })
	out := make([]Check, len(sorted))
	var all sync.WaitGroup
	for i, k := range sorted {
		all.Go(func() {
			var a answer
			switch ready := kinds[k]; {
			case k.system != "" && k.system != "linux":
				a = skipped("nodes with %s have no pods with a proxy", k.system)
			case len(ready) == 0:
				a = skipped("no node of this kind is ready")
			case i >= maxKinds:
				a = skipped("not tried: a run has %d pods at most", maxKinds)
			default:
				a = s.tryOn(ctx, trial, slices.Min(ready))
			}
			out[i] = kernel.about(k.String(), a)
		})
	}
	all.Wait()
	return out
}

// trial returns the pod that tries capture, not yet assigned to a node.
func (s *survey) trial(ctx context.Context) (*corev1.Pod, error) {
	namespace := s.NodesNamespace
	if namespace == "" {
		all, err := s.allNamespaces(ctx)
		if err != nil {
			return nil, err
		}
		namespace = metav1.NamespaceDefault
		if slices.ContainsFunc(all, func(n corev1.Namespace) bool { return n.Name == s.Options.Namespace }) {
			namespace = s.Options.Namespace
		}
	}
	injected, err := s.injectedLike(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(injected.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == contract.InitContainer && len(c.Args) > 0 && c.Args[0] == "init"
	})
	if i < 0 {
		return nil, errors.New("an injected pod has no container " + contract.InitContainer + " that captures: the mesh's settings say so")
	}
	c := injected.Spec.InitContainers[i]
	args := slices.Clone(c.Args)
	if at := slices.Index(args, "--copy"); at >= 0 { // needed for gates, which this pod does not have
		args = slices.Delete(args, at, at+2)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{
			kernelLabel: kernel.id, contract.InjectLabel: "false", contract.OwnInjectLabel: "false",
		}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(kernelPatience.Seconds())), TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), ImagePullSecrets: injected.Spec.ImagePullSecrets,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: contract.InitContainer, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Args: append(args, "--output=json"), Env: c.Env,
				Resources: c.Resources, SecurityContext: c.SecurityContext, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
		},
	}, nil
}

// injectedLike returns an injected pod. It is injected by the installed control plane, or else by this program with
// the values with which Outrider would be installed.
func (s *survey) injectedLike(ctx context.Context) (*corev1.Pod, error) {
	if !s.Before {
		if pod, _, _, err := s.injected(ctx); err == nil && kubeclient.Proxy(pod) != nil {
			return pod, nil
		}
	}
	values, err := s.values()
	if err != nil {
		return nil, err
	}
	try := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{contract.OwnInjectLabel: "true"}, Annotations: map[string]string{contract.Init: contract.InitContained}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{sampleContainer()}},
	}
	r, err := inject.Pod(try, inject.Namespace{Name: metav1.NamespaceDefault}, inject.Options{Values: values, Manual: true})
	return r.Pod, err
}

// deleteLeft deletes the pods of earlier runs that must have ended by now. It compares their creation times with the
// API server's clock, because that clock set them.
func (s *survey) deleteLeft(ctx context.Context, namespace string) error {
	server, err := s.askServer(ctx)
	if err != nil {
		return err
	}
	l, err := s.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: kernelLabel + "=" + kernel.id})
	if err != nil {
		return tried("listing pods in "+namespace, err)
	}
	for _, p := range l.Items {
		if server.date.Sub(p.CreationTimestamp.Time) > kernelPatience+kubeclient.RequestTime {
			if err := s.deletePod(ctx, namespace, p.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *survey) deletePod(ctx context.Context, namespace, name string) error {
	return tried("deleting pod "+namespace+"/"+name, kubeclient.DeletePod(ctx, s.Core, namespace, name))
}

// tryOn runs the pod on a node, and deletes it in any case, even if its creation seemed to fail. For that it chooses
// the pod's name itself, and the end of ctx does not interrupt the request that creates the pod.
func (s *survey) tryOn(ctx context.Context, trial *corev1.Pod, node string) (a answer) {
	pod := trial.DeepCopy()
	pod.Name, pod.Spec.NodeName = "outrider-check-"+rand.String(8), node
	creating, cancel := context.WithTimeout(context.WithoutCancel(ctx), kubeclient.RequestTime)
	defer cancel()
	defer func() {
		if err := s.deletePod(ctx, pod.Namespace, pod.Name); err != nil {
			a.reason += fmt.Sprintf("; the pod is left: %v", err)
			a.hint = fmt.Sprintf("kubectl -n %s delete pod %s", pod.Namespace, pod.Name)
		}
	}()
	if _, err := s.Core.CoreV1().Pods(pod.Namespace).Create(creating, pod, metav1.CreateOptions{}); err != nil {
		return refused(pod.Namespace, err)
	}
	last := "it has no status"
	err := kubeclient.FollowPod(ctx, s.Core, pod.Namespace, pod.Name, func(is *corev1.Pod) (done bool, err error) {
		a, last, done = s.outcome(ctx, is, last)
		return done, nil
	})
	switch {
	case err == nil:
		return a
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return skipped("the pod on node %s did not end within %s: %s", node, kernelPatience, last)
	case ctx.Err() != nil:
		return skipped("interrupted")
	}
	return unknown(tried("reading pod "+pod.Namespace+"/"+pod.Name, err))
}

// refused returns the answer for an error at the creation of the pod.
func refused(namespace string, err error) answer {
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource") || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return unknown(tried("creating a pod in "+namespace, err))
	}
	a := skipped("namespace %s refuses a pod with NET_ADMIN: %v", namespace, err)
	a.hint = "--nodes-namespace names one that admits it"
	return a
}

// outcome returns the answer if the pod has ended or cannot start. Otherwise done is false, and last is the reason
// why the pod has not ended yet. before is the value of last that the previous call returned.
func (s *survey) outcome(ctx context.Context, p *corev1.Pod, before string) (a answer, last string, done bool) {
	var state corev1.ContainerState
	if len(p.Status.ContainerStatuses) > 0 {
		state = p.Status.ContainerStatuses[0].State
	}
	node := p.Spec.NodeName
	switch {
	case p.Status.Phase == corev1.PodSucceeded:
		return s.captured(ctx, p), "", true
	case p.Status.Phase == corev1.PodFailed && state.Terminated != nil && p.Status.Reason == "":
		return failed("outrider.dev/capture: none on pods keeps their order without capture; docs/support.md has what capture needs",
			"on node %s: %s", node, cmp.Or(strings.TrimSpace(state.Terminated.Message), fmt.Sprintf("exit status %d", state.Terminated.ExitCode))), "", true
	case p.Status.Phase == corev1.PodFailed: // the kubelet ended it, and gives a reason
		return skipped("the kubelet of node %s ended the pod: %s: %s", node, p.Status.Reason, p.Status.Message), "", true
	case state.Waiting == nil:
		return a, cmp.Or(string(p.Status.Phase), before), false
	}
	last = strings.TrimSuffix(state.Waiting.Reason+": "+state.Waiting.Message, ": ")
	switch state.Waiting.Reason {
	case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
		if state.Waiting.Reason == "ImagePullBackOff" && strings.HasPrefix(before, "ErrImagePull") {
			last = before // the previous reason names the cause
		}
		return failed("global.hub, global.tag and global.imagePullSecrets name the image; docs/images.md says how images reach a cluster",
			"node %s has not the image %s, so that pods with a proxy do not start there: %s", node, p.Spec.Containers[0].Image, last), last, true
	case "CreateContainerConfigError", "RunContainerError":
		return failed("kubectl describe node "+node+" shows its container runtime", "node %s does not run a container with NET_ADMIN: %s", node, last), last, true
	}
	return a, last, false
}

// captured returns the answer for a pod that has proved capture. It reads the details from the report in the pod's
// log.
func (s *survey) captured(ctx context.Context, p *corev1.Pod) answer {
	log, err := s.logs(ctx, p.Namespace, p.Name)
	if err != nil {
		return fine("capture works on node %s; how is not known: %v", p.Spec.NodeName, err)
	}
	var report struct {
		Backend, Families string
		Notes             []string
		Proofs            []struct {
			Direction, Family string
			Proved            bool
		}
	}
	// The log also contains notes from standard error, before the report.
	if at := bytes.Index(log, []byte("{\n")); at < 0 || json.NewDecoder(bytes.NewReader(log[at:])).Decode(&report) != nil {
		return fine("capture works on node %s; its report cannot be read", p.Spec.NodeName)
	}
	var proved []string
	for _, p := range report.Proofs {
		if p.Proved {
			proved = append(proved, p.Direction+" "+p.Family)
		}
	}
	text := fmt.Sprintf("on node %s by %s, %s; proved: %s", p.Spec.NodeName, report.Backend, report.Families, cmp.Or(strings.Join(proved, ", "), "nothing"))
	if len(report.Notes) > 0 || len(proved) == 0 {
		return warning("", "%s", strings.Join(append([]string{text}, report.Notes...), "; "))
	}
	return fine("%s", text)
}
