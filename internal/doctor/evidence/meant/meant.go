// Package meant decides which pods a text of people is about, where it has lines, events or logs of several: the one that is
// not well before those that are well, the one whose log or whose events are there, the one that the sentences name. It
// also makes pods of which there is no object, of what their events and logs say.
package meant

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/why"
)

// A Candidate is a pod of which a text has a line, with what else the evidence has of it.
type Candidate struct {
	described.Row
	Logged bool // a log that names it
	Warned bool // an event that says that something of it fails
	Said   int  // where the sentences name it first; -1: they do not
}

// Choose returns the indexes of the pods that are meant: those that are not well, wherever they are; or those that restarted
// lately; or those whose logs or events are there; or those of the workload that the sentences name first; or all.
func Choose(all []Candidate) []int {
	first := -1
	for i, c := range all {
		if c.Said >= 0 && (first < 0 || c.Said < all[first].Said) {
			first = i
		}
	}
	for _, is := range []func(Candidate) bool{
		func(c Candidate) bool { return !Well(c.Row) },
		func(c Candidate) bool { return Restarted(c.Row) },
		func(c Candidate) bool { return c.Logged || c.Warned },
		func(c Candidate) bool {
			return first >= 0 && Workload(c.Name) == Workload(all[first].Name) && c.Namespace == all[first].Namespace
		},
	} {
		var out []int
		for i, c := range all {
			if is(c) {
				out = append(out, i)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	out := make([]int, len(all))
	for i := range out {
		out[i] = i
	}
	return out
}

// Well reports whether a line shows no fault.
func Well(r described.Row) bool {
	return r.Ready == r.Of && r.Status == "Running" || r.Status == "Completed" || r.Status == "Succeeded"
}

// lately is the age up to which a restart counts.
const lately = 24 * time.Hour

// Restarted reports whether a container of the pod restarted, as far as is known lately.
func Restarted(r described.Row) bool {
	return r.Restarts > 0 && (r.Ended.Error == 0 || r.Ended.Least < lately)
}

var generated = regexp.MustCompile(`(?:-[0-9a-f]{6,10})?-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d{1,4})$`)

// Workload returns the name of the workload after which a pod is named.
func Workload(pod string) string { return generated.ReplaceAllString(pod, "") }

var ofJob = regexp.MustCompile(`^((?:.*-)?\d{8,10}|.*)-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// JobOf returns the Job of a pod by the name that was generated for that, if the Job, or the CronJob of it, is the one given;
// empty: it is not.
func JobOf(kind, name, pod string) string {
	m := ofJob.FindStringSubmatch(pod)
	switch {
	case m == nil || name == "":
	case kind == "Job" && m[1] == name:
		return m[1]
	case kind == "CronJob":
		if number, of := strings.CutPrefix(m[1], name+"-"); of && strings.Trim(number, "0123456789") == "" && len(number) >= 8 {
			return m[1]
		}
	}
	return ""
}

// Sentences returns the lines of a text that are none of a table and no command, so that what they name is meant.
func Sentences(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		at := strings.TrimRight(string(line), " \t\r\n")
		_, row := described.RowOf(at)
		_, event := described.EventLine(at)
		if !row && !event && !described.IsHead(at) && !strings.Contains(at, "kubectl ") {
			out = append(out, line...)
		}
	}
	return out
}

// Said returns where sentences name a pod first: by its name, by the end of it, or by the name of its workload; -1: nowhere.
func Said(sentences []byte, pod string) int {
	at := -1
	names := []string{pod, Workload(pod)}
	if end := pod[strings.LastIndexByte(pod, '-')+1:]; len(end) >= 5 && end != pod {
		names = append(names, end)
	}
	for _, name := range names {
		if i := word(sentences, name); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	return at
}

// word returns where a text has a word, also one with dashes; -1: nowhere.
func word(text []byte, name string) int {
	inName := func(c byte) bool {
		return c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(name))
		if i < 0 || name == "" {
			return -1
		}
		i += from
		end := i + len(name)
		if (i == 0 || !inName(text[i-1])) && (end == len(text) || !inName(text[end])) {
			return i
		}
		from = end
	}
}

// fails matches the reasons of events that say that something of a pod fails.
var fails = regexp.MustCompile(`^(?:BackOff|Failed\w*|Unhealthy|Evicted|Err\w+|\w+Error|InspectFailed|ProbeWarning|NodeNotReady|NetworkNotReady|SystemOOM|OOMKilling|Preempted|SandboxChanged|FailedScheduling)$`)

// Fails reports whether the reason of an event says that something fails.
func Fails(reason string) bool { return fails.MatchString(reason) }

// Warned returns the events about pods by which these are known: of pods of which an event says that something fails, or
// of all if there is none.
func Warned(events []evidence.Event) map[string][]evidence.Event {
	warned, all := map[string][]evidence.Event{}, map[string][]evidence.Event{}
	for _, e := range events {
		if kind, _, name := e.Object(); kind == "Pod" && name != "" {
			all[e.About] = append(all[e.About], e)
		}
	}
	for about, of := range all { // in any order: each is looked at by itself
		if slices.ContainsFunc(of, func(e evidence.Event) bool { return Fails(e.Reason) }) {
			warned[about] = of
		}
	}
	if len(warned) > 0 {
		return warned
	}
	return all
}

// Units returns the containers that events are about, and sets what the events say of their states: one that is held back
// from its next start waits.
func Units(events []evidence.Event, status *corev1.PodStatus) (out []corev1.Container) {
	starts, waits := map[string]int{}, map[string]string{}
	var names []string
	for _, e := range events {
		if e.Container == "" {
			continue
		}
		if !slices.Contains(names, e.Container) {
			names = append(names, e.Container)
		}
		switch {
		case e.Reason == "Started":
			starts[e.Container] = max(starts[e.Container], e.Count)
		case e.Reason == "BackOff" && strings.Contains(e.Message, "pulling image"), e.Reason == "ErrImagePull":
			waits[e.Container] = "ImagePullBackOff"
		case e.Reason == "BackOff":
			waits[e.Container] = "CrashLoopBackOff"
		}
	}
	for _, name := range names {
		out = append(out, corev1.Container{Name: name})
		if reason := waits[name]; reason != "" {
			status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: name, RestartCount: int32(max(starts[name]-1, 0)),
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
		}
	}
	return out
}

// TellsFailure reports whether a text is the log of a program that says what failed: such a log is of a pod, even if nothing
// else is known of that.
func TellsFailure(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if why.Tells(line) || why.LevelOf(string(line)) >= why.Error {
			return true
		}
	}
	return false
}
