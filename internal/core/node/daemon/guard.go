package daemon

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"github.com/oklog/run"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/nri"
)

// Guard refuses containers that no daemon has adjusted. It uses a connection from the runtime, and returns when
// the runtime ends the connection, or when the guard's program is removed or replaced.
func Guard(ctx context.Context, conn net.Conn, log *slog.Logger) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(program)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g run.Group
	g.Add(func() error {
		return (&nri.Plugin{Log: log}).Run(ctx, contract.NodeGuard, "", conn, func(bool) {})
	}, func(error) { cancel() })
	g.Add(func() error { return gone(ctx, w, program) }, func(error) { cancel() })
	return g.Run()
}

// gone returns when a program is removed or replaced.
func gone(ctx context.Context, w *fsnotify.Watcher, program string) error {
	began, err := os.Stat(program)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			return err
		case <-w.Events:
		}
		now, failed := os.Stat(program)
		if failed != nil || !os.SameFile(began, now) {
			return nil
		}
	}
	return nil
}
