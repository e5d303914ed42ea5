package traces

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryScenarioCanBeRead(t *testing.T) {
	files, err := filepath.Glob("scenarios/*.txt")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, want 40 or more: %v", len(files), err)
	}
	for _, file := range files {
		s, err := Read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if last := s.Script[len(s.Script)-1]; last.Do != "until" {
			t.Errorf("%s: the script ends with %q, want until", file, last.Do)
		}
	}
}

func TestScript(t *testing.T) {
	got, err := parseScript("at 5s delete\nwhen app started 2 +1s kill proxy\nwhen pod ready reboot\nuntil 20s\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Command{
		{Count: 1, After: 5 * time.Second, Do: "delete"},
		{When: "app", State: "started", Count: 2, After: time.Second, Do: "kill", What: "proxy"},
		{When: "pod", State: "ready", Count: 1, Do: "reboot"},
		{Count: 1, After: 20 * time.Second, Do: "until"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"delete", "at soon delete", "when app started", "at 1s dance", "until noon", "when app started 3"} {
		if _, err := parseScript(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: error %v, want one that names it", bad, err)
		}
	}
}

func TestWhatTheKubeletSays(t *testing.T) {
	if at, err := logTime("I1121 16:01:18.002437      59 kubelet.go:299"); err != nil || at.Nanosecond() != 2437000 {
		t.Errorf("log: %v, %v", at, err)
	}
	if diff := cmp.Diff([]string{"shop"}, podsOf("added", `"SyncLoop ADD" source="api" pods=["default/shop"]`)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
