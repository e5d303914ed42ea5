package world

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// A Pod is a pod that was created in the cluster.
type Pod struct {
	Namespace, Name, UID string

	w       *World
	made    time.Time // time before the request to create the pod
	deleted time.Time // time before the request to delete the pod; zero: not yet
	asMade  *corev1.Pod

	journals map[string][]state.Entry // journals of gates, by container
}

// Create creates a pod. The result contains the pod after admission.
func (w *World) Create(ctx context.Context, pod *corev1.Pod) (*Pod, error) {
	made := time.Now()
	got, err := w.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return w.adopt(got, made), nil
}

func (w *World) adopt(pod *corev1.Pod, made time.Time) *Pod {
	return &Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), w: w, made: made, asMade: pod}
}

// Adopt returns pods that another program created: the pods of a namespace that have a label.
func (w *World) Adopt(ctx context.Context, namespace, label string) (out []*Pod, err error) {
	list, err := w.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		out = append(out, w.adopt(&list.Items[i], list.Items[i].CreationTimestamp.Time))
	}
	return out, nil
}

// Spec returns the pod after admission.
func (p *Pod) Spec() *corev1.Pod { return p.asMade }

// Plan returns the plan that the pod's spec declares.
func (p *Pod) Plan() (startup.Plan, error) {
	reading, err := podspec.Read(p.asMade)
	if err != nil {
		return startup.Plan{}, err
	}
	return reading.Plan(), nil
}

// Status returns the newest status from the API server. The result is false if the pod is gone.
func (p *Pod) Status() (corev1.PodStatus, bool) {
	all := p.statuses()
	if len(all) == 0 {
		return corev1.PodStatus{}, true
	}
	last := all[len(all)-1]
	return last.pod.Status, !last.gone
}

func (p *Pod) statuses() []seen {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.pods[p.UID]
}

// Addressed returns the time at which the API first showed the pod's IP; false if it never did.
func (p *Pod) Addressed() (time.Time, bool) {
	for _, s := range p.statuses() {
		if s.pod.Status.PodIP != "" {
			return s.at, true
		}
	}
	return time.Time{}, false
}

