package phases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
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
	phases := func(all ...result.Phase) []result.Phase { return all }
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	sec := func(n float64) result.Elapsed { return result.Elapsed{Time: s(n), Error: time.Second} }
	tests := map[string]struct {
		files map[string]string
		want  result.Start
	}{
		"all is known": {
			map[string]string{"pod.yaml": startedPod, "events.yaml": pullEvents, "istio-proxy.log": readyLog},
			result.Start{State: result.StartReady, Took: result.Elapsed{Time: s(20), Error: s(2)}, Phases: phases(
				result.Phase{Name: result.SchedulePhase, From: 0, Took: sec(2)}, result.Phase{Name: result.SandboxPhase, From: s(2), Took: sec(1)}, result.Phase{Name: result.ImagePhase, From: s(3), Took: sec(4)},
				result.Phase{Name: result.InitPhase, From: s(7), Took: sec(2)}, result.Phase{Name: result.ProxyPhase, From: s(10), Took: result.Elapsed{Time: s(4.5), Error: s(0.5)}}, result.Phase{Name: result.AppPhase, From: s(15), Took: result.Elapsed{Time: s(5.5), Error: s(0.5)}})},
		},
		"without logs and events": {
			map[string]string{"pod.yaml": startedPod},
			result.Start{State: result.StartReady, Took: result.Elapsed{Time: s(20), Error: s(2)}, Phases: phases(
				result.Phase{Name: result.SchedulePhase, From: 0, Took: sec(2)}, result.Phase{Name: result.SandboxPhase, From: s(2), Took: sec(1)}, result.Phase{Name: result.InitPhase, From: s(7), Took: sec(2)}, result.Phase{Name: result.AppPhase, From: s(10), Took: sec(10)})},
		},
		"the sandbox was made again": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, `status: "True", lastTransitionTime: "2026-03-02T13:00:03Z"`, `status: "True", lastTransitionTime: "2026-03-02T14:00:03Z"`, 1)},
			result.Start{State: result.StartReady, Took: result.Elapsed{Time: s(20), Error: s(2)}, Phases: phases(
				result.Phase{Name: result.SchedulePhase, From: 0, Took: sec(2)}, result.Phase{Name: result.InitPhase, From: s(7), Took: sec(2)}, result.Phase{Name: result.AppPhase, From: s(10), Took: sec(10)})},
		},
		"a container restarted": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, "name: web, restartCount: 0", "name: web, restartCount: 1", 1)},
			result.Start{State: result.StartReady, AtMost: true, Took: result.Elapsed{Time: s(20), Error: s(2)}, Phases: phases(
				result.Phase{Name: result.SchedulePhase, From: 0, Took: sec(2)}, result.Phase{Name: result.SandboxPhase, From: s(2), Took: sec(1)}, result.Phase{Name: result.InitPhase, From: s(7), Took: sec(2)})},
		},
		"it is not known when it was scheduled": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, "{type: PodScheduled,", "{type: Other,", 1)},
			result.Start{State: result.StartReady, Phases: phases(result.Phase{Name: result.SandboxPhase, From: 0, Took: sec(1)}, result.Phase{Name: result.InitPhase, From: s(5), Took: sec(2)}, result.Phase{Name: result.AppPhase, From: s(8), Took: sec(10)})},
		},
		"not ready": {
			map[string]string{"pod.yaml": strings.Replace(startedPod, `{type: Ready, status: "True"`, `{type: Ready, status: "False"`, 1)},
			result.Start{State: result.StartNotReady, Phases: phases(
				result.Phase{Name: result.SchedulePhase, From: 0, Took: sec(2)}, result.Phase{Name: result.SandboxPhase, From: s(2), Took: sec(1)}, result.Phase{Name: result.InitPhase, From: s(7), Took: sec(2)})},
		},
		"no conditions": {
			map[string]string{"pod.yaml": startedPod[:strings.Index(startedPod, "status:\n")]},
			result.Start{State: result.StartUnknown},
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
		{result.ProxyPhase, at(2), at(6)}, {result.GatePhase, at(3), at(6)}, {result.AppPhase, at(3), at(9)}, {result.ImagePhase, at(4), at(5)}, {result.AppPhase, at(4), at(9)},
	}, at(0), sec(1))
	want := []result.Phase{
		{Name: result.ProxyPhase, From: sec(3), Took: result.Elapsed{Time: sec(1)}}, {Name: result.GatePhase, From: sec(4), Took: result.Elapsed{Time: sec(1)}}, {Name: result.ImagePhase, From: sec(5), Took: result.Elapsed{Time: sec(1)}},
		{Name: result.GatePhase, From: sec(6), Took: result.Elapsed{Time: sec(1)}}, {Name: result.AppPhase, From: sec(7), Took: result.Elapsed{Time: sec(3)}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func startOf(t *testing.T, folder string) *result.Start {
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
