package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"outrider.dev/internal/ops/installation"
)

func node(name, kernel string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{KernelVersion: kernel, OSImage: "Linux", Architecture: "amd64", OperatingSystem: "linux"},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}}
}

// nodesOf returns a survey for the checks that run before an installation, its fake API server, and the list of pods
// that the checks create. The clock of the API server is fixed. The function kubelet returns the status of each pod
// that is created.
func nodesOf(t *testing.T, kubelet func(p *corev1.Pod) corev1.PodStatus, objects ...runtime.Object) (*survey, *fake.Clientset, *[]corev1.Pod) {
	t.Helper()
	s, core := in(t, objects...)
	s.Before = true
	s.server = asked[serverAnswer]{done: true, value: serverAnswer{date: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}}
	s.Release = installation.Release{Objects: []*unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "outriderd-injection"}, "data": map[string]any{"values.yaml": "global: {hub: registry.example, tag: v1, imagePullSecrets: [key]}"}}}}}
	s.logs = func(context.Context, string, string) ([]byte, error) {
		return []byte("outrider-agent: note: something\n{\n  \"backend\": \"nftables\", \"families\": \"ipv4\", \"proofs\": [{\"direction\": \"outbound\", \"family\": \"ipv4\", \"proved\": true}]}\n"), nil
	}
	made := &[]corev1.Pod{}
	var m sync.Mutex
	core.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		p := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
		m.Lock()
		defer m.Unlock()
		p.Status = kubelet(p)
		*made = append(*made, *p.DeepCopy())
		return false, nil, nil
	})
	return s, core, made
}

func succeeded(*corev1.Pod) corev1.PodStatus { return corev1.PodStatus{Phase: corev1.PodSucceeded} }

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
}

// noPods fails the test if a pod is left in the cluster.
func noPods(t *testing.T, core *fake.Clientset) {
	t.Helper()
	l, err := core.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(l.Items) > 0 {
		t.Errorf("pods are left: %v, %v", l.Items, err)
	}
}

// For each kind of node, the check runs a pod on one of the nodes, with the privileges of outrider-init, and then
// deletes the pod.
func TestKernels(t *testing.T) {
	windows := node("w", "10.0", corev1.ConditionTrue)
	windows.Status.NodeInfo.OperatingSystem = "windows"
	s, core, made := nodesOf(t, succeeded, node("b", "6.1", corev1.ConditionTrue), node("a", "6.1", corev1.ConditionTrue), node("0", "6.1", corev1.ConditionFalse),
		node("c", "6.18", corev1.ConditionTrue), node("d", "5.4", corev1.ConditionFalse), windows)
	var is []string
	for _, c := range s.kernels(t.Context()) {
		is = append(is, fmt.Sprintf("%s %s %s: %s", c.ID, c.Object, c.Result, c.Reason))
	}
	const want = `kernel 10.0, Linux, amd64 skipped: nodes with windows have no pods with a proxy
kernel 5.4, Linux, amd64 skipped: no node of this kind is ready
kernel 6.1, Linux, amd64 ok: on node a by nftables, ipv4; proved: outbound ipv4
kernel 6.18, Linux, amd64 ok: on node c by nftables, ipv4; proved: outbound ipv4`
	if got := strings.Join(is, "\n"); got != want {
		t.Errorf("the checks are\n%s\nwant\n%s", got, want)
	}
	noPods(t, core)
	if len(*made) != 2 {
		t.Fatalf("%d pods were made; want 2", len(*made))
	}
	p := (*made)[0]
	c, allowed := p.Spec.Containers[0], p.Spec.Containers[0].SecurityContext.Capabilities
	switch {
	case p.Namespace != metav1.NamespaceDefault || c.Image != "registry.example/outrider-proxy:v1" || p.Spec.ImagePullSecrets[0].Name != "key":
		t.Errorf("the pod is %s, of image %s, with %v", p.Namespace, c.Image, p.Spec.ImagePullSecrets)
	case p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC || len(p.Spec.Volumes) > 0 || *p.Spec.AutomountServiceAccountToken || *c.SecurityContext.Privileged:
		t.Errorf("the pod has more of its node than it needs: %+v", p.Spec)
	case fmt.Sprint(allowed.Add, allowed.Drop) != "[NET_ADMIN] [ALL]":
		t.Errorf("capabilities %+v", allowed)
	case c.Args[0] != "init" || c.Args[len(c.Args)-1] != "--output=json" || strings.Contains(strings.Join(c.Args, " "), "--copy"):
		t.Errorf("arguments %q", c.Args)
	}
}

func TestKernelOutcomes(t *testing.T) {
	ended := func(message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}}}}}
	}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   Result
		words  []string
	}{
		"capture fails":                     {ended("netlink: operation not supported"), Failed, []string{"on node a", "operation not supported"}},
		"it fails without a word":           {ended(""), Failed, []string{"exit status 1"}},
		"the image is missing":              {waiting("ImagePullBackOff", "not found"), Failed, []string{"node a has not the image registry.example/outrider-proxy:v1", "not found"}},
		"the image may not be pulled":       {waiting("ErrImageNeverPull", ""), Failed, []string{"ErrImageNeverPull"}},
		"the runtime refuses the container": {waiting("RunContainerError", "no capabilities"), Failed, []string{"RunContainerError: no capabilities"}},
		"the kubelet refuses the pod":       {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "110 of 110"}, Skipped, []string{"OutOfpods: 110 of 110"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, core, _ := nodesOf(t, func(*corev1.Pod) corev1.PodStatus { return tt.status }, node("a", "6.1", corev1.ConditionTrue))
			c := s.kernels(t.Context())[0]
			answer{c.Result, c.Reason, c.Hint}.is(t, tt.want, tt.words...)
			noPods(t, core)
		})
	}
}

