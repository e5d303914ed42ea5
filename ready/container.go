package ready

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// containerName matches a valid name of a container (RFC 1123).
var containerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// parseContainer parses a container with or without a condition, such as "cache" or "cache is started".
func parseContainer(text string) (*condition, error) {
	f := strings.Fields(text)
	if len(f) == 1 {
		f = append(f, "is", "healthy")
	}
	if len(f) != 3 || f[1] != "is" || !containerName.MatchString(f[0]) || f[2] != "started" && f[2] != "healthy" && f[2] != "completed" {
		return nil, fmt.Errorf("%q: want an address as tcp://HOST:PORT, or a container as \"cache\" or \"cache is healthy\" (started, healthy, completed)", visible(text))
	}
	name, reach := f[0], f[2]
	c := &condition{name: name + " is " + reach, busy: make(chan struct{}, 1)}
	c.in = func(p place) {
		c.dirs = []string{p.states, filepath.Join(p.states, name)}
		c.check = func(context.Context, *attempt) error { return containerCheck(p.states, name, reach) }
	}
	return c, nil
}

// A record is the state of a container, as its gate publishes it in the file "state" of the container's
// directory; only fields that this package uses are here. The gate replaces the file by rename, and holds a lock
// on it while the gate runs.
type record struct {
	Version    int    `json:"version"`
	Container  string `json:"container"`
	Sandbox    string `json:"sandbox"` // of the pod; records of earlier sandboxes are ignored
	Phase      string `json:"phase"`   // "waiting", "running" or "ended"
	Healthy    bool   `json:"healthy"`
	StartingUp bool   `json:"startingUp"` // the startup probe has not succeeded yet
	Completed  bool   `json:"completed"`
	Code       int    `json:"code"`
}

const (
	recordFile    = "state"
	recordVersion = 1
	recordLimit   = 64 << 10
)

var errNoStates = errors.New("this container does not see the states of others: it needs a gate, by the annotation outrider.dev/depends-on.NAME of the pod")

func containerCheck(states, name, reach string) error {
	if !exists(states) {
		return finalError{errNoStates} // volumes are mounted before the start, so the directory will not appear later
	}
	here, err := sandbox()
	if err != nil {
		return finalError{fmt.Errorf("finding out which sandbox of the pod this is: %w", err)}
	}
	r, alive, err := readRecord(filepath.Join(states, name, recordFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it has not started, or publishes no state")
	case err != nil:
		return err
	case r.Container != name:
		return fmt.Errorf("its state is of %q", visible(r.Container))
	case r.Sandbox != here:
		return errors.New("it has not started in this sandbox of the pod")
	}
	return r.reached(reach, alive)
}

// reached returns nil if the container is started, healthy or completed, as reach requires, and otherwise its
// present state as an error. As in a pod's plan, a completed container counts as started.
func (r record) reached(reach string, alive bool) error {
	runs := alive && r.Phase == "running"
	failed := r.Phase == "ended" && r.Code != 0 || r.Phase != "ended" && !alive
	switch {
	case reach == "completed" && r.Completed,
		reach == "healthy" && runs && r.Healthy,
		reach == "started" && (runs && !r.StartingUp || r.Completed && !failed):
		return nil
	case !alive && r.Phase != "ended":
		return errors.New("it was killed")
	case r.Phase == "ended":
		return fmt.Errorf("it ended with code %d", r.Code)
	case runs && reach == "healthy":
		return errors.New("it runs, and is not healthy")
	case runs:
		return errors.New("it runs")
	}
	return errors.New("it waits for others")
}

// readRecord reads a record, and reports whether its writer still runs. It starts again if the record is replaced
// meanwhile.
func readRecord(name string) (r record, alive bool, err error) {
	for range 100 {
		f, err := openRegular(name)
		if err != nil {
			return r, false, err
		}
		alive = locked(f)
		// A writer replaces its record before it unlocks the old one. So if the file is unlocked but no longer
		// the record, read the new one.
		if !alive && !sameFile(f, name) {
			f.Close()
			continue
		}
		raw, err := io.ReadAll(io.LimitReader(f, recordLimit+1))
		f.Close()
		if err != nil {
			return r, false, err
		}
		r, err = parseRecord(raw)
		return r, alive, err
	}
	return r, false, errors.New("its state is replaced all the time")
}

func parseRecord(raw []byte) (r record, err error) {
	if len(raw) > recordLimit || json.Unmarshal(raw, &r) != nil {
		return record{}, errors.New("its state cannot be read")
	}
	if r.Version != recordVersion {
		return record{}, finalError{fmt.Errorf("its state has version %d, want %d: this program needs another version of outrider.dev/ready", r.Version, recordVersion)}
	}
	return r, nil
}

func sameFile(f *os.File, name string) bool {
	mine, err := f.Stat()
	if err != nil || !mine.Mode().IsRegular() {
		return err == nil // not a regular file: reading it will fail
	}
	there, err := os.Lstat(name)
	return err == nil && os.SameFile(mine, there)
}

// cookieText formats the cookie of a network namespace as in [record].Sandbox.
func cookieText(raw []byte) string { return fmt.Sprint("net", binary.NativeEndian.Uint64(raw)) }
