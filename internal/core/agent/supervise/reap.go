package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// againAfter is the pause before another look at ended children that have a pidfd. The owner of a pidfd may
// close it without waiting for the child, and no signal announces that.
const againAfter = 5 * time.Second

// Reap collects every orphan that ends, until ctx ends. If this process is not PID 1
// (shareProcessNamespace, a bare host), Reap makes it the reaper of its descendants (prctl(2),
// PR_SET_CHILD_SUBREAPER).
//
// Reap never takes the status of a child that this process waits for: os and os/exec hold a
// pidfd for each child until they have waited for it, and Reap skips a child with a pidfd in
// this process. So it needs Linux 5.4, as Go's own pidfds do. A child started by
// syscall.ForkExec has no pidfd and would be collected: start children with os.
func Reap(ctx context.Context) error {
	if err := havePidfd(); err != nil {
		return fmt.Errorf("collecting orphans: %w", err)
	}
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("becoming the reaper of orphans: %w", err)
		}
	}
	ended := make(chan os.Signal, 1) // one signal is enough: each look covers all children
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	again := time.NewTimer(0) // look at once: some children may have ended before the first signal
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-again.C:
		}
		left, err := reapAll()
		if err != nil {
			return fmt.Errorf("looking for orphans: %w", err)
		}
		if left > 0 {
			again.Reset(againAfter)
		}
	}
}

// havePidfd checks that Go uses pidfds. Go decides that once, by what the kernel supports.
func havePidfd() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	defer self.Release()
	if err := self.WithHandle(func(uintptr) {}); err != nil {
		return fmt.Errorf("this kernel gives no pidfds: %w", err)
	}
	return nil
}

// reapAll collects the orphans that have ended. It leaves ended children that other code
// waits for, and returns their number.
func reapAll() (left int, err error) {
	pids, err := zombies()
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	// Zombies are listed first, pidfds second: clone(2) makes the pidfd before the child first
	// runs, so a child that has ended and has no pidfd now will never have one.
	owned, err := pidfds()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if owned[pid] {
			left++
			continue
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
	return left, nil
}

// zombies returns this process's children that have ended. It looks at every process:
// /proc/PID/task/TID/children exists only with CONFIG_PROC_CHILDREN.
func zombies() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	self := strconv.Itoa(os.Getpid())
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // collected meanwhile
		}
		if f := statFields(string(raw)); len(f) > 1 && f[0] == "Z" && f[1] == self {
			out = append(out, pid)
		}
	}
	return out, nil
}

// pidfds returns the processes for which this one holds a pidfd.
func pidfds() (map[int]bool, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	out := map[int]bool{}
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // closed meanwhile
		}
		// "anon_inode:[pidfd]", or "pidfd:[inode]" since Linux 6.9, where pidfds have a file
		// system of their own.
		if !strings.Contains(link, "pidfd") {
			continue
		}
		raw, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			if value, ok := strings.CutPrefix(line, "Pid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
					out[pid] = true
				}
			}
		}
	}
	return out, nil
}
