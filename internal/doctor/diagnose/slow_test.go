package diagnose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

// A slow start without any failure is reported as a finding that names its slowest phase. Nothing is reported if the
// beginning or the end of the start is unknown, or if the pod may have been ready earlier and only became ready
// again.
func TestSlowStart(t *testing.T) {
	ready := func(at string) func(string) string {
		return func(pod string) string {
			return strings.Replace(pod, `{type: Ready, status: "True", lastTransitionTime: "2026-03-02T13:00:20Z"}`, `{type: Ready, status: "True", lastTransitionTime: "`+at+`"}`, 1)
		}
	}
	both := func(all ...func(string) string) func(string) string {
		return func(pod string) string {
			for _, f := range all {
				pod = f(pod)
			}
			return pod
		}
	}
	replace := func(from, to string) func(string) string {
		return func(pod string) string {
			if !strings.Contains(pod, from) {
				t.Fatalf("the pod has no %q", from)
			}
			return strings.ReplaceAll(pod, from, to)
		}
	}
	for name, tt := range map[string]struct {
		change     func(string) string
		slow       time.Duration
		code, want string
		sure       result.Confidence
		container  string
	}{
		"in time":                      {ready("2026-03-02T13:00:30Z"), 0, "", "", "", ""},
		"within the clocks' error":     {ready("2026-03-02T13:00:31Z"), 0, "", "", "", ""},
		"the application":              {ready("2026-03-02T13:01:40Z"), 0, "slow-start", "took 1 min 40 s to get ready, 1 min 26 s of them in the phase app", result.Certain, ""},
		"in time by the options":       {ready("2026-03-02T13:01:40Z"), 2 * time.Minute, "", "", "", ""},
		"not in time by the options":   {ready("2026-03-02T13:00:20Z"), 10 * time.Second, "slow-start", "took 20 s to get ready, 6 s of them in the phase app", result.Likely, ""},
		"a restart hides the first":    {both(ready("2026-03-02T13:01:40Z"), replace("name: web, restartCount: 0", "name: web, restartCount: 1")), 0, "", "", "", ""},
		"no node":                      {replace(`creationTimestamp: "2026-03-02T13:00:00Z"`, `creationTimestamp: "2026-03-02T12:59:10Z"`), 0, "slow-start", "took 1 min 10 s to get ready, 52 s of them in the phase schedule", result.Certain, ""},
		"it is not known when created": {both(ready("2026-03-02T13:01:40Z"), replace(`, creationTimestamp: "2026-03-02T13:00:00Z"`, "")), 0, "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range map[string]string{"pod.yaml": tt.change(startedPod), "events.yaml": pullEvents, "istio-proxy.log": readyLog} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := diagnoseWith(t, folder, Options{Slow: tt.slow})
			if tt.code == "" {
				if r.Verdict != result.Nothing {
					t.Errorf("%s", r.Sentence)
				}
				return
			}
			if r.Verdict != result.Found || string(r.Findings[0].Code) != tt.code {
				t.Fatalf("%s: %s", key(r), r.Sentence)
			}
			if f := r.Findings[0]; !strings.Contains(f.Sentence, tt.want) || f.Confidence != tt.sure || f.Container != tt.container || f.Remedy.Sentence == "" {
				t.Errorf("%+v", f)
			}
		})
	}
}

// For a pod that is not ready after a long time, the finding names the container that runs and is not ready.
func TestNotReadyForLong(t *testing.T) {
	for name, tt := range map[string]struct{ pod, want, container string }{
		"an init container runs": {`
  initContainerStatuses: [{name: migrate, restartCount: 0, ready: false, state: {running: {startedAt: "2026-03-02T13:00:07Z"}}}]
  containerStatuses: [{name: web, restartCount: 0, ready: false, state: {waiting: {reason: PodInitializing}}}]
`, "not ready 11 min 0 s after it was created: migrate has run for 10 min 53 s of them", "migrate"},
		"an application runs": {`
  initContainerStatuses: [{name: migrate, restartCount: 0, ready: true, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T13:00:07Z", finishedAt: "2026-03-02T13:00:09Z"}}}]
  containerStatuses: [{name: web, restartCount: 0, ready: false, state: {running: {startedAt: "2026-03-02T13:00:10Z"}}}]
`, "not ready 11 min 0 s after it was created: web has run for 10 min 50 s of them", "web"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, head := t.TempDir(), startedPod[:strings.Index(startedPod, "  initContainerStatuses:")]
			head = strings.Replace(strings.Replace(head, `{type: Ready, status: "True"`, `{type: Ready, status: "False"`, 1), ", {name: istio-proxy, image: docker.io/istio/proxyv2:1.26.2}", "", 1)
			for file, text := range map[string]string{"pod.yaml": head + tt.pod[1:], "web.log": "2026-03-02T13:10:00.000000Z loading\n"} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set, err := gather.Read(t.Context(), gather.Options{}, folder)
			if err != nil {
				t.Fatal(err)
			}
			set.Pods[0].Taken = evidence.Time{At: time.Date(2026, 3, 2, 13, 11, 0, 0, time.UTC), Clock: evidence.NodeClock}
			r, err := Diagnose(t.Context(), set.Pods[0], Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Sentence, tt.want) || r.Findings[0].Container != tt.container {
				t.Errorf("%s: %s", key(r), r.Sentence)
			}
		})
	}
}
