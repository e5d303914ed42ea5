package wire

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// WatchFiles calls changed after each change of a directory that one of paths is in, from one
// goroutine, until stop is called; stop waits for a running call. Several changes may be
// one call. A call is a hint: read the files and compare.
//
// It watches the directories of the files before and after links are followed: the
// kubelet changes a projected volume by renaming a link, ..data, beside the file. If the
// kernel has no inotify, or no more instances of it, or a directory does not exist yet, it
// calls changed every poll.
func WatchFiles(poll time.Duration, changed func(), paths ...string) (stop func()) {
	w := &watcher{paths: slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == "" }), poll: poll, changed: changed, stop: make(chan struct{})}
	if len(w.paths) == 0 {
		return func() {}
	}
	w.events = openEvents()
	// Here, not in the goroutine: no change after WatchFiles has returned may be missed.
	complete := w.add()
	var done sync.WaitGroup
	done.Go(func() { w.run(complete) })
	return sync.OnceFunc(func() {
		close(w.stop)
		if w.events != nil {
			w.events.Close()
		}
		done.Wait()
	})
}

type watcher struct {
	paths   []string
	poll    time.Duration
	changed func()
	stop    chan struct{}
	events  *os.File // nil: the kernel has none, or none left
}

// add watches all directories. A directory that is already watched keeps its watch. It
// reports whether all exist.
func (w *watcher) add() bool {
	if w.events == nil {
		return false
	}
	raw, err := w.events.SyscallConn()
	if err != nil {
		return false
	}
	complete := true
	err = raw.Control(func(fd uintptr) {
		for dir := range directories(w.paths) {
			if watchDir(int(fd), dir) != nil {
				complete = false
			}
		}
	})
	return complete && err == nil
}

// directories are where the files are, before and after links.
func directories(paths []string) map[string]bool {
	out := map[string]bool{}
	for _, p := range paths {
		out[filepath.Dir(p)] = true
		if real, err := filepath.EvalSymlinks(p); err == nil {
			out[filepath.Dir(real)] = true
		}
	}
	return out
}

func (w *watcher) run(complete bool) {
	seen := make(chan struct{}, 1)
	if w.events != nil {
		var reader sync.WaitGroup
		defer reader.Wait()
		reader.Go(func() { w.read(seen) })
	}
	for {
		var tick <-chan time.Time
		if !complete {
			tick = time.After(w.poll)
		}
		select {
		case <-w.stop:
			return
		case <-seen:
		case <-tick:
		}
		// A new directory has no watch yet, and its files may be older than the watch: so
		// it is added before changed reads them.
		complete = w.add()
		select {
		case <-w.stop:
			return
		default:
			w.changed()
		}
	}
}

// read empties the queue. Which event it was does not matter, nor that the queue ran over.
func (w *watcher) read(seen chan<- struct{}) {
	buffer := make([]byte, 4096)
	for {
		if _, err := w.events.Read(buffer); err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return // closed
		}
		select {
		case seen <- struct{}{}:
		default: // one is waiting, and will look after this change
		}
	}
}
