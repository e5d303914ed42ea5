package world

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// logs holds the output of the containers of all pods. The files stay open, because the kubelet deletes a
// container's log with the container, and an open file stays readable.
type logs struct {
	mu      sync.Mutex
	files   map[string]*logFile // by path
	watcher *fsnotify.Watcher
	changed func()
}

type logFile struct {
	uid, container string
	restart        int
	file           *os.File
	read           int64
	rest           []byte
	lines          []Line
}

// A Line is a line that a container wrote.
type Line struct {
	At        time.Time // time at which the runtime read the line
	Container string
	Restart   int // restart count of the container
	Text      string
}

// followLogs reads the logs in dir, which are called NAMESPACE_POD_UID/CONTAINER/RESTART.log, and follows them.
func followLogs(dir string, changed func()) (*logs, error) {
	w, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		return nil, err
	}
	l := &logs{files: map[string]*logFile{}, watcher: w, changed: changed}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l.look(dir)
	go func() {
		for {
			select {
			case e, open := <-w.Events:
				switch {
				case !open:
					return
				case e.Has(fsnotify.Create):
					l.renew(e.Name)
					l.look(e.Name)
				case e.Has(fsnotify.Write):
					l.readFile(e.Name)
				}
			case _, open := <-w.Errors: // an error means that events were lost
				if !open {
					return
				}
				l.look(dir)
			}
		}
	}()
	return l, nil
}

// look watches a directory and its contents, or reads a file.
func (l *logs) look(path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		_ = l.watcher.Add(path) // watch before reading, so that a file that appears in between is not missed
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			l.look(filepath.Join(path, e.Name()))
		}
	case strings.HasSuffix(path, ".log"):
		l.readFile(path)
	}
}

// renew drops the reader of a path at which there is now another file: in a new sandbox the restart count of a
// container may begin at 0 again.
func (l *logs) renew(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.files[path]
	if old == nil {
		return
	}
	was, err := old.file.Stat()
	is, err2 := os.Stat(path)
	if err == nil && err2 == nil && !os.SameFile(was, is) {
		old.readOn()
		l.files[fmt.Sprintf("%s (before %d)", path, len(l.files))] = old
		delete(l.files, path)
	}
}

func (l *logs) readFile(path string) {
	l.mu.Lock()
	f := l.files[path]
	if f == nil {
		f = open(path)
		if f == nil {
			l.mu.Unlock()
			return
		}
		l.files[path] = f
	}
	more := f.readOn()
	l.mu.Unlock()
	if more {
		l.changed()
	}
}

// open opens a container's log. It returns nil for another file.
func open(path string) *logFile {
	dir, name := filepath.Split(path)
	restart, err := strconv.Atoi(strings.TrimSuffix(name, ".log"))
	if err != nil {
		return nil
	}
	container := filepath.Base(dir)
	pod := strings.Split(filepath.Base(filepath.Dir(filepath.Clean(dir))), "_")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || len(pod) != 3 {
		return nil
	}
	if err != nil {
		return nil
	}
	return &logFile{uid: pod[2], container: container, restart: restart, file: file}
}

// readOn reads new lines: "2026-11-21T20:00:00.123Z stdout F text".
func (f *logFile) readOn() (more bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := f.file.ReadAt(buffer, f.read)
		f.read += int64(n)
		f.rest = append(f.rest, buffer[:n]...)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			break
		}
	}
	for {
		line, rest, ok := bytes.Cut(f.rest, []byte("\n"))
		if !ok {
			return more
		}
		f.rest = rest
		w := strings.SplitN(string(line), " ", 4)
		if len(w) < 4 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, w[0])
		if err != nil {
			continue
		}
		f.lines = append(f.lines, Line{at, f.container, f.restart, w[3]})
		more = true
	}
}

// of returns the output of a pod's containers in order of time.
func (l *logs) of(uid string) (out []Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if f.uid == uid {
			f.readOn()
			out = append(out, f.lines...)
		}
	}
	slices.SortStableFunc(out, func(a, b Line) int { return a.At.Compare(b.At) })
	return out
}

// forget closes the files of a pod.
func (l *logs) forget(uid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, f := range l.files {
		if f.uid == uid {
			f.file.Close()
			delete(l.files, path)
		}
	}
}
