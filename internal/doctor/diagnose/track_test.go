package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/diagnose/history"
	"outrider.dev/internal/doctor/diagnose/result"
)

// The files of a pod that got ready.
var startedPod, pullEvents, readyLog = started("pod.yaml"), started("events.yaml"), started("istio-proxy.log")

func started(name string) string {
	text, err := os.ReadFile(filepath.Join("testdata/started", name))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A track contains the runs and the log lines of a container. A line whose time has no zone gets the time of its run,
// with the length of the run as the error.
func TestTracks(t *testing.T) {
	got := diagnoseFolder(t, filepath.Join(incidents, "awesome-app")).Tracks
	i := slices.IndexFunc(got, func(t result.Track) bool { return t.Container == "awesome-app" })
	if len(got) != 3 || i < 0 || got[i].Role != result.AppRole || len(got[i].Runs) != 2 || !got[i].Runs[0].Failed || !got[i].Runs[1].Running {
		t.Fatalf("tracks: %+v", got)
	}
	m := got[i].Marks
	if len(m) != 1 || m[0].Kind != result.MarkCall || m[0].At.At.Format(time.TimeOnly) != "13:16:22" || m[0].At.Error != 2*time.Second {
		t.Errorf("marks: %+v", m)
	}
}

// If a track has too many lines, it keeps the first lines and counts the other ones.
func TestTracksAreBounded(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	for i := range history.MostMarks + 50 {
		fmt.Fprintf(&log, "2026-03-02T13:00:11.%06dZ dial tcp 10.0.0.1:%d: connect: connection refused\n", i, 1000+i)
	}
	for name, text := range map[string]string{"pod.yaml": startedPod, "web.log": log.String()} { // in any order: each is a separate file
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, track := range diagnoseFolder(t, dir).Tracks {
		if track.Container == "web" && (len(track.Marks) > history.MostMarks || len(track.Marks) == 0) {
			t.Errorf("%d marks, %d left out", len(track.Marks), track.LeftOut)
		}
	}
}