// Ready reports whether the pod exists and its condition Ready is true.
func (p *Pod) Ready() bool {
	status, there := p.Status()
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady {
			return there && c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Restarts returns the restart count of a container in the API.
func (p *Pod) Restarts(container string) int {
	for _, c := range p.Containers() {
		if c.Name == container {
			return int(c.RestartCount)
		}
	}
	return 0
}

// Containers returns the statuses of all containers in the API, the init containers first.
func (p *Pod) Containers() []corev1.ContainerStatus {
	status, _ := p.Status()
	return slices.Concat(status.InitContainerStatuses, status.ContainerStatuses)
}

// Until waits until a predicate about the pod holds. Its error describes the pod.
func (p *Pod) Until(ctx context.Context, what string, holds func() bool) error {
	if err := p.w.Until(ctx, p.Name+": "+what, holds); err != nil {
		return fmt.Errorf("%w\n%s", err, p.Describe())
	}
	return nil
}

// Delete deletes the pod, and waits until it is gone.
func (p *Pod) Delete(ctx context.Context) error {
	if err := p.StartDelete(ctx); err != nil {
		return err
	}
	return p.Until(ctx, "gone", func() bool {
		_, there := p.Status()
		return !there
	})
}

// StartDelete requests the deletion of the pod and does not wait.
func (p *Pod) StartDelete(ctx context.Context) error {
	if !p.deleted.IsZero() {
		return nil
	}
	p.Timeline() // stores the journals while they are readable
	p.deleted = time.Now()
	err := p.w.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Remove deletes a pod that a test no longer needs, without a grace period.
func (p *Pod) Remove(ctx context.Context) {
	none := int64(0)
	_ = p.w.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	p.w.logs.forget(p.UID)
}

// PID returns the process ID, in the node's namespace, of a container's first process, or of the
// sandbox's if the name is empty. It returns 0 if the container does not run.
func (p *Pod) PID(container string) int { return p.w.runtime.Running(p.UID)[container] }

// Execs returns how often the kubelet has started a process in a container, for a probe or a hook.
func (p *Pod) Execs(container string) int { return p.w.runtime.Execs(p.UID, container) }

// Kill sends SIGKILL to the first process of a container, or of the sandbox.
func (p *Pod) Kill(container string) error {
	pid := p.PID(container)
	if pid == 0 {
		return fmt.Errorf("%s: container %q does not run", p.Name, container)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// CutOff drops all packets to and from the pod, as if its node had died, until restore is called.
func (p *Pod) CutOff() (restore func() error, err error) {
	pids := slices.Collect(maps.Values(p.w.runtime.Running(p.UID)))
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process of %s runs", p.Name)
	}
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pids[0])) // an open file stays valid when the container is restarted
	if err != nil {
		return nil, err
	}
	nft := func(rules string) error {
		cmd := exec.Command("nsenter", "--net=/proc/self/fd/3", "nft", "--file", "-")
		cmd.ExtraFiles, cmd.Stdin = []*os.File{netns}, strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	restore = func() error {
		defer netns.Close()
		return nft("delete table inet cut_off")
	}
	return restore, nft(`table inet cut_off {
		chain in { type filter hook input priority -500; policy drop; }
		chain out { type filter hook output priority -500; policy drop; }
	}`)
}

// KillBelow sends SIGKILL to the descendant of a container's first process that has the given name.
func (p *Pod) KillBelow(container, name string) error {
	pid, err := p.Below(container, name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// Below returns the process ID of the descendant of a container's first process that has the given name.
func (p *Pod) Below(container, name string) (pid int, err error) {
	// The kernel lists children by the thread that forked them.
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID(container)))
	if err != nil {
		return 0, err
	}
	var children []byte
	for _, task := range tasks {
		more, _ := os.ReadFile(task) // a thread may have exited
		children = append(children, more...)
	}
	for _, field := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.HasPrefix(strings.TrimSpace(string(comm)), name) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("%s: no process %q below container %s", p.Name, name, container)
}

// Describe returns the known facts about a pod, for the message of a failed test.
func (p *Pod) Describe() string {
	var b strings.Builder
	status, there := p.Status()
	fmt.Fprintf(&b, "%s/%s: there %t, phase %s %s %s, IP %q\n", p.Namespace, p.Name, there, status.Phase, status.Reason, status.Message, status.PodIP)
	for _, c := range p.Containers() {
		fmt.Fprintf(&b, "  %s: ready %t, restarts %d, %s\n", c.Name, c.Ready, c.RestartCount, stateWords(c.State))
		if c.LastTerminationState.Terminated != nil {
			fmt.Fprintf(&b, "    before: %s\n", stateWords(c.LastTerminationState))
		}
	}
	b.WriteString(p.Timeline().String())
	lines := p.w.logs.of(p.UID)
	for _, l := range lines[max(0, len(lines)-60):] {
		fmt.Fprintf(&b, "%s %s#%d %.400s\n", l.At.Format("15:04:05.000"), l.Container, l.Restart, l.Text)
	}
	return b.String()
}

func stateWords(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "runs"
	case s.Terminated != nil:
		return fmt.Sprintf("ended %d %s %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
	case s.Waiting != nil:
		return fmt.Sprintf("waits %s %s", s.Waiting.Reason, s.Waiting.Message)
	}
	return "unknown"
}

// Time returns the time of an event in the pod's timeline.
func (p *Pod) Time(e startup.Event) time.Time { return p.made.Add(e.At) }

// SandboxAddress returns the pod's IPv4 address from its sandbox's network namespace, which has it long before the API.
func (p *Pod) SandboxAddress() netip.Addr {
	pid := p.PID("")
	if pid == 0 {
		return netip.Addr{}
	}
	out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "ip", "-4", "-json", "address", "show", "dev", "eth0").Output()
	var links []struct {
		Addresses []struct{ Local netip.Addr } `json:"addr_info"`
	}
	if err != nil || json.Unmarshal(out, &links) != nil || len(links) == 0 || len(links[0].Addresses) == 0 {
		return netip.Addr{}
	}
	return links[0].Addresses[0].Local
}
