package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/port"
)

// A Server is an outriderd in a separate process.
type Server struct {
	Binary     string
	Mesh       string // the folder of manifests that outriderd serves
	State, Log string // the folder of outriderd's authority, and the path of outriderd's log

	Address, Web string // addresses of the xDS and the HTTP port

	process *exec.Cmd
}

// Start starts the process, and returns when it is ready. After [Server.Kill] it starts again at
// the same addresses.
func (s *Server) Start() error {
	for _, address := range []*string{&s.Address, &s.Web} {
		if *address == "" {
			held, _, err := port.Take() // the port is reserved for as long as this process runs
			if err != nil {
				return err
			}
			*address = fmt.Sprint("127.2.0.1:", held.Port())
		}
	}
	out, err := os.Create(s.Log)
	if err != nil {
		return err
	}
	defer out.Close()
	s.process = exec.Command(s.Binary, "serve", "--source", "files:"+s.Mesh, "--state", s.State,
		"--listen", s.Address, "--http", s.Web, "--name", "localhost", "--webhook", "off", "--log-level", "warn")
	s.process.Stdout, s.process.Stderr = out, out
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		response, err := http.Get("http://" + s.Web + "/ready")
		if err == nil {
			response.Body.Close()
			return nil
		}
		if time.Now().After(end) || s.gone() {
			s.Kill()
			return errors.Join(fmt.Errorf("outriderd is not ready: %w", err), s.LastLog())
		}
	}
}

func (s *Server) gone() bool {
	var status unix.WaitStatus
	pid, err := unix.Wait4(s.process.Process.Pid, &status, unix.WNOHANG, nil)
	return err != nil || pid != 0
}

// LastLog returns the last 2,000 bytes of the log as an error.
func (s *Server) LastLog() error {
	raw, _ := os.ReadFile(s.Log)
	return errors.New(strings.TrimSpace(string(raw[max(0, len(raw)-2000):])))
}

// Kill sends SIGKILL to the process and waits until it has exited.
func (s *Server) Kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// Resident returns the resident memory of the process.
func (s *Server) Resident() float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
	var size, pages float64
	fmt.Sscan(string(raw), &size, &pages)
	return pages * float64(os.Getpagesize())
}

// Spent returns the processor time that the process has used, with a resolution of a nanosecond.
func (s *Server) Spent() time.Duration {
	var t unix.Timespec
	clock := int32(^s.process.Process.Pid)<<3 | 2 // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Metrics returns the values of the process's metrics, by name and labels.
func (s *Server) Metrics() (map[string]float64, error) {
	response, err := http.Get("http://" + s.Web + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	return out, nil
}

// Peak returns the maximum resident memory of the process.
func (s *Server) Peak() float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	var kib float64
	fmt.Sscan(rest, &kib)
	return kib * 1024
}
