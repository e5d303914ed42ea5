package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/evidence"
)

const startedPod = `apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, creationTimestamp: "2026-03-02T13:00:00Z"}
spec:
  initContainers: [{name: migrate, image: x}]
  containers: [{name: web, image: x}, {name: istio-proxy, image: docker.io/istio/proxyv2:1.26.2}]
status:
  phase: Running
  startTime: "2026-03-02T13:00:02Z"
  conditions:
  - {type: PodScheduled, status: "True", lastTransitionTime: "2026-03-02T13:00:02Z"}
  - {type: PodReadyToStartContainers, status: "True", lastTransitionTime: "2026-03-02T13:00:03Z"}
  - {type: Ready, status: "True", lastTransitionTime: "2026-03-02T13:00:20Z"}
  initContainerStatuses:
  - {name: migrate, restartCount: 0, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T13:00:07Z", finishedAt: "2026-03-02T13:00:09Z"}}}
  containerStatuses:
  - {name: web, restartCount: 0, state: {running: {startedAt: "2026-03-02T13:00:10Z"}}}
  - {name: istio-proxy, restartCount: 0, state: {running: {startedAt: "2026-03-02T13:00:10Z"}}}
`

const pullEvents = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Event, metadata: {name: a, namespace: shop}, involvedObject: {kind: Pod, name: web-1, namespace: shop, fieldPath: "spec.initContainers{migrate}"}, reason: Pulling, message: Pulling image, count: 1, source: {component: kubelet}, firstTimestamp: "2026-03-02T13:00:03Z", lastTimestamp: "2026-03-02T13:00:03Z"}
- {apiVersion: v1, kind: Event, metadata: {name: b, namespace: shop}, involvedObject: {kind: Pod, name: web-1, namespace: shop, fieldPath: "spec.initContainers{migrate}"}, reason: Pulled, message: Successfully pulled image, count: 1, source: {component: kubelet}, firstTimestamp: "2026-03-02T13:00:07Z", lastTimestamp: "2026-03-02T13:00:07Z"}
`

const readyLog = "2026-03-02T13:00:14.500000Z\tinfo\tReadiness succeeded in 4s\n2026-03-02T13:00:15.000000Z\tinfo\tEnvoy proxy is ready\n"

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
			if d := cmp.Diff(&tt.want, diagnoseFolder(t, dir).Start); d != "" {
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

// A track contains the runs and the log lines of a container. A line whose time has no zone gets the time of its run,
// with the length of the run as the error.
func TestTracks(t *testing.T) {
	got := diagnoseFolder(t, filepath.Join(incidents, "awesome-app")).Tracks
	i := slices.IndexFunc(got, func(t Track) bool { return t.Container == "awesome-app" })
	if len(got) != 3 || i < 0 || got[i].Role != AppRole || len(got[i].Runs) != 2 || !got[i].Runs[0].Failed || !got[i].Runs[1].Running {
		t.Fatalf("tracks: %+v", got)
	}
	m := got[i].Marks
	if len(m) != 1 || m[0].Kind != MarkCall || m[0].At.At.Format(time.TimeOnly) != "13:16:22" || m[0].At.Error != 2*time.Second {
		t.Errorf("marks: %+v", m)
	}
}

// If a track has too many lines, it keeps the first lines and counts the other ones.
func TestTracksAreBounded(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	for i := range lines + 50 {
		fmt.Fprintf(&log, "2026-03-02T13:00:11.%06dZ dial tcp 10.0.0.1:%d: connect: connection refused\n", i, 1000+i)
	}
	for name, text := range map[string]string{"pod.yaml": startedPod, "web.log": log.String()} { // in any order: each is a separate file
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, track := range diagnoseFolder(t, dir).Tracks {
		if track.Container == "web" && (len(track.Marks) > lines || len(track.Marks) == 0) {
			t.Errorf("%d marks, %d left out", len(track.Marks), track.LeftOut)
		}
	}
}
