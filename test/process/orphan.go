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

// A test or benchmark ends when the go command that runs it is killed, and does not run on. The
// parent-death signal belongs to a thread that must stay; init runs on the first thread, which
// does.
func init() {
	if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid())); string(name) == "go\n" {
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	}
}

// starter runs functions on a thread that stays.
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

// StartBound starts cmd for a program that is not a test. The kernel kills cmd when this process
// ends in any way.
func StartBound(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // sent when the thread that forked ends
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
