// Package podupgrade gives running pods the proxy that a new pod would get today, without a new
// pod: it changes the image of the proxy's container, and the kubelet replaces that container
// alone. The applications are not restarted.
//
//  1. Plan asks the API server, for each workload, which image its next pod would get (dry run).
//  2. Run has each node run the new image once, so that it is there and known to work.
//  3. For each pod it announces the replacement to the agent, which drains then (see package
//     proxy), changes the image, and waits until the pod is ready. The first that does not get
//     ready gets its old image back, and nothing more is begun.
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

// A State says what is to be done with a pod.
type State string

// The states.
const (
	Current State = "current" // it has the image that a new pod would get
	Due     State = "due"     // its proxy can be replaced
	Cannot  State = "cannot"  // only a new pod can have the new proxy; Reason says why
)

// A Candidate is a pod with a proxy of ours.
type Candidate struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"-"`
	Node      string    `json:"node,omitempty"`
	From      string    `json:"from"`         // image that it has
	To        string    `json:"to,omitempty"` // image that a new pod would get
	State     State     `json:"state"`
	Reason    string    `json:"reason,omitempty"`

	workload    string // UID of the pod's controller, or of the pod
	pullSecrets []corev1.LocalObjectReference
	statusPort  string // of the agent
}

// String is the pod's name with its namespace.
func (c Candidate) String() string { return c.Name + "." + c.Namespace }

// A Selection is which pods are meant.
type Selection struct {
	Namespace string // empty: all
	Labels    string // a selector; empty: all
	Image     string // for all of them; empty: what a new pod would get
}

// Plan lists the pods with a proxy, sorted by namespace and name, and what is to be done with each.
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
	next   map[string]answer // by workload: the pods of one get the same
}

type answer struct{ image, reason string }

func (p *planner) judge(ctx context.Context, pod *corev1.Pod) Candidate {
	container := kubeclient.Proxy(pod)
	c := Candidate{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		From: container.Image, State: Cannot, workload: workloadOf(pod), pullSecrets: pod.Spec.ImagePullSecrets, statusPort: statusPort(container),
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
			c.State = Due
		}
	}
	return c
}

// statusPort is the agent's port. Injection has written it into the proxy's configuration wherever
// it is not the default: by the annotation, a ProxyConfig, or the values.
func statusPort(proxy *corev1.Container) string {
	config := struct {
		StatusPort uint16 `json:"statusPort"`
	}{contract.StatusPort}
	for _, e := range proxy.Env {
		if e.Name == "PROXY_CONFIG" {
			_ = json.Unmarshal([]byte(e.Value), &config) // not readable: the default, as for the agent of such a pod
		}
	}
	return strconv.Itoa(int(config.StatusPort))
}

func running(s *corev1.ContainerStatus) bool { return s != nil && s.State.Running != nil }

// workloadOf is the UID of the pod's controller, or its own.
func workloadOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	return string(pod.UID)
}

// nextImage is the image that the next pod of this one's workload would get: the API server is
// asked to make one in a dry run, with all that decides there.
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

// Next is the pod that the API server would make today in place of an injected one: a dry run.
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
