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

// A test or a bench ends with the go command that runs it: where that is killed, its child
// would go on. The signal belongs to a thread that must stay, as the first one does, which
// runs init.
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

// StartBound starts cmd for a program that is no test. The kernel kills it when this process
// ends, however that does.
func StartBound(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // comes with the end of the thread that forked
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
