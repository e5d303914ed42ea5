package providertest

import (
	"os/exec"
	"syscall"
)

// endsWithParent has the kernel kill the program when the test's process is killed.
func endsWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
