// Package rootstage is the short time in which the first process of a container is root.
// What takes privileges is done first; a [Record] says so to those who wait for it; then
// [Become] makes the process somebody who has none, for good, and whose children cannot
// get any.
package rootstage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"outrider.dev/internal/agent/journal"
	"outrider.dev/internal/agent/state"
)

// A Record says that the stage of one start of a container is done. It is good for as long
// as the process that wrote it lives, in the network namespace in which that was: not
// after a restart of the container, and not in another sandbox of the pod.
type Record struct {
	Sandbox string `json:"sandbox"` // of boot and network namespace, see state.Sandbox
	PID     int    `json:"pid"`     // as the container numbers it
	Began   uint64 `json:"began"`   // see journal.Ticks
	Rules   string `json:"rules"`   // record of the rule set; empty if nothing is captured
}

// Now is the record of this process.
func Now(rules string) (Record, error) {
	sandbox, err := state.Sandbox()
	if err != nil {
		return Record{}, err
	}
	began, err := journal.Ticks("/proc", "self")
	return Record{Sandbox: sandbox, PID: os.Getpid(), Began: began, Rules: rules}, err
}

// Write leaves the record in a file, in place of one that is there. Who watches the
// directory sees it moved there, whole.
func (r Record) Write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".record-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone if all went well
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read returns the record in a file if it is good here and now. The error says why not.
func Read(path string) (Record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("there is no %s yet", path)
	}
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.good(); err != nil {
		return Record{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func (r Record) good() error {
	sandbox, err := state.Sandbox()
	if err != nil {
		return err
	}
	if r.Sandbox != sandbox {
		return fmt.Errorf("it is of sandbox %q, and this is %q", r.Sandbox, sandbox)
	}
	began, err := journal.Ticks("/proc", strconv.Itoa(r.PID))
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
