// Package states has the reasons that the kubelet, the scheduler and the controllers of Kubernetes give for the state
// of a pod and of its containers, and what each means for a diagnosis.
//
// Source: the constants of k8s.io/kubernetes 1.34, with which a test of module test/validation compares the tables.
package states

import (
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
)

// NotKnown is the code of a state that no table has.
const NotKnown finding.Code = "state-not-known"

// A Meaning says what a reason means.
type Meaning struct {
	Reason   string       // one that ends with "*" stands for all that begin so
	Says     []string     // texts of which the message contains one, in lower case; empty: any message
	Code     finding.Code // empty: no fault by itself
	Sentence string       // {c} is the container, {image} its image
	Remedy   string       // {again}: whether another pod comes
}

// Find returns the meaning of a reason with a message, and false if the table has none.
func Find(table []Meaning, reason, message string) (Meaning, bool) {
	message = strings.ToLower(message)
	i := slices.IndexFunc(table, func(m Meaning) bool {
		begin, all := strings.CutSuffix(m.Reason, "*")
		return (m.Reason == reason || all && strings.HasPrefix(reason, begin)) &&
			(len(m.Says) == 0 || slices.ContainsFunc(m.Says, func(text string) bool { return strings.Contains(message, text) }))
	})
	if i < 0 {
		return Meaning{}, false
	}
	return table[i], true
}

const (
	whichImage  = "correct the image's name, or the pull secret of the pod"
	whichConfig = "create what is missing, or correct the name in the pod template; the kubelet tries again by itself"
	lowerIt     = "{again}; if that comes again, lower the requests of the pod, or free the node or add one"
)

// Resources in the kubelet's message about an eviction, and what to do. Source: pkg/kubelet/eviction.
var (
	ofDisk   = []string{"ephemeral-storage", "ephemeral local storage", "emptydir", "inodes", "nodefs", "imagefs"}
	ofLimit  = []string{"exceeds the total limit", "local ephemeral storage limit", "usage of emptydir volume"}
	ofMemory = []string{"resource: memory"}
)

const (
	overLimit  = "it went over a limit of its own, not the node's: let it write less, or remove what it has written, or raise the limit that the message is about (the containers' limits.ephemeral-storage, or the sizeLimit of the volume)"
	overDisk   = "let what writes most (the message may name it) use a volume of its own, or less; set requests and limits of ephemeral-storage, so that the scheduler counts it; see what else fills the node's disk"
	overMemory = "set memory requests that are as large as what the containers use, so that the scheduler counts it, or give the node more memory"
)

// Waiting has the reasons of containers that wait. Source: pkg/kubelet/container, pkg/kubelet/kuberuntime,
// pkg/kubelet/images.
var Waiting = []Meaning{
	{Reason: "PodInitializing"},
	{Reason: "ContainerCreating"},
	{Reason: "CrashLoopBackOff"}, // its last run says why
	{Reason: "ErrImagePull", Code: "image-missing", Remedy: whichImage},
	{Reason: "ImagePullBackOff", Code: "image-missing", Remedy: whichImage},
	{Reason: "InvalidImageName", Code: "image-missing", Sentence: "{image} is no name of an image", Remedy: "correct the image's name"},
	{Reason: "ErrImageNeverPull", Code: "image-missing", Sentence: "{image} is not on the node, and its pull policy is Never", Remedy: "load the image on the node, or let the kubelet pull it (imagePullPolicy)"},
	{Reason: "ImageInspectError", Code: "image-missing", Sentence: "the runtime cannot read {image}", Remedy: "see the image on the node (crictl inspecti), and pull it anew"},
	{Reason: "RegistryUnavailable", Code: "image-missing", Remedy: whichImage},
	{Reason: "SignatureValidationFailed", Code: "image-missing", Sentence: "the signature of {image} is not accepted", Remedy: "sign the image, or correct the policy of the container runtime"},
	{Reason: "CreateContainerConfigError", Says: []string{"not found", "couldn't find key", "references non-existent"}, Code: "config-missing", Sentence: "{c} cannot be created", Remedy: whichConfig},
	{Reason: "CreateContainerConfigError", Code: "container-not-created", Sentence: "{c} cannot be created"},
	{Reason: "CreateContainerError", Code: "container-not-created", Sentence: "{c} cannot be created"},
	{Reason: "PreCreateHookError", Code: "container-not-created", Sentence: "{c} cannot be created: a hook of the kubelet failed"},
	{Reason: "PreStartHookError", Code: "container-not-created", Sentence: "{c} cannot be started: a hook of the kubelet failed"},
	{Reason: "PostStartHookError", Code: "container-not-created", Sentence: "{c} is ended, since its postStart hook failed"},
	{Reason: "RunContainerError", Code: "container-not-created", Sentence: "{c} cannot be started"},
	{Reason: "RunInitContainerError", Code: "container-not-created", Sentence: "{c} cannot be started"},
	{Reason: "KillContainerError", Code: "container-not-created", Sentence: "{c} cannot be ended, and so not be started again", Remedy: "see the container runtime of the node"},
	{Reason: "CreatePodSandboxError", Code: "no-sandbox", Sentence: "the pod's sandbox, or its network, cannot be created"},
	{Reason: "ConfigPodSandboxError", Code: "no-sandbox", Sentence: "the pod's sandbox, or its network, cannot be created"},
	{Reason: "KillPodSandboxError", Code: "no-sandbox", Sentence: "the pod's old sandbox cannot be removed", Remedy: "see the container runtime and the network plugin of the node"},
	{Reason: "ResizePodInPlaceError", Code: "container-not-created", Sentence: "the resources of {c} cannot be changed"},
}

