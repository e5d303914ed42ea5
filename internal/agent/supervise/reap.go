package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An Orphan is a process that this one inherited and collected.
type Orphan struct {
	PID    int
	Status syscall.WaitStatus
}

// againAfter is when children are looked at again that have ended, and that somebody
// here still means to wait for: who gives that up sends no signal.
const againAfter = 5 * time.Second

// Reap collects every orphan that ends, until ctx does, and tells seen of each (nil:
// nobody). Where this process is not PID 1 (shareProcessNamespace, a bare host) it makes
// itself the one who inherits its descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
//
// It never takes the status of a child that this process waits for: os and
// os/exec hold a pidfd for each of theirs until they have waited, and a child with a
// pidfd here is left alone. So it needs Linux 5.4, as Go's own pidfds do. A child
// started by syscall.ForkExec has none: use os.
func Reap(ctx context.Context, seen func(Orphan)) error {
	if err := havePidfd(); err != nil {
		return fmt.Errorf("collecting orphans: %w", err)
	}
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("becoming the reaper of orphans: %w", err)
		}
	}
	ended := make(chan os.Signal, 1) // one is enough: each look is at all
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	again := time.NewTimer(0) // at once, for those from before the first signal
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-again.C:
		}
		left, err := reapAll(seen)
		if err != nil {
			return err
		}
		if left > 0 {
			again.Reset(againAfter)
		}
	}
}

// havePidfd asks whether Go itself uses pidfds here: it decides once, by what the kernel
// can do.
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

// reapAll collects the orphans that have ended, and counts the children that have ended
// and are somebody's.
func reapAll(seen func(Orphan)) (left int, err error) {
	pids, err := children()
	if err != nil {
		return 0, fmt.Errorf("looking for orphans: %w", err)
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return !hasEnded(pid) })
	if len(pids) == 0 {
		return 0, nil
	}
	// In this order: clone(2) makes the pidfd before the child first runs, so who has
	// ended without one here will never have one.
	owned, err := pidfds()
	if err != nil {
		return 0, fmt.Errorf("looking for orphans: %w", err)
	}
	for _, pid := range pids {
		if owned[pid] {
			left++
			continue
		}
		var status syscall.WaitStatus
		got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err == nil && got == pid && seen != nil {
			seen(Orphan{pid, status})
		}
	}
	return left, nil
}

// hasEnded looks at a child without collecting it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// children returns this process's children, ended or not.
func children() ([]int, error) {
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return childrenByParent() // a kernel without CONFIG_PROC_CHILDREN
	}
	var out []int
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // that thread has ended, and its children have moved: their end is signalled
		}
		for _, field := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(field); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

// childrenByParent asks every process who its parent is.
func childrenByParent() ([]int, error) {
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
			continue
		}
		// "pid (any name) state parent ...": the name may hold spaces and brackets.
		fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == self {
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
		// "anon_inode:[pidfd]", or "pidfd:[inode]" since Linux 6.9 has them on a file
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
