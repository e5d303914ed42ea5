package remedies

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
)

// An Owner is the object whose template has to change: the topmost one that made the pod. Without a kind it is the pod
// itself, and with the kind "?" it is not known.
type Owner struct{ Group, Kind, Name string }

// unknown is the kind of an owner that the evidence does not name.
const unknown = "?"

// OwnerOf returns the owner of a pod. An owner that is not in the evidence itself is known by the references of what it
// owns; the Deployment of a ReplicaSet also by the name of the ReplicaSet, or of the pod, and the label
// pod-template-hash.
func OwnerOf(pod *corev1.Pod, chain []evidence.Owner) Owner {
	if evidence.IsStatic(pod) {
		return Owner{Kind: "Node", Name: pod.Spec.NodeName}
	}
	var top Owner
	refs, seen := pod.OwnerReferences, false
	for _, o := range chain {
		top, seen = Owner{groupOf(refs, o), o.Kind, o.Name}, o.Object != nil
		refs = nil
		if seen {
			refs = o.Object.GetOwnerReferences()
		}
	}
	if seen {
		return top
	}
	for _, h := range hints {
		if name := h.of(pod, top); name != "" {
			top = Owner{h.group, h.kind, name}
			break
		}
	}
	if name, is := cronJobOf(top, pod.CreationTimestamp.Time); is {
		return Owner{top.Group, "CronJob", name}
	}
	if top.Kind == "ReplicaSet" { // what made it is not known
		return Owner{top.Group, unknown, top.Kind + " " + top.Name}
	}
	return top
}

// scheduled matches the names of the Jobs of a CronJob: its own, and the minute for which it made the Job, counted from
// 1970. Source: getJobName in pkg/controller/cronjob/utils.go of Kubernetes 1.34.
var scheduled = regexp.MustCompile(`^(.+)-(\d{8})$`)

// Minutes of the time since the controller of CronJobs counts them so. A date (20261124) is no number between them.
const (
	firstMinute = 26_000_000 // in 2019
	lastMinute  = 60_000_000
)

// cronJobOf returns the name of the CronJob that made a Job, by the name of the Job, and false if it does not show one.
// A number for a time long after the pod was created counts something else; created may be zero.
func cronJobOf(job Owner, created time.Time) (string, bool) {
	m := scheduled.FindStringSubmatch(job.Name)
	if m == nil || job.Kind != "Job" || job.Group != "batch" {
		return "", false
	}
	minute, _ := strconv.ParseInt(m[2], 10, 64) // digits
	late := !created.IsZero() && time.Unix(minute*60, 0).After(created.AddDate(0, 0, 1))
	return m[1], minute >= firstMinute && minute < lastMinute && !late
}

// comesAgain says by the kind of a pod's owner whether another pod comes when one has ended. {it} is the owner.
var comesAgain = map[string]string{
	"ReplicaSet": replaces, "ReplicationController": replaces, "StatefulSet": replaces, "DaemonSet": replaces,
	"Job":   "{it} creates another one, as long as its backoffLimit allows",
	"Node":  "the kubelet of its node runs it again from its file",
	"":      "it has no owner that creates another one: create it anew, better by a Job or a Deployment",
	unknown: "its owner, if it has one, creates another one",
}

const replaces = "{it} creates another one"

// Again says whether another pod comes when this one has ended. The owners are not known of a pod whose metadata was
// left out of the evidence.
func Again(pod *corev1.Pod, chain []evidence.Owner, left evidence.Omitted) string {
	kind, name := "", ""
	switch {
	case evidence.IsStatic(pod):
		kind = "Node"
	case len(chain) > 0:
		kind, name = chain[0].Kind, chain[0].Name
	case left.Meta:
		kind = unknown
	}
	words, known := comesAgain[kind]
	if !known {
		words = "{it} made it: whether it creates another one is not in the evidence"
	}
	return strings.ReplaceAll(words, "{it}", kind+" "+name)
}

// groupOf returns the API group of an owner by the references to it. A Deployment that is known by a name alone is in
// the group apps.
func groupOf(refs []metav1.OwnerReference, o evidence.Owner) string {
	for _, r := range refs {
		if r.Kind == o.Kind && r.Name == o.Name {
			group, _, has := strings.Cut(r.APIVersion, "/")
			if !has {
				return ""
			}
			return group
		}
	}
	return groups[o.Kind]
}

// groups has the API groups of the usual kinds, for references without a version.
var groups = map[string]string{"Deployment": "apps", "ReplicaSet": "apps", "StatefulSet": "apps", "DaemonSet": "apps", "Job": "batch", "CronJob": "batch"}

// A hint is a label by which a controller marks its pods.
type hint struct {
	label       string
	above       []string // kinds of the topmost owner that is known, which the hinted one owns; "" for none
	group, kind string
	named       bool // the label is the hash at the end of the name, else it is the name itself
}

var hints = []hint{
	{label: "serving.knative.dev/service", above: []string{"", "ReplicaSet", "Deployment"}, group: "serving.knative.dev", kind: "Service"},
	{label: "workflows.argoproj.io/workflow", above: []string{""}, group: "argoproj.io", kind: "Workflow"},
	{label: "tekton.dev/taskRun", above: []string{""}, group: "tekton.dev", kind: "TaskRun"},
	{label: "cnpg.io/cluster", above: []string{""}, group: "postgresql.cnpg.io", kind: "Cluster"},
	{label: "batch.kubernetes.io/job-name", above: []string{""}, group: "batch", kind: "Job"},
	{label: "job-name", above: []string{""}, group: "batch", kind: "Job"},
	{label: "rollouts-pod-template-hash", above: []string{"", "ReplicaSet"}, group: "argoproj.io", kind: "Rollout", named: true},
	{label: "pod-template-hash", above: []string{"", "ReplicaSet"}, group: "apps", kind: "Deployment", named: true},
	{label: "controller-revision-hash", above: []string{""}, kind: unknown},
}

