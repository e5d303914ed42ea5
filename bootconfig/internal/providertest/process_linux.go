package providertest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// endsWithParent has the kernel kill the program when the test's process is killed.
func endsWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

const isolatedEnv = "PROVIDERTEST_ISOLATED"

// Isolate starts this process again in a network namespace that has nothing but a loopback
// interface, and exits with its status. In the second process it returns. It needs root.
func Isolate() {
	if os.Getenv(isolatedEnv) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolatedEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	default:
		panic(err)
	}
}
