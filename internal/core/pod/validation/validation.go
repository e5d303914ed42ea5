// Package validation says which pods are refused before anything is computed: those with a field that the API server
// would refuse, if the field affects how the pod starts and stops ([Check]), and those that are too large to be read or
// written in time ([CheckSize], [CheckEdges]).
//
// It knows nothing of plans, gates and hooks. Results depend on the arguments alone, which are not changed.
package validation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// Limits for a pod that is read. They are necessary because an admission webhook must answer for every pod in
// time.
const (
	// MaxContainers is the maximum number of containers, without those that injection adds. The number of edges
	// of a plan grows with the square of this number. The largest known pods have about 50 containers.
	MaxContainers = 300

	// MaxAnnotations is the maximum size of the names and values of all annotations, in bytes. It equals the API
	// server's limit, which the API server checks only after admission. Source: TotalAnnotationSizeLimitB of
	// apimachinery v0.34 pkg/api/validation/objectmeta.go.
	MaxAnnotations = 256 << 10

	// MaxWords is the maximum number of words in all commands. The maximum size of a pod allows several hundred
	// thousand words, and the kernel accepts 2 MiB of arguments, of which each word takes 8 bytes in addition to
	// its text. The longest commands that people write have some hundred words.
	MaxWords = 20_000
)

// A FieldError reports a value that the API server would refuse.
type FieldError struct {
	Field  string // path in the pod
	Reason string
	Want   string // a description of a valid value
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason + "; want " + e.Want }

// Check returns an error if the API server would refuse the pod because of a field that affects how it starts and
// stops. The error joins a [*FieldError] for each such field. Source: pkg/apis/core/validation/validation.go of
// kubernetes v1.34.4.
func Check(pod *corev1.Pod) error {
	if err := CheckSize(pod); err != nil {
		return err
	}
	var c checks
	c.word("spec.restartPolicy", string(pod.Spec.RestartPolicy))
	c.seconds("spec.terminationGracePeriodSeconds", pod.Spec.TerminationGracePeriodSeconds, 0)
	for i := range pod.Spec.InitContainers {
		c.container("spec.initContainers["+strconv.Itoa(i)+"]", &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		c.container("spec.containers["+strconv.Itoa(i)+"]", &pod.Spec.Containers[i])
	}
	return errors.Join(c...)
}

// CheckSize returns a [*FieldError] if the pod exceeds MaxContainers, MaxAnnotations or MaxWords.
func CheckSize(pod *corev1.Pod) error {
	n, words := 0, 0
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if c := &list[i]; c.Name != contract.ProxyContainer && c.Name != contract.InitContainer {
				n++
			}
			words += len(list[i].Command) + len(list[i].Args)
		}
	}
	if n > MaxContainers {
		return &FieldError{"spec.containers", strconv.Itoa(n) + " containers are more than are read", "at most " + strconv.Itoa(MaxContainers)}
	}
	if n := AnnotationsSize(pod.Annotations); n > MaxAnnotations {
		return &FieldError{"metadata.annotations", strconv.Itoa(n) + " bytes are more than the API server takes", "at most " + strconv.Itoa(MaxAnnotations)}
	}
	if words > MaxWords {
		return &FieldError{"spec.containers", strconv.Itoa(words) + " words of commands and args are more than are read", "at most " + strconv.Itoa(MaxWords)}
	}
	return nil
}

// A SizeError reports that the edges of a plan do not fit into a pod's annotations.
type SizeError struct {
	Edges int
	Bytes int // minimum size of the annotations for these edges
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("an order of %d edges takes %d bytes of annotations or more, and a pod may have %d", e.Edges, e.Bytes, MaxAnnotations)
}

// CheckEdges returns a [*SizeError] if the requested edges need larger annotations than a pod can have. Wildcards
// in the edges must have been expanded. An edge from an init container that completes needs no annotation.
func CheckEdges(edges []startup.Edge) error {
	bytes := 0
	for _, e := range edges {
		if e.After != startup.Completed {
			bytes += len(e.From) + len(e.After) + len(`"":"",`)
		}
	}
	if bytes > MaxAnnotations {
		return &SizeError{len(edges), bytes}
	}
	return nil
}

