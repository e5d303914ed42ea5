package calls

import (
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/internal/doctor/evidence/gather"
)

// A wrapper's word for a failure gives way to the cause that the stack trace of the same failure names.
func TestATimeOutThatWasARefusal(t *testing.T) {
	t.Parallel()
	const (
		wrapped = "2026-03-02T13:00:11.100Z INFO connect timed out: http://config.shop:8888\n"
		trace   = "2026-03-02T13:00:11.300Z ERROR the start failed\njava.lang.IllegalStateException: no settings\n\tat a.B.c(B.java:1)\n"
		cause   = "Caused by: java.net.ConnectException: I/O error on http://config.shop:8888/web: Connection refused\n"
	)
	for name, c := range map[string]struct {
		log  string
		want []Failure
	}{
		"the cause says so":              {wrapped + trace + cause, []Failure{Refused}},
		"the cause is of another call":   {wrapped + trace + "Caused by: java.net.ConnectException: I/O error on http://store.shop:8888/web: Connection refused\n", []Failure{TimedOut, Refused}},
		"a line of its own, no cause":    {wrapped + "2026-03-02T13:00:11.300Z ERROR http://config.shop:8888/web: Connection refused\n", []Failure{TimedOut, Refused}},
		"it came long after":             {wrapped + "2026-03-02T13:00:19.300Z ERROR the start failed\n" + cause, []Failure{TimedOut, Refused}},
		"it had timed out several times": {wrapped + wrapped + trace + cause, []Failure{TimedOut, Refused}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web}]}\nstatus: {containerStatuses: [{name: web, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, startedAt: \"2026-03-02T13:00:10Z\", finishedAt: \"2026-03-02T13:00:20Z\"}}}]}\n"
			for file, text := range map[string]string{"pod.yaml": pod, "web.previous.log": c.log} { // in any order
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			set, err := gather.Read(t.Context(), gather.Options{}, folder)
			if err != nil {
				t.Fatal(err)
			}
			read, err := Read(t.Context(), set.Pods[0], nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var got []Failure
			for _, y := range read.Calls {
				got = append(got, y.Failure)
			}
			if len(got) != len(c.want) || got[0] != c.want[0] || got[len(got)-1] != c.want[len(c.want)-1] {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
