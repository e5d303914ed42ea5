package files

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// A folder contains its files, and the mesh built from them. It does not watch.
type folder struct {
	root    string
	builder *build.Builder
	files   map[string]*file
	owners  map[mesh.Key][]*file // the files that contain an object, by path; the first is used
	set     map[mesh.Key]mesh.Part
	twice   map[mesh.Key]bool // objects with more than one owner
	bad     map[string]*file  // files with problems
	ignored map[string]bool   // kinds that mean nothing for a mesh
	last    *listing
}

func newFolder(root string, config mesh.Config) *folder {
	builder := build.New(config)
	builder.OnlyMesh = true
	return &folder{
		root: root, builder: builder, files: map[string]*file{},
		owners: map[mesh.Key][]*file{}, set: map[mesh.Key]mesh.Part{}, twice: map[mesh.Key]bool{}, bad: map[string]*file{}, ignored: map[string]bool{},
		last: &listing{},
	}
}

// apply reads the files that may have changed between the last listing and this one.
func (f *folder) apply(l *listing) {
	f.last = l
	var read, gone []string
	// any order: sorted below
	for path, s := range l.files {
		if known := f.files[path]; known == nil || known.stamp != s || known.doubtful {
			read = append(read, path)
		}
	}
	// any order: sorted below
	for path := range f.files {
		if _, there := l.files[path]; !there && !l.isUnreadable(path) {
			gone = append(gone, path)
		}
	}
	slices.Sort(read)
	slices.Sort(gone)
	touched := map[mesh.Key]bool{}
	for _, path := range gone {
		f.replace(f.files[path], nil, touched)
		delete(f.files, path)
		delete(f.bad, path)
	}
	for _, next := range f.readAll(read) {
		f.replace(f.files[next.path], next, touched)
		f.files[next.path] = next
		delete(f.bad, next.path)
		if len(next.problems) > 0 {
			f.bad[next.path] = next
		}
	}
	for key := range touched {
		f.choose(key)
	}
}

// readAll reads files in parallel.
func (f *folder) readAll(paths []string) []*file {
	out := make([]*file, len(paths))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(paths)) {
		wg.Go(func() {
			for i := range next {
				out[i] = read(f.root, paths[i], f.files[paths[i]])
			}
		})
	}
	for i := range paths {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// replace updates the owners of a file's objects when its content changes from before to after.
func (f *folder) replace(before, after *file, touched map[mesh.Key]bool) {
	if before != nil {
		for key, was := range before.parts {
			if after != nil && after.parts[key].part == was.part {
				continue
			}
			touched[key] = true
		}
		for key := range before.parts {
			f.owners[key] = slices.DeleteFunc(f.owners[key], func(o *file) bool { return o == before })
		}
	}
	if after == nil {
		return
	}
	for key, is := range after.parts {
		if before == nil || before.parts[key].part != is.part {
			touched[key] = true
		}
		owners := append(f.owners[key], after)
		slices.SortFunc(owners, func(a, b *file) int { return strings.Compare(a.path, b.path) })
		f.owners[key] = owners
	}
	maps.Copy(f.ignored, after.ignored)
}

// choose passes an object's part from its first owner to the builder.
func (f *folder) choose(key mesh.Key) {
	owners := f.owners[key]
	delete(f.twice, key)
	if len(owners) == 0 {
		delete(f.owners, key)
		delete(f.set, key)
		f.builder.Delete(key)
		return
	}
	if len(owners) > 1 {
		f.twice[key] = true
	}
	if part := owners[0].parts[key].part; f.set[key] != part {
		f.set[key] = part
		f.builder.Set(part)
	}
}

// problems returns the current problems and the conflicts in the last mesh that was built, sorted.
func (f *folder) problems() []Problem {
	out := slices.Clone(f.last.problems)
	for _, file := range f.bad {
		out = append(out, file.problems...)
	}
	for key := range f.twice {
		owners := f.owners[key]
		first := owners[0].parts[key]
		for _, o := range owners[1:] {
			p := o.parts[key]
			out = append(out, Problem{
				File: o.path, Document: p.document, Line: p.line, Object: key.String(),
				Message: fmt.Sprintf("is also in %s, line %d, which is used: remove one of the two", owners[0].path, first.line),
			})
		}
	}
	for _, c := range f.builder.Conflicts() {
		if of := f.owners[c.Object]; len(of) > 0 {
			at := of[0].parts[c.Object]
			out = append(out, Problem{Severity: c.Severity, File: of[0].path, Document: at.document, Line: at.line, Object: c.Object.String(), Field: c.Field, Message: c.Message})
		} else if c.Severity != "" { // a note about the namespace as a whole
			out = append(out, Problem{Severity: c.Severity, Object: c.Object.String(), Message: c.Message})
		}
	}
	slices.SortFunc(out, Problem.compare)
	return out
}

// namespaces returns the namespaces of all files by name.
func (f *folder) namespaces() *map[string]manifest.Namespace {
	var paths []string
	// any order: sorted below
	for path, file := range f.files {
		if len(file.namespaces) > 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	out := map[string]manifest.Namespace{}
	for _, path := range paths {
		for _, ns := range f.files[path].namespaces {
			if _, there := out[ns.Name]; !there {
				out[ns.Name] = ns
			}
		}
	}
	return &out
}

// takeIgnored returns the ignored kinds that are not logged yet.
func (f *folder) takeIgnored(logged map[string]bool) []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(f.ignored)) {
		if !logged[kind] {
			logged[kind] = true
			out = append(out, kind)
		}
	}
	return out
}
