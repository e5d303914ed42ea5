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

// roles maps the roles of a program that was started again to their functions.
var roles = map[string]func() error{
	RoleNode:      keep,
	RoleContainer: begin,
	roleFirst:     become,
	RoleExec:      join,
}

var called atomic.Bool

// Called reports whether this program has called [Become]. Without that call, a program that runs a pod would
// start itself endlessly.
func Called() bool { return called.Load() }

// Become checks whether this process was started with a role in argv[0]. If so, it carries out the role and does
// not return; otherwise it returns at once. A program that runs pods must call it at the beginning of main, and
// tests at the beginning of TestMain.
func Become() {
	called.Store(true)
	role, ours := roles[os.Args[0]]
	if !ours {
		return
	}
	runtime.LockOSThread() // namespaces and capabilities belong to a thread
	// Other processes of the container see this process before the command replaces it; they must not be able to
	// trace it.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // this cannot fail with 0 or 1
	if err := role(); err != nil {
		reply(Answer{Error: err.Error()})
		syscall.Exit(ExitSetup)
	}
	syscall.Exit(0) // not os.Exit, which takes a second with the race detector
}

// ExitSetup is the exit status of a process that could not carry out its order.
const ExitSetup = 128

// reply sends an answer to the parent. It ignores errors, because they mean that the parent has exited.
func reply(a Answer) {
	text, _ := json.Marshal(a)
	_, _ = unix.Write(fdAnswer, append(text, '\n'))
}

// keep is run by the first process of the node; when that process exits, everything on the node ends. It exits
// when the program that made the node exits, because that closes the other end of the process's standard input.
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

// begin starts the container's first process in a new PID namespace below the node's, which only a process of the
// node can create. CLONE_PARENT makes the new process a child of the program that runs the pod, as in runc, so
// that the process of begin can exit.
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

// become sets up the container's file system and user for this process, and then executes the command.
func become() error {
	// /proc still belongs to the program that runs the pod, so /proc/self is the process ID in that program's
	// namespace.
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

// join enters a running container, and then executes the command of a hook or a probe.
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
