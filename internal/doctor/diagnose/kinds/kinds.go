// Package kinds lists the kinds of findings of a diagnosis.
package kinds

import (
	"fmt"
	"slices"

	"outrider.dev/internal/base/finding"
	lintkinds "outrider.dev/internal/doctor/lint/kinds"
)

// All returns every kind of finding of a diagnosis, in the order of the rules. The kinds that lint also finds come
// last.
func All() []finding.Kind { return slices.Clone(kinds) }

// Of returns the kind with a code. It fails if there is none.
func Of(code string) (finding.Kind, error) {
	i := slices.IndexFunc(kinds, func(k finding.Kind) bool { return string(k.Code) == code })
	if i < 0 {
		return finding.Kind{}, fmt.Errorf("%q is no code of a diagnosis", code)
	}
	return kinds[i], nil
}

// foreseen lists the codes that lint reports too: it finds these causes in the pod's manifest.
var foreseen = []string{"grace-too-short", "hold-fails-open", "init-needs-network", "job-never-ends", "killed-while-waiting", "proxy-port-conflict", "shell-without-exec"}

// kinds lists all kinds. Codes are stable: a code that is no longer used stays in the list.
var kinds = func() []finding.Kind {
	all := []finding.Kind{
		{Code: "image-missing", Title: "the image of a container cannot be pulled",
			Explanation: "The kubelet cannot pull the image: it does not exist, or the registry refuses access. The container never starts, nor do the containers that wait for it."},
		{Code: "config-missing", Title: "a ConfigMap or Secret that a container names does not exist",
			Explanation: "The kubelet cannot create the container, because an environment variable of it comes from a ConfigMap or Secret, or a key of one, that does not exist. It tries again until it does."},
		{Code: "container-not-created", Title: "a container cannot be created or started, or its hook fails",
			Explanation: "The container's settings contradict the image or the node, a hook failed, or the runtime did not answer. The message says which."},
		{Code: "evicted", Title: "the pod had to leave its node",
			Explanation: "The kubelet, the scheduler or an administrator removed the pod: the node ran out of a resource, was drained or shut down, or a pod of a higher priority needed the room. The pod itself has no fault, but for requests that are too low."},
		{Code: "finalizer-holds", Title: "a finalizer keeps a pod that was deleted",
			Explanation: "All containers have ended, and the API server keeps the object until the finalizer is removed. The controller that should remove it does not run, or failed."},
		{Code: "not-admitted", Title: "the node did not admit the pod",
			Explanation: "The scheduler, or nodeName, chose a node whose kubelet refused the pod. No container ran. The pod stays failed; any owner creates another one."},
		{Code: "node-lost", Title: "the node, or its container runtime, stopped while the pod ran",
			Explanation: "The containers ended with the node. How they ended is not known."},
		{Code: "deadline-exceeded", Title: "the pod ran longer than its deadline",
			Explanation: "activeDeadlineSeconds of the pod, or of its Job, passed while containers still ran."},
		{Code: "state-not-known", Title: "the pod is in a state that no rule explains",
			Explanation: "A reason in the status is in none of the tables, or the pod is not ready long after its start and nothing says why. The finding quotes what there is. It is not certain that anything is wrong."},
		{Code: "pods-not-created", Title: "the pods of a workload cannot be created",
			Explanation: "The API server refuses the pods that a ReplicaSet, a Job, a DaemonSet or a StatefulSet wants: a quota is used up, an admission webhook cannot be called or refuses them, the service account does not exist, or pod security forbids them. There is no pod whose logs could be read. The workload tries again by itself."},
		{Code: "not-scheduled", Title: "no node can run the pod",
			Explanation: "The scheduler found no node with enough resources that the pod's selectors, affinities and tolerations allow; or the pod has scheduling gates, and is not scheduled before these are removed. No container ran."},
		{Code: "no-sandbox", Title: "the pod's sandbox, or its network, cannot be created",
			Explanation: "The container runtime or a network plugin fails before any container runs."},
		{Code: "volume-missing", Title: "a volume of the pod cannot be mounted",
			Explanation: "A ConfigMap, a Secret or a PersistentVolumeClaim does not exist. No container starts before all volumes are mounted."},
		{Code: "proxy-died", Title: "the proxy ended while an application needed it",
			Explanation: "While no proxy listens, the kernel refuses every connection that the capture redirects. Calls of the application fail until the next proxy is ready, although the application works."},
		{Code: "proxy-out-of-memory", Title: "the proxy ran out of memory",
			Explanation: "It has the effects of proxy-died. A proxy that gets the configuration of the whole mesh needs memory for all of it."},
		{Code: "hold-without-effect", Title: "a hold was requested, but the pod does not have it",
			Explanation: "The annotation is read when a pod is injected. A pod that was created before, or whose proxy is not its first container, does not wait."},
		{Code: "order-not-kept", Title: "a container started before the one that it should wait for",
			Explanation: "The containers did not start in the order that the pod declares, by more than the error of the clocks. Either nothing keeps the order (an annotation of a pod that was not injected), or the mechanism that keeps it gave up. outrider plan shows the mechanism."},
		{Code: "startup-race", Title: "an application made a call before its proxy was ready",
			Explanation: `The capture sends every connection of the pod to the proxy's port from the start. Until the proxy listens there, the kernel refuses them. The application fails, is restarted, and works at the second attempt; or it goes on without the data that it requested, and nothing shows it.

A refused call counts as this race only if the capture redirects its destination, and if the proxy was certainly not ready, or there is no evidence of when it was. If both times lie within the error of their clocks, the diagnosis is undecided.`},
		{Code: "shutdown-race", Title: "the proxy and the application ended in the wrong order",
			Explanation: "When a pod is deleted, all plain containers get SIGTERM at once. If the proxy ends first, the application's last calls fail; if the application does, requests to it."},
		{Code: "configuration-rejected", Title: "the proxy rejects its configuration",
			Explanation: "The control plane sent configuration that this proxy rejects. A running proxy keeps its previous configuration; a new one never becomes ready."},
		{Code: "no-certificate", Title: "the proxy has no certificate",
			Explanation: "The control plane does not sign certificates, or refuses this token, or the proxy does not trust the control plane."},
		{Code: "no-control-plane", Title: "the proxy cannot connect to its control plane",
			Explanation: "Without it a new proxy has no configuration, and never becomes ready."},
		{Code: "proxy-not-ready", Title: "the proxy runs and is not ready, and does not say why",
			Explanation: "Its readiness probe fails, and no line of its log gives a reason."},
		{Code: "killed-by-probe", Title: "a liveness or startup probe killed a container",
			Explanation: "The kubelet killed it because its probe failed as often as the pod's failureThreshold allows."},
		{Code: "out-of-memory", Title: "an application ran out of memory",
			Explanation: "The kernel killed a process at the container's memory limit."},
		{Code: "dependency-down", Title: "a call failed at its destination, or on the way there",
			Explanation: "The destination refused the connection, or did not answer: the call did not go through the proxy, or the proxy reports the failure itself."},
		{Code: "sibling-down", Title: "a call to another container of the pod came before it listened",
			Explanation: "Calls over loopback do not go through the mesh. What helps depends on the container that should have listened: an order if it starts later, its own failure if it has one, another address if none is set to listen there."},
		{Code: "capture-not-in-place", Title: "connections go past the proxy",
			Explanation: `The agent proves during the whole life of a pod that connections reach the proxy. It said that they do not: the rules of the capture are missing, or rules of another program act in their place, as a whole or for the direction and the family of IP that it names. The pod is not ready meanwhile, and is ready again by itself when connections come.

Of a pod whose agent says nothing, it is a conclusion: by the pod's settings a call went to the proxy, which was ready, and was refused. So the rules were missing, or the log describes the call wrongly.`},
		{Code: "name-not-resolved", Title: "a name cannot be resolved",
			Explanation: "The name is wrong, or the cluster's DNS did not answer."},
		{Code: "probe-blocked-by-proxy", Title: "the proxy blocks a readiness probe",
			Explanation: "The kubelet has no certificate of the mesh, and the proxy requires mutual TLS on the captured port that the probe connects to."},
		{Code: "probe-fails", Title: "an application runs, and its readiness probe fails",
			Explanation: "The application itself answers with a failure, or does not answer."},
		{Code: "app-crash", Title: "an application ended by itself",
			Explanation: "No failed call, no probe and no lack of memory explains why it ended."},
		{Code: "slow-start", Title: "a pod took long to become ready, and nothing failed", Severity: finding.Warning,
			Explanation: "The time from the pod's creation until it was ready is divided into phases, as far as the status, the events and the logs show them: schedule, sandbox, image, init, proxy, gate, app. The finding names the phase that took the most. --slow sets from which time on a start is slow (30 s)."},
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
