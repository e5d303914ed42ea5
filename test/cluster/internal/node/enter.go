package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Enter runs a command in the namespaces of a process, in the current directory if
// a directory of that name exists inside. It returns the exit status of the command, or 128
// plus the signal's number.
//
// It does what nsenter does, and also handles signals: at Ctrl-C the terminal signals the command
// directly, other signals are passed on, and the command does not outlive this process.
func Enter(pid string, argv []string) (status int, err error) {
	// Only this thread enters the namespaces; processes that it starts are inside.
	runtime.LockOSThread()
	if err := join(pid); err != nil {
		return 0, err
	}
	cmd := exec.Command(os.Args[0], append([]string{"become"}, argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			// The terminal sends these two signals to the command too, so they are not passed on.
			if s != syscall.SIGINT && s != syscall.SIGQUIT {
				cmd.Process.Signal(s)
			}
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Become replaces this process by a command that ends with its parent. It is the part of [Enter] that
// runs inside. Pdeathsig of os/exec cannot be used: if the parent is in another process namespace, os/exec assumes
// that the parent is dead.
func Become(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

// join moves this thread to the namespaces of a process; for the PID namespace only its children are moved.
func join(pid string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	// Open all files before entering one namespace: inside, /proc is a different one.
	var spaces []*os.File
	for _, kind := range []string{"ipc", "net", "pid", "uts", "mnt"} {
		f, err := os.Open("/proc/" + pid + "/ns/" + kind)
		if err != nil {
			return err
		}
		defer f.Close()
		spaces = append(spaces, f)
	}
	// A thread can change its mount namespace only if it shares its root and current directory with no other.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the common current directory: %w", err)
	}
	for _, f := range spaces {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("entering %s: %w", f.Name(), err)
		}
	}
	if err := unix.Chdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("changing to %s: %w", dir, err)
	}
	return nil
}
