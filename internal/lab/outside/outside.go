// Package outside records what an operator sees of a pod from outside: its status, with times in whole seconds,
// and the logs of the last two runs of each container. A diagnosis from only these can then be compared with what
// really happened.
package outside

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

// maxLog is the number of bytes at the beginning of each log that are recorded; the rest is dropped.
const maxLog = 16 << 20

// A View records the status and logs of a pod. Its methods may be called concurrently.
type View struct {
	mu   sync.Mutex
	pod  *corev1.Pod
	dir  string
	logs map[string]*log
	err  error // the first error in writing a log
}

type log struct {
	file  *os.File
	bytes int
}

// New creates the view of a pod that the kubelet received at that time. Its logs are in temporary files, which
// Close removes.
func New(pod *corev1.Pod, at time.Time) (*View, error) {
	dir, err := os.MkdirTemp("", "outrider-outside-*")
	if err != nil {
		return nil, err
	}
	v := &View{pod: pod.DeepCopy(), dir: dir, logs: map[string]*log{}}
	v.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	v.pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: whole(at)}
	for _, c := range v.pod.Spec.InitContainers {
		v.pod.Status.InitContainerStatuses = append(v.pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: c.Name})
	}
	for _, c := range v.pod.Spec.Containers {
		v.pod.Status.ContainerStatuses = append(v.pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name})
	}
	return v, nil
}

// Close removes the files of the view. It also returns the first error of writing a log.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	errs := []error{v.err}
	for _, l := range v.logs { // in any order: each is closed
		errs = append(errs, l.file.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(v.dir))...)
}

// whole rounds a time down to whole seconds, as in the API.
func whole(at time.Time) *metav1.Time { return &metav1.Time{Time: at.UTC().Truncate(time.Second)} }

func (v *View) status(container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{v.pod.Status.InitContainerStatuses, v.pod.Status.ContainerStatuses} {
		if i := slices.IndexFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == container }); i >= 0 {
			return &list[i]
		}
	}
	return &corev1.ContainerStatus{}
}

func (v *View) file(container, which string) string {
	return filepath.Join(v.dir, container+which+".log")
}

// Started records a start of a container.
func (v *View) Started(container string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.status(container)
	if s.State.Terminated != nil {
		s.RestartCount++
		s.LastTerminationState = s.State
		if l := v.logs[container]; l != nil {
			v.err = cmp.Or(v.err, l.file.Close())
			delete(v.logs, container)
		}
		if err := os.Rename(v.file(container, ""), v.file(container, ".previous")); err != nil && !errors.Is(err, os.ErrNotExist) {
			v.err = cmp.Or(v.err, err)
		}
	}
	s.Ready = true // if the container has a readiness probe, Ready changes it
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *whole(at)}}
}

// Ended records the end of a container's run.
func (v *View) Ended(container string, at time.Time, code int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.status(container)
	end := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: "Completed", FinishedAt: *whole(at)}
	if code != 0 {
		end.Reason = "Error"
	}
	if s.State.Running != nil {
		end.StartedAt = s.State.Running.StartedAt
	}
	s.Ready, s.State = false, corev1.ContainerState{Terminated: end}
}

// Ready records the result of a container's readiness probe.
func (v *View) Ready(container string, ready bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.status(container)
	s.Ready = ready && s.State.Running != nil
}

// Deleted records the deletion of the pod.
func (v *View) Deleted(at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pod.DeletionTimestamp = whole(at)
}

// Line records a line of a container's output, in the format of a container runtime.
func (v *View) Line(container string, at time.Time, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.logs[container]
	if l == nil {
		f, err := os.Create(v.file(container, ""))
		if err != nil {
			v.err = cmp.Or(v.err, err)
			return
		}
		l = &log{file: f}
		v.logs[container] = l
	}
	if l.bytes > maxLog {
		return
	}
	n, err := fmt.Fprintf(l.file, "%s stdout F %s\n", at.UTC().Format("2006-01-02T15:04:05.000000000Z"), text)
	l.bytes += n
	v.err = cmp.Or(v.err, err)
}

// Diagnose returns the diagnosis that "outrider diagnose" would make at that time from the recorded status and
// logs.
func (v *View) Diagnose(ctx context.Context, at time.Time) (result.Report, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	object, err := json.Marshal(v.pod)
	if err == nil {
		err = os.WriteFile(filepath.Join(v.dir, "pod.json"), object, 0o600)
	}
	if err = cmp.Or(v.err, err); err != nil {
		return result.Report{}, err
	}
	set, err := gather.Read(ctx, gather.Options{}, v.dir)
	if err != nil {
		return result.Report{}, err
	}
	set.Pods[0].Taken = evidence.Time{At: at, Clock: evidence.NodeClock}
	return diagnose.Diagnose(ctx, set.Pods[0], diagnose.Options{})
}
