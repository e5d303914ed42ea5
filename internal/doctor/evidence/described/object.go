package described

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An object reads the lines of one description.
type object struct {
	Object
	prefix  string // of each line
	section string // the last key at the margin
	column  int    // at which the values of the section begin
	last    string // key of the last annotation, of which the next line may be a part
	podlike int    // fields that only pods have
	unit    *unit
	volume  *corev1.Volume
}

func newObject(prefix string, line int) *object {
	o := &object{Object: Object{Line: line, Pod: &corev1.Pod{}, Unit: map[string]Known{}, Want: -1, Have: -1}, prefix: prefix}
	return o
}

var field = regexp.MustCompile(`^([ \t]*)([A-Z][A-Za-z -]*[A-Za-z]):(?:[ \t]+(.*))?$`)

// cut returns the parts of a line KEY: VALUE, with its indent and the column at which the value begins.
func cut(text string) (indent int, key, value string, column int, is bool) {
	m := field.FindStringSubmatch(text)
	if m == nil {
		return len(text) - len(strings.TrimLeft(text, " \t")), "", "", 0, false
	}
	return len(m[1]), m[2], m[3], len(text) - len(m[3]), true
}

// within reports whether a line belongs to a field of the object, as an argument of a command may.
func (o *object) within(line string) bool {
	return !strings.HasPrefix(line, o.prefix+"Name:")
}

// line reads a line.
func (o *object) line(line string) {
	text, has := strings.CutPrefix(line, o.prefix)
	switch {
	case !has && line == strings.TrimRight(o.prefix, " \t"):
		text, has = "", true
	case !has: // it has less indent than the description, as a line of an argument has
		text = line
	}
	indent, key, value, column, is := cut(text)
	read, known := topFields[key]
	switch {
	case is && indent == 0 && known && has && !o.inUnit(key):
		o.endUnit()
		o.section, o.column, o.last = key, column, ""
		read(o, value)
	case o.section == "Init Containers", o.section == "Containers", o.section == "Ephemeral Containers":
		o.inUnits(text)
	case o.section == "Labels":
		o.label(strings.TrimSpace(text))
	case o.section == "Annotations":
		o.annotation(text)
	case o.section == "Conditions":
		o.condition(strings.Fields(text))
	case o.section == "Volumes":
		o.inVolumes(indent, text)
	case o.section == "Message" && text != "":
		add(&o.Pod.Status.Message, text)
	}
}

var unitName = regexp.MustCompile(`^[ \t]*([a-z0-9](?:[-a-z0-9]*[a-z0-9])?):$`)

// inUnits reads a line of the section of containers.
func (o *object) inUnits(text string) {
	if m := unitName.FindStringSubmatch(text); m != nil && (o.unit == nil || o.unit.indent == 0 || len(text)-len(strings.TrimLeft(text, " \t")) < o.unit.indent) {
		o.endUnit()
		o.unit = &unit{kind: o.section, indent: -1, spec: corev1.Container{Name: m[1]}, status: corev1.ContainerStatus{Name: m[1]}}
		return
	}
	if o.unit != nil {
		o.unit.line(text)
	}
}

// endUnit adds the container that is being read to the pod.
func (o *object) endUnit() {
	u := o.unit
	o.unit = nil
	if u == nil || u.indent < 0 || len(o.Unit) >= mostUnits {
		return
	}
	spec, status := &o.Pod.Spec.Containers, &o.Pod.Status.ContainerStatuses
	if u.kind == "Init Containers" {
		spec, status = &o.Pod.Spec.InitContainers, &o.Pod.Status.InitContainerStatuses
	}
	if u.kind == "Ephemeral Containers" {
		status = &o.Pod.Status.EphemeralContainerStatuses
		o.Pod.Spec.EphemeralContainers = append(o.Pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(u.spec)})
	} else {
		*spec = append(*spec, u.spec)
	}
	o.Unit[u.spec.Name] = u.known
	if u.has || u.known.Restarts {
		u.status.Image = u.spec.Image
		*status = append(*status, u.status)
	}
}

// inVolumes reads a line of the section of volumes: the name of a volume, or one of its fields.
func (o *object) inVolumes(indent int, text string) {
	if m := unitName.FindStringSubmatch(text); m != nil && len(o.Pod.Spec.Volumes) < mostUnits {
		o.Pod.Spec.Volumes = append(o.Pod.Spec.Volumes, corev1.Volume{Name: m[1]})
		o.volume = &o.Pod.Spec.Volumes[len(o.Pod.Spec.Volumes)-1]
		return
	}
	if _, key, value, _, is := cut(text); is && o.volume != nil {
		ofVolume(o.volume, key, value)
	}
}

// topFields has the fields at the margin. The function skip is for one that is not used, but ends the one before.
var topFields map[string]func(o *object, value string)

func skip(*object, string) {}

