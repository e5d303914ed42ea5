package controlplane

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"outrider.dev/internal/manifest"
	"outrider.dev/internal/pod/inject"
)

// namespaces are those of a folder of manifests. The folder is read when a pod is reviewed,
// at most once a second.
type namespaces struct {
	root string

	mu     sync.Mutex
	looked time.Time
	files  map[string]namespaceFile
	byName map[string]inject.Namespace
}

type namespaceFile struct {
	size    int64
	changed time.Time
	has     []manifest.Namespace
}

func newNamespaces(root string) *namespaces {
	return &namespaces{root: root, files: map[string]namespaceFile{}}
}

const lookAgain = time.Second

// get returns one, and whether the folder has it.
func (n *namespaces) get(name string) (inject.Namespace, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.looked) >= lookAgain {
		n.look()
		n.looked = now
	}
	ns, ok := n.byName[name]
	return ns, ok
}

// look reads the files that have changed. A file that cannot be read keeps its former
// content; of a namespace in two files the first by path counts, as for other objects.
func (n *namespaces) look() {
	seen := map[string]namespaceFile{}
	// The watch of the folder reports errors.
	_ = filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if hidden := strings.HasPrefix(filepath.Base(path), ".") && path != n.root; hidden && d != nil && d.IsDir() {
			return fs.SkipDir
		} else if err != nil || hidden || d.IsDir() || !isManifest(path) {
			return nil
		}
		if f, ok := n.read(path); ok {
			seen[path] = f
		}
		return nil
	})
	n.files = seen
	n.byName = map[string]inject.Namespace{}
	paths := make([]string, 0, len(seen))
	for path := range seen {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		for _, ns := range seen[path].has {
			if _, there := n.byName[ns.Name]; !there {
				n.byName[ns.Name] = inject.Namespace{Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations}
			}
		}
	}
}

func (n *namespaces) read(path string) (namespaceFile, bool) {
	before, known := n.files[path]
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return before, false
	}
	if known && info.Size() == before.size && info.ModTime().Equal(before.changed) {
		return before, true
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return before, known
	}
	return namespaceFile{info.Size(), info.ModTime(), manifest.Namespaces(data)}, true
}

func isManifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}
