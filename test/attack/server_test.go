package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// A world is a mesh with one outriderd and, if the case needs it, a pod with an agent. The subject of the attack is
// the agent if there is one, otherwise outriderd. The subject has a memory limit.
type world struct {
	*harness.World
	subject          *process.Process
	pod              *harness.Pod // pod of the agent that is the subject; nil if outriderd is the subject
	attacker, friend *harness.Pod
	group            string // control group of the subject; empty if the machine provides none
}

func newWorld(t *testing.T, a attacked) *world {
	w := &world{World: harness.New(t)}
	w.Manifest("namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+harness.Namespace+", labels: {istio-injection: enabled}}\n")
	services := cmp.Or(a.services, 100)
	w.Fill(services)
	w.Serve("--log-level", "warn")
	w.Known(services, 0)
	w.subject = w.Plane()
	w.attacker, w.friend = w.Machine("attacker"), w.Machine("friend")
	// The attacker can use any address of this network, one for each caller that it plays.
	w.attacker.Namespace.IP("route", "add", "local", "10.250.0.0/16", "dev", "lo")
	w.Node.IP("route", "add", "10.250.0.0/16", "via", w.attacker.Address.String())
	w.attacker.User = 0 // so that it can read outriderd's state directory to make certificates
	if a.agent {
		w.pod = w.Pod("app")
		agent := w.pod.Agent()
		agent.Ready()
		w.subject = agent.Process
	}
	w.limit(a.limit())
	return w
}

// limit puts the subject into a control group if the machine has the memory controller. The kernel then kills the
// subject if it exceeds the limit. Otherwise the test compares the subject's peak with the limit. Envoy is not in the
// agent's group.
func (w *world) limit(memory int64) {
	t := w.T
	for _, v := range []struct{ root, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		group := filepath.Join(v.root, fmt.Sprintf("outrider-attack-%d", os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			continue
		}
		// Kill the subject here, because a group can be removed only after its processes have ended, and the
		// cleanup that kills the subject runs later than this one.
		t.Cleanup(func() {
			w.subject.Kill()
			if err := os.Remove(group); err != nil {
				t.Error(err)
			}
		})
		err := os.WriteFile(filepath.Join(group, v.file), fmt.Append(nil, memory), 0)
		if err == nil {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, w.subject.PID()), 0)
		}
		if err == nil {
			w.group = group
			return
		}
	}
	t.Log("no control group with a limit on this machine: the peak is compared with it")
}

// A glance is the resource use of the subject at one moment.
type glance struct {
	resident   int64
	live       int64 // outriderd's memory after a garbage collection
	goroutines int64 // number of outriderd's goroutines
	files      int64 // number of open files, including sockets
}

// look returns the subject's resource use. It first makes outriderd collect its garbage, by a request for the heap
// profile, which outriderd always serves on loopback. An agent serves no profile.
func (w *world) look() (g glance) {
	if w.pod == nil {
		for range 3 { // the second and third collection also free objects in pools or with finalizers
			client := harness.NewClient(w.Node, 0)
			client.Get("http://127.0.0.1:15014/debug/pprof/heap?gc=1")
			client.Close()
		}
		metrics := w.PlaneGet("/metrics")
		g.live, g.goroutines = metric(metrics, "go_memstats_heap_alloc_bytes"), metric(metrics, "go_goroutines")
	}
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.subject.PID()))
	g.resident, g.files = w.resident("VmRSS"), int64(len(files))
	return g
}

func (g glance) minus(h glance) glance {
	return glance{g.resident - h.resident, g.live - h.live, g.goroutines - h.goroutines, g.files - h.files}
}

// metric returns the value of a gauge without labels from metrics in the Prometheus text format.
func metric(text, name string) int64 {
	_, line, _ := strings.Cut(text, "\n"+name+" ")
	var value float64
	fmt.Sscan(line, &value)
	return int64(value)
}

// kept waits until the subject uses at most as much as before the attack plus the bounds of the case. It returns the
// remaining difference, and the resident memory.
func (w *world) kept(before glance, a attacked) (diff glance, resident int64) {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		now := w.look()
		diff = now.minus(before)
		if len(a.leftovers(diff)) == 0 || time.Now().After(end) || isDone(w.subject) {
			return diff, now.resident
		}
	}
}

// resident returns the value of a memory line in the subject's /proc/PID/status, in bytes.
func (w *world) resident(line string) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.subject.PID()))
	_, rest, _ := strings.Cut(string(raw), "\n"+line+":")
	var kibibytes int64
	fmt.Sscan(rest, &kibibytes)
	return kibibytes << 10
}

// resetPeak resets the subject's peak of resident memory: writing 5 resets VmHWM (proc(5), clear_refs).
func (w *world) resetPeak() {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.subject.PID()), []byte("5"), 0); err != nil {
		w.T.Fatal(err)
	}
}

// peak returns the maximum resident memory since resetPeak. After the process has ended it returns the maximum of
// the control group.
func (w *world) peak() int64 {
	if n := w.resident("VmHWM"); n > 0 {
		return n
	}
	for _, name := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
		var n int64
		raw, _ := os.ReadFile(filepath.Join(w.group, name))
		if _, err := fmt.Sscan(string(raw), &n); err == nil {
			return n
		}
	}
	return 0
}

// spent returns the subject's processor time.
func (w *world) spent() time.Duration { return process.Spent(w.subject.PID()) }

// measure makes ordinary requests at the client's pace, at least n and for at least the given time.
func (w *world) measure(c client, n int, length time.Duration) (l latencies) {
	for end := time.Now().Add(length); l.n() < n || time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), answered) // time limit: a later answer counts as a failure
		began := time.Now()
		err := c.once(ctx)
		cancel()
		l.took = append(l.took, time.Since(began))
		if err != nil {
			l.failures = append(l.failures, err.Error())
			if isDone(w.subject) {
				return l // no further request can succeed
			}
		}
		time.Sleep(c.pace - min(c.pace, time.Since(began)))
	}
	return l
}

// answered is the time limit for an ordinary request. It is long, because latencies prove nothing on a busy machine
// and are only printed.
const answered = process.Patience