// of returns the name of the owner that a label of the pod shows, and an empty string if it shows none.
func (h hint) of(pod *corev1.Pod, top Owner) string {
	value := pod.Labels[h.label]
	switch {
	case value == "" || !slices.Contains(h.above, top.Kind):
		return ""
	case h.kind == unknown:
		return "the pod's owner"
	case !h.named:
		return value
	case top.Kind != "":
		name, _ := strings.CutSuffix(top.Name, "-"+value)
		if name == top.Name {
			return ""
		}
		return name
	}
	name, _, _ := strings.Cut(pod.Name, "-"+value+"-")
	if name == pod.Name {
		return ""
	}
	return name
}

// A place is a row of the table of places of a pod's annotations.
type place struct {
	group string
	kinds []string
	// path leads to the metadata of the pod, for a patch or a part of a manifest; nil: the words say where.
	path    []string
	patched bool // the object takes a patch
	// In these texts {kind}, {name} and {pod} are replaced.
	words   string // after the annotation
	next    string // the same for a pod that has done its work: the change is for the next one
	command string
}

const patch = "patch {kind} {name} --patch-file patch.yaml"

// places has the places of annotations by the owner of a pod.
var places = []place{
	{group: "apps", kinds: []string{"Deployment", "StatefulSet", "DaemonSet"}, path: []string{"spec", "template"}, patched: true, command: patch},
	{group: "apps", kinds: []string{"ReplicaSet"}, path: []string{"spec", "template"}, patched: true, command: patch, words: "; then delete the pods of the ReplicaSet, which does not replace them by itself"},
	{kinds: []string{"ReplicationController"}, path: []string{"spec", "template"}, patched: true, command: patch, words: "; then delete the pods of the ReplicationController, which does not replace them by itself"},
	{group: "batch", kinds: []string{"CronJob"}, path: []string{"spec", "jobTemplate", "spec", "template"}, patched: true, command: patch, words: " in CronJob {name}: its next Job has it, and one that exists cannot be changed"},
	{
		group: "batch", kinds: []string{"Job"}, path: []string{"spec", "template"}, command: "replace --force -f job.yaml",
		words: ": the template of a Job cannot be changed, so add it to the manifest of Job {name} (job.yaml), then delete the Job and create it anew",
		next:  ", in the manifest of Job {name}, for its next run (the template of a Job that exists cannot be changed)",
	},
	{
		kinds: []string{""}, path: []string{}, command: "replace --force -f pod.yaml",
		words: ": a pod is injected only when it is created, so add it to the manifest of pod {pod} (pod.yaml), then delete the pod and create it anew",
		next:  ", in the manifest of pod {pod}, for its next run",
	},
	{kinds: []string{"Node"}, path: []string{}, words: ", in its file on node {name}, and inject the file again: {pod} is a static pod (the kubelet's staticPodPath, /etc/kubernetes/manifests), which no webhook injects"},
	{kinds: []string{"Pod"}, words: ", in the settings by which pod {name} makes its pods (Spark: spark.kubernetes.executor.annotation.NAME)"},
	{group: "argoproj.io", kinds: []string{"Workflow"}, words: ", in spec.podMetadata.annotations, or in metadata.annotations of the template, of what Workflow {name} was made from; then submit it anew: a Workflow that runs is not changed"},
	{group: "argoproj.io", kinds: []string{"Rollout"}, words: ", in spec.template.metadata.annotations of Rollout {name}"},
	{group: "tekton.dev", kinds: []string{"TaskRun"}, words: ", in metadata.annotations of the Task of TaskRun {name}, which Tekton copies to its pods; then run it anew"},
	{group: "serving.knative.dev", kinds: []string{"Service"}, words: ", in spec.template.metadata.annotations of the Knative Service {name}, which makes a new Revision"},
	{group: "serving.knative.dev", kinds: []string{"Revision", "Configuration"}, words: ", in spec.template.metadata.annotations of the Knative Service of {kind} {name}: a Revision is not changed"},
	{group: "postgresql.cnpg.io", kinds: []string{"Cluster"}, words: ", in spec.inheritedMetadata.annotations of Cluster {name}"},
	{group: "actions.github.com", kinds: []string{"EphemeralRunner", "EphemeralRunnerSet", "AutoscalingRunnerSet"}, words: ", in template.metadata.annotations of the values of the runner scale set"},
}

// elsewhere is the place of annotations of all other owners.
var elsewhere = place{words: ", where {kind} {name} has the annotations of its pods; a change of anything that it made does not last"}

// notKnown is the place of annotations if the evidence does not name the owner.
var notKnown = place{words: ", in the template of the object that made {name}; it is not among the evidence (metadata.ownerReferences names it)"}

// placeOf returns where the annotations of an owner's pods are.
func placeOf(o Owner) place {
	if o.Kind == unknown {
		at := notKnown
		if o.Group == "apps" { // a ReplicaSet, which can be asked
			at.command = "get {name} -o yaml"
		}
		return at
	}
	i := slices.IndexFunc(places, func(p place) bool { return p.group == o.Group && slices.Contains(p.kinds, o.Kind) })
	if i < 0 {
		return elsewhere
	}
	return places[i]
}
