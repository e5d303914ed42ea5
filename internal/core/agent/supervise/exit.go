package supervise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit statuses of a child that could not be started, the same as in a shell.
const (
	NotRunnable = 126
	NotFound    = 127
)

// An Exit describes the end of a child.
type Exit struct {
	PID    int
	Status int            // exit status, if no signal ended it
	Signal syscall.Signal // 0: none
	Core   bool           // a core was dumped
	Start  *StartError    // set if the child could not be started
	Served time.Duration  // time since the child got ready; zero if it was never ready
	Tail   []string       // its last lines of output
}

// Code returns the exit status for an agent that ends because its child ended. It is never
// 0: a proxy that ends without having been asked to has failed, whatever its status.
func (e Exit) Code() int {
	switch {
	case e.Start != nil:
		return e.Start.Status
	case e.Signal != 0:
		return 128 + int(e.Signal)
	case e.Status != 0:
		return e.Status
	}
	return 1
}

func (e Exit) String() string {
	switch {
	case e.Start != nil:
		return e.Start.Error()
	case e.Signal != 0:
		s := "killed by " + unix.SignalName(e.Signal)
		if e.Core {
			s += " (core dumped)"
		}
		return s
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

func exitOf(state *os.ProcessState) Exit {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return Exit{PID: state.Pid(), Signal: ws.Signal(), Core: ws.CoreDump()}
	}
	return Exit{PID: state.Pid(), Status: state.ExitCode()}
}

// A StartError explains why a child could not be started.
type StartError struct {
	Path   string
	Why    string
	Status int  // NotFound or NotRunnable
	Final  bool // another try would fail too
}

func (e *StartError) Error() string { return fmt.Sprintf("starting %s: %s", e.Path, e.Why) }

// startError explains why path could not be run.
func startError(path string, err error) *StartError {
	e := &StartError{Path: path, Status: NotRunnable, Final: true}
	_, missing := os.Stat(path)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		e.Status, e.Why = NotFound, "there is no such file in PATH"
	case errors.Is(err, fs.ErrNotExist) && missing != nil:
		e.Status, e.Why = NotFound, "there is no such file"
	case errors.Is(err, fs.ErrNotExist):
		// The kernel returns ENOENT for a missing interpreter of the file, too.
		e.Status, e.Why = NotFound, "its loader or interpreter is missing here (a binary for glibc in an image without it?)"
	case errors.Is(err, fs.ErrPermission):
		e.Why = "it must not be executed (its mode, or a file system mounted noexec)"
	case errors.Is(err, syscall.ENOEXEC):
		e.Why = "it is no program for this machine" + machineOf(path)
	case errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		var errno syscall.Errno
		errors.As(err, &errno)
		e.Why, e.Final = errno.Error(), false // temporary: the file is being written, or a resource is short
	default:
		e.Why = err.Error()
	}
	return e
}

// machines maps e_machine, the architecture field of an ELF file, to Go's names. It is
// smaller than debug/elf, which the agent would otherwise have to link.
var machines = map[uint16]string{3: "386", 40: "arm", 62: "amd64", 183: "arm64", 21: "ppc64le", 22: "s390x", 243: "riscv64"}

func machineOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	var head [20]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:4]) != "\x7fELF" {
		return ": no ELF file, and it does not begin with #!"
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if head[5] == 2 {
		order = binary.BigEndian
	}
	name, ok := machines[order.Uint16(head[18:])]
	if !ok {
		return ""
	}
	return fmt.Sprintf(": it is for %s, this is %s", name, runtime.GOARCH)
}

// messageLimit is the number of bytes that the kubelet reads of a termination message.
const messageLimit = 4096

// Message returns a termination message: the reason, then as many of the last lines as fit.
func Message(reason string, tail []string) string {
	reason = strings.TrimSpace(reason)
	out := reason[:min(len(reason), messageLimit-1)] + "\n"
	room := messageLimit - len(out)
	first := len(tail)
	for first > 0 && len(tail[first-1])+1 <= room {
		first--
		room -= len(tail[first]) + 1
	}
	if first == len(tail) {
		return strings.ToValidUTF8(out, "")
	}
	return strings.ToValidUTF8(out+strings.Join(tail[first:], "\n")+"\n", "")
}