// Terminated has the reasons of runs that ended.
var Terminated = []Meaning{
	{Reason: "Completed"},
	{Reason: "Error"},     // its log says why
	{Reason: "OOMKilled"}, // rules of their own
	{Reason: "ContainerCannotRun", Code: "container-not-created", Sentence: "{c} cannot be started"},
	{Reason: "StartError", Code: "container-not-created", Sentence: "{c} cannot be started"},
	{Reason: "DeadlineExceeded", Code: "deadline-exceeded", Sentence: "{c} was ended since the pod's deadline passed", Remedy: "see what it still did then; if that is right, raise activeDeadlineSeconds"},
	{Reason: "ContainerStatusUnknown", Code: "node-lost", Sentence: "how {c} ended is not known: the kubelet lost sight of it, and made up its exit code", Remedy: "see why the pod ended: whether it was evicted, and whether the node restarted or ran out of disk space (kubectl describe node)"},
	{Reason: "Unknown", Code: "node-lost", Sentence: "{c} ended with its node, or with the container runtime", Remedy: "see whether the node restarted (kubectl describe node)"},
	{Reason: "Evicted", Code: "evicted", Sentence: "{c} was ended when the pod was evicted", Remedy: "{again}"},
}

// Pod has the reasons of pods that ended, or that a node did not admit. Source: pkg/kubelet (lifecycle, eviction,
// nodeshutdown, cm), pkg/controller (podgc, nodelifecycle).
var Pod = []Meaning{
	{Reason: "Completed"},
	{Reason: "Evicted", Says: ofLimit, Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: overLimit},
	{Reason: "Evicted", Says: ofDisk, Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: overDisk},
	{Reason: "Evicted", Says: ofMemory, Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: overMemory},
	{Reason: "Evicted", Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: "set requests for the resource that ran out, so that the scheduler counts it, or give the node more of it"},
	{Reason: "Preempting", Code: "evicted", Sentence: "the pod made room for a critical pod of its node", Remedy: "{again}"},
	{Reason: "Terminated", Code: "evicted", Sentence: "the pod ended with its node, which was shut down", Remedy: "{again}"},
	{Reason: "NodeShutdown", Code: "evicted", Sentence: "the pod was not admitted by a node that shuts down", Remedy: "{again}"},
	{Reason: "Shutdown", Code: "evicted", Sentence: "the pod ended with its node, which was shut down", Remedy: "{again}"},
	{Reason: "NodeLost", Code: "node-lost", Sentence: "the pod's node does not answer any more", Remedy: "see the node (kubectl describe node); when it is gone for good, delete the node object, or the pod with --force"},
	{Reason: "DeadlineExceeded", Code: "deadline-exceeded", Sentence: "the pod ran longer than its deadline (activeDeadlineSeconds)", Remedy: "see what it still did then; if that is right, raise activeDeadlineSeconds"},
	{Reason: "OutOf*", Code: "not-admitted", Sentence: "the node has not enough left for the pod", Remedy: lowerIt},
	{Reason: "NodeAffinity", Code: "not-admitted", Sentence: "the node's labels do not fit the pod", Remedy: "see whether the node's labels changed, or the pod names a node (nodeName)"},
	{Reason: "NodeName", Code: "not-admitted", Sentence: "the pod is for another node", Remedy: "see the pod's nodeName"},
	{Reason: "NodePorts", Code: "not-admitted", Sentence: "a hostPort of the pod is taken on its node", Remedy: "use a Service in place of a hostPort"},
	{Reason: "TaintToleration", Code: "not-admitted", Sentence: "the pod does not tolerate a taint of its node", Remedy: "see the taints of the node"},
	{Reason: "UnexpectedAdmissionError", Code: "not-admitted", Sentence: "the node could not admit the pod", Remedy: "delete the pod, so that another one is made: often a device plugin was not ready after a restart of the node"},
	{Reason: "UnexpectedPredicateFailureType", Code: "not-admitted", Sentence: "the node did not admit the pod"},
	{Reason: "InvalidNodeInfo", Code: "not-admitted", Sentence: "the node did not know itself when the pod came", Remedy: "delete the pod; {again}"},
	{Reason: "UnknownReason", Code: "not-admitted", Sentence: "the node did not admit the pod"},
	{Reason: "TopologyAffinityError", Code: "not-admitted", Sentence: "the node cannot give the pod resources that lie together", Remedy: "see the topology manager's policy of the node, and the pod's requests"},
	{Reason: "SMTAlignmentError", Code: "not-admitted", Sentence: "the pod does not ask for whole cores, which its node requires", Remedy: "ask for a multiple of the threads of a core"},
	{Reason: "VolumeAttachmentLimitExceeded", Code: "not-admitted", Sentence: "the node cannot attach more volumes", Remedy: "{again}; if that comes again, spread the pods with volumes over more nodes (topologySpreadConstraints)"},
	{Reason: "SysctlForbidden", Code: "not-admitted", Sentence: "the node does not allow a sysctl of the pod", Remedy: "allow it on the node (--allowed-unsafe-sysctls), or remove it from the pod"},
	{Reason: "AppArmor", Code: "not-admitted", Sentence: "the node has not the AppArmor profile of the pod", Remedy: "load the profile on the node, or correct its name"},
	{Reason: "PodLevelResourcesNotSupported", Code: "not-admitted", Sentence: "the node does not support resources of the whole pod", Remedy: "set resources by container, or use a newer node"},
	{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Code: "not-admitted", Sentence: "the pod is for nodes with another operating system", Remedy: "see the pod's nodeSelector"},
	{Reason: "PodOSNotSupported", Code: "not-admitted", Sentence: "the pod is for another operating system than its node's", Remedy: "see the pod's spec.os"},
	{Reason: "SupplementalGroupsPolicyNotSupported", Code: "not-admitted", Sentence: "the node does not support the pod's supplementalGroupsPolicy", Remedy: "remove it, or use a newer container runtime"},
	{Reason: "PodFeatureUnsupported", Code: "not-admitted", Sentence: "the node does not support a feature of the pod"},
}

