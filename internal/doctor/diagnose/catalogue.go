package diagnose

import (
	"fmt"
	"slices"

	"outrider.dev/internal/base/finding"
	lintkinds "outrider.dev/internal/doctor/lint/kinds"
)

// Kinds returns every kind of finding of a diagnosis, in the order of the rules; the kinds that lint finds too come
// last.
func Kinds() []finding.Kind { return slices.Clone(kinds) }

// KindOf returns the kind with a code.
func KindOf(code string) (finding.Kind, error) {
	i := slices.IndexFunc(kinds, func(k finding.Kind) bool { return string(k.Code) == code })
	if i < 0 {
		return finding.Kind{}, fmt.Errorf("%q is no code of a diagnosis", code)
	}
	return kinds[i], nil
}

// foreseen are the kinds that lint also finds, before they happen.
var foreseen = []string{"hold-fails-open", "init-needs-network", "job-never-ends", "killed-while-waiting"}

// kinds lists the codes. They are stable: a code that is no longer used stays in the list.
var kinds = func() []finding.Kind {
	all := []finding.Kind{
		{Code: "image-missing", Title: "a container has no image",
			Explanation: "The kubelet cannot get the image, or may not. The container never started, so what waits for it waits too."},
		{Code: "not-scheduled", Title: "no node takes the pod",
			Explanation: "The scheduler found no node with room, or none that the pod's selectors, affinities and tolerations allow. Nothing of the pod ran."},
		{Code: "no-sandbox", Title: "the pod's sandbox, or its network, cannot be made",
			Explanation: "The container runtime or a network plugin fails before any container runs."},
		{Code: "volume-missing", Title: "a volume of the pod cannot be mounted",
			Explanation: "A ConfigMap, a Secret or a claim is not there. No container starts before all volumes are mounted."},
		{Code: "proxy-died", Title: "the proxy ended while an application ran",
			Explanation: "While no proxy listens, the kernel refuses each connection that the capture takes. Calls of the application fail until the next proxy is ready, although the application is well."},
		{Code: "proxy-out-of-memory", Title: "the proxy ran out of memory while an application ran",
			Explanation: "As proxy-died. A proxy that is told of the whole mesh needs memory for all of it."},
		{Code: "hold-without-effect", Title: "a hold is requested, and the pod does not have it",
			Explanation: "The annotation is read when a pod is injected. One that was made before, or whose proxy is not its first container, does not wait."},
		{Code: "order-not-kept", Title: "a container started before what the pod makes it wait for",
			Explanation: "The pod declares the order, and its containers did not start in it, by more than the clocks' error. Either nothing keeps the order (an annotation of a pod that was not injected), or what keeps it gave up. outrider plan shows by what it is kept."},
		{Code: "startup-race", Title: "an application called out before its proxy was ready",
			Explanation: `The capture sends every connection of the pod to the proxy's port from the start. Until the proxy listens there, the kernel refuses them. The application fails and is restarted, and works at the second try; or it runs on without what it asked for, and nothing shows it.

A refused call is taken for this only if the capture takes its destination, and if the proxy was not ready for certain, or nothing says when it was. If both instants lie within the error of their clocks, the diagnosis is undecided.`},
		{Code: "shutdown-race", Title: "the proxy left before the application",
			Explanation: "When a pod is deleted all plain containers get SIGTERM at once. A proxy that leaves first takes the application's last calls with it."},
		{Code: "configuration-rejected", Title: "the proxy rejects its configuration",
			Explanation: "The control plane sent something that this proxy does not take. It keeps what it had; a new one never gets ready."},
		{Code: "no-certificate", Title: "the proxy has no certificate",
			Explanation: "The control plane does not sign, or not for this token, or the proxy does not trust it."},
		{Code: "no-control-plane", Title: "the proxy does not reach its control plane",
			Explanation: "Without it a new proxy has no configuration, and never gets ready."},
		{Code: "proxy-not-ready", Title: "the proxy runs and is not ready, and does not say why",
			Explanation: "Its readiness probe fails, and no line of its log tells the reason."},
		{Code: "killed-by-probe", Title: "a liveness or startup probe killed a container",
			Explanation: "The kubelet killed it since its probe failed as often as the pod allows."},
		{Code: "out-of-memory", Title: "an application ran out of memory",
			Explanation: "The kernel killed a process at the container's memory limit."},
		{Code: "dependency-down", Title: "what was called was not there",
			Explanation: "The far side refused, or did not answer: the call never went to the proxy, or the proxy says so itself."},
		{Code: "sibling-down", Title: "another container of the pod was called, and did not listen yet",
			Explanation: "Calls over loopback are no mesh's. The order of the pod's containers decides."},
		{Code: "capture-not-in-place", Title: "a call was refused although the proxy listened",
			Explanation: "By the pod's settings it goes to the proxy, which was ready. So the rules of the capture were not there, or the call was not what the log says."},
		{Code: "name-not-resolved", Title: "a name has no address",
			Explanation: "The name is wrong, or the cluster's DNS did not answer."},
		{Code: "probe-blocked-by-proxy", Title: "a readiness probe is cut by the proxy",
			Explanation: "The kubelet has no certificate of the mesh. A probe of a captured port meets a proxy that requires mutual TLS."},
		{Code: "probe-fails", Title: "an application runs, and its readiness probe fails",
			Explanation: "The application itself answers so, or not at all."},
		{Code: "app-crash", Title: "an application ended by itself",
			Explanation: "No failed call, no probe and no lack of memory explains its end."},
		{Code: "slow-start", Title: "a pod took long to get ready, and nothing failed", Severity: finding.Warning,
			Explanation: "The time from the pod's creation until it was ready is divided into phases, as far as the status, the events and the logs show them: schedule, sandbox, image, init, proxy, gate, app. The finding names the phase that took the most. What is slow is set by --slow (30 s)."},
	}
	for i := range all {
		if all[i].Severity == "" {
			all[i].Severity = finding.Error
		}
		all[i].Doc = "findings/" + string(all[i].Code) + ".md"
	}
	for _, code := range foreseen {
		if k, err := lintkinds.Of(code); err == nil { // a test checks that each code exists
			all = append(all, k)
		}
	}
	return all
}()
