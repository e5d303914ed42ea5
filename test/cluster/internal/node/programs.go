package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"outrider.dev/test/cluster/internal/cgroup"
)

// Control groups below the cluster's control group. A reboot kills all processes in nodeGroup, including those that
// its programs have started. systemGroup contains the control plane, which could be on another machine.
const (
	nodeGroup   = "node"
	systemGroup = "system"
)

// programs starts the components of one cluster and reports when one ends.
type programs struct {
	config Config
	mounts map[string]bool // mounts of the node after its start, from [mountsNow]

	mu      sync.Mutex // held while a request is served
	ended   func(cause error)
	running map[string]*process
}

// A process runs a component. ended is closed when the process has ended.
type process struct {
	*os.Process
	ended chan struct{}
}

func (p *programs) start(group string, components ...component) error {
	// Join the group before the start: a process that is moved later could already have children.
	if err := cgroup.Join(p.config.Group, group); err != nil {
		return err
	}
	var err error
	for _, comp := range components {
		if err = p.startOne(comp); err != nil {
			err = fmt.Errorf("starting %s: %w", comp.name, err)
			break
		}
	}
	return errors.Join(err, cgroup.Join(p.config.Group, systemGroup))
}

func (p *programs) startOne(comp component) error {
	logFile := p.config.Log(comp.name + ".log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(comp.args[0], comp.args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tempDir)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	started := &process{cmd.Process, make(chan struct{})}
	p.running[comp.name] = started
	report := p.ended // the function of this start: a later start sets another one
	go func() {
		defer close(started.ended)
		err := fmt.Errorf("%s ended: %v: %s", comp.name, cmd.Wait(), lastLine(logFile))
		fmt.Fprintln(os.Stderr, err)
		report(err)
	}()
	return nil
}

func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
