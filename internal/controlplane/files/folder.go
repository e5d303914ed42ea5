package files

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/mesh"
)

// A folder is what is known of one, and the mesh that it makes. It does not watch: it is
// told when to look.
type folder struct {
	root    string
	builder *mesh.Builder
	files   map[string]*file
	claims  map[mesh.Key][]*file // by path; the first has it
	set     map[mesh.Key]mesh.Part
	twice   map[mesh.Key]bool // with more than one claim
	bad     map[string]*file  // those with problems
	ignored map[string]bool   // kinds that have no meaning here
	last    *listing
}

func newFolder(root string, config mesh.Config) *folder {
	return &folder{
		root: root, builder: mesh.NewBuilder(config), files: map[string]*file{},
		claims: map[mesh.Key][]*file{}, set: map[mesh.Key]mesh.Part{}, twice: map[mesh.Key]bool{}, bad: map[string]*file{}, ignored: map[string]bool{},
		last: &listing{},
	}
}

// look takes a listing, and reads the files that may have changed since the last one.
func (f *folder) look(l *listing) {
	f.last = l
	var read, gone []string
	for path, s := range l.files {
		if known := f.files[path]; known == nil || known.stamp != s || known.doubtful {
			read = append(read, path)
		}
	}
	for path := range f.files {
		if _, there := l.files[path]; !there && !l.isDark(path) {
			gone = append(gone, path)
		}
	}
	f.update(read, gone)
}

// update reads files, and forgets others.
func (f *folder) update(read, gone []string) {
	slices.Sort(read)
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
		f.settle(key)
	}
}

// readAll reads files on all processors.
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

// replace changes the claims of a file, before and after.
func (f *folder) replace(before, after *file, touched map[mesh.Key]bool) {
	if before != nil {
		for key, was := range before.parts {
			if after != nil && after.parts[key].part == was.part {
				continue
			}
			touched[key] = true
		}
		for key := range before.parts {
			f.claims[key] = slices.DeleteFunc(f.claims[key], func(c *file) bool { return c == before })
		}
	}
	if after == nil {
		return
	}
	for key, is := range after.parts {
		if before == nil || before.parts[key].part != is.part {
			touched[key] = true
		}
		claims := append(f.claims[key], after)
		slices.SortFunc(claims, func(a, b *file) int { return strings.Compare(a.path, b.path) })
		f.claims[key] = claims
	}
	for _, d := range after.documents {
		for _, o := range d.objects {
			if !o.Known {
				f.ignored[o.APIVersion+" "+o.Kind] = true
			}
		}
	}
}

// settle gives the builder the part of the first file that has it.
func (f *folder) settle(key mesh.Key) {
	claims := f.claims[key]
	delete(f.twice, key)
	if len(claims) == 0 {
		delete(f.claims, key)
		delete(f.set, key)
		f.builder.Delete(key)
		return
	}
	if len(claims) > 1 {
		f.twice[key] = true
	}
	if part := claims[0].parts[key].part; f.set[key] != part {
		f.set[key] = part
		f.builder.Set(part)
	}
}

// problems are all that there are now, and in the builder's last mesh.
func (f *folder) problems() []Problem {
	out := slices.Clone(f.last.problems)
	for _, file := range f.bad {
		out = append(out, file.problems...)
	}
	for key := range f.twice {
		claims := f.claims[key]
		first := claims[0].parts[key]
		for _, c := range claims[1:] {
			p := c.parts[key]
			out = append(out, Problem{
				File: c.path, Document: p.document, Line: p.line, Object: key.String(),
				Message: fmt.Sprintf("is also in %s, line %d, which counts: remove one of the two", claims[0].path, first.line),
			})
		}
	}
	for _, c := range f.builder.Conflicts() {
		if of := f.claims[c.Object]; len(of) > 0 {
			at := of[0].parts[c.Object]
			out = append(out, Problem{File: of[0].path, Document: at.document, Line: at.line, Object: c.Object.String(), Field: c.Field, Message: c.Message})
		}
	}
	slices.SortFunc(out, Problem.compare)
	return out
}

// takeIgnored returns the kinds that were ignored, each once.
func (f *folder) takeIgnored(said map[string]bool) []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(f.ignored)) {
		if !said[kind] {
			said[kind] = true
			out = append(out, kind)
		}
	}
	return out
}
