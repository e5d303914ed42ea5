// Package podupgrade upgrades the proxy of running pods without replacing the pods: it changes the
// image of the proxy's container to the image that a new pod would get today, and the kubelet restarts
// only that container. The applications keep running.
//
//  1. For each workload, Plan finds the image that the next pod would get, by a dry run.
//  2. Run runs the new image once on each node, so that it is present and known to work.
//  3. For each pod, Run announces the replacement to the agent, which then drains (see package
//     proxy), changes the image, and waits until the pod is ready. If a pod does not get ready, Run
//     restores its old image, and does not begin with other pods.
package podupgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/ops/kubeclient"
)

// A State tells whether the proxy of a pod should and can be replaced.
type State string

// The states.
const (
	Current     State = "current"       // the pod has the image that a new pod would get
	Outdated    State = "outdated"      // the proxy can be replaced
	NeedsNewPod State = "needs-new-pod" // the proxy of this pod cannot be replaced; the Reason of the candidate says why
)

// A Candidate is a pod with Outrider's proxy.
type Candidate struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"-"`
	Node      string    `json:"node,omitempty"`
	From      string    `json:"from"`         // image of the pod's proxy
	To        string    `json:"to,omitempty"` // image that a new pod would get
	State     State     `json:"state"`
	Reason    string    `json:"reason,omitempty"`

	workload    string // UID of the pod's controller, or of the pod itself if it has no controller
	pullSecrets []corev1.LocalObjectReference
	statusPort  string // port of the agent
}

// String returns NAME.NAMESPACE of the pod.
func (c Candidate) String() string { return c.Name + "." + c.Namespace }

// A Selection chooses pods.
type Selection struct {
	Namespace string // empty: all namespaces
	Labels    string // a label selector; empty: all pods
	Image     string // new image for all of them; empty: the image that a new pod would get
}

// Plan returns the selected pods with a proxy and their states, sorted by namespace and name. It fails if pods
// cannot be listed.
func Plan(ctx context.Context, client kubernetes.Interface, s Selection) ([]Candidate, error) {
	p := planner{client: client, image: s.Image, next: map[string]answer{}}
	var out []Candidate
	err := kubeclient.EachMeshed(ctx, client, s.Namespace, s.Labels, func(pod *corev1.Pod) {
		if _, injected := pod.Annotations[contract.Status]; injected {
			out = append(out, p.judge(ctx, pod))
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Candidate) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out, nil
}

type planner struct {
	client kubernetes.Interface
	image  string
	next   map[string]answer // results of dry runs by workload, whose pods all get the same image
}

type answer struct{ image, reason string }

func (p *planner) judge(ctx context.Context, pod *corev1.Pod) Candidate {
	container := kubeclient.Proxy(pod)
	c := Candidate{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		From: container.Image, State: NeedsNewPod, workload: workloadOf(pod), pullSecrets: pod.Spec.ImagePullSecrets, statusPort: statusPort(container),
	}
	switch {
	case pod.DeletionTimestamp != nil:
		c.Reason = "it is being deleted"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		c.Reason = "it is a static pod: its file on the node has the image"
	case !running(kubeclient.Status(pod, container.Name)):
		c.Reason = "its proxy does not run"
	default:
		a := p.image
		if a == "" {
			next := p.nextImage(ctx, pod)
			a, c.Reason = next.image, next.reason
		}
		c.To = a
		switch {
		case c.Reason != "":
		case a == c.From:
			c.State = Current
		default:
			c.State = Outdated
		}
	}
	return c
}

// statusPort returns the agent's port. Injection writes it into the proxy's configuration whenever an
// annotation, a ProxyConfig or the values change the default.
func statusPort(proxy *corev1.Container) string {
	config := struct {
		StatusPort uint16 `json:"statusPort"`
	}{contract.StatusPort}
	for _, e := range proxy.Env {
		if e.Name == "PROXY_CONFIG" {
			_ = json.Unmarshal([]byte(e.Value), &config) // if it is invalid, the agent also uses the default port
		}
	}
	return strconv.Itoa(int(config.StatusPort))
}

func running(s *corev1.ContainerStatus) bool { return s != nil && s.State.Running != nil }

// workloadOf returns the UID of the pod's controller, or the pod's own if it has none.
func workloadOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return string(pod.UID)
}

// nextImage returns the image that the next pod of this pod's workload would get. It is found by a dry run of the
// creation of that pod, so that everything that influences a real pod is applied.
func (p *planner) nextImage(ctx context.Context, pod *corev1.Pod) answer {
	key := workloadOf(pod)
	a, known := p.next[key]
	if !known {
		a = p.ask(ctx, pod)
		p.next[key] = a
	}
	return a
}

func (p *planner) ask(ctx context.Context, pod *corev1.Pod) answer {
	made, err := Next(ctx, p.client, pod)
	if err != nil {
		return answer{reason: err.Error()}
	}
	container := kubeclient.Proxy(made)
	if container == nil {
		return answer{reason: "a new pod like it would get no proxy"}
	}
	return answer{image: container.Image}
}

// Next returns the pod that would be created today in place of an injected one. The API server creates it as a dry
// run.
func Next(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (*corev1.Pod, error) {
	bare, err := inject.Stripped(pod)
	if err != nil {
		return nil, err
	}
	bare.ObjectMeta = metav1.ObjectMeta{
		GenerateName: "outrider-dry-run-", Namespace: bare.Namespace, Labels: bare.Labels, Annotations: bare.Annotations,
	}
	bare.Status, bare.Spec.NodeName = corev1.PodStatus{}, ""
	made, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, bare, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, fmt.Errorf("a pod like it cannot be made: %w", err)
	}
	return made, nil
}
