package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// init lets the kernel kill this test or benchmark if the go command that runs it is killed. The kernel sends
// the parent-death signal to the thread that requested it, which must not end. init runs on the first thread,
// which lives as long as the process.
func init() {
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid())); string(name) == "go\n" {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	}
}

// starter returns a channel of functions, which run on a thread that never ends.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartBound starts cmd for a program that is not a test. The kernel kills the program when this process ends, even
// if this process is killed.
func StartBound(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // sent when the thread that starts cmd ends
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
