package phases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

// The files of a pod that got ready.
var startedPod, pullEvents, readyLog = read("pod.yaml"), read("events.yaml"), read("istio-proxy.log")

func read(name string) string {
	text, err := os.ReadFile(filepath.Join("../testdata/started", name))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A phase is in the result if the evidence has both its beginning and its end, and else it is left out.
func TestStart(t *testing.T) {
	phases := func(all ...Phase) []Phase { return all }
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	sec := func(n float64) Elapsed { return Elapsed{s(n), time.Second} }
	tests := map[string]struct {
		files map[string]string
		want  Start
	}{
		"all is known": {
			map[string]string{"pod.yaml": startedPod, "events.yaml": pullEvents, "istio-proxy.log": readyLog},
			Start{State: StartReady, Took: Elapsed{s(20), s(2)}, Phases: phases(
				Phase{SchedulePhase, 0, sec(2)}, Phase{SandboxPhase, s(2), sec(1)}, Phase{ImagePhase, s(3), sec(4)},
				Phase{InitPhase, s(7), sec(2)}, Phase{ProxyPhase, s(10), Elapsed{s(4.5), s(0.5)}}, Phase{AppPhase, s(15), Elapsed{s(5.5), s(0.5)}})},
		},
		"without logs and events": {
			map[string]string{"pod.yaml": startedPod},
			Start{State: StartReady, Took: Elapsed{s(20), s(2)}, Phases: phases(
				Phase{SchedulePhase, 0, sec(2)}, Phase{SandboxPhase, s(2), sec(1)}, Phase{InitPhase, s(7), sec(2)}, Phase{AppPhase, s(10), sec(10)})},
		},
		"the sandbox was made again": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, `status: "True", lastTransitionTime: "2026-03-02T13:00:03Z"`, `status: "True", lastTransitionTime: "2026-03-02T14:00:03Z"`, 1)},
			Start{State: StartReady, Took: Elapsed{s(20), s(2)}, Phases: phases(
				Phase{SchedulePhase, 0, sec(2)}, Phase{InitPhase, s(7), sec(2)}, Phase{AppPhase, s(10), sec(10)})},
		},
		"a container restarted": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, "name: web, restartCount: 0", "name: web, restartCount: 1", 1)},
			Start{State: StartReady, AtMost: true, Took: Elapsed{s(20), s(2)}, Phases: phases(
				Phase{SchedulePhase, 0, sec(2)}, Phase{SandboxPhase, s(2), sec(1)}, Phase{InitPhase, s(7), sec(2)})},
		},
		"it is not known when it was scheduled": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, "{type: PodScheduled,", "{type: Other,", 1)},
			Start{State: StartReady, Phases: phases(Phase{SandboxPhase, 0, sec(1)}, Phase{InitPhase, s(5), sec(2)}, Phase{AppPhase, s(8), sec(10)})},
		},
		"not ready": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, `{type: Ready, status: "True"`, `{type: Ready, status: "False"`, 1)},
			Start{State: StartNotReady, Phases: phases(
				Phase{SchedulePhase, 0, sec(2)}, Phase{SandboxPhase, s(2), sec(1)}, Phase{InitPhase, s(7), sec(2)})},
		},
		"no conditions": {
			map[string]string{"pod.yaml": startedPod[:strings.Index(startedPod, "status:\n")]},
			Start{State: StartUnknown},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tt.files { // in any order: each is a separate file
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(&tt.want, startOf(t, dir)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// If phases overlap, each moment belongs to only one of them, by precedence.
func TestPhasesDoNotOverlap(t *testing.T) {
	at := func(n int) evidence.Time {
		return evidence.Time{At: time.Unix(int64(n), 0), Clock: evidence.NodeClock}
	}
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	got := divide([]stretch{
		{ProxyPhase, at(2), at(6)}, {GatePhase, at(3), at(6)}, {AppPhase, at(3), at(9)}, {ImagePhase, at(4), at(5)}, {AppPhase, at(4), at(9)},
	}, at(0), sec(1))
	want := []Phase{
		{ProxyPhase, sec(3), Elapsed{Time: sec(1)}}, {GatePhase, sec(4), Elapsed{Time: sec(1)}}, {ImagePhase, sec(5), Elapsed{Time: sec(1)}},
		{GatePhase, sec(6), Elapsed{Time: sec(1)}}, {AppPhase, sec(7), Elapsed{Time: sec(3)}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func startOf(t *testing.T, folder string) *Start {
	t.Helper()
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil || len(set.Pods) != 1 {
		t.Fatalf("%d pods, %v", len(set.Pods), err)
	}
	p, err := facts.Of(t.Context(), set.Pods[0], false)
	if err != nil {
		t.Fatal(err)
	}
	return Of(p)
}
