package cluster

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/poll"
)

// lock waits until this process has dir for itself.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	err = poll.Until(ctx, 100*time.Millisecond, func(context.Context) error {
		unlock, err = tryLock(dir)
		return err
	})
	return unlock, err
}

// tryLock fails at once if another process has dir. The kernel unlocks it when this
// process ends, however it does.
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
