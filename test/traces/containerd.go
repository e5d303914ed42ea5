package traces

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A runtimeEvent is one line of "ctr events" about a container or sandbox.
type runtimeEvent struct {
	at     time.Time
	topic  string
	id     string
	pid    int
	status int
}

// A runtimeLog is everything that containerd said, and what its ids stand for.
type runtimeLog struct {
	mu     sync.Mutex
	events []runtimeEvent
	labels map[string]label
}

// followRuntime listens until ctx ends.
func followRuntime(ctx context.Context, r *runtime) (*runtimeLog, error) {
	cmd := exec.CommandContext(ctx, "ctr", "events")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &runtimeLog{labels: map[string]label{}}
	go func() {
		l.read(ctx, r, out)
		cmd.Wait()
	}()
	return l, nil
}

func (l *runtimeLog) read(ctx context.Context, r *runtime, from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		e, ok := parseRuntimeEvent(lines.Text())
		if !ok {
			continue
		}
		l.mu.Lock()
		l.events = append(l.events, e)
		l.mu.Unlock()
		if e.topic == "/containers/create" {
			go l.name(ctx, r, e.id)
		}
	}
}

// name asks what an id stands for. The CRI knows it a little later than containerd.
func (l *runtimeLog) name(ctx context.Context, r *runtime, id string) {
	for range 100 {
		if known, ok := r.lookUp(ctx, id); ok {
			l.mu.Lock()
			l.labels[id] = known
			l.mu.Unlock()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// parseRuntimeEvent reads "2026-11-21 18:00:00.123 +0000 UTC k8s.io /tasks/exit {...}".
func parseRuntimeEvent(line string) (runtimeEvent, bool) {
	w := strings.SplitN(line, " ", 7)
	if len(w) < 7 || !strings.HasPrefix(w[5], "/") {
		return runtimeEvent{}, false
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", strings.Join(w[:4], " "))
	if err != nil {
		return runtimeEvent{}, false
	}
	var body struct {
		ID        string    `json:"id"`
		Container string    `json:"container_id"`
		PID       int       `json:"pid"`
		Status    int       `json:"exit_status"`
		ExitedAt  time.Time `json:"exited_at"`
	}
	if json.Unmarshal([]byte(w[6]), &body) != nil {
		return runtimeEvent{}, false
	}
	e := runtimeEvent{at: at, topic: w[5], id: body.Container, pid: body.PID, status: body.Status}
	switch e.topic {
	case "/containers/create":
		e.id = body.ID
	case "/tasks/start":
	case "/tasks/exit":
		if body.ID != body.Container {
			return e, false // of an exec
		}
		if !body.ExitedAt.IsZero() {
			e.at = body.ExitedAt
		}
	default:
		return e, false
	}
	return e, true
}

// of returns the events of a pod, with the containers' names.
func (l *runtimeLog) of(uid string) (events []runtimeEvent, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if k := l.labels[e.id]; k.uid == uid {
			events, names = append(events, e), append(names, k.container)
		}
	}
	return events, names
}

// running returns the process of each container of a pod that runs, the sandbox
// under an empty name.
func (l *runtimeLog) running(uid string) map[string]int {
	pids := map[string]int{}
	events, names := l.of(uid)
	for i, e := range events {
		switch e.topic {
		case "/tasks/start":
			pids[names[i]] = e.pid
		case "/tasks/exit":
			delete(pids, names[i])
		}
	}
	return pids
}

// starts is how often a container of a pod was started.
func (l *runtimeLog) starts(uid, name string) (n int) {
	events, names := l.of(uid)
	for i, e := range events {
		if e.topic == "/tasks/start" && names[i] == name {
			n++
		}
	}
	return n
}
