package cluster

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/poll"
)

// lock waits until no other process has locked dir, and locks it for this process.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	err = poll.Until(ctx, 100*time.Millisecond, func(context.Context) error {
		unlock, err = tryLock(dir)
		return err
	})
	return unlock, err
}

// tryLock locks dir, and fails at once if another process has locked it. The kernel releases the lock when
// this process ends, even if it is killed.
func tryLock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { d.Close() }, nil
}
