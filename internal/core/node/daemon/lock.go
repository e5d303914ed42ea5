package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// acquire waits for a lock, which the kernel releases when its holder ends, for whatever reason. If ctx
// ends first, it returns nil.
func acquire(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		err := flock(f, unix.LOCK_EX) // this call cannot be cancelled
		select {
		case <-ctx.Done():
			f.Close()
		default:
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			err = same(f, path)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	case <-ctx.Done():
		return nil, nil
	}
}

// same returns an error if the file was removed while this process waited, because the last holder has
// restored the node.
func same(f *os.File, path string) error {
	locked, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(locked, now) {
		return errors.New("outrider-node was removed from this node")
	}
	return nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// taken reports whether another process holds a lock, or acquires it within a time limit.
func taken(ctx context.Context, path string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		f, err := os.OpenFile(path, os.O_RDWR, 0o600)
		if err != nil {
			return false
		}
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}
