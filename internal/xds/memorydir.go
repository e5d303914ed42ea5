package xds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A MemoryDir is a memory that outlives the process: one file for each workload, written
// aside and renamed. Writing happens behind the caller's back and goes wrong in the log
// only: all that is lost is a faster first request. Replicas may share the directory: each
// knows what a proxy asked another for, unless two wrote in the same moment.
type MemoryDir struct {
	*InMemory
	path string
	log  *slog.Logger

	mu    sync.Mutex
	dirty map[Workload][]string // nil: to be removed
	wake  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// memoryFile is the content of one file.
type memoryFile struct {
	Clusters []string `json:"clusters"` // the one asked for last is last
}

const (
	memorySuffix  = ".json"
	maxMemoryFile = 1 << 20 // of a longer file nothing is read
)

// NewMemoryDir makes the directory if need be, and reads it. A file that cannot be used
// is logged and left alone until its workload asks for something.
func NewMemoryDir(path string, l MemoryLimits, log *slog.Logger) (*MemoryDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of what workloads asked for: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("reading what workloads asked for: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &MemoryDir{
		InMemory: NewMemory(l), path: path, log: log,
		dirty: map[Workload][]string{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, e := range entries {
		w, names, err := readMemory(path, e.Name())
		if err != nil {
			log.Warn("file of what a workload asked for cannot be used", "error", err)
			continue
		}
		if w == nil {
			continue
		}
		if _, forgotten := m.InMemory.store(*w, names); forgotten != nil {
			m.dirty[*forgotten] = nil
		}
	}
	go m.write()
	m.nudge()
	return m, nil
}

// readMemory reads one file. No workload: the file is none of ours.
func readMemory(dir, name string) (*Workload, []string, error) {
	base, ours := strings.CutSuffix(name, memorySuffix)
	if !ours {
		return nil, nil, nil
	}
	path := filepath.Join(dir, name)
	w, err := parseMemoryName(base)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMemoryFile {
		return nil, nil, fmt.Errorf("%s: %d bytes, mode %s; want a file of at most %d bytes", path, info.Size(), info.Mode(), maxMemoryFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var f memoryFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return &w, f.Clusters, nil
}

// memoryName is a workload as a file's name. Names come from metadata: a
// slash, which could leave the directory, is escaped, and so is a comma.
func memoryName(w Workload) string {
	return url.PathEscape(w.Namespace) + "," + url.PathEscape(w.ServiceAccount) + "," + url.PathEscape(w.Name)
}

func parseMemoryName(base string) (Workload, error) {
	parts := strings.Split(base, ",")
	if len(parts) != 3 {
		return Workload{}, errors.New("the file's name is not namespace,serviceaccount,workload" + memorySuffix)
	}
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			return Workload{}, fmt.Errorf("the file's name: %w", err)
		}
	}
	return Workload{parts[0], parts[1], parts[2]}, nil
}

// Load returns what a workload asked for, of this process or of another one. It reads one
// small file.
func (m *MemoryDir) Load(w Workload) []string {
	m.learn(w)
	return m.InMemory.Load(w)
}

// learn takes over what the file of a workload says, and returns what the workload now has.
func (m *MemoryDir) learn(w Workload) []string {
	_, names, err := readMemory(m.path, memoryName(w)+memorySuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Debug("file of what a workload asked for cannot be used", "error", err)
	}
	if len(names) == 0 {
		return nil
	}
	now, forgotten := m.InMemory.learn(w, names)
	if forgotten != nil { // its file goes with the next that is written
		m.mu.Lock()
		m.dirty[*forgotten] = nil
		m.mu.Unlock()
	}
	return now
}

// Store adds names to what a workload asked for. The file follows.
func (m *MemoryDir) Store(w Workload, names []string) {
	now, forgotten := m.store(w, names)
	if now == nil && forgotten == nil {
		return
	}
	m.mu.Lock()
	if forgotten != nil {
		m.dirty[*forgotten] = nil
	}
	if now != nil {
		m.dirty[w] = now
	}
	m.mu.Unlock()
	m.nudge()
}

func (m *MemoryDir) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Close writes what is left. Nothing may be stored afterwards.
func (m *MemoryDir) Close() {
	m.once.Do(func() { close(m.wake) })
	<-m.done
}

func (m *MemoryDir) write() {
	defer close(m.done)
	for range m.wake {
		m.flush()
	}
	m.flush()
}

func (m *MemoryDir) flush() {
	m.mu.Lock()
	dirty := m.dirty
	m.dirty = map[Workload][]string{}
	m.mu.Unlock()
	for w, names := range dirty {
		if names != nil {
			if all := m.learn(w); all != nil { // another process may have written
				names = all
			}
		}
		if err := m.writeOne(w, names); err != nil {
			m.log.Warn("what a workload asked for cannot be kept", "error", err)
		}
	}
}

func (m *MemoryDir) writeOne(w Workload, names []string) error {
	name := memoryName(w) + memorySuffix
	path := filepath.Join(m.path, name)
	if names == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if len(name) > 240 {
		return fmt.Errorf("%s: the name is too long for a file", name)
	}
	raw, err := json.Marshal(memoryFile{names})
	if err != nil {
		return err
	}
	aside, err := os.CreateTemp(m.path, name+".new*") // of this process alone
	if err != nil {
		return err
	}
	_, err = aside.Write(raw)
	if err = errors.Join(err, aside.Close()); err == nil {
		err = os.Rename(aside.Name(), path)
	}
	if err != nil {
		os.Remove(aside.Name())
	}
	return err
}
