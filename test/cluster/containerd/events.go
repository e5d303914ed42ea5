// Package containerd records the events of a cluster's container runtime: sandboxes and containers created,
// started and ended, with process IDs and times in milliseconds. The API server reports the same events later,
// with times in whole seconds. The package is used inside the cluster.
package containerd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Topics of events.
const (
	Created = "/containers/create"
	Started = "/tasks/start"
	Exited  = "/tasks/exit"
	Execed  = "/tasks/exec-started" // the start of a process for a probe, a hook, or kubectl exec
)

// An Event is an event of a container or sandbox.
type Event struct {
	At        time.Time
	Topic     string
	Container string // name of the container; empty for the sandbox
	PID       int    // in the node's namespace
	Status    int    // exit status, for Exited

	id string
}

// A Log holds all events of containerd, with the names of the containers that they concern.
type Log struct {
	// Changed receives a value after an event was added.
	Changed chan struct{}

	mu     sync.Mutex
	events []Event
	labels map[string]label
}

// Follow reads events until ctx ends. It runs inside a cluster, where "ctr" finds containerd's
// socket. Events during a restart of containerd are lost.
func Follow(ctx context.Context, socket string) (*Log, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	r := cri.NewRuntimeServiceClient(conn)
	l := &Log{labels: map[string]label{}, Changed: make(chan struct{}, 1)}
	follow := func() (wait func() error, err error) {
		cmd := exec.CommandContext(ctx, "ctr", "events")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		return func() error { l.read(ctx, r, out); return cmd.Wait() }, cmd.Start()
	}
	wait, err := follow()
	if err != nil {
		return nil, err
	}
	go func() {
		for ctx.Err() == nil {
			if err == nil {
				_ = wait() // containerd has exited, or ctx has ended
			}
			time.Sleep(100 * time.Millisecond)
			wait, err = follow()
		}
	}()
	return l, nil
}

func (l *Log) read(ctx context.Context, r cri.RuntimeServiceClient, from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		e, ok := parse(lines.Text())
		if !ok {
			continue
		}
		l.mu.Lock()
		l.events = append(l.events, e)
		l.mu.Unlock()
		l.change()
		if e.Topic == Created {
			go l.name(ctx, r, e.id)
		}
	}
}

// name looks up the label of an id and adds it to the events. The CRI knows an id a little later than containerd.
func (l *Log) name(ctx context.Context, r cri.RuntimeServiceClient, id string) {
	for range 3000 { // more than a minute, because the CRI lists a sandbox only once it runs
		if known, ok := lookUp(ctx, r, id); ok {
			l.mu.Lock()
			l.labels[id] = known
			l.mu.Unlock()
			l.change()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *Log) change() {
	select {
	case l.Changed <- struct{}{}:
	default: // contains a value already
	}
}

// parse reads "2026-11-21 18:00:00.123 +0000 UTC k8s.io /tasks/exit {...}".
func parse(line string) (Event, bool) {
	w := strings.SplitN(line, " ", 7)
	if len(w) < 7 || !strings.HasPrefix(w[5], "/") {
		return Event{}, false
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", strings.Join(w[:4], " "))
	if err != nil {
		return Event{}, false
	}
	var body struct {
		ID        string `json:"id"`
		Container string `json:"container_id"`
		PID       int    `json:"pid"`
		Status    int    `json:"exit_status"`
		ExitedAt  moment `json:"exited_at"`
	}
	if json.Unmarshal([]byte(w[6]), &body) != nil {
		return Event{}, false
	}
	e := Event{At: at, Topic: w[5], id: body.Container, PID: body.PID, Status: body.Status}
	switch e.Topic {
	case Created:
		e.id = body.ID
	case Started, Execed:
	case Exited:
		if body.ID != body.Container {
			return e, false // the end of an exec, not of a container
		}
		if !body.ExitedAt.IsZero() {
			e.At = body.ExitedAt.Time
		}
	default:
		return e, false
	}
	return e, true
}

// A moment is a time in the output of ctr: a text in containerd up to 1.7, since 2.0 the fields of a
// protobuf Timestamp.
type moment struct{ time.Time }

func (m *moment) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		return m.Time.UnmarshalJSON(text)
	}
	var t struct{ Seconds, Nanos int64 }
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	m.Time = time.Unix(t.Seconds, t.Nanos).UTC()
	return nil
}

// Of returns the events of a pod, by its uid.
func (l *Log) Of(uid string) (events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if k := l.labels[e.id]; k.uid == uid {
			e.Container = k.container
			events = append(events, e)
		}
	}
	return events
}

// Sandboxes returns the IDs of a pod's sandboxes, the newest last.
func (l *Log) Sandboxes(uid string) (ids []string) {
	for _, e := range l.Of(uid) {
		if e.Container == "" && e.Topic == Started {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// Running returns the process ID of each running container of a pod; the key of the sandbox is "".
func (l *Log) Running(uid string) map[string]int {
	pids := map[string]int{}
	for _, e := range l.Of(uid) {
		switch e.Topic {
		case Started:
			pids[e.Container] = e.PID
		case Exited:
			delete(pids, e.Container)
		}
	}
	return pids
}

// Starts returns how often a container of a pod was started.
func (l *Log) Starts(uid, name string) int { return l.count(uid, name, Started) }

// Execs returns how often a process was started in a running container of a pod.
func (l *Log) Execs(uid, name string) int { return l.count(uid, name, Execed) }

func (l *Log) count(uid, name, topic string) (n int) {
	for _, e := range l.Of(uid) {
		if e.Topic == topic && e.Container == name {
			n++
		}
	}
	return n
}
