package diagnose

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/doctor/diagnose/result"
)

// An input is a pod with its logs, and what its diagnosis has to say. The lines of pod are the pod itself and its
// containers, as podOf reads them; the keys of logs are names of files.
type input struct {
	pod       string
	logs      map[string]string
	want      string // the verdict and the code of the first finding, with a container after @, that container; empty: any
	says, not string // regular expressions about what the report says, with the code and the confidence of each finding
}

// outcome returns what is wrong with the diagnosis of an input; empty: nothing.
func (in input) outcome(t *testing.T) string {
	files := map[string]string{"pod.json": podOf(t, in.pod)}
	maps.Copy(files, in.logs)
	r := diagnoseFiles(t, files)
	want, container, named := strings.Cut(in.want, "@")
	said := saidBy(r)
	switch {
	case want != "" && key(r) != want:
		return fmt.Sprintf("%s, want %s: %s", key(r), want, said)
	case named && r.Findings[0].Container != container:
		return fmt.Sprintf("of %s, want %s: %s", r.Findings[0].Container, container, said)
	case in.says != "" && !regexp.MustCompile(in.says).MatchString(said):
		return fmt.Sprintf("it does not say %s: %s", in.says, said)
	case in.not != "" && regexp.MustCompile(in.not).MatchString(said):
		return fmt.Sprintf("it says %s: %s", in.not, said)
	}
	return ""
}

func saidBy(r result.Report) string {
	said := r.Sentence
	for _, f := range r.Findings {
		said += fmt.Sprintf("\n  %s %s of %s: %s. Do: %s", f.Confidence, f.Code, f.Container, f.Sentence, f.Remedy.Sentence)
	}
	return said
}

// all runs the inputs, and prints how many are right.
func all(t *testing.T, inputs map[string]input) {
	right := 0
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		t.Run(name, func(t *testing.T) {
			if wrong := inputs[name].outcome(t); wrong != "" {
				t.Error(wrong)
				return
			}
			right++
		})
	}
	t.Logf("%d of %d are right", right, len(inputs))
}

// begun is the time from which the seconds in the lines of podOf count.
var begun = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// podOf returns a pod as JSON. The first line has its own settings (job, deleted=SECONDS, reason=REASON, node=NODE, a
// key=value with a slash for an annotation), each other line a container: its name and its settings, words or name=value:
// init, native, probe (a startup probe), waits (CrashLoopBackOff), image, args and env (with commas), port, run=FROM-TO:EXIT, then=FROM (it runs
// since), restarts.
func podOf(t *testing.T, lines string) string {
	t.Helper()
	at := func(seconds string) metav1.Time {
		n, err := strconv.Atoi(seconds)
		if err != nil {
			t.Fatal(err)
		}
		return metav1.NewTime(begun.Add(time.Duration(n) * time.Second))
	}
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	pod.Name, pod.Namespace, pod.CreationTimestamp = "web-1", "shop", at("-3")
	pod.Annotations, pod.Status.Phase, pod.Status.StartTime = map[string]string{}, corev1.PodRunning, &metav1.Time{Time: begun.Add(-2 * time.Second)}
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		if i == 0 {
			for _, w := range words[1:] {
				name, value, _ := strings.Cut(w, "=")
				switch {
				case name == "job":
					pod.Spec.RestartPolicy = corev1.RestartPolicyNever
				case name == "deleted":
					pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(at(value)), new(int64)
				case name == "reason":
					pod.Status.Reason, pod.Status.Phase = value, corev1.PodFailed
				case name == "node":
					pod.Spec.NodeName = value
				default:
					pod.Annotations[name] = value
				}
			}
			continue
		}
		c, s := corev1.Container{Name: words[0], Image: "registry.example/" + words[0] + ":1"}, corev1.ContainerStatus{Name: words[0]}
		init := false
		var ended *corev1.ContainerStateTerminated
		for _, w := range words[1:] {
			name, value, _ := strings.Cut(w, "=")
			switch name {
			case "init", "native":
				if init = true; name == "native" {
					c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				}
			case "probe":
				c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(15021)}}}
			case "waits":
				s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			case "image":
				c.Image = value
			case "args":
				c.Args = strings.Split(value, ",")
			case "env":
				for one := range strings.SplitSeq(value, ",") {
					name, value, _ := strings.Cut(one, "=")
					c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
				}
			case "port":
				n, _ := strconv.Atoi(value)
				c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: int32(n)})
			case "restarts":
				n, _ := strconv.Atoi(value)
				s.RestartCount = int32(n)
			case "then":
				s.State.Running, s.Ready = &corev1.ContainerStateRunning{StartedAt: at(value)}, true
			case "run":
				span, exit, _ := strings.Cut(value, ":")
				from, to, _ := strings.Cut(span, "-")
				n, _ := strconv.Atoi(exit)
				ended = &corev1.ContainerStateTerminated{StartedAt: at(from), FinishedAt: at(to), ExitCode: int32(n), Reason: map[bool]string{true: "Completed", false: "Error"}[n == 0]}
			default:
				t.Fatalf("%s: no setting %s", words[0], name)
			}
		}
		switch {
		case ended != nil && (s.State.Running != nil || s.State.Waiting != nil):
			s.LastTerminationState.Terminated = ended
			s.RestartCount = max(s.RestartCount, map[bool]int32{true: 1, false: 0}[s.State.Running != nil])
		case ended != nil:
			s.State.Terminated = ended
		}
		if init {
			pod.Spec.InitContainers, pod.Status.InitContainerStatuses = append(pod.Spec.InitContainers, c), append(pod.Status.InitContainerStatuses, s)
		} else {
			pod.Spec.Containers, pod.Status.ContainerStatuses = append(pod.Spec.Containers, c), append(pod.Status.ContainerStatuses, s)
		}
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// iptables is the init container of Istio's mesh, and mesh a pod of it whose proxy runs since second 4.
const (
	iptables = "istio-init init args=istio-iptables,-p,15001,-z,15006,-u,1337,-m,REDIRECT,-i,*,-x,,-b,*,-d,15090 run=0-0:0\n"
	alone    = "pod\napp run=5-30:1 then=60\n"
	tests    = "pod job\ntest run=3-60:1\n"
)

func mesh(app, proxy string) string { return "pod\n" + iptables + app + "\nistio-proxy " + proxy }

func log(app string) map[string]string { return map[string]string{"app.previous.log": app} }

func testLog(lines string) map[string]string { return map[string]string{"test.log": lines} }
