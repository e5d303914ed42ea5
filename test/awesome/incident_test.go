package awesome_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/test/awesome"
	"outrider.dev/test/incidents/recorder"
	"outrider.dev/test/ns"
)

// The incident in the corpus that the application reproduces.
const original = "../../testdata/incidents/awesome-app"

// In a pod whose proxy starts late, the fragile form fails as in the incident: with the same log
// line, in its language's words, and the same exit code. The diagnosis is the same, too.
func TestIncident(t *testing.T) {
	t.Parallel()
	ns.RequireRoot(t)
	envoy := os.Getenv("ENVOY")
	if envoy == "" {
		envoy = "../../.cache/envoy/envoy"
	}
	if _, err := os.Stat(envoy); err != nil {
		t.Skipf("no Envoy, which make deps installs: %v", err)
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "outrider.dev/cmd/outrider-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	want := diagnosed(t, original)
	var all []recorder.Incident
	for _, language := range awesome.Languages {
		all = append(all, recorder.New("awesome-"+language, "istio", "held-race"))
	}
	machine, err := recorder.Open(recorder.Options{Root: "../..", Bin: bin, Envoy: envoy}, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Close)
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := c.Missing(); err != nil {
				t.Skipf("needs what make test-deps installs: %v", err)
			}
			out := t.TempDir()
			if err := os.WriteFile(filepath.Join(out, "expected.yaml"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			seen, err := machine.Record(c)
			if err == nil {
				err = seen.Write(out)
			}
			if err != nil {
				t.Fatal(err)
			}
			folder := filepath.Join(out, c.Name)
			if got := failure(t, folder); got != failure(t, original) {
				t.Errorf("%+v, want %+v", got, failure(t, original))
			}
			got := diagnosed(t, folder)
			if got.Verdict != want.Verdict || got.Findings[0].Code != want.Findings[0].Code || got.Findings[0].Container != want.Findings[0].Container {
				t.Errorf("%s\nwant as %s", got.Sentence, want.Sentence)
			}
		})
	}
}

// An end describes how the application failed.
type end struct {
	code    int32
	refused bool // its log says that a connection was refused
	address bool // its log names the address that it called
}

func failure(t *testing.T, folder string) (e end) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "pod.yaml"))
	var pod corev1.Pod
	if err == nil {
		err = yaml.Unmarshal(text, &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if last := c.LastTerminationState.Terminated; c.Name == "awesome-app" && last != nil {
			e.code = last.ExitCode
		}
	}
	logs, err := filepath.Glob(filepath.Join(folder, "awesome-app*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e.refused = e.refused || regexp.MustCompile(`(?i)connection refused|ECONNREFUSED`).Match(text)
		e.address = e.address || regexp.MustCompile(`http://[a-z.-]*config`).Match(text)
	}
	return e
}

func diagnosed(t *testing.T, folder string) diagnose.Report {
	t.Helper()
	set, err := evidence.Read(t.Context(), evidence.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Pods) != 1 {
		t.Fatalf("%d pods in %s", len(set.Pods), folder)
	}
	r, err := diagnose.Diagnose(t.Context(), set.Pods[0], diagnose.Options{})
	if err != nil || len(r.Findings) == 0 {
		t.Fatalf("%s: %d findings, %v", folder, len(r.Findings), err)
	}
	return r
}
