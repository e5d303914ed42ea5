package kubelet

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:embed testdata/computepodactions-v1.34.4.txt
var realAnswers string

// decide returns the same as the real kubelet's function for every recorded state.
func TestDecideAsTheRealKubelet(t *testing.T) {
	n := 0
	for line := range strings.Lines(realAnswers) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		n++
		question, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
		s := stateOf(t, question)
		got := answerOf(s.decide())
		if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
			t.Errorf("%s (-real +ours):\n%s", question, diff)
		}
	}
	if n < 500 {
		t.Errorf("%d answers, want 500 or more", n)
	}
}

// stateOf returns the state that the recorded input of the real function describes.
func stateOf(t *testing.T, question string) State {
	t.Helper()
	w := strings.Fields(question)
	p := Pod{Restart: RestartPolicy(w[0])}
	for i, described := range w[2:] {
		f := strings.Split(described, "/")
		c := Container{Name: fmt.Sprint(i)}
		if f[3] != "none" {
			c.Startup = everySecond
		}
		if f[4] != "none" {
			c.Liveness = everySecond
		}
		switch f[0] {
		case "sidecar":
			c.Restart = Always
			p.Init = append(p.Init, c)
		case "init":
			p.Init = append(p.Init, c)
		default:
			p.Containers = append(p.Containers, c)
		}
	}
	s := New(p, Minor(34))
	s.sandbox.is = sandboxState(slices.Index([]string{"none:", "ready:", "dead:"}, w[1]))
	results := []string{"-", "unknown", "success", "failure"}
	for i, described := range w[2:] {
		f := strings.Split(described, "/")
		c := &s.c[i]
		c.life.run = run(slices.Index([]string{"absent", "running", "exited"}, f[1]))
		if _, err := fmt.Sscan(f[2], &c.life.code); err != nil {
			t.Fatal(err)
		}
		c.probes.of[startupProbe].result = max(unseen, result(slices.Index(results, f[3])))
		c.probes.of[livenessProbe].result = max(unseen, result(slices.Index(results, f[4])))
	}
	return s
}

func answerOf(tasks []task) []string {
	out := []string{}
	for _, t := range tasks {
		switch t.kind {
		case killPod:
			out = append(out, "kill-pod")
		case makeBox:
			out = append(out, "sandbox")
		case killOne:
			out = append(out, fmt.Sprint("kill:", t.i))
		default:
			out = append(out, fmt.Sprint("start:", t.i))
		}
	}
	return out
}
