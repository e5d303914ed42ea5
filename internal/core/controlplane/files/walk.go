package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A listing is the content of a folder and its subfolders.
type listing struct {
	files    []string               // the manifests
	folders  map[string]fs.FileInfo // all folders by path, including the root folder and the targets of links
	unread   []string               // folders that could not be read
	problems []Problem
}

// walk lists the folder root. Before it reads a folder it calls the function enter with the folder's path, so
// that no change between call and reading is missed. The function may be nil.
//
// It follows symbolic links, because a ConfigMap's volume consists of links.
func walk(root string, enter func(path string, info fs.FileInfo) error) (*listing, error) {
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a folder")
	}
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", root, withoutPath(err))
	}
	w := &walker{root: root, enter: enter, listing: listing{folders: map[string]fs.FileInfo{}}}
	w.folder("", []fs.FileInfo{info})
	return &w.listing, nil
}

type walker struct {
	listing
	root  string
	enter func(string, fs.FileInfo) error
}

func (w *walker) problem(path string, err error) {
	w.problems = append(w.problems, Problem{File: path, Message: err.Error()})
}

// folder lists a folder. The slice above contains the folder's parents and, last, the folder itself.
func (w *walker) folder(path string, above []fs.FileInfo) {
	full := filepath.Join(w.root, path)
	w.entered(path, full, above[len(above)-1])
	entries, err := os.ReadDir(full)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.unread = append(w.unread, path)
		w.problem(path, withoutPath(err))
	}
	for _, e := range entries {
		if !hidden(e.Name()) {
			w.entry(filepath.Join(path, e.Name()), e, above)
		}
	}
}

func (w *walker) entered(path, full string, info fs.FileInfo) {
	if _, ok := w.folders[full]; ok {
		return
	}
	w.folders[full] = info
	if w.enter != nil {
		if err := w.enter(full, info); err != nil {
			w.problem(path, err)
		}
	}
}

// target calls enter for the folder that contains the target of a link, because inotify reports changes of
// the target there.
func (w *walker) target(path string) {
	file, err := filepath.EvalSymlinks(filepath.Join(w.root, path))
	if err != nil {
		return // it was removed meanwhile; an event will follow
	}
	if info, err := os.Stat(filepath.Dir(file)); err == nil {
		w.entered(path, filepath.Dir(file), info)
	}
}

func (w *walker) entry(path string, e fs.DirEntry, above []fs.FileInfo) {
	link := e.Type()&fs.ModeSymlink != 0
	if !link && !e.IsDir() && !isManifest(path) {
		return
	}
	info, err := os.Stat(filepath.Join(w.root, path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if link && isManifest(path) {
			w.problem(path, errors.New("is a link without a target"))
		}
	case err != nil:
		w.problem(path, withoutPath(err))
		w.unread = append(w.unread, path)
	case info.IsDir():
		for _, a := range above {
			if os.SameFile(a, info) {
				w.problem(path, errors.New("is a link to a folder that it is in"))
				return
			}
		}
		w.folder(path, append(above[:len(above):len(above)], info))
	case isManifest(path):
		if link {
			w.target(path)
		}
		w.files = append(w.files, path)
	}
}

// isUnreadable reports whether a path is in a folder that could not be read. The file may then still exist.
func (l *listing) isUnreadable(path string) bool {
	for _, d := range l.unread {
		if d == "" || d == path || strings.HasPrefix(path, d+string(filepath.Separator)) {
			return true
		}
	}
	return false
}
