package podspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/model/kubelet"
)

const sec = time.Second

func TestLifecycle(t *testing.T) {
	tests := map[string]struct {
		spec string
		want kubelet.Pod
	}{
		"nothing said is left to the API's defaults": {
			spec: `{containers: [{name: app}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{{Name: "app"}}},
		},
		"policies, sidecars and a grace period": {
			spec: `{restartPolicy: OnFailure, terminationGracePeriodSeconds: 45,
  initContainers: [{name: migrate}, {name: proxy, restartPolicy: Always}], containers: [{name: app, restartPolicy: Never}]}`,
			want: kubelet.Pod{Restart: kubelet.OnFailure, Grace: 45 * sec,
				Init:       []kubelet.Container{{Name: "migrate"}, {Name: "proxy", Restart: kubelet.Always}},
				Containers: []kubelet.Container{{Name: "app", Restart: kubelet.Never}}},
		},
		"every kind of hook": {
			spec: `{containers: [
  {name: a, lifecycle: {postStart: {exec: {command: [a]}}, preStop: {httpGet: {port: 1}}}},
  {name: b, lifecycle: {postStart: {tcpSocket: {port: 1}}, preStop: {sleep: {seconds: 5}}}},
  {name: c, lifecycle: {preStop: {}}}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{
				{Name: "a", PostStart: kubelet.Exec, PreStop: kubelet.HTTPGet},
				{Name: "b", PostStart: kubelet.TCPSocket, PreStop: kubelet.Sleep},
				{Name: "c"}}},
		},
		"every kind of probe, with its numbers": {
			spec: `{containers: [
  {name: a, startupProbe: {exec: {command: [a]}, initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 4, terminationGracePeriodSeconds: 6},
   livenessProbe: {httpGet: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}, successThreshold: 5}},
  {name: b, livenessProbe: {grpc: {port: 1}}}]}`,
			want: kubelet.Pod{Containers: []kubelet.Container{
				{Name: "a",
					Startup:   kubelet.Probe{Handler: kubelet.Exec, InitialDelay: sec, Period: 2 * sec, Timeout: 3 * sec, Failures: 4, Grace: 6 * sec},
					Liveness:  kubelet.Probe{Handler: kubelet.HTTPGet},
					Readiness: kubelet.Probe{Handler: kubelet.TCPSocket, Successes: 5}},
				{Name: "b", Liveness: kubelet.Probe{Handler: kubelet.GRPC}}}},
		},
		"a grace period of 0 is not the default": {
			spec: `{terminationGracePeriodSeconds: 0, containers: [{name: app}]}`,
			want: kubelet.Pod{Grace: time.Nanosecond, Containers: []kubelet.Container{{Name: "app"}}},
		},
		"what the API would refuse is left out": {
			spec: `{restartPolicy: Sometimes, terminationGracePeriodSeconds: 9223372036854775807,
  containers: [{name: app, restartPolicy: "", livenessProbe: {periodSeconds: -5, failureThreshold: -1, terminationGracePeriodSeconds: -1}}]}`,
			want: kubelet.Pod{Grace: (1<<31 - 1) * sec, Containers: []kubelet.Container{{Name: "app"}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, _, err := Parse("pod.yaml", []byte("kind: Pod\nmetadata: {name: p}\nspec: "+tt.spec))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, Lifecycle(&objects[0].Pod)); diff != "" {
				t.Errorf("Lifecycle (-want +got):\n%s", diff)
			}
		})
	}
}

// The simulator and the verifier put a plan and a lifecycle together.
func TestLifecycleHasTheContainersOfThePlan(t *testing.T) {
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _, err := Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			r, err := Read(&o.Pod)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for _, c := range r.Containers {
				want = append(want, c.Name+" "+string(c.Kind))
			}
			life := Lifecycle(&o.Pod)
			for _, c := range life.Init {
				kind := "init"
				if c.Restart == kubelet.Always {
					kind = "sidecar"
				}
				got = append(got, c.Name+" "+kind)
			}
			for _, c := range life.Containers {
				got = append(got, c.Name+" ")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-Read +Lifecycle):\n%s", strings.TrimPrefix(file, "testdata/pods/"), o, diff)
			}
		}
	}
}
