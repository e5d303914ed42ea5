package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh"
)

// maxSize is the maximum size of a file in bytes. For comparison, the API server's limit for one object is
// 1.5 MiB.
const maxSize = 64 << 20

// extensions lists the extensions of the files that are read.
var extensions = []string{".yaml", ".yml", ".json"}

func isManifest(path string) bool {
	return slices.Contains(extensions, strings.ToLower(filepath.Ext(path))) && !hidden(path)
}

// hidden reports whether a name begins with a dot, as do files of editors and version control. So does the
// folder ..data in a ConfigMap's volume; links beside it lead to its files.
func hidden(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") }

// An identity identifies a file or folder by its device and inode, so it is the same for all of its paths.
type identity struct{ device, inode uint64 }

func identityOf(info fs.FileInfo) identity {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return identity{uint64(sys.Dev), sys.Ino}
	}
	return identity{}
}

// A file contains the objects in the last valid version of a manifest file.
type file struct {
	path       string            // relative to the root folder
	sum        [sha256.Size]byte // SHA-256 of its content; zero: it could not be read
	parts      map[mesh.Key]place
	documents  map[[sha256.Size]byte]parsed // the documents without mistakes, by the SHA-256 of their text
	ignored    map[string]bool              // kinds that the mesh does not use
	namespaces []manifest.Namespace         // namespaces in the current version, even if it has problems
	problems   []Problem                    // problems of the current version; if any, parts is from an earlier one
	valid      bool                         // a version without problems has been read
}

// A place is a part of the mesh with its position in a file.
type place struct {
	part           mesh.Part
	document, line int
}

// read reads a file. If the file has problems, the parts of its last valid version stay in use. If its
// content has not changed, it is not parsed again.
func read(root, path string, before *file) *file {
	if before == nil {
		before = &file{}
	}
	next := &file{path: path}
	data, err := load(filepath.Join(root, path))
	switch sum := sha256.Sum256(data); {
	case err != nil:
		next.problems, next.namespaces = []Problem{{File: path, Message: err.Error()}}, before.namespaces
	case sum == before.sum:
		return before
	default:
		next.sum = sum
		next.parse(data, before.documents)
	}
	next.valid = before.valid || len(next.problems) == 0
	switch {
	case len(next.problems) == 0:
	case before.valid:
		next.parts = before.parts
	default: // no version was valid yet; keep only its policies, so that what they forbid stays forbidden
		maps.DeleteFunc(next.parts, func(_ mesh.Key, p place) bool {
			_, policy := p.part.(*mesh.AuthorizationSpec)
			return !policy
		})
	}
	// Unchanged parts keep their pointers, by which the builder recognizes them.
	for key, p := range next.parts {
		if old := before.parts[key].part; reflect.DeepEqual(old, p.part) {
			next.parts[key] = place{old, p.document, p.line}
		}
	}
	return next
}

func load(path string) ([]byte, error) {
	// O_NONBLOCK, because the file may have been replaced by a pipe.
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Size() > maxSize:
		return nil, fmt.Errorf("has %d MiB: at most %d are read", info.Size()>>20, maxSize>>20)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxSize))
	if err != nil {
		return nil, withoutPath(err)
	}
	return data, nil
}

func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("cannot be read: %w", p.Err)
	}
	return err
}

// parse reads the documents of a file. It does not parse a document in known again, because most changes of a
// file with many objects change only one of them.
func (f *file) parse(data []byte, known map[[sha256.Size]byte]parsed) {
	f.namespaces = manifest.Namespaces(data)
	f.parts, f.ignored, f.documents = map[mesh.Key]place{}, map[string]bool{}, map[[sha256.Size]byte]parsed{}
	for i, d := range split(data) {
		sum := sha256.Sum256(d.text)
		var problems []Problem
		if old, ok := known[sum]; ok {
			d.parsed = old
		} else {
			problems = d.read()
		}
		for _, p := range problems {
			p.File, p.Document = f.path, i+1
			f.problems = append(f.problems, p)
		}
		if problems == nil {
			f.documents[sum] = d.parsed
		}
		f.addParts(&d, i+1)
	}
}

// addParts adds the parts of a document. If an object occurs twice in the file, the second one is a problem.
func (f *file) addParts(d *document, number int) {
	for _, o := range d.objects {
		if !o.Known && o.Part == nil {
			f.ignored[o.APIVersion+" "+o.Kind] = true
		}
		if o.Part == nil {
			continue
		}
		key := o.Part.Key()
		if first, twice := f.parts[key]; twice {
			f.problems = append(f.problems, Problem{
				File: f.path, Document: number, Line: d.lineOf(o), Object: o.String(),
				Message: fmt.Sprintf("is in this file twice: also in document %d (line %d)", first.document, first.line),
			})
			continue
		}
		f.parts[key] = place{o.Part, number, d.lineOf(o)}
	}
}
