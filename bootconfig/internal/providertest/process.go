package providertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A Process runs the program of a real configuration server.
type Process struct {
	dir     string
	ready   func() error
	command []string
	running *exec.Cmd
	exited  chan struct{} // closed once the program has exited
}

// Start starts a program in a folder, and returns once ready returns nil. The program is killed at the end of the
// test.
func Start(t *testing.T, dir string, ready func() error, command ...string) *Process {
	t.Helper()
	p := &Process{dir: dir, ready: ready, command: command}
	t.Cleanup(func() {
		p.Kill(t)
		if text, err := os.ReadFile(p.output()); t.Failed() && err == nil {
			t.Logf("the end of the output of %s:\n%s", p.command[0], text[max(0, len(text)-4000):])
		}
	})
	p.Start(t)
	return p
}

func (p *Process) output() string { return filepath.Join(p.dir, "output") }

// Start starts the program again after Kill.
func (p *Process) Start(t *testing.T) {
	t.Helper()
	output, err := os.OpenFile(p.output(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, output, output
	endsWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	p.running, p.exited = cmd, exited
	eventually(t, p.command[0]+" that serves", func() error {
		select {
		case <-exited:
			t.Fatalf("%s has exited: %v", p.command[0], cmd.ProcessState)
		default:
		}
		return p.ready()
	})
}

// Kill ends the program with SIGKILL and waits until it has exited.
func (p *Process) Kill(*testing.T) {
	if p.running == nil {
		return
	}
	p.running.Process.Kill() // an error means that the program has exited already
	<-p.exited
}

// Program returns the absolute path of a program that "make centres" installs. If it is missing, the
// test is skipped.
func Program(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no real centre: make centres builds it")
	}
	return path
}
