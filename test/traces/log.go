package traces

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"
)

// A kubeletLine is a relevant line of the kubelet's log.
type kubeletLine struct {
	at   time.Time
	what string // "relist", "added", "deleted" or "pass" (a sync of the pod)
	pod  string // name; empty for a relist
}

// kubeletWords maps the beginnings of messages in the kubelet's log to the kinds of kubeletLine. They are from
// pkg/kubelet/pleg/generic.go and pkg/kubelet/kubelet.go, the same in v1.34.4 and v1.36.3.
var kubeletWords = map[string]string{
	`"GenericPLEG: Relisting"`:   "relist",
	`"SyncLoop ADD"`:             "added",
	`"SyncLoop DELETE"`:          "deleted",
	`"SyncPod enter"`:            "pass",
	`"SyncTerminatingPod enter"`: "pass",
}

// readKubeletLog reads the relevant lines of the log.
func readKubeletLog(file string) ([]kubeletLine, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []kubeletLine
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		header, message, ok := strings.Cut(lines.Text(), "] ")
		if !ok || !strings.HasPrefix(header, "I") {
			continue
		}
		// any order: a message begins with one of them at most.
		for words, what := range kubeletWords {
			if !strings.HasPrefix(message, words) {
				continue
			}
			at, err := logTime(header)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, pod := range podsOf(what, message) {
				out = append(out, kubeletLine{at, what, pod})
			}
		}
	}
	return out, lines.Err()
}

// podsOf returns the names of the pods that a message concerns, and an empty name for a relist. The log has
// `pod="default/shop"`, and in SyncLoop lines `pods=["default/shop"]`.
func podsOf(what, message string) (names []string) {
	if what == "relist" {
		return []string{""}
	}
	for i, piece := range strings.Split(message, `"`) {
		if name, ok := strings.CutPrefix(piece, "default/"); ok && i%2 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// logTime parses "I1121 16:01:18.002437      59 kubelet.go:299".
func logTime(header string) (time.Time, error) {
	w := strings.Fields(header)
	if len(w) < 2 {
		return time.Time{}, fmt.Errorf("no time in %q", header)
	}
	return time.ParseInLocation("20060102 15:04:05.000000", fmt.Sprint(time.Now().Year())+w[0][1:]+" "+w[1], time.Local)
}
