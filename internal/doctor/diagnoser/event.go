package diagnoser

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor/diagnose/result"
)

// Reporter is the reporting controller of the Events.
const Reporter = "outriderd"

// undecided is the cause of a diagnosis without a verdict.
const undecided = string(result.Undecided)

// restartsAnnotation is the annotation of an Event that contains the container's number of restarts at the time of
// the last write.
const restartsAnnotation = contract.Prefix + "restarts"

// A cause is the part of a diagnosis that becomes an Event and is counted.
type cause struct {
	code, container, sentence string
	restarts                  int32 // restarts of the container; of all containers, if container is empty
}

func (c cause) key() string { return c.code + " " + c.container }

// causes returns the first (most certain) finding of each container, or one cause for an undecided diagnosis.
func causes(r result.Report, pod *corev1.Pod) (out []cause) {
	switch r.Verdict {
	case result.Undecided:
		return []cause{{undecided, "", r.Sentence + "; this would decide: " + r.Decide, restarts(pod, "")}}
	case result.Found:
		for _, f := range r.Findings {
			if !slices.ContainsFunc(out, func(c cause) bool { return c.container == f.Container }) {
				out = append(out, cause{string(f.Code), f.Container, f.Sentence, restarts(pod, f.Container)})
			}
		}
	}
	return out
}

func restarts(pod *corev1.Pod, container string) (n int32) {
	for _, c := range statuses(pod) {
		if container == "" || c.Name == container {
			n += c.RestartCount
		}
	}
	return n
}

// reason converts a code to an Event's reason: startup-race becomes StartupRace.
func reason(code string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(code, "-") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// longest is the maximal length of a message in the API (events.k8s.io).
const longest = 1024

// message returns the text of the Event: the sentence, which is truncated if necessary, the code, and the command
// that shows more.
func (c cause) message(pod *corev1.Pod) string {
	end := fmt.Sprintf(" (%s: outrider diagnose %s -n %s)", c.code, pod.Name, pod.Namespace)
	if c.code == undecided {
		end = fmt.Sprintf(" (outrider diagnose %s -n %s)", pod.Name, pod.Namespace)
	}
	sentence := c.sentence
	if most := longest - len(end); len(sentence) > most {
		cut := most - len("…")
		for !utf8.RuneStart(sentence[cut]) {
			cut--
		}
		sentence = sentence[:cut] + "…"
	}
	return sentence + end
}

// name returns the name of the Event for a cause on a pod. It is the same for each replica.
func (c cause) name(pod *corev1.Pod) string {
	sum := sha256.Sum256([]byte(string(pod.UID) + " " + c.key()))
	return strings.TrimRight(pod.Name[:min(len(pod.Name), 220)], ".-") + "." + hex.EncodeToString(sum[:8])
}

// write creates the Event of a cause, or increases its count. It returns false if the Event already covers this
// restart.
func (d *Diagnoser) write(ctx context.Context, pod *corev1.Pod, c cause) (fresh bool, err error) {
	events := d.o.Core.CoreV1().Events(pod.Namespace)
	now := metav1.NewTime(time.Now())
	is, err := events.Get(ctx, c.name(pod), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err := events.Create(ctx, d.event(pod, c, now), metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return false, nil
		}
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	if n, err := strconv.ParseInt(is.Annotations[restartsAnnotation], 10, 32); err == nil && int32(n) >= c.restarts {
		return false, nil
	}
	// The patch contains the resource version: if another replica wrote in between, it conflicts and is retried.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": is.ResourceVersion, "annotations": map[string]string{restartsAnnotation: fmt.Sprint(c.restarts)}},
		"count":    is.Count + 1, "lastTimestamp": now, "message": c.message(pod),
	})
	if err != nil {
		return false, err
	}
	_, err = events.Patch(ctx, is.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err == nil, err
}

func (d *Diagnoser) event(pod *corev1.Pod, c cause, now metav1.Time) *corev1.Event {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if c.container != "" {
		list := "containers"
		if slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.container }) {
			list = "initContainers"
		}
		about.FieldPath = fmt.Sprintf("spec.%s{%s}", list, c.container)
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: c.name(pod), Annotations: map[string]string{restartsAnnotation: fmt.Sprint(c.restarts)}},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason(c.code), Message: c.message(pod), Action: "Diagnose",
		Source: corev1.EventSource{Component: Reporter, Host: d.o.Instance}, ReportingController: Reporter, ReportingInstance: d.o.Instance,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