func init() { // for the table refers to functions that refer to it
	topFields = map[string]func(o *object, value string){
		"Name":                              func(o *object, v string) { o.Meta.Name = v },
		"Namespace":                         func(o *object, v string) { o.Meta.Namespace = v },
		"Labels":                            func(o *object, v string) { o.label(v) },
		"Annotations":                       (*object).annotationsBegin,
		"Node":                              podly((*object).node),
		"Start Time":                        podly(func(o *object, v string) { o.Pod.Status.StartTime = instant(v) }),
		"Status":                            (*object).status,
		"Termination Grace Period":          (*object).grace,
		"Reason":                            func(o *object, v string) { o.Pod.Status.Reason = v },
		"Message":                           func(o *object, v string) { o.Pod.Status.Message = v },
		"IP":                                podly(func(o *object, v string) { o.Pod.Status.PodIP = v }),
		"Service Account":                   func(o *object, v string) { o.Pod.Spec.ServiceAccountName = v },
		"Controlled By":                     (*object).controller,
		"QoS Class":                         podly(func(o *object, v string) { o.Pod.Status.QOSClass = corev1.PodQOSClass(v) }),
		"Init Containers":                   podly(skip),
		"Containers":                        podly(skip),
		"Ephemeral Containers":              podly(skip),
		"Events":                            func(o *object, v string) { o.Whole = v == "<none>" },
		"Replicas":                          (*object).replicas,
		"Pods Status":                       skip,
		"Pods Statuses":                     (*object).podStatuses,
		"Parallelism":                       ofKind("Job"),
		"Completions":                       ofKind("Job"),
		"Update Strategy":                   ofKind("StatefulSet"),
		"StrategyType":                      ofKind("Deployment"),
		"Schedule":                          ofKind("CronJob"),
		"Desired Number of Nodes Scheduled": (*object).daemons,
		"Current Number of Nodes Scheduled": func(o *object, v string) { o.Have = number(v) },
	}
	for _, key := range []string{"TargetPort", "Session Affinity", "Endpoints", "Subsets"} { // a Service has an IP, too
		topFields[key] = ofKind(other)
	}
	for _, key := range []string{"Priority", "Priority Class Name", "Runtime Class Name", "SeccompProfile", "IPs", "Conditions", "Volumes", "Node-Selectors", "Node-Selector", "Tolerations",
		"Topology Spread Constraints", "Readiness Gates", "NominatedNodeName", "ResourceClaims", "Pod Template", "Selector", "CreationTimestamp", "Start Ordinal", "Volume Claims",
		"OldReplicaSets", "NewReplicaSet", "MinReadySeconds", "RollingUpdateStrategy", "Completion Mode", "Suspend", "Backoff Limit", "Created At", "Completed At", "Duration"} {
		topFields[key] = skip
	}
}

// inUnit reports whether a line at the margin with that key belongs to the container that is being read.
func (o *object) inUnit(key string) bool {
	switch {
	case o.unit == nil:
		return false
	case o.unit.indent <= 0: // the text has lost its indents
		return stateFields[key]
	}
	return o.unit.argv != nil && !sections[key] // it is a line of an argument
}

// sections are keys at the margin that follow the containers, or begin a list of them.
var sections = map[string]bool{"Init Containers": true, "Containers": true, "Ephemeral Containers": true, "Conditions": true, "Volumes": true, "QoS Class": true, "Events": true}

// stateFields are keys at the margin that also are keys of a container's state: without indents they belong to that.
var stateFields = map[string]bool{"Reason": true, "Message": true}

// other is the kind of a description that is not read.
const other = "other"

// podly makes the field one that only pods have.
func podly(read func(*object, string)) func(*object, string) {
	return func(o *object, v string) {
		o.podlike++
		read(o, v)
	}
}

func ofKind(kind string) func(*object, string) {
	return func(o *object, _ string) { o.Kind = kind }
}

func (o *object) label(text string) {
	if key, value, ok := strings.Cut(text, "="); ok && !strings.Contains(key, " ") {
		if o.Meta.Labels == nil {
			o.Meta.Labels = map[string]string{}
		}
		o.Meta.Labels[key] = value
	}
}

func (o *object) annotationsBegin(value string) {
	o.annotation(strings.Repeat(" ", o.column) + value)
}

// annotation reads KEY: VALUE, or a part of a value that is longer than a line. Long values are printed below their
// keys, with more indent.
func (o *object) annotation(text string) {
	trimmed := strings.TrimLeft(text, " \t")
	if indent := len(text) - len(trimmed); o.last != "" && indent > o.column {
		text := o.Meta.Annotations[o.last]
		if add(&text, trimmed); o.Meta.Annotations[o.last] == "" {
			text = trimmed
		}
		o.Meta.Annotations[o.last] = text
		return
	}
	key, value, ok := strings.Cut(trimmed, ":")
	if before, after, equals := strings.Cut(trimmed, "="); !ok || equals && len(before) < len(key) { // as kubectl printed them once
		key, value, ok = before, after, equals
	}
	if !ok || key == "" || strings.ContainsAny(key, " \"{") {
		return
	}
	if o.Meta.Annotations == nil {
		o.Meta.Annotations = map[string]string{}
	}
	o.last = key
	o.Meta.Annotations[key] = strings.TrimSpace(value)
}

