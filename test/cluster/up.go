package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"outrider.dev/test/cluster/internal/node"
)

// ErrUp means that a cluster is already running in the directory.
var ErrUp = errors.New("a cluster is up already")

// Up builds what is missing, starts a cluster, and returns when it is usable: its node is ready,
// Services and DNS answer, and pods can be created. If it fails, or ctx ends first, only the logs
// remain.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkNeeds(); err != nil {
		return nil, err
	}
	progress := newProgress(o.Progress)
	if err := build(ctx, o, progress); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := tryLock(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("another process brings a cluster up in %s: %w", o.Dir, err)
	}
	defer unlock()
	if _, err := Open(o.Dir); err == nil {
		return nil, fmt.Errorf("%s: %w", o.Dir, ErrUp)
	}
	// Remove the remains of a cluster that was killed while starting or stopping.
	if err := Down(o.Dir); err != nil {
		return nil, err
	}
	c, err := start(ctx, o, progress)
	if err != nil {
		return nil, errors.Join(err, Down(o.Dir))
	}
	return c, nil
}

// start starts the cluster and waits until it is usable. After a failure the caller must clean up.
func start(ctx context.Context, o Options, progress *progress) (*Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bringUpLimit, fmt.Errorf("not usable after %v", bringUpLimit))
	defer cancel()
	c := &Cluster{state: newState(o.Dir, o.Version, o.Runtime)}
	if err := c.state.write(); err != nil {
		return nil, err
	}
	c.config = node.Config{
		Dir:     o.Dir,
		Bin:     filepath.Join(o.Cache, o.Version),
		Runtime: runtimeDir(o),
		CoreDNS: filepath.Join(o.Cache, "tools", "coredns"),
		Node:    filepath.Join(o.Cache, "tools", "node"),
		Group:   c.state.Group,
		Images:  []string{pauseTarball(o.Cache), baseTarball(o.Cache)},

		Features: o.Features, APIs: o.APIs,
	}
	if err := writeConfig(c.config, c.state.configFile(), o); err != nil {
		return nil, err
	}
	progress.step("configuration and certificates written")
	events, leash, err := c.spawn()
	if err != nil {
		return nil, err
	}
	defer events.Close()
	if err := follow(ctx, events, progress); err != nil {
		leash.Close()
		return nil, fmt.Errorf("%w; logs are in %s", err, filepath.Join(o.Dir, "log"))
	}
	if !o.Detach {
		c.leash = leash
	} else {
		_, err := leash.Write([]byte{node.Keep})
		if err := errors.Join(err, leash.Close()); err != nil {
			return nil, err
		}
	}
	c.state.Ready = true
	return c, c.state.write()
}

// spawn starts process 1 of the cluster in new namespaces and stores its process ID. The cluster ends when the leash
// is closed; the kernel closes it if this process dies.
func (c *Cluster) spawn() (events, leash *os.File, err error) {
	eventsIn, eventsOut, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer eventsOut.Close()
	leashIn, leashOut, err := os.Pipe()
	if err != nil {
		eventsIn.Close()
		return nil, nil, err
	}
	defer leashIn.Close()
	defer func() {
		if err != nil {
			eventsIn.Close()
			leashOut.Close()
		}
	}()
	log, err := os.Create(c.config.Log("node.log"))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(c.config.Node, "init", c.state.configFile())
	cmd.Env = c.config.Environ(os.Environ())
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{eventsOut, leashIn} // in the order of the file descriptors in package node
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Setsid: true, // so that Ctrl-C signals only this process, which then ends the cluster properly
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting the cluster: %w", err)
	}
	// Reap the cluster's process 1, which is a child of this process.
	go cmd.Wait()
	c.state.PID = cmd.Process.Pid
	if c.state.Started, err = startTime(c.state.PID); err != nil {
		return nil, nil, fmt.Errorf("starting the cluster: %w", err)
	}
	return eventsIn, leashOut, c.state.write()
}

// follow reports events until the cluster is usable. It fails when the cluster fails or ctx ends.
func follow(ctx context.Context, events io.Reader, progress *progress) error {
	received := make(chan node.Event)
	go func() {
		defer close(received)
		for from := json.NewDecoder(events); ; {
			var e node.Event
			if from.Decode(&e) != nil {
				return
			}
			select {
			case received <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	last := "nothing"
	for {
		select {
		case e, ok := <-received:
			switch {
			case !ok:
				return fmt.Errorf("the cluster ended, after: %s", last)
			case e.Error != "":
				return errors.New(e.Error)
			case e.Ready:
				return nil
			}
			last = e.Phase
			progress.step("%s", e.Phase)
		case <-ctx.Done():
			return fmt.Errorf("%w; the last step completed: %s", context.Cause(ctx), last)
		}
	}
}
