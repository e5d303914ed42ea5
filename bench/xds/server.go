package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A server is an outriderd, in a process of its own.
type server struct {
	process   *exec.Cmd
	log       string
	address   string
	readyTook time.Duration // since its exec
}

// serve starts one, and returns when it is ready.
func serve(binary, dir, state, log string, full bool) (*server, error) {
	address, err := free()
	if err != nil {
		return nil, err
	}
	web, err := free()
	if err != nil {
		return nil, err
	}
	push := "on-demand"
	if full {
		push = "full"
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s := &server{log: log, address: address}
	s.process = exec.Command(binary, "serve", "--source", "files:"+dir, "--state", state, "--push", push,
		"--listen", address, "--http", web, "--name", "localhost", "--log-level", "warn")
	s.process.Stdout, s.process.Stderr = out, out
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	for end := began.Add(timeout); ; time.Sleep(time.Millisecond) {
		response, err := http.Get("http://" + web + "/ready")
		if err == nil {
			response.Body.Close()
			s.readyTook = time.Since(began)
			return s, nil
		}
		if time.Now().After(end) || s.gone() {
			s.end()
			return nil, errors.Join(fmt.Errorf("outriderd is not ready: %w", err), s.lastLog())
		}
	}
}

// free returns an unused address.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *server) gone() bool {
	var status unix.WaitStatus
	pid, err := unix.Wait4(s.process.Process.Pid, &status, unix.WNOHANG, nil)
	return err != nil || pid != 0
}

// lastLog returns the end of the log as an error.
func (s *server) lastLog() error {
	raw, _ := os.ReadFile(s.log)
	return errors.New(strings.TrimSpace(string(raw[max(0, len(raw)-2000):])))
}

func (s *server) end() {
	s.process.Process.Kill()
	s.process.Wait()
}

// resident is the memory that it has.
func (s *server) resident() float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
	var size, pages float64
	fmt.Sscan(string(raw), &size, &pages)
	return pages * float64(os.Getpagesize())
}

// spent is the processor time of a process, to the nanosecond: /proc counts in hundredths
// of a second, more than a change takes.
func spent(pid int) time.Duration {
	var t unix.Timespec
	clock := int32(^pid)<<3 | 2 // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func (s *server) spent() time.Duration { return spent(s.process.Process.Pid) }
