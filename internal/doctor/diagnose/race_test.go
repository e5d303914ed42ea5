package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// The report says what an application did after a refused call, as far as its log shows it. In these cases proxy and
// application start at :10, the proxy is ready at :15, and the application continues to run.
func TestWhatBecameOfARace(t *testing.T) {
	for name, tt := range map[string]struct{ log, want string }{
		"once":                  {refusedAt(11), "was refused, and goes on, perhaps without the data that it requested"},
		"again, until it works": {refusedAt(11, 12, 13), "was refused, tried again, and was no longer refused once the proxy was ready"},
		"twice at once":         {refusedAt(11, 11), "was refused, and goes on, perhaps without the data that it requested"},
	} {
		t.Run(name, func(t *testing.T) {
			findings := diagnoseFiles(t, map[string]string{"pod.yaml": startedPod, "istio-proxy.log": readyLog, "web.log": tt.log}).Findings
			if len(findings) == 0 || findings[0].Code != "startup-race" || !strings.HasSuffix(findings[0].Sentence, tt.want) {
				t.Errorf("%+v; want a race that %s", findings, tt.want)
			}
		})
	}
}

// A race by the times of a proxy's log that name no zone is likely at most, and the report says what was assumed.
func TestAnAssumedZoneIsNotCertain(t *testing.T) {
	for zone, want := range map[string]result.Confidence{"Z": result.Certain, "": result.Likely} { // in any order: subtests
		t.Run(zone, func(t *testing.T) {
			log := strings.NewReplacer("000Z", "000"+zone, "T13", " 13").Replace("2026-03-02T13:00:10.100000Z\tinfo\tEnvoy starts\n" + readyLog)
			findings := diagnoseFiles(t, map[string]string{"pod.yaml": startedPod, "istio-proxy.log": log, "web.log": refusedAt(11)}).Findings
			assumed := func(q evidence.Quote) bool {
				return strings.Contains(q.Text, "its times have no zone: UTC+0.0 h is assumed")
			}
			if len(findings) == 0 || findings[0].Code != "startup-race" || findings[0].Confidence != want || slices.ContainsFunc(findings[0].Evidence, assumed) != (zone == "") {
				t.Errorf("%+v; want a race that is %s", findings, want)
			}
		})
	}
}

// If the capture parks early connections, a refused call is no start-up race, because a captured call would have
// waited until the proxy listens.
func TestAParkedCallIsNoRace(t *testing.T) {
	for flags, race := range map[string]bool{"": false, ", '--park=off'": true} { // in any order: subtests
		t.Run(flags, func(t *testing.T) {
			pod := strings.ReplaceAll(startedPod, "istio-proxy", "outrider-proxy")
			pod = strings.Replace(pod, "initContainers: [", "initContainers: [{name: outrider-init, image: x, args: [capture, '-i', '*'"+flags+"]}, ", 1)
			findings := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "outrider-proxy.log": readyLog, "web.log": refusedAt(11)}).Findings
			if got := len(findings) > 0 && findings[0].Code == "startup-race"; got != race {
				t.Errorf("a race: %v, want %v: %+v", got, race, findings)
			}
		})
	}
}

// A proxy that the kubelet replaced, because its image was changed, did not die. If it had to be killed, or if it ended at
// another time, it did.
func TestAProxyThatWasReplaced(t *testing.T) {
	const ended = "restartCount: 1, lastState: {terminated: {exitCode: 0, startedAt: \"2026-03-02T13:00:10Z\", finishedAt: \"2026-03-02T13:01:02Z\"}}, state: {running: {startedAt: \"2026-03-02T13:01:03Z\"}}}"
	pod := strings.Replace(startedPod, "istio-proxy, restartCount: 0, state: {running: {startedAt: \"2026-03-02T13:00:10Z\"}}}", "istio-proxy, "+ended, 1)
	event := func(at, why string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Event, metadata: {name: a, namespace: shop}, involvedObject: {kind: Pod, name: web-1, namespace: shop, fieldPath: \"spec.containers{istio-proxy}\"}, reason: Killing, message: \"Container istio-proxy %s\", count: 1, source: {component: kubelet}, firstTimestamp: %q, lastTimestamp: %q}", why, at, at)
	}
	for name, tt := range map[string]struct {
		pod, events string
		died        bool
	}{
		"replaced":       {pod, event("2026-03-02T13:01:00Z", "definition changed, will be restarted"), false},
		"killed":         {strings.Replace(pod, "exitCode: 0, startedAt: \"2026-03-02T13:00:10Z\"", "exitCode: 137, startedAt: \"2026-03-02T13:00:10Z\"", 1), event("2026-03-02T13:01:00Z", "definition changed, will be restarted"), true},
		"later":          {pod, event("2026-03-02T13:02:00Z", "definition changed, will be restarted"), true},
		"another reason": {pod, event("2026-03-02T13:01:00Z", "failed liveness probe, will be restarted"), true},
		"without a word": {pod, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": tt.pod, "istio-proxy.log": readyLog, "web.log": ""}
			if tt.events != "" {
				files["events.yaml"] = tt.events
			}
			got := diagnoseFiles(t, files)
			died := slices.ContainsFunc(got.Findings, func(f result.Finding) bool { return f.Code == "proxy-died" })
			if died != tt.died || !died && !tt.died && got.Verdict != result.Nothing {
				t.Errorf("%s, %+v; died: want %v", got.Verdict, got.Findings, tt.died)
			}
		})
	}
}

// refusedAt returns the log of an application whose calls are refused at these seconds.
func refusedAt(seconds ...int) (log string) {
	for _, s := range seconds {
		log += fmt.Sprintf("2026-03-02T13:00:%02d.100000Z ERROR config: dial tcp 10.96.8.1:8080: connect: connection refused\n", s)
	}
	return log
}

// diagnoseFiles diagnoses a folder with these files.
func diagnoseFiles(t *testing.T, files map[string]string) result.Report {
	t.Helper()
	folder := t.TempDir()
	for file, text := range files { // in any order
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return diagnoseFolder(t, folder)
}
