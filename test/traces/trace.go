package traces

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"outrider.dev/test/cluster/containerd"
)

// A Trace holds the observations of one pod.
type Trace struct {
	Scenario Scenario
	Version  string
	Relist   time.Duration // time of the first relist after the pod was added
	Every    time.Duration // mean time between relists
	Unsteady time.Duration // maximum deviation of a relist from a steady rhythm
	Lines    []Line
}

// A Line is one observation. Its text begins with ">" for an action of the kubelet, "<" for an event outside of the
// kubelet, and "." for a note.
type Line struct {
	At   time.Duration // since the kubelet received the pod
	Text string
}

// Text returns the trace in the form in which it is stored: the scenario, then the observations.
func (t Trace) Text() []byte {
	b := bytes.NewBuffer(bytes.TrimRight(t.Scenario.Source, "\n"))
	fmt.Fprintf(b, "\n-- seen --\nkubelet %s, relists at %s and every %s\n", t.Version, t.Relist.Round(time.Millisecond), t.Every.Round(time.Microsecond))
	for _, l := range t.Lines {
		fmt.Fprintf(b, "%8.3f %s\n", l.At.Seconds(), l.Text)
	}
	return b.Bytes()
}

// trace merges the lines of the witnesses, of containerd, of the API and of the kubelet's log.
func (r *recording) trace() (Trace, error) {
	time.Sleep(300 * time.Millisecond) // until pending watch events have arrived
	t := Trace{Scenario: r.scenario, Version: r.options.Version}
	log, err := readKubeletLog(r.options.KubeletLog)
	if err != nil {
		return t, err
	}
	var zero time.Time
	for _, l := range log {
		if l.pod == r.scenario.Name && l.what == "added" {
			zero = l.at
		}
	}
	if zero.IsZero() {
		return t, fmt.Errorf("%s: the kubelet's log has no line for the pod's arrival", r.scenario.Name)
	}
	add := func(at time.Time, format string, args ...any) {
		t.Lines = append(t.Lines, Line{at.Sub(zero), fmt.Sprintf(format, args...)})
	}
	t.Relist, t.Every, t.Unsteady = relists(log, zero)
	r.fromLog(log, zero, add)
	r.fromRuntime(add)
	r.fromAPI(add)
	if err := r.fromWitness(add); err != nil {
		return t, err
	}
	slices.SortStableFunc(t.Lines, func(a, b Line) int { return int(a.At - b.At) })
	return t, nil
}

type addLine func(at time.Time, format string, args ...any)

// relists returns the time of the first relist after the time zero, the mean time between relists from then on, and
// the maximum deviation from that mean. A large deviation means that a busy machine delayed the kubelet, so that the
// trace shows little of the kubelet's rules.
func relists(log []kubeletLine, zero time.Time) (first, every, off time.Duration) {
	var at []time.Time
	for _, l := range log {
		if l.what == "relist" && l.at.After(zero) {
			at = append(at, l.at)
		}
	}
	if len(at) < 2 {
		return 0, time.Second, 0
	}
	every = at[len(at)-1].Sub(at[0]) / time.Duration(len(at)-1)
	for i := range at {
		off = max(off, (at[i].Sub(at[0]) - time.Duration(i)*every).Abs())
	}
	return at[0].Sub(zero), every, off
}

func (r *recording) fromLog(log []kubeletLine, zero time.Time, add addLine) {
	deleted := false
	for _, l := range log {
		if l.pod != r.scenario.Name || l.at.Before(zero) {
			continue
		}
		switch l.what {
		case "pass":
			add(l.at, ". pass")
		case "deleted":
			if !deleted { // a second deletion means that the pod is no longer in the API
				add(l.at, "< deleted")
			}
			deleted = true
		default:
			add(l.at, "< %s", l.what)
		}
	}
}

func (r *recording) fromRuntime(add addLine) {
	for _, e := range r.runtime.Of(r.uid) {
		name := e.Container
		switch {
		case name == "" && e.Topic == containerd.Created:
			add(e.At, "> create-sandbox")
		case name == "" && e.Topic == containerd.Started:
			add(e.At, "< sandbox-ready")
		case name == "" && r.by(e.At, "reboot "):
			add(e.At, "< sandbox-died")
		case name == "" && r.by(e.At, "kill sandbox"):
			add(e.At, "< sandbox-lost")
		case name == "":
			add(e.At, ". sandbox-stopped")
		case e.Topic == containerd.Created:
			add(e.At, "> start %s", name)
		case e.Topic == containerd.Started:
			add(e.At, "< started %s", name)
		default:
			if e.Status == 137 && !r.by(e.At, "kill "+name) && !r.by(e.At, "reboot ") {
				add(e.At, "> kill %s", name)
			}
			add(e.At, "< exited %s %d", name, e.Status)
		}
	}
}

