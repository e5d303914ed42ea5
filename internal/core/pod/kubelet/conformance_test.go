package kubelet_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tolerance returns the maximum difference between the model's times and those of the real kubelet. The model has
// no latency apart from its rules, whereas a busy machine with two processors needs this long to start a program
// in a container.
func tolerance(key string) time.Duration {
	what, _, _ := strings.Cut(key, " ")
	switch {
	case key == "last publish":
		return 2 * time.Second
	case what == "run-probe":
		return 700 * time.Millisecond
	default:
		return 600 * time.Millisecond
	}
}

// known lists, by scenario, the remaining differences between the model and real kubelets: words of the
// lines that may differ, and the reason.
var known = map[string]struct{ lines, why string }{
	"readiness-delay": {"readiness ready", "the delay is counted from the start of the container cut to whole seconds of the clock on the wall, " +
		"which the model does not have: it may end up to a second earlier (status/status_manager.go normalizeStatus)"},
	"startup-then-others": {"readiness startup", "since 1.35 a container that is restarted counts as started, and its readiness is probed, " +
		"until the prober of its startup has found the new one (v1.36.3 prober/prober_manager.go isContainerStarted)"},
	"readiness-grpc": {"readiness", "a first gRPC probe may find no listener: its client tries again for a second, and " +
		"the request reaches the container late or never (probe/grpc/grpc.go)"},
}

// For each recorded trace, the model does the same things as the real kubelet at the same times, and publishes
// the same statuses.
func TestConformance(t *testing.T) {
	files, err := filepath.Glob("testdata/traces/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 170 {
		t.Fatalf("%d traces, want those of 85 pods or more on two versions", len(files))
	}
	for _, file := range files {
		tr := readTrace(t, file)
		t.Run(tr.name, func(t *testing.T) {
			scenario, _, _ := strings.Cut(tr.name, ".")
			r := run(tr)
			for _, d := range r.diffs {
				if !isKnown(scenario, d) {
					t.Errorf("%s: %s", tr.about, d)
				}
			}
			if len(r.matched) < 2 {
				t.Errorf("only %d things were compared", len(r.matched))
			}
		})
	}
}

func isKnown(scenario, difference string) bool {
	for _, word := range strings.Fields(known[scenario].lines) {
		if strings.Contains(difference, word) {
			return true
		}
	}
	return false
}

// Two events in the wrong order are reported even if their times are within the tolerance.
func TestOrderIsCompared(t *testing.T) {
	at := func(ms time.Duration) time.Duration { return ms * time.Millisecond }
	for name, tt := range map[string]struct {
		model []time.Duration // times at which the model did what the real kubelet did at 100, 200 and 200 ms
		want  int
	}{
		"the same":        {[]time.Duration{at(90), at(150), at(190)}, 0},
		"at one moment":   {[]time.Duration{at(150), at(150), at(150)}, 0},
		"the last before": {[]time.Duration{at(90), at(150), at(80)}, 1},
		"turned round":    {[]time.Duration{at(300), at(200), at(100)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := &replay{matched: []match{{"start a", at(100), tt.model[0]}, {"start b", at(200), tt.model[1]}, {"start c", at(200), tt.model[2]}}}
			if r.order(); len(r.diffs) != tt.want {
				t.Errorf("%d differences, want %d: %s", len(r.diffs), tt.want, r.diffs)
			}
		})
	}
}