// Disruption has the reasons of the condition DisruptionTarget: something removes the pod that is not its owner.
// Source: k8s.io/api/core/v1, pkg/controller, pkg/scheduler.
var Disruption = []Meaning{
	{Reason: "PreemptionByScheduler", Code: "evicted", Sentence: "the pod made room for one of a higher priority", Remedy: "{again}; if it must not make room, give it a higher priority (priorityClassName)"},
	{Reason: "DeletionByTaintManager", Code: "evicted", Sentence: "the pod is removed from its node, whose taint it does not tolerate", Remedy: "see the taints of the node: not-ready and unreachable mean that the node does not answer"},
	{Reason: "DeletionByDeviceTaintManager", Code: "evicted", Sentence: "the pod is removed from its node, since a device that it uses has a taint", Remedy: "see the taints of devices (kubectl get resourceslices,devicetaintrules -o yaml)"},
	{Reason: "EvictionByEvictionAPI", Code: "evicted", Sentence: "the pod is evicted by a request, as kubectl drain makes it", Remedy: "{again}"},
	{Reason: "DeletionByPodGC", Code: "node-lost", Sentence: "the pod's node does not exist any more", Remedy: "{again}"},
	{Reason: "TerminationByKubelet", Says: ofDisk, Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: overDisk},
	{Reason: "TerminationByKubelet", Says: ofMemory, Code: "evicted", Sentence: "the kubelet evicted the pod", Remedy: overMemory},
	{Reason: "TerminationByKubelet", Says: []string{"node shutdown"}, Code: "evicted", Sentence: "the kubelet ends the pod, since its node shuts down", Remedy: "{again}; the pod has no fault"},
	{Reason: "TerminationByKubelet", Code: "evicted", Sentence: "the kubelet ends the pod before its time", Remedy: "{again}"},
}

// Unscheduled has the reasons of the condition PodScheduled while it is false. Source: k8s.io/api/core/v1, pkg/scheduler,
// pkg/registry/core/pod.
var Unscheduled = []Meaning{
	{Reason: "Unschedulable", Code: "not-scheduled", Sentence: "no node can run the pod", Remedy: "see what the message counts: the requests, selectors, affinities and tolerations of the pod, and what the nodes have left (kubectl describe nodes)"},
	{Reason: "SchedulerError", Code: "not-scheduled", Sentence: "the scheduler failed with the pod, and tries again", Remedy: "see the message, and the log of the scheduler"},
	{Reason: "SchedulingGated", Code: "not-scheduled", Sentence: "the pod is not scheduled before its scheduling gates are removed", Remedy: "see the controller that removes the gates of spec.schedulingGates: whether it runs, and what it waits for, as a quota or a queue"},
}
