package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/iptables"
)

// lockLimit bounds the wait for other captures in the namespace. A capture takes about 30 ms with nftables and
// 0.3 s with iptables, including proofs, so 20 concurrent ones on a loaded machine can finish in this time. The
// limit is half of the time limit of a whole run.
const lockLimit = 30 * time.Second

// netnsFile is the locked file: the network namespace of the calling thread. The kernel has one
// inode for each namespace, so all containers of a pod lock the same file, whatever they have
// mounted. The kernel unlocks it when the last holder exits.
const netnsFile = "/proc/thread-self/ns/net"

// Lock waits until no other process captures, cleans or verifies in the network namespace of the calling
// thread. If it has to wait, it writes a message to notes. Programs that are started with the returned context
// hold the lock too: if one outlives this process, the next capture waits until it ends.
func Lock(ctx context.Context, notes io.Writer) (locked context.Context, unlock func(), err error) {
	return lock(ctx, notes, lockLimit)
}

func lock(ctx context.Context, notes io.Writer, limit time.Duration) (locked context.Context, unlock func(), err error) {
	f, err := os.Open(netnsFile)
	if err != nil {
		return nil, nil, fmt.Errorf("locking the network namespace: %w (is /proc mounted?)", err)
	}
	unlock = func() { f.Close() }
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintf(notes, "waiting for %s, which has locked this network namespace\n", holder(f))
		// flock cannot be cancelled. If the caller gives up, the goroutine unlocks the file as soon as it gets
		// the lock.
		done := make(chan error)
		given := make(chan struct{})
		go func() {
			err := flock(f, unix.LOCK_EX)
			select {
			case done <- err:
			case <-given:
				f.Close()
			}
		}()
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case err = <-done:
		case <-ctx.Done():
			close(given)
			return nil, nil, fmt.Errorf("waiting for %s: %w; nothing was changed", holder(f), context.Cause(ctx))
		case <-timer.C:
			close(given)
			return nil, nil, fmt.Errorf("%s has locked this network namespace for %s; nothing was changed", holder(f), limit)
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("locking the network namespace: %w", err)
	}
	return iptables.WithOpenFile(ctx, f), unlock, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// maxLocks bounds the bytes that are read from /proc/locks, which lists the locks of the whole
// machine with about 60 bytes each.
const maxLocks = 1 << 20

// holder describes the process that has locked f. It cannot name the process if that is in a
// container with its own process namespace.
func holder(f *os.File) string {
	const unknown = "another process"
	info, err := f.Stat()
	if err != nil {
		return unknown
	}
	file, err := os.Open("/proc/locks")
	if err != nil {
		return unknown
	}
	defer file.Close()
	list, err := io.ReadAll(io.LimitReader(file, maxLocks))
	if err != nil {
		return unknown
	}
	st := info.Sys().(*syscall.Stat_t)
	pid := holderIn(string(list), st.Dev, st.Ino)
	if pid == 0 {
		return unknown
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return fmt.Sprintf("process %d (%q)", pid, strings.TrimSpace(string(name)))
}

// holderIn finds the holder of a lock in the text of /proc/locks (man 5 proc_locks). It returns 0
// if no process holds it.
func holderIn(list string, dev, ino uint64) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), ino)
	for line := range strings.Lines(list) {
		// "1: FLOCK  ADVISORY  WRITE 4711 00:04:4026531840 0 EOF"; a waiting process has "->" as
		// second word.
		fields := strings.Fields(line)
		if len(fields) == 8 && fields[1] == "FLOCK" && fields[5] == want {
			if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
				return pid
			}
		}
	}
	return 0
}
