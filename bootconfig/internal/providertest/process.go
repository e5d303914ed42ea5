package providertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A Process is the program of a real centre.
type Process struct {
	dir     string
	ready   func() error
	command []string
	running *exec.Cmd
	exited  chan struct{} // closed when running has exited
}

// Start starts a program in a folder, and returns when ready returns nil. The program ends with t.
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

// Kill ends the program by SIGKILL and waits until it is gone.
func (p *Process) Kill(*testing.T) {
	if p.running == nil {
		return
	}
	p.running.Process.Kill() // an error says that it has exited
	<-p.exited
}

// Program returns the absolute path of a program of make centres, or skips the test.
func Program(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no real centre: %v; make centres builds it", err)
	}
	return path
}

// Port returns a port of the loopback address that is free. It is below those that the kernel
// gives to clients: a client that calls a centre that is away could get the centre's own.
func Port(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			ln.Close()
			return port
		}
	}
	t.Fatal("none of 100 ports is free")
	return 0
}
