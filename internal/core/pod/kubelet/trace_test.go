package kubelet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podrun"
)

// A trace is a recording of what a real kubelet did with a pod, made by test/traces. Its times are shifted so
// that every relist is at a whole multiple of the relist period.
type trace struct {
	name    string
	about   string
	version kubelet.Version
	spec    corev1.Pod
	pod     kubelet.Pod
	lines   []seen
	zero    time.Duration // time at which the pod was added, by the clock of the recording
	missed  map[int]bool  // lines with an event that the next relist did not see
}

func (tr trace) relistAfter(t time.Duration) time.Duration {
	every := tr.version.Relist
	return (t/every + 1) * every
}

// A seen is a line of a trace.
type seen struct {
	at   time.Duration
	side string // "<": an event from outside; ">": an action of the kubelet; ".": only a note
	what string
	name string // name of a container; may be empty
	rest []string
	text string
}

func readTrace(t *testing.T, file string) trace {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tr := trace{missed: map[int]bool{}, name: strings.TrimSuffix(filepath.Base(file), ".txt")}
	archive := txtar.Parse(text)
	tr.about = strings.TrimSpace(string(archive.Comment))
	for _, f := range archive.Files {
		switch f.Name {
		case "pod":
			err = yaml.Unmarshal(f.Data, &tr.spec)
		case "seen":
			err = tr.read(string(f.Data))
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if len(tr.lines) == 0 {
		t.Fatalf("%s: nothing was seen", file)
	}
	tr.pod = podrun.Lifecycle(&tr.spec)
	for i, c := range tr.spec.Spec.InitContainers {
		tr.pod.Init[i].NeverPull = c.ImagePullPolicy != corev1.PullIfNotPresent
	}
	for i, c := range tr.spec.Spec.Containers {
		tr.pod.Containers[i].NeverPull = c.ImagePullPolicy != corev1.PullIfNotPresent
	}
	return tr
}

func (tr *trace) read(text string) error {
	head, body, _ := strings.Cut(text, "\n")
	var minor int
	var first, every string
	if _, err := fmt.Sscanf(head, "kubelet v1.%d, relists at %s and every %s", &minor, &first, &every); err != nil {
		return fmt.Errorf("%q: %w", head, err)
	}
	at, err := time.ParseDuration(first)
	if err != nil {
		return err
	}
	tr.version = kubelet.Minor(minor)
	if tr.version.Relist, err = time.ParseDuration(every); err != nil {
		return err
	}
	for line := range strings.Lines(body) {
		w := strings.Fields(line)
		if len(w) < 3 {
			return fmt.Errorf("%q is too short", line)
		}
		s, err := strconv.ParseFloat(w[0], 64)
		if err != nil {
			return err
		}
		l := seen{at: time.Duration(s*1e9) + tr.version.Relist - at, side: w[1], what: w[2], text: strings.Join(w[1:], " ")}
		if len(w) > 3 && l.what != "publish" {
			l.name, l.rest = w[3], w[4:]
		}
		if l.what == "publish" {
			l.rest = w[3:]
		}
		tr.lines = append(tr.lines, l)
	}
	tr.begin()
	return nil
}

// sandboxCall is the time between the kubelet's request for a sandbox and containerd's first event about it.
const sandboxCall = 30 * time.Millisecond

// begin moves the event Added to just before the creation of the sandbox. In its first pass a real kubelet waits
// for the pod's volumes. In the model a pod is added when its volumes are present, and the sandbox is created at
// once.
func (tr *trace) begin() {
	i := slices.IndexFunc(tr.lines, func(l seen) bool { return l.what == "create-sandbox" })
	if i >= 0 {
		tr.zero, tr.lines[0].at = tr.lines[0].at, tr.lines[i].at-sandboxCall
	}
}

// ok reports whether the answer is a success.
func (l seen) ok() bool { return !slices.Contains(l.rest, "failed") }

// event returns the event that the line describes.
func (l seen) event() kubelet.Event {
	e := kubelet.Event{At: l.at, Kind: kubelet.EventKind(l.what), Container: l.name, OK: l.ok()}
	switch {
	case l.what == "exited":
		e.Code, _ = strconv.Atoi(l.rest[0])
	case l.what == "hook-returned" || l.what == "probe-answered":
		e.Which = kubelet.Which(l.rest[0])
	}
	return e
}

// key returns a string that identifies the subject of a line or an action, without the time.
func (l seen) key() string {
	k := l.what + " " + l.name
	if l.what == "run-hook" || l.what == "run-probe" {
		k += " " + l.rest[0]
	}
	return k
}

func key(a kubelet.Action) string {
	k := string(a.Kind) + " " + a.Container
	if a.Which != "" {
		k += " " + string(a.Which)
	}
	return k
}

func statusWords(s kubelet.Status) []string {
	w := []string{string(s.Phase)}
	for _, flag := range []struct {
		set  bool
		word string
	}{{s.HasIP, "ip"}, {s.Initialized, "initialized"}, {s.Ready, "ready"}} {
		if flag.set {
			w = append(w, flag.word)
		}
	}
	return w
}
