package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// status writes into the pod the status that the kubelet would report for the observations.
func (s *Sight) status() {
	p := s.pod
	created := metav1.NewTime(s.began.Truncate(time.Second))
	p.CreationTimestamp, p.Status.StartTime = created, &created
	if !s.deleted.IsZero() {
		grace := int64(30)
		if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(s.deleted.Add(seconds(int(grace))).Truncate(time.Second))), &grace
	}
	for i := range p.Spec.InitContainers {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s.containerStatus(&p.Spec.InitContainers[i], true))
	}
	all, initialized := true, true
	for _, i := range p.Status.InitContainerStatuses {
		initialized = initialized && i.Ready
	}
	for i := range p.Spec.Containers {
		status := s.containerStatus(&p.Spec.Containers[i], false)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		all = all && status.Ready
	}
	p.Status.Phase = corev1.PodRunning
	if !initialized {
		p.Status.Phase = corev1.PodPending
	}
	if c := p.Status.ContainerStatuses; len(c) == 1 && c[0].State.Terminated != nil && p.Spec.RestartPolicy == corev1.RestartPolicyNever {
		p.Status.Phase = corev1.PodSucceeded // its sidecars end with it
	}
	word := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	for _, c := range []struct {
		of corev1.PodConditionType
		is bool
	}{{corev1.PodScheduled, true}, {corev1.PodInitialized, initialized}, {corev1.ContainersReady, all}, {corev1.PodReady, all}} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c.of, Status: word[c.is]})
	}
}

func (s *Sight) containerStatus(c *corev1.Container, init bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	lives := s.lives[c.Name]
	n := len(lives)
	if n == 0 {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		return status
	}
	status.RestartCount = int32(n - 1)
	last := lives[n-1]
	sidecar := c.RestartPolicy != nil
	again := s.pod.Spec.RestartPolicy != corev1.RestartPolicyNever && s.deleted.IsZero() && (!init || sidecar || last.code != 0)
	if n > 1 {
		status.LastTerminationState.Terminated = lives[n-2].terminated()
	}
	switch {
	case last.finished.IsZero():
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(last.started.Truncate(time.Second))}
		status.Started = new(true)
		status.Ready = s.ready[c.Name] || c.ReadinessProbe == nil
		if init && !sidecar {
			status.Ready = false
		}
	case again:
		status.LastTerminationState.Terminated = last.terminated()
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: fmt.Sprintf("back-off 10s restarting failed container=%s pod=%s_%s(%s)", c.Name, s.pod.Name, s.pod.Namespace, s.pod.UID)}
	default:
		status.LastTerminationState = corev1.ContainerState{}
		status.State.Terminated = last.terminated()
		status.Ready = init && last.code == 0
	}
	return status
}

func (l *life) terminated() *corev1.ContainerStateTerminated {
	reason := "Error"
	if l.code == 0 {
		reason = "Completed"
	}
	return &corev1.ContainerStateTerminated{ExitCode: int32(l.code), Reason: reason, StartedAt: metav1.NewTime(l.started.Truncate(time.Second)), FinishedAt: metav1.NewTime(l.finished.Truncate(time.Second))}
}

// longest is the maximum number of bytes of a log in a folder: beginning and end, half each.
const longest = 5 << 10

func (s *Sight) log(l *life) string {
	var b strings.Builder
	for _, line := range l.lines {
		if s.stamped {
			b.WriteString(line.at.UTC().Format("2006-01-02T15:04:05.000000000Z") + " ")
		}
		b.WriteString(line.text + "\n")
	}
	return b.String()
}

// keep selects the lines of Envoy's log that describe its state: Envoy also logs an outline of its
// whole configuration.
func keep(of string, lines []line) []line {
	if of != "envoy" {
		return lines
	}
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool {
		return strings.Contains(l.text, "server.cc:467]") || strings.Contains(l.text, " map: ")
	})
}

// unset matches fields without information.
var unset = regexp.MustCompile(`(?m)^ *(?:eventTime|lastProbeTime|lastTransitionTime|resources|lastState|imageID|reportingInstance): (?:null|""|\{\})\n`)

// Write creates the folder of a case below out, and adds its entry to the list of expectations,
// expected.yaml, which must exist.
func (s *Sight) Write(out string) error {
	s.status()
	dir := filepath.Join(out, s.Name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]string{}
	object, err := yaml.Marshal(s.pod)
	if err != nil {
		return err
	}
	files["pod.yaml"] = string(object)
	list, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": s.events})
	if err != nil {
		return err
	}
	files["events.yaml"] = string(list)
	f := formOf[s.form]
	for name, lives := range s.lives { // any order: a file for each
		if n := len(lives); !(name == f.proxy && s.silent) && name != f.init {
			for i, end := range map[int]string{n - 1: ".log", n - 2: ".previous.log"} { // any order: two files
				if i >= 0 {
					lives[i].lines = keep(name, lives[i].lines)
					files[name+end] = s.log(lives[i])
				}
			}
		}
	}
	for name, text := range files { // any order: a file for each
		if strings.HasSuffix(name, ".yaml") {
			text = unset.ReplaceAllString(text, "")
		}
		if len(text) > longest && strings.HasSuffix(name, ".log") {
			return fmt.Errorf("%s has %d bytes, more than %d", name, len(text), longest)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return s.expect(filepath.Join(out, "expected.yaml"))
}

// expect replaces the line of the case in the list.
func (s *Sight) expect(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	verdict, more := "nothing", ""
	if s.code != "" {
		of := s.app()
		switch s.of {
		case "proxy":
			of = formOf[s.form].proxy
		case "":
		default:
			of = s.of
		}
		verdict, more = "found", fmt.Sprintf(" code: %s, container: %s,", s.code, of)
		if s.vague {
			verdict = "undecided"
		}
	}
	entry := fmt.Sprintf("%s: {verdict: %s,%s origin: recorded, split: %s}", s.Name, verdict, more, split(s.Name))
	const mark = "# One line each from here on: recorded by make incidents.\n"
	before, after, _ := strings.Cut(string(text), mark)
	lines := slices.DeleteFunc(strings.Split(after, "\n"), func(l string) bool { return l == "" || strings.HasPrefix(l, s.Name+": ") })
	lines = append(lines, entry)
	slices.Sort(lines)
	return os.WriteFile(file, []byte(strings.TrimRight(before, "\n")+"\n\n"+mark+strings.Join(lines, "\n")+"\n"), 0o644)
}
