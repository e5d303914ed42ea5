package containerinit

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// roles are what this package does in a program that was started again.
var roles = map[string]func() error{
	RoleNode:      keep,
	RoleContainer: begin,
	roleFirst:     become,
	RoleExec:      join,
}

var called atomic.Bool

// Called reports whether this program has called [Become]. One that has not would start itself for ever.
func Called() bool { return called.Load() }

// Become does what the first argument of this process says, if it was started again in a role, and does
// not return then. A program that runs pods calls it at the beginning of main, and of a test's TestMain.
func Become() {
	called.Store(true)
	role, ours := roles[os.Args[0]]
	if !ours {
		return
	}
	runtime.LockOSThread() // namespaces and capabilities are a thread's
	// A container sees this process before it is the command. It may not trace it then.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // any value of the third but 0 and 1 fails
	if err := role(); err != nil {
		reply(Answer{Error: err.Error()})
		syscall.Exit(ExitSetup)
	}
	syscall.Exit(0) // os.Exit would wait a second with the race detector, and the pod for it
}

// ExitSetup is the status of a process that could not become what it should.
const ExitSetup = 128

// reply answers the parent. An error means that the parent has ended, and needs no answer.
func reply(a Answer) {
	text, _ := json.Marshal(a)
	_, _ = unix.Write(fdAnswer, append(text, '\n'))
}

// keep is the node: its first process, with which everything on it ends. It ends when
// the program that made it does, because then the other end of its standard input is closed.
func keep() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from the machine's mounts: %w", err)
	}
	if err := unix.Mount("outrider", NodeDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", NodeDir, err)
	}
	reply(Answer{PID: os.Getpid()})
	unix.Close(fdAnswer)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// begin starts the container's first process in a process namespace within the
// node's. Only a process of the node can make one. CLONE_PARENT makes it the child of
// the program that runs the pod, as runc does it, so that this one can go.
func begin() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{roleFirst}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(fdOrder, "order"), os.NewFile(fdAnswer, "answer")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT | unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("making a process namespace: %w", err)
	}
	return nil
}

// become makes the container around this process, then is its command.
func become() error {
	// /proc is still that of the program that runs the pod: its numbers are there.
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(self)
	if err != nil {
		return fmt.Errorf("/proc/self is %q", self)
	}
	reply(Answer{PID: pid})
	o, err := readOrder()
	if err != nil {
		return err
	}
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("leaving the terminal: %w", err)
	}
	if err := o.Root.enter(); err != nil {
		return err
	}
	return o.Process.exec()
}

// join enters a container that runs, then is the command of a hook or a probe.
func join() error {
	o, err := readOrder()
	if err != nil {
		return err
	}
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("leaving the terminal: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(fdMounts, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the container's mounts: %w", err)
	}
	unix.Close(fdMounts)
	return o.Process.exec()
}

func readOrder() (Order, error) {
	var o Order
	unix.CloseOnExec(fdAnswer)
	f := os.NewFile(fdOrder, "order")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&o); err != nil {
		return o, fmt.Errorf("reading what to become: %w", err)
	}
	return o, nil
}