// If a kernel supports capture only in part, the result is a warning.
func TestKernelWithLimits(t *testing.T) {
	s, _, _ := nodesOf(t, succeeded, node("a", "6.1", corev1.ConditionTrue))
	for text, want := range map[string]Result{ // any order: each case is a run of its own
		"{\n\"backend\": \"iptables\", \"families\": \"ipv4\", \"notes\": [\"parking is off\"], \"proofs\": [{\"proved\": true}]}": Warning,
		"{\n\"backend\": \"iptables\", \"families\": \"ipv4\", \"proofs\": []}":                                                    Warning,
		"no report": OK,
	} {
		s.logs = func(context.Context, string, string) ([]byte, error) { return []byte(text), nil }
		if c := s.kernels(t.Context())[0]; c.Result != want {
			t.Errorf("%s: %+v; want %s", text, c, want)
		}
	}
	s.logs = func(context.Context, string, string) ([]byte, error) { return nil, errors.New("no logs") }
	if c := s.kernels(t.Context())[0]; c.Result != OK || !strings.Contains(c.Reason, "how is not known: no logs") {
		t.Errorf("%+v", c)
	}
}

// A pod that does not end is deleted at the timeout and when the command is interrupted. A pod whose
// creation returned an error is deleted too.
func TestKernelPodsAreDeleted(t *testing.T) {
	s, core, made := nodesOf(t, func(*corev1.Pod) corev1.PodStatus { return waiting("ContainerCreating", "") }, node("a", "6.1", corev1.ConditionTrue))
	interrupted, cancel := context.WithCancel(t.Context())
	core.PrependWatchReactor("pods", func(ktesting.Action) (bool, watch.Interface, error) { cancel(); return false, nil, nil })
	if c := s.kernels(interrupted)[0]; c.Result != Skipped || c.Reason != "interrupted" || len(*made) != 1 {
		t.Errorf("%+v", c)
	}
	noPods(t, core)

	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	s.nodes, s.namespaces = asked[[]corev1.Node]{}, asked[[]corev1.Namespace]{}
	if c := s.kernels(late)[0]; c.Result != Skipped || !strings.Contains(c.Reason, "did not end within 2m0s") {
		t.Errorf("%+v", c)
	}
	noPods(t, core)

	s, core, _ = nodesOf(t, succeeded, node("a", "6.1", corev1.ConditionTrue))
	core.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if err := core.Tracker().Add(a.(ktesting.CreateAction).GetObject()); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewTimeoutError("too late", 1)
	})
	if c := s.kernels(t.Context())[0]; c.Result != Skipped || !strings.Contains(c.Reason, "too late") {
		t.Errorf("%+v", c)
	}
	noPods(t, core)
}

// A run deletes the pods that a killed run has left, and no others. They have the label of the check and are older
// than a run may take.
func TestLeftKernelPods(t *testing.T) {
	pod := func(name, label string, age time.Duration) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: name, Labels: map[string]string{kernelLabel: label},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(-age))}}
	}
	s, core, _ := nodesOf(t, succeeded, namespace(own, nil), pod("left", "kernel", 3*time.Minute), pod("of-another-run", "kernel", time.Minute), pod("other", "other", time.Hour))
	s.kernels(t.Context())
	l, err := core.CoreV1().Pods(own).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(l.Items) != 2 || l.Items[0].Name != "of-another-run" || l.Items[1].Name != "other" {
		t.Errorf("the pods are %v, %v", l.Items, err)
	}
}

func TestKernelPodsAreRefused(t *testing.T) {
	for text, want := range map[string]struct{ words, hint string }{ // any order: each case is a run of its own
		`violates PodSecurity "baseline:latest"`: {"namespace mine refuses", "--nodes-namespace"},
		`exceeded quota`:                         {"namespace mine refuses", "--nodes-namespace"},
		`cannot create resource "pods"`:          {"creating a pod in mine", "permission"},
	} {
		s, core, _ := nodesOf(t, succeeded, node("a", "6.1", corev1.ConditionTrue))
		s.NodesNamespace = "mine"
		core.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New(text))
		})
		c := s.kernels(t.Context())[0]
		answer{c.Result, c.Reason, c.Hint}.is(t, Skipped, want.words, text)
		if !strings.Contains(c.Hint, want.hint) {
			t.Errorf("%s: hint %q", text, c.Hint)
		}
	}
}

// If a cluster has many kinds of nodes, the check creates only a limited number of pods.
func TestKernelPodsAreBounded(t *testing.T) {
	var nodes []runtime.Object
	for i := range maxKinds + 5 {
		nodes = append(nodes, node(fmt.Sprint("n", i), fmt.Sprintf("6.%02d", i), corev1.ConditionTrue))
	}
	s, core, made := nodesOf(t, succeeded, nodes...)
	all := s.kernels(t.Context())
	if len(all) != maxKinds+5 || len(*made) != maxKinds || all[maxKinds].Result != Skipped {
		t.Errorf("%d checks, %d pods, %+v", len(all), len(*made), all[maxKinds])
	}
	noPods(t, core)
}
