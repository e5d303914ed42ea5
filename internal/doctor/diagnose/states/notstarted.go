package states

import (
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/evidence"
)

// NotStarted has the events by which a pod has no node, no volume or no sandbox, in the order of the steps.
var NotStarted = []struct {
	Code   finding.Code
	Reason string
	What   string
	Do     string // empty: [StartRemedy] says it, or nothing does
}{
	{"not-scheduled", "FailedScheduling", "no node can run the pod", "add a node, or change what the message counts: the pod's requests, its selectors and tolerations, its volumes"},
	{"no-sandbox", "FailedCreatePodSandBox", "the pod's sandbox, or its network, cannot be created", "see the plugin or the runtime that the message names, on the pod's node"},
	{"volume-missing", "FailedAttachVolume", "a volume of the pod cannot be attached to its node", ""},
	{"volume-missing", "FailedMount", "a volume of the pod cannot be mounted", ""},
}

// A startRemedy is a row of the tables of what is to be done about a step of the start, by the message of the event; the
// first row that fits counts.
type startRemedy struct {
	says *regexp.Regexp
	do   string
}

// startRemedies has the tables, by the code of the finding.
var startRemedies = map[finding.Code][]startRemedy{"volume-missing": volumeRemedies, "no-sandbox": sandboxRemedies}

// sandboxRemedies are about the network of a pod. Sources of the words: the plugins aws-cni, azure-vnet, calico-ipam and
// host-local.
var sandboxRemedies = []startRemedy{
	{regexp.MustCompile(`(?i)failed to (?:assign|allocate)[^:]* ip\b|no (?:more )?(?:free |available |unused )?(?:ip )?address(?:es)? (?:is |are )?(?:available|left|free)|no available ips?|no free (?:ip|address)|\bips? (?:pool|range)s? (?:is |are )?(?:full|exhausted)|insufficientfreeaddresses|address(?:es)? (?:pool )?(?:is |are )?exhausted`),
		"no IP address is left for a pod of this node: see how many are free in its subnet, or in the pool of the network plugin, and enlarge it (a further subnet or pool, prefixes), or run fewer pods there; a new pod alone does not help"},
	{regexp.MustCompile(`(?i)dial unix|/var/run/\S+\.sock|no such file or directory|failed to find plugin|cni (?:plugin|config)\S* not initialized`),
		"see whether the pod of the network plugin runs on this node (a DaemonSet, most often in kube-system): its part on the node did not answer"},
	{regexp.MustCompile(`(?i)unauthorized|forbidden`), "see the rights and the token of the network plugin on this node: the API server refuses it"},
}

// volumeRemedies are about volumes.
var volumeRemedies = []startRemedy{
	{regexp.MustCompile(`(?i)\b(?:403|401)\b.*(?:forbidden|unauthorized|denied|caller|not authorized)|not authorized to perform|accessdenied\w*|permission_?denied.*(?:iam|secretmanager)|forbiddenbyrbac`), "the store refuses the identity of the pod (that of its service account, with the driver's settings): give it the right to read what the message names, and wait until that is in force; the kubelet tries again by itself, and a new pod does not help"},
	{regexp.MustCompile(`(?i)multi-attach|already (?:exclusively attached|used by|attached)`), "the volume is attached to another node: end the pod that uses it there; if that node is off for good, taint it with node.kubernetes.io/out-of-service, or delete the Node"},
	{regexp.MustCompile(`(?i)(?:configmap|secret)s? [^:]*not found|references non-existent`), "create what is missing, or correct its name in the pod template; the kubelet tries again by itself"},
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

// StartRemedy returns what is to be done about a step of the start that failed, by the message of its event; empty: it is not
// known.
func StartRemedy(code finding.Code, message string) string {
	for _, r := range startRemedies[code] {
		if r.says.MatchString(message) {
			return r.do
		}
	}
	return ""
}

// waits matches what the kubelet says of volumes that are not there in time: an event of its own says why.
var waits = regexp.MustCompile(`^\w+: [Uu]nable to (?:attach or )?mount volumes\b.*: (?:timed out waiting for the condition|context deadline exceeded)`)

// Telling returns the last of some events about a step that says why it failed; or the last one.
func Telling(events []evidence.Quote) string {
	for _, q := range slices.Backward(events) {
		if !waits.MatchString(q.Text) {
			return q.Text
		}
	}
	return events[len(events)-1].Text
}

// plugin matches what kubelet and runtime say before the words of a network plugin.
var plugin = regexp.MustCompile(`^.*plugin type="([^"]+)"(?: name="[^"]*")? failed \((?:add|ADD)\): `)

// StartSays returns what the message of an event says of a step that failed, without the words around it.
func StartSays(message string) string {
	return plugin.ReplaceAllString(strings.Join(strings.Fields(message), " "), "plugin $1: ")
}
