package providertest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// endsWithParent makes the kernel kill the program when the test's process is killed.
func endsWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

const isolatedEnv = "PROVIDERTEST_ISOLATED"

// Isolate runs this program again, in a network namespace that contains only a loopback interface, and exits with
// the exit status of that run. In the second process Isolate only returns. It needs root.
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

// Port returns a port on which nothing listens. It stays bound until the end of the test, so that the kernel
// gives it neither to another process nor to a client as its local port. SO_REUSEADDR lets the test's server
// listen on it all the same.
func Port(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.Bind(fd, &syscall.SockaddrInet4{}))
	name, unnamed := syscall.Getsockname(fd)
	if err := errors.Join(err, unnamed); err != nil {
		t.Fatal(err)
	}
	return name.(*syscall.SockaddrInet4).Port
}
