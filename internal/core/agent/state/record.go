package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"outrider.dev/startup"
)

// A Phase is a stage in the life of a container's command.
type Phase string

// The phases of a command.
const (
	Waiting Phase = "waiting" // for the dependencies of the command
	Running Phase = "running"
	Ended   Phase = "ended"
)

// A Record is the state that a container publishes.
type Record struct {
	Version   int    `json:"version"`
	Container string `json:"container"`
	Sandbox   string `json:"sandbox"` // the sandbox in which this was written; see [Sandbox]

	Phase   Phase `json:"phase"`
	Healthy bool  `json:"healthy,omitempty"`

	// StartingUp: its command runs, and its startup probe has not succeeded yet.
	StartingUp bool `json:"startingUp,omitempty"`
	// StartedUp: its startup probe has succeeded.
	StartedUp bool `json:"startedUp,omitempty"`
	// Early: its command runs, and the initial delay of its liveness probe is not over.
	Early bool `json:"early,omitempty"`

	// Stopping: it got its stop signal; its command may be kept running for its dependents. In the proxy's record:
	// the pod stops.
	Stopping  bool      `json:"stopping,omitempty"`
	StopBegan time.Time `json:"stopBegan,omitzero"` // when Stopping became true

	// Called, in the proxy's record only: clients may call the applications through the proxy. While the pod
	// stops, it becomes false when the proxy has answered them and has had them connect elsewhere.
	Called bool `json:"called,omitempty"`

	Code      int  `json:"code,omitempty"`      // exit status, once the command has ended
	Completed bool `json:"completed,omitempty"` // it ended with code 0, at least once in this sandbox
	Starts    int  `json:"starts,omitempty"`    // how often its command was started in this sandbox

	// After names the containers for which this one waits when it starts. They stop after it.
	After   []string        `json:"after,omitempty"`
	PreStop bool            `json:"preStop,omitempty"` // it has a preStop hook, which delays its SIGTERM
	Restart startup.Restart `json:"restart,omitempty"` // whether the kubelet restarts it when it ends

	Since  time.Time `json:"since"`            // start of this phase
	Waited []Wait    `json:"waited,omitempty"` // the waits before this start
}

// A Wait is one dependency that the container waited for.
type Wait struct {
	For  string        `json:"for"` // the condition, as in a plan: "cache is healthy"
	Took time.Duration `json:"took"`
	By   string        `json:"by,omitempty"` // what ended the wait; empty while it lasts
}

// version of the format. A file of another version is not accepted.
const version = 1

// recordLimit bounds the size of a record's file. A record has some hundred bytes, but any
// container of the pod can write a larger file.
const recordLimit = 64 << 10

// errRecord: the file does not hold a record.
var errRecord = errors.New("is no state of a container")

func (r Record) encode() ([]byte, error) {
	r.Version = version
	b, err := json.Marshal(r)
	if err == nil && len(b) >= recordLimit {
		err = fmt.Errorf("a record of %d bytes, want less than %d", len(b), recordLimit)
	}
	return append(b, '\n'), err
}

// decode parses a record that encode wrote. It checks the fields that readers rely on.
func decode(b []byte) (Record, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	var r Record
	if err := d.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Record{}, fmt.Errorf("%w: something follows the record", errRecord)
	}
	switch {
	case r.Version != version:
		return Record{}, fmt.Errorf("%w: version is %d, want %d", errRecord, r.Version, version)
	case r.Phase != Waiting && r.Phase != Running && r.Phase != Ended:
		return Record{}, fmt.Errorf("%w: phase is %q, want %s, %s or %s", errRecord, r.Phase, Waiting, Running, Ended)
	case r.Healthy && r.Phase != Running:
		return Record{}, fmt.Errorf("%w: healthy, and phase is %q", errRecord, r.Phase)
	case r.Starts < 0:
		return Record{}, fmt.Errorf("%w: starts is %d", errRecord, r.Starts)
	}
	return r, nil
}

// Seen is a container's record as another container reads it. The zero value: nothing is known.
type Seen struct {
	Record
	Known bool // it published a record in this sandbox
	Alive bool // the writer of the record lives
}

// Status returns the container's status as input for [startup.Edge.Decide]. A container whose writer died
// without publishing its end was killed, and counts as failed.
func (s Seen) Status() startup.Status {
	if !s.Known {
		return startup.Status{}
	}
	runs := s.Runs()
	return startup.Status{
		Ran: s.Starts > 0, Running: runs, Healthy: runs && s.Healthy, Completed: s.Completed,
		Failed: s.Phase == Ended && s.Code != 0 || s.Phase != Ended && !s.Alive,
	}
}

// Runs reports whether the command runs.
func (s Seen) Runs() bool { return s.Known && s.Alive && s.Phase == Running }

// Gone reports whether no container needs to wait for this one to stop: its command has ended,
// its gate is dead, or it has published nothing.
func (s Seen) Gone() bool { return !s.Known || !s.Alive || s.Phase == Ended }

// InCall reports whether this is the record of a proxy through which clients may call the applications.
func (s Seen) InCall() bool { return s.Known && s.Alive && s.Called }

// EndedForGood reports whether the container has ended and the kubelet will not start it
// again. A container that was killed has no exit status, and counts as failed.
func (s Seen) EndedForGood() bool {
	if !s.Known || !s.Gone() {
		return false
	}
	switch s.Restart {
	case startup.Never:
		return true
	case startup.OnFailure:
		return s.Phase == Ended && s.Code == 0
	default:
		return false
	}
}

// Started reports whether the command runs, and its startup probe has succeeded if it has one.
func (s Seen) Started() bool { return s.Runs() && !s.StartingUp }

// Held reports whether a liveness probe of the container must not count, because its command
// has not begun or is still starting up.
func (s Seen) Held() bool {
	return s.Known && s.Alive && (s.Phase == Waiting || s.Phase == Running && (s.StartingUp || s.Early))
}
