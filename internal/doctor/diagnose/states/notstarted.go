package states

import (
	"regexp"

	"outrider.dev/internal/base/finding"
)

// NotStarted has the events by which a pod has no node, no volume or no sandbox, in the order of the steps.
var NotStarted = []struct {
	Code   finding.Code
	Reason string
	What   string
	Do     string // empty: [VolumeRemedy] says it
}{
	{"not-scheduled", "FailedScheduling", "no node can run the pod", "add a node, or change what the message counts: the pod's requests, its selectors and tolerations, its volumes"},
	{"no-sandbox", "FailedCreatePodSandBox", "the pod's sandbox, or its network, cannot be created", "see the plugin or the runtime that the message names, on the pod's node"},
	{"volume-missing", "FailedAttachVolume", "a volume of the pod cannot be attached to its node", ""},
	{"volume-missing", "FailedMount", "a volume of the pod cannot be mounted", ""},
}

// volumeRemedies has what is to be done about a volume, by the message of the event; the first row that fits counts.
var volumeRemedies = []struct {
	says *regexp.Regexp
	do   string
}{
	{regexp.MustCompile(`(?i)multi-attach|already (?:exclusively attached|used by|attached)`), "the volume is attached to another node: end the pod that uses it there; if that node is off for good, taint it with node.kubernetes.io/out-of-service, or delete the Node"},
	{regexp.MustCompile(`(?i)(?:configmap|secret)s? .*not found|references non-existent`), "create what is missing, or correct its name in the pod template; the kubelet tries again by itself"},
	{regexp.MustCompile(`(?i)persistentvolumeclaim.*not found`), "create the PersistentVolumeClaim, or correct its name in the pod template"},
	{regexp.MustCompile(`(?i)driver name \S+ not found|no such plugin|not registered`), "see whether the CSI driver of the volume runs on this node"},
	{regexp.MustCompile(`(?i)permission denied|access denied|unauthorized|forbidden`), "see the rights on the storage, and the credentials of the driver"},
	{regexp.MustCompile(`(?i)timed out|deadline exceeded`), "see the other events, and the log of the CSI driver on this node and of the controller that attaches volumes"},
	{regexp.MustCompile(`(?i)wrong fs type|bad superblock|exit status 32`), "see whether the volume has a file system, and the node the program to mount it"},
}

// steps has events of the kubelet and the scheduler, by the step of a pod's start that each proves to have begun: a node, the
// volumes attached, all mounted, a sandbox, containers. Source: pkg/kubelet (syncPod waits for all volumes before the sandbox).
var steps = map[string]int{
	"Scheduled": 1, "SuccessfulAttachVolume": 2, "FailedMount": 1, "FailedAttachVolume": 1, "FailedCreatePodSandBox": 3, "AddedInterface": 3,
	"Pulling": 4, "Pulled": 4, "Created": 4, "Started": 4,
}

// failedAt is the step that did not succeed by an event.
var failedAt = map[string]int{"FailedScheduling": 0, "FailedAttachVolume": 1, "FailedMount": 2, "FailedCreatePodSandBox": 3}

// Overcomes reports whether an event proves that the step succeeded later that an earlier event says to have failed.
func Overcomes(later, failed string) bool {
	at, known := failedAt[failed]
	return known && steps[later] > at
}

// VolumeRemedy returns what is to be done about a volume that the message of an event is about; empty: it is not known.
func VolumeRemedy(message string) string {
	for _, r := range volumeRemedies {
		if r.says.MatchString(message) {
			return r.do
		}
	}
	return ""
}