// by reports whether the script executed this command less than half a second before or after the given time.
func (r *recording) by(at time.Time, what string) bool {
	return slices.ContainsFunc(r.faults, func(f fault) bool {
		return f.what == what && at.Sub(f.at).Abs() < 500*time.Millisecond
	})
}

// fromAPI adds the status whenever it has changed, and the events of the API that no other source shows.
func (r *recording) fromAPI(add addLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := "Pending"
	for _, s := range r.status[r.uid] {
		now := statusWords(s.pod)
		if s.kind == watch.Deleted {
			add(s.at, ". gone")
		}
		if now != last && s.kind != watch.Deleted {
			add(s.at, "> publish %s", now)
			last = now
		}
	}
	for _, s := range r.events[r.uid] {
		name := fieldName(s.event.InvolvedObject.FieldPath)
		m := s.event.Message
		switch reason := s.event.Reason; {
		case name == "":
		case reason == "ErrImageNeverPull", reason == "Failed" && strings.HasPrefix(m, "Failed to pull image"):
			add(s.at, "< pulled %s failed", name)
		case reason == "Failed" && strings.Contains(m, "containerd task"):
			add(s.at, "< started %s failed", name)
		case reason == "BackOff" && strings.Contains(m, "pulling image"):
			add(s.at, ". back-off %s pulling the image", name)
		case reason == "BackOff":
			add(s.at, "> back-off %s", name)
		case strings.Contains(m, "connection refused"):
			r.refused(s, s.at, name, add)
		case strings.Contains(m, "failed to connect service"): // a gRPC probe, which fails only after its timeout
			r.refused(s, s.at.Add(-time.Second), name, add)
		case s.event.Type == corev1.EventTypeWarning, reason == "Killing":
			add(s.at, ". event %s %s", name, reason)
		}
	}
}

// refused adds a hook or probe that no witness could record, because its connection was refused. The event's message
// begins with the name of the probe: "Readiness probe failed: dial tcp ...".
func (r *recording) refused(s seenEvent, sent time.Time, name string, add addLine) {
	switch s.event.Reason {
	case "FailedPostStartHook":
		add(s.at, "> run-hook %s postStart", name)
		add(s.at, "< hook-returned %s postStart failed", name)
	case "Unhealthy":
		which, _, _ := strings.Cut(strings.ToLower(s.event.Message), " ")
		add(sent, "> run-probe %s %s", name, which)
		add(s.at, "< probe-answered %s %s failed", name, which)
	}
}

// fieldName returns the container's name in a field path such as "spec.containers{app}".
func fieldName(path string) string {
	_, rest, _ := strings.Cut(path, "{")
	return strings.TrimSuffix(rest, "}")
}

// statusWords describes the part of the status that the model covers.
func statusWords(pod corev1.Pod) string {
	words := []string{string(pod.Status.Phase)}
	if pod.Status.PodIP != "" {
		words = append(words, "ip")
	}
	for _, c := range []struct {
		kind corev1.PodConditionType
		word string
	}{{corev1.PodInitialized, "initialized"}, {corev1.PodReady, "ready"}} {
		if condition(pod, c.kind) {
			words = append(words, c.word)
		}
	}
	return strings.Join(words, " ")
}

// fromWitness adds the lines that the witnesses wrote. Signals, and calls of hooks and probes, are actions of the
// kubelet; results of hooks and probes are not.
func (r *recording) fromWitness(add addLine) error {
	f, err := os.Open(filepath.Join(r.dir, "log"))
	if err != nil {
		return nil // nothing ran
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) < 3 {
			return fmt.Errorf("%s: a witness wrote %q", r.scenario.Name, lines.Text())
		}
		ns, err := strconv.ParseInt(w[0], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: a witness wrote %q", r.scenario.Name, lines.Text())
		}
		at, name, what, rest := time.Unix(0, ns), w[1], w[2], strings.Join(w[3:], " ")
		side := map[string]string{"stop": ">", "run-hook": ">", "run-probe": ">", "hook-returned": "<", "probe-answered": "<"}[what]
		if side == "" {
			side = "."
		}
		add(at, "%s", strings.TrimSpace(side+" "+what+" "+name+" "+rest))
	}
	return nil
}
