package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/cgroup"
)

// Init is process 1 of the cluster. It ends the cluster on SIGTERM or SIGINT, when the starter closes the leash,
// and when [Run] ends. It returns when all other processes and the control groups are gone; the namespaces end
// with this process.
func Init(configFile string) error {
	if os.Getpid() != 1 {
		// This function ends by killing every process that it can see.
		return fmt.Errorf("not the first process of a namespace")
	}
	c, err := Load(configFile)
	if err != nil {
		return err
	}
	// Other processes wait until these pipes are closed, so no long-lived program may inherit them.
	syscall.CloseOnExec(eventsFile)
	syscall.CloseOnExec(leashFile)
	events := os.NewFile(eventsFile, "events")
	cmd := exec.Command(c.Node, "run", configFile)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{events} // becomes eventsFile in the child
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the bring-up: %w", err)
	}
	events.Close()

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case s := <-stop:
		fmt.Fprintln(os.Stderr, "ending on", s)
	case <-released(os.NewFile(leashFile, "leash")):
		fmt.Fprintln(os.Stderr, "ending with the starter")
	case <-reaped(cmd.Process.Pid, died):
		fmt.Fprintln(os.Stderr, "ending after the bring-up ended")
	}
	return end(c.Group)
}

// released returns a channel that is closed when the other end of the leash is closed, unless Keep was sent before.
func released(leash *os.File) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		if n, _ := leash.Read(make([]byte, 1)); n == 0 {
			close(c)
		}
	}()
	return c
}

// reaped reaps the children of this process that have exited, at each signal that the channel died delivers. Orphans
// become children of this process too. The returned channel is closed after the process with the ID child has exited.
func reaped(child int, died <-chan os.Signal) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		for range died {
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err == syscall.EINTR {
					continue
				}
				if pid <= 0 {
					break
				}
				if pid == child {
					close(ended)
				}
			}
		}
	}()
	return ended
}

// end kills all processes of the namespace and removes their control groups.
func end(group string) error {
	// No process can escape by forking: the kernel blocks forks while it sends the signal, and a
	// killed process forks no more.
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("killing all processes: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return cgroup.Remove(ctx, group)
}