// AnnotationsSize returns the size of all names and values, which MaxAnnotations limits.
func AnnotationsSize(annotations map[string]string) int {
	n := 0
	for key, value := range annotations {
		n += len(key) + len(value)
	}
	return n
}

type checks []error

func (c *checks) add(field, reason, want string, args ...any) {
	*c = append(*c, &FieldError{field, reason, fmt.Sprintf(want, args...)})
}

func (c *checks) word(field, value string) {
	allowed := []string{string(corev1.RestartPolicyAlways), string(corev1.RestartPolicyOnFailure), string(corev1.RestartPolicyNever)}
	if value != "" && !slices.Contains(allowed, value) {
		c.add(field, strconv.Quote(value), "%s", strings.Join(allowed, ", "))
	}
}

func (c *checks) seconds(field string, n *int64, least int64) {
	if n != nil && *n < least {
		c.add(field, strconv.FormatInt(*n, 10), "%d or more", least)
	}
}

func (c *checks) container(field string, own *corev1.Container) {
	if policy := own.RestartPolicy; policy != nil {
		c.word(field+".restartPolicy", string(*policy))
	}
	c.probe(field+".startupProbe", own.StartupProbe, false)
	c.probe(field+".livenessProbe", own.LivenessProbe, false)
	c.probe(field+".readinessProbe", own.ReadinessProbe, true)
	if l := own.Lifecycle; l != nil {
		c.hook(field+".lifecycle.postStart", l.PostStart)
		c.hook(field+".lifecycle.preStop", l.PreStop)
	}
}

func (c *checks) probe(field string, p *corev1.Probe, readiness bool) {
	if p == nil {
		return
	}
	c.handler(field, handler{exec: p.Exec, http: p.HTTPGet, tcp: p.TCPSocket, grpc: p.GRPC}, "exec, httpGet, tcpSocket, grpc")
	for _, n := range []struct {
		name  string
		value int32
	}{{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold}} {
		value := int64(n.value)
		c.seconds(field+"."+n.name, &value, 0)
	}
	if !readiness && p.SuccessThreshold > 1 {
		c.add(field+".successThreshold", strconv.Itoa(int(p.SuccessThreshold)), "1: only a readiness probe has another one")
	}
	switch grace := field + ".terminationGracePeriodSeconds"; {
	case readiness && p.TerminationGracePeriodSeconds != nil:
		c.add(grace, "is set", "none: a readiness probe ends nothing")
	default:
		c.seconds(grace, p.TerminationGracePeriodSeconds, 1)
	}
}

func (c *checks) hook(field string, h *corev1.LifecycleHandler) {
	if h != nil {
		c.handler(field, handler{exec: h.Exec, http: h.HTTPGet, tcp: h.TCPSocket, sleep: h.Sleep}, "exec, httpGet, sleep")
	}
}

// A handler is the action of a hook or a probe. Exactly one of its fields must be set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func (c *checks) handler(field string, h handler, allowed string) {
	n := 0
	for _, set := range []bool{h.exec != nil, h.http != nil, h.tcp != nil, h.grpc != nil, h.sleep != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		c.add(field, fmt.Sprintf("has %d handlers", n), "one of %s", allowed)
	}
	if h.exec != nil && len(h.exec.Command) == 0 {
		c.add(field+".exec.command", "is empty", "a command")
	}
	if h.http != nil {
		c.port(field+".httpGet.port", h.http.Port)
	}
	if h.tcp != nil {
		c.port(field+".tcpSocket.port", h.tcp.Port)
	}
	if h.grpc != nil {
		c.port(field+".grpc.port", intstr.FromInt32(h.grpc.Port))
	}
	if h.sleep != nil {
		c.seconds(field+".sleep.seconds", &h.sleep.Seconds, 0)
	}
}

// port checks the number of a port. The name of a port is not checked, because only the kubelet resolves it.
func (c *checks) port(field string, p intstr.IntOrString) {
	if p.Type == intstr.Int && (p.IntVal < 1 || p.IntVal > 65535) {
		c.add(field, strconv.Itoa(int(p.IntVal)), "1 to 65535")
	}
}
