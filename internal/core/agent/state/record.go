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

// A Phase is how far a container's command is.
type Phase string

// The phases.
const (
	Waiting Phase = "waiting" // for what the command depends on
	Running Phase = "running"
	Ended   Phase = "ended"
)

// A Record is the state that a container publishes.
type Record struct {
	Version   int    `json:"version"`
	Container string `json:"container"`
	Sandbox   string `json:"sandbox"` // in which this was written; see [Sandbox]

	Phase   Phase `json:"phase"`
	Healthy bool  `json:"healthy,omitempty"`

	// StartingUp: its command runs, and its startup probe has not succeeded yet.
	StartingUp bool `json:"startingUp,omitempty"`
	// StartedUp: its startup probe has succeeded.
	StartedUp bool `json:"startedUp,omitempty"`
	// Early: its command runs, and the delay of its liveness probe is not over.
	Early bool `json:"early,omitempty"`

	// Stopping: it got its stop signal; its command may still run, for its dependents.
	Stopping bool `json:"stopping,omitempty"`

	Code      int  `json:"code,omitempty"`      // of a command that ended
	Completed bool `json:"completed,omitempty"` // it ended with code 0, at least once in this sandbox
	Starts    int  `json:"starts,omitempty"`    // of its command, in this sandbox

	// After names those that it waits for when it starts, and that stop after it.
	After   []string        `json:"after,omitempty"`
	PreStop bool            `json:"preStop,omitempty"` // SIGTERM comes only after its preStop hook
	Restart startup.Restart `json:"restart,omitempty"` // what the kubelet does when it ends

	Since  time.Time `json:"since"`            // of this phase
	Waited []Wait    `json:"waited,omitempty"` // at this start
}

// A Wait is one dependency that the container waited for.
type Wait struct {
	For  string        `json:"for"` // the end of a statement of a plan: "cache is healthy"
	Took time.Duration `json:"took"`
	By   string        `json:"by,omitempty"` // what ended the wait; empty while it lasts
}

// version of the format. A file of another version is no record.
const version = 1

// recordLimit bounds a file: a record is some hundred bytes, and a reader takes what any
// container of the pod wrote.
const recordLimit = 64 << 10

// errRecord: the file is no record.
var errRecord = errors.New("is no state of a container")

func (r Record) encode() ([]byte, error) {
	r.Version = version
	b, err := json.Marshal(r)
	if err == nil && len(b) >= recordLimit {
		err = fmt.Errorf("a record of %d bytes, want less than %d", len(b), recordLimit)
	}
	return append(b, '\n'), err
}

// decode reads what encode wrote. It checks what a reader relies on.
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

// Seen is what can be known of a container. The zero value: nothing.
type Seen struct {
	Record
	Known bool // it published a record in this sandbox
	Alive bool // the writer of the record lives
}

// Status is what follows from the record for those that depend on the container. A
// container whose writer died without publishing its end was killed.
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

// Gone reports whether the container's command has ended, or never began: no container
// needs to wait for it to stop.
func (s Seen) Gone() bool { return !s.Known || !s.Alive || s.Phase == Ended }

// EndedForGood reports whether the kubelet will not start the container again. A container
// that was killed has no code, and counts as failed.
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

// Held reports whether a liveness probe of the container must not count: its command has not
// begun, or has not had the time to start up.
func (s Seen) Held() bool {
	return s.Known && s.Alive && (s.Phase == Waiting || s.Phase == Running && (s.StartingUp || s.Early))
}
