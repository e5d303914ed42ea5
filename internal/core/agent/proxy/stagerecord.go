package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/supervise"
)

// A StageRecord shows that the root stage of the container is over. The root stage is the short time
// in which the container's first process is root. The record is valid in the same network namespace
// while the process that wrote it lives: not after a restart of the container, and not in another
// sandbox of the pod.
type StageRecord struct {
	Sandbox string `json:"sandbox"` // boot and network namespace, see state.Sandbox
	PID     int    `json:"pid"`     // in the container's PID namespace
	Began   uint64 `json:"began"`   // start of the process, see supervise.StartTicks
	Rules   string `json:"rules"`   // record of the rule set; empty if nothing is captured
}

// NewStageRecord returns the record of this process.
func NewStageRecord(rules string) (StageRecord, error) {
	sandbox, err := state.Sandbox()
	if err != nil {
		return StageRecord{}, err
	}
	began, err := supervise.StartTicks("self")
	return StageRecord{Sandbox: sandbox, PID: os.Getpid(), Began: began, Rules: rules}, err
}

// Write replaces the file path with the record.
func (r StageRecord) Write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o644)
}

// ReadStageRecord returns the record in a file if it is valid in this container now. Otherwise
// the error tells why not.
func ReadStageRecord(path string) (StageRecord, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return StageRecord{}, fmt.Errorf("there is no %s yet", path)
	}
	if err != nil {
		return StageRecord{}, err
	}
	var r StageRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return StageRecord{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.good(); err != nil {
		return StageRecord{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (r StageRecord) good() error {
	sandbox, err := state.Sandbox()
	if err != nil {
		return err
	}
	if r.Sandbox != sandbox {
		return fmt.Errorf("it is of sandbox %q, and this is %q", r.Sandbox, sandbox)
	}
	began, err := supervise.StartTicks(strconv.Itoa(r.PID))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("process %d, which wrote it, has ended", r.PID)
	case err != nil:
		return err
	case began != r.Began:
		return fmt.Errorf("process %d, which wrote it, has ended, and another one has its number", r.PID)
	}
	return nil
}
