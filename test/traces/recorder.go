package traces

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"outrider.dev/test/cluster/containerd"
)

// KubeletLog has the log levels, by source file, with which the cluster's kubelet logs its relists and the syncs of
// a pod.
var KubeletLog = map[string]int{"generic": 5, "kubelet": 4}

// namespace is the namespace of all recorded pods.
const namespace = metav1.NamespaceDefault

// Options configure a recorder. All are required.
type Options struct {
	Version    string // version of Kubernetes, written into the traces
	Kubeconfig string
	Containerd string // path of containerd's socket
	KubeletLog string // path of the kubelet's log
	Dir        string // directory in which containers write their observations
}

// A Recorder watches a cluster from inside. It can record several pods at once.
type Recorder struct {
	options Options
	client  kubernetes.Interface
	runtime *containerd.Log

	mu     sync.Mutex
	status map[string][]seenPod // by uid of the pod
	events map[string][]seenEvent
}

type seenPod struct {
	at   time.Time
	kind watch.EventType
	pod  corev1.Pod
}

type seenEvent struct {
	at    time.Time
	event corev1.Event
}

// NewRecorder starts to watch the cluster, until ctx ends.
func NewRecorder(ctx context.Context, o Options) (*Recorder, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400 // requests must not be throttled, because their times are recorded
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	r := &Recorder{options: o, client: client, status: map[string][]seenPod{}, events: map[string][]seenEvent{}}
	if r.runtime, err = containerd.Follow(ctx, o.Containerd); err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, err := client.CoreV1().Events(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	go r.follow(pods)
	go r.follow(events)
	return r, nil
}

// follow records the events of a watch until it ends.
func (r *Recorder) follow(w watch.Interface) {
	for e := range w.ResultChan() {
		now := time.Now()
		r.mu.Lock()
		switch object := e.Object.(type) {
		case *corev1.Pod:
			uid := string(object.UID)
			r.status[uid] = append(r.status[uid], seenPod{now, e.Type, *object})
		case *corev1.Event:
			uid := string(object.InvolvedObject.UID)
			if e.Type != watch.Deleted {
				r.events[uid] = append(r.events[uid], seenEvent{now, *object})
			}
		}
		r.mu.Unlock()
	}
}

// A recording is a pod under observation.
type recording struct {
	*Recorder
	scenario Scenario
	dir      string
	uid      string
	made     time.Time
	faults   []fault
}

// A fault is a command of the script that was executed.
type fault struct {
	at   time.Time
	what string
}

// Record runs a scenario and returns its trace. When it returns, the pod is gone or being deleted.
func (r *Recorder) Record(ctx context.Context, s Scenario) (Trace, error) {
	// Each attempt has its own directory, because containers of a previous one may still be writing.
	dir := filepath.Join(r.options.Dir, fmt.Sprintf("%s.%d", s.Name, time.Now().UnixNano()))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return Trace{}, err
	}
	one := &recording{Recorder: r, scenario: s, dir: dir}
	one.made = time.Now()
	pod := s.manifest(dir)
	made, err := r.client.CoreV1().Pods(namespace).Create(ctx, &pod, metav1.CreateOptions{})
	if err != nil {
		return Trace{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	defer r.delete(context.WithoutCancel(ctx), s.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	one.uid = string(made.UID)
	for _, c := range s.Script {
		if err := one.carryOut(ctx, c); err != nil {
			return Trace{}, fmt.Errorf("%s: %s %s: %w", s.Name, c.Do, c.What, err)
		}
	}
	return one.trace()
}

func (r *Recorder) delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.client.CoreV1().Pods(namespace).Delete(ctx, name, o)
}

// patience is the time limit of each wait of a script, and of the whole script.
const patience = 3 * time.Minute

func (r *recording) carryOut(ctx context.Context, c Command) error {
	var err error
	switch {
	case c.Do == "until" && c.When == "":
		err = r.await(ctx, func() bool { return r.gone() || time.Since(r.made) > c.After })
	case c.When == "":
		err = r.await(ctx, func() bool { return time.Since(r.made) > c.After })
	default:
		err = r.await(ctx, func() bool { return r.reached(c) })
		time.Sleep(c.After)
	}
	if err != nil {
		return err
	}
	if c.Do != "until" {
		r.faults = append(r.faults, fault{time.Now(), c.Do + " " + c.What})
	}
	switch c.Do {
	case "delete":
		return r.delete(ctx, r.scenario.Name, metav1.DeleteOptions{})
	case "kill":
		name := c.What
		if name == "sandbox" {
			name = ""
		}
		return kill(r.runtime.Running(r.uid)[name])
	case "reboot":
		// any order: all processes are killed.
		for _, pid := range r.runtime.Running(r.uid) {
			if err := kill(pid); err != nil {
				return err
			}
		}
	case "image":
		return exec.CommandContext(ctx, "ctr", "images", "tag", Image, r.scenario.lateImage()).Run()
	}
	return nil
}

func kill(pid int) error {
	if pid == 0 {
		return fmt.Errorf("does not run")
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func (r *recording) await(ctx context.Context, done func() bool) error {
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s", patience)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (r *recording) reached(c Command) bool {
	switch {
	case c.State == "runs":
		text, _ := os.ReadFile(filepath.Join(r.dir, "log"))
		return strings.Count(string(text), " "+c.When+" runs\n") >= c.Count
	case c.When != "pod":
		return r.runtime.Starts(r.uid, c.When) >= c.Count
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.status[r.uid]
	return len(seen) > 0 && condition(seen[len(seen)-1].pod, corev1.PodReady)
}

func (r *recording) gone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.status[r.uid]
	return len(seen) > 0 && seen[len(seen)-1].kind == watch.Deleted
}

func condition(pod corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