func (o *object) node(value string) {
	name, ip, _ := strings.Cut(value, "/")
	if name != "<none>" {
		o.Pod.Spec.NodeName, o.Pod.Status.HostIP = name, ip
	}
}

// status reads the phase, or that the pod is being deleted, of which the text has only how long.
func (o *object) status(value string) {
	word, _, _ := strings.Cut(value, " ")
	if word == "Terminating" {
		o.Pod.DeletionTimestamp = &metav1.Time{} // when is not known
		return
	}
	o.Pod.Status.Phase = corev1.PodPhase(word)
}

func (o *object) grace(value string) {
	if d, err := time.ParseDuration(value); err == nil {
		o.Pod.DeletionGracePeriodSeconds = new(int64(d / time.Second))
	}
}

func (o *object) controller(value string) {
	if kind, name, ok := strings.Cut(value, "/"); ok {
		o.Meta.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
	}
}

var (
	current = regexp.MustCompile(`^(\d+) current / (\d+) desired`)
	desired = regexp.MustCompile(`^(\d+) desired \| (?:\d+ updated \| )?(\d+) total`)
	counted = regexp.MustCompile(`^(\d+) (?:Active|Running)`)
)

// replicas reads "2 current / 4 desired" of a ReplicaSet, or "4 desired | 2 total" of a StatefulSet or a Deployment.
func (o *object) replicas(value string) {
	if m := current.FindStringSubmatch(value); m != nil {
		o.Kind, o.Have, o.Want = "ReplicaSet", number(m[1]), number(m[2])
	}
	if m := desired.FindStringSubmatch(value); m != nil {
		o.Want, o.Have = number(m[1]), number(m[2])
	}
}

// podStatuses reads "0 Active (0 Ready) / 0 Succeeded / 0 Failed" of a Job.
func (o *object) podStatuses(value string) {
	if m := counted.FindStringSubmatch(value); m != nil {
		o.Have = number(m[1])
	}
}

func (o *object) daemons(value string) {
	o.Kind, o.Want = "DaemonSet", number(value)
}

func number(text string) int {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return -1
	}
	return int(n)
}

// condition reads TYPE STATUS of a pod, or TYPE STATUS REASON of a workload.
func (o *object) condition(words []string) {
	if len(words) < 2 || words[0] == "Type" || strings.HasPrefix(words[0], "-") {
		return
	}
	if words[0] == "ReplicaFailure" && words[1] == "True" {
		o.Failing = "-"
	}
	status := corev1.ConditionStatus(words[1])
	if status == corev1.ConditionTrue || status == corev1.ConditionFalse || status == corev1.ConditionUnknown {
		o.Pod.Status.Conditions = append(o.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(words[0]), Status: status})
	}
}

// instant reads a time as kubectl describe prints it, and returns nil if it is none.
func instant(value string) *metav1.Time {
	for _, layout := range []string{time.RFC1123Z, time.RFC1123, time.RFC3339} {
		if t, err := time.Parse(layout, value); err == nil {
			return &metav1.Time{Time: t.UTC()}
		}
	}
	return nil
}

// done returns the object, and false if the text is not one of a pod or a workload.
func (o *object) done() (Object, bool) {
	o.endUnit()
	if o.Kind == "" && o.podlike > 0 {
		o.Kind = "Pod"
	}
	if o.Kind != "Pod" {
		o.Pod = nil
		return o.Object, o.Kind != "" && o.Kind != other && o.Meta.Name != ""
	}
	meta := o.Pod.ObjectMeta // with the deletion
	o.Pod.ObjectMeta = o.Meta
	o.Pod.DeletionTimestamp, o.Pod.DeletionGracePeriodSeconds = meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds
	o.sidecars()
	return o.Object, true
}

// sidecars finds native sidecars, whose restartPolicy the text does not show: only they may have probes, or run beside
// containers, among the init containers.
func (o *object) sidecars() {
	runs := false
	for _, s := range o.Pod.Status.ContainerStatuses {
		runs = runs || s.State.Running != nil
	}
	for i := range o.Pod.Spec.InitContainers {
		c := &o.Pod.Spec.InitContainers[i]
		running := false
		for _, s := range o.Pod.Status.InitContainerStatuses {
			running = running || s.Name == c.Name && s.State.Running != nil
		}
		if runs && running || c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
	}
}
