package offline

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podfile"
)

// Uninject undoes the injection of the pods of all files. It calls the function report for each message. If the
// annotations of an injection are invalid, the pod is refused, and Uninject continues with the other pods.
func Uninject(files []File, report func(Message)) (Result, error) {
	in := injection{report: report, result: Result{reasons: map[string][]string{}, what: "uninjected"}}
	return in.run(files, in.undo)
}

// undo undoes the injection of one pod. The result is nil if the pod does not change.
func (in *injection) undo(o podfile.Object) (*corev1.Pod, error) {
	report := in.reporter(o)
	if o.NoPod != nil {
		return nil, nil
	}
	if why := notInjected(&o.Pod); why != "" {
		report("note", "unchanged: %s", why)
		return nil, nil
	}
	for _, field := range o.Unknown {
		report("note", "%s is an unknown field; it stays", field)
	}
	pod, lost, err := inject.Uninjected(&o.Pod)
	var refusal *verdict.Refusal
	if errors.As(err, &refusal) {
		in.refuse(report, refusal)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, what := range lost {
		report("warning", "%s", what)
	}
	in.result.reasons[key(o.File, o.Document, o.String())] = []string{"uninjected: the annotations " + contract.Status + " and " + contract.Overrides + " record what was added and replaced"}
	return pod, nil
}

// notInjected returns the reason why there is nothing to undo; empty if the pod was injected.
func notInjected(pod *corev1.Pod) string {
	if _, injected := pod.Annotations[contract.Status]; injected {
		return ""
	}
	if containers.Find(pod, contract.ProxyContainer) != nil || containers.Find(pod, contract.InitContainer) != nil {
		return "it has a container of ours, and no annotation " + contract.Status + " that records what injection added: without it the container is its author's own"
	}
	if mesh := inject.ProxyOfOtherMesh(pod); mesh != "" {
		return "the container " + mesh + " is another mesh's"
	}
	return "it is not injected"
}
