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

// WatchFiles calls a function after each change of a directory that contains one of the files, from one
// goroutine, until the returned function is called; that function waits for a running call. Several changes
// may cause only one call. A call is a hint: read the files and compare.
//
// WatchFiles watches the directories of the files both before and after following links, because the
// kubelet changes a projected volume by renaming a link, ..data, beside the file. If the kernel lacks
// inotify or free instances of it, or if a directory does not exist yet, WatchFiles calls the function once
// in each poll interval.
func WatchFiles(poll time.Duration, changed func(), paths ...string) (stop func()) {
	w := &watcher{paths: slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == "" }), poll: poll, changed: changed, stop: make(chan struct{})}
	if len(w.paths) == 0 {
		return func() {}
	}
	w.events = openEvents()
	// The watches are added here and not in the goroutine, because no change after the return of WatchFiles
	// may be missed.
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
	events  *os.File // nil: the kernel has no inotify, or no free instance
}

// add watches all directories, except those already watched. It reports whether all exist.
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

// directories returns the directories of the files, before and after following links.
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
		// A new directory has no watch yet, and its files may be older than the watch. So the directory is
		// watched before the callback reads the files.
		complete = w.add()
		select {
		case <-w.stop:
			return
		default:
			w.changed()
		}
	}
}

// read empties the queue. Neither the events nor an overflow of the queue matter.
func (w *watcher) read(seen chan<- struct{}) {
	buffer := make([]byte, 4096)
	for {
		if _, err := w.events.Read(buffer); err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return // the watcher was closed
		}
		select {
		case seen <- struct{}{}:
		default: // a call is pending, and will see this change
		}
	}
}
