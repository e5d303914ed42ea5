package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/test/process"
)

// An Agent is a running agent.
type Agent struct {
	*process.Process
	Pod *Pod
}

// Get makes a request to a port of the pod, from within the pod as the app's user.
func (a *Agent) Get(port int, path string) Answer {
	client := NewClient(a.Pod.Namespace, AppUser)
	defer client.Close()
	return client.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
}

// Post sends a POST request from within the pod.
func (a *Agent) Post(path string) Answer {
	client := NewClient(a.Pod.Namespace, AppUser)
	defer client.Close()
	return client.Do("POST", "http://127.0.0.1:15020"+path, "")
}

// Status returns the answer of the readiness port; ok is false if the request fails.
func (a *Agent) Status() (s readiness.Status, ok bool) {
	got := a.Get(15021, "/healthz/ready")
	return s, got.Err == nil && json.Unmarshal([]byte(got.Body), &s) == nil
}

// Ready waits until the agent is ready. Each request waits at the agent for up to 30 s.
func (a *Agent) Ready() {
	t := a.Pod.World.T
	t.Helper()
	process.Eventually(t, "the agent is ready", func() bool {
		got := a.Get(15021, "/healthz/ready?wait=30s")
		if got.Err == nil && got.Status != 200 {
			t.Logf("the agent is not ready: %s", got.Body)
		}
		return got.Status == 200
	}, a)
}

// Unready waits until the agent reports that it is not ready, with a reason that has this code and contains these
// words. It returns the reason.
func (a *Agent) Unready(code, words string) readiness.Reason {
	t := a.Pod.World.T
	t.Helper()
	var found readiness.Reason
	var last string
	process.Eventually(t, fmt.Sprintf("reason %s with %q", code, words), func() bool {
		s, ok := a.Status()
		if ok && s.String() != last {
			last = s.String()
			t.Logf("%s: %s", a.Pod.Name, last)
		}
		for _, r := range s.Reasons {
			if r.Code == code && strings.Contains(r.Message, words) {
				found = r
				return true
			}
		}
		return false
	}, a)
	return found
}

// Logs waits until the agent's log contains a text.
func (a *Agent) Logs(text string) {
	t := a.Pod.World.T
	t.Helper()
	process.Eventually(t, fmt.Sprintf("%s in the log of %s", text, a.Pod.Name), func() bool { return strings.Contains(a.Log(), text) }, a)
}

// Envoy returns the process ID of the agent's Envoy.
func (a *Agent) Envoy() int {
	t := a.Pod.World.T
	t.Helper()
	pid := 0
	process.Eventually(t, "Envoy runs", func() (ok bool) {
		pid, ok = a.Child()
		return ok
	}, a)
	return pid
}

// Child returns the process ID of the agent's only child, if there is one.
func (a *Agent) Child() (pid int, ok bool) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", a.PID()))
	if err != nil {
		return 0, false
	}
	for _, task := range tasks {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", a.PID(), task.Name()))
		if _, err := fmt.Sscan(string(raw), &pid); err == nil {
			return pid, true
		}
	}
	return 0, false
}

// KillAndWatch kills a process that is not a child of the test, waits until it has exited, and
// returns a time before the kill and a time after the exit.
func KillAndWatch(t testing.TB, pid int) (before, after time.Time) {
	t.Helper()
	before = time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	process.AwaitEnd(t, pid)
	return before, time.Now()
}

// Journal returns the record of the agent's start from its journal.
func (a *Agent) Journal() (r status.JournalRecord) {
	t := a.Pod.World.T
	t.Helper()
	got := a.Get(15020, "/startup")
	if err := json.Unmarshal([]byte(got.Body), &r); got.Err != nil || err != nil {
		t.Fatalf("journal: %v, %v", got.Err, err)
	}
	return r
}

// Resident returns the resident memory of a process in bytes.
func Resident(pid int) (bytes int64) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size int64
	fmt.Sscan(string(raw), &size, &bytes)
	return bytes * int64(os.Getpagesize())
}
