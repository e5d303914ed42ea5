package files

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// A folder contains the manifests below a root folder, and the mesh built from them. A [watch] updates it
// after changes.
type folder struct {
	root    string
	builder *build.Builder
	files   []*file                // sorted by path
	owners  map[mesh.Key][]*file   // the files that contain an object, by path; the first is used
	set     map[mesh.Key]mesh.Part // the parts that were passed to the builder
	last    *listing
}

func newFolder(root string, config mesh.Config) *folder {
	builder := build.New(config)
	builder.OnlyMesh = true
	return &folder{root: root, builder: builder, set: map[mesh.Key]mesh.Part{}, last: &listing{}}
}

// apply reads the files in a listing, and passes the changed parts to the builder.
func (f *folder) apply(l *listing) {
	f.last = l
	before := map[string]*file{}
	var unreadable []*file // their former content stays in use
	for _, file := range f.files {
		before[file.path] = file
		if l.isUnreadable(file.path) && !slices.Contains(l.files, file.path) {
			unreadable = append(unreadable, file)
		}
	}
	f.files = append(f.readAll(l.files, before), unreadable...)
	slices.SortFunc(f.files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	f.owners = map[mesh.Key][]*file{}
	for _, file := range f.files {
		for key := range file.parts { // any order: each object is in a file once
			f.owners[key] = append(f.owners[key], file)
		}
	}
	for key := range f.set { // any order: the keys are independent
		if f.owners[key] == nil {
			delete(f.set, key)
			f.builder.Delete(key)
		}
	}
	for key, owners := range f.owners { // any order: the keys are independent
		if part := owners[0].parts[key].part; f.set[key] != part {
			f.set[key] = part
			f.builder.Set(part)
		}
	}
}

// readAll reads files in parallel.
func (f *folder) readAll(paths []string, before map[string]*file) []*file {
	out := make([]*file, len(paths))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(paths)) {
		wg.Go(func() {
			for i := range next {
				out[i] = read(f.root, paths[i], before[paths[i]])
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

// problems returns the problems of the last listing and its files, and the conflicts in the last mesh,
// sorted.
func (f *folder) problems() []Problem {
	out := slices.Clone(f.last.problems)
	for _, file := range f.files {
		out = append(out, file.problems...)
	}
	for key, owners := range f.owners { // any order: sorted below
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
		} else if c.Severity != "" { // the note is about a namespace
			out = append(out, Problem{Severity: c.Severity, Object: c.Object.String(), Message: c.Message})
		}
	}
	slices.SortFunc(out, Problem.compare)
	return out
}

// namespaces returns the namespaces of all files by name. If two files declare one, the first file by path is
// used.
func (f *folder) namespaces() *map[string]manifest.Namespace {
	out := map[string]manifest.Namespace{}
	for _, file := range f.files {
		for _, ns := range file.namespaces {
			if _, there := out[ns.Name]; !there {
				out[ns.Name] = ns
			}
		}
	}
	return &out
}

// takeIgnored returns the kinds that the mesh does not use and that are not in logged, and adds them there.
func (f *folder) takeIgnored(logged map[string]bool) []string {
	var out []string
	for _, file := range f.files {
		for kind := range file.ignored { // any order: sorted below
			if !logged[kind] {
				logged[kind] = true
				out = append(out, kind)
			}
		}
	}
	slices.Sort(out)
	return out
}
