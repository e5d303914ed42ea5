package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/cgroup"
	"outrider.dev/test/cluster/internal/node"
	"outrider.dev/test/cluster/internal/poll"
)

// A state holds the facts that are needed to end a cluster. It is written before anything else is created,
// so that [Down] can clean up after any failure.
type state struct {
	Dir     string
	Version string
	Runtime string
	Group   string // name in the cgroup hierarchies
	Ready   bool
	PID     int    // process ID of the cluster's process 1; 0 before it is started
	Started string // start time of that process, because its PID may be reused later
}

// newState returns the state of a new cluster. The name of the control group is derived from the directory, so that
// two clusters never have the same name, and the remains of a killed cluster can be found.
func newState(dir, version, runtime string) state {
	sum := sha256.Sum256([]byte(dir))
	return state{Dir: dir, Version: version, Runtime: runtime, Group: fmt.Sprintf("outrider-test-%x", sum[:5])}
}

func (s state) configFile() string { return filepath.Join(s.Dir, "conf", "node.json") }

func stateFile(dir string) string { return filepath.Join(dir, "state.json") }

// readState returns the state of the cluster in dir, or [ErrDown].
func readState(dir string) (state, error) {
	var s state
	text, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("%s: %w", dir, ErrDown)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", stateFile(dir), err)
	}
	return s, nil
}

func (s state) write() error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	temp := stateFile(s.Dir) + ".new"
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, stateFile(s.Dir))
}

// alive reports whether the cluster's own process 1 still runs, rather than another process with the same PID.
func (s state) alive() bool {
	started, err := startTime(s.PID)
	return s.PID > 1 && err == nil && started == s.Started
}

// startTime returns the start time of a process, in the kernel's clock ticks. It returns an error for a zombie
// without running threads. A zombie with running threads counts as running: the last thread of process 1 ends
// all other processes of the namespace, and until then the cluster's files are in use.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	// The second field, the name in parentheses, may contain any characters. The rest starts with the third field.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d: cannot read %q", pid, text)
	}
	status, threads, started := fields[0], fields[17], fields[19]
	if (status == "Z" && threads == "1") || status == "X" {
		return "", os.ErrProcessDone
	}
	return started, nil
}

// Down ends the cluster in dir, whether it is starting, running or was killed, and removes everything except
// the logs. It does nothing if dir contains no cluster.
func Down(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s, err := readState(dir)
	if errors.Is(err, ErrDown) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.kill(); err != nil {
		return fmt.Errorf("ending the cluster in %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Minute, errors.New("still in use after two minutes"))
	defer cancel()
	if err := cgroup.Remove(ctx, s.Group); err != nil {
		return fmt.Errorf("removing control groups: %w", err)
	}
	for _, name := range append([]string{"conf", "kubeconfig", "pki"}, node.OnDisk...) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return os.Remove(stateFile(dir))
}

// kill sends SIGTERM to process 1, and SIGKILL if the cluster does not end in time.
func (s state) kill() error {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// Open the handle before the check, so that it cannot refer to a later process.
		process, err := os.FindProcess(s.PID)
		if err != nil || !s.alive() {
			return nil
		}
		if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("process 1 does not end"))
		err = poll.Until(ctx, 10*time.Millisecond, func(context.Context) error {
			if s.alive() {
				return fmt.Errorf("process %d is there", s.PID)
			}
			return nil
		})
		cancel()
		if err == nil || signal == syscall.SIGKILL {
			return err
		}
	}
	return nil
}
