// Package corpus contains pods in the shapes of public charts, written for this repository:
// web applications, databases, queues, monitoring, operators, jobs, node agents, and the sidecars
// that users add to them. They are sane: a lint finding of severity warning about one of them, or a
// refusal to inject one, is a defect of lint or the injector.
//
// For each code of lint there are also twins: pods with exactly this defect, and similar pods without it.
package corpus

import (
	"embed"
	"io/fs"
	"path"
)

// A File contains one or more manifests.
type File struct {
	Name string
	Data []byte
}

//go:embed testdata
var files embed.FS

// Sane returns the files with sane pods, and the services of some, sorted by name.
func Sane() ([]File, error) { return folder("testdata/sane") }

// Twins returns an archive (txtar) for each code of lint. The names of the files in it begin with "bad" or
// "good": each bad file must be reported with the code, and no good file may be. Lines of the archive's
// comment are options: "kube: 1.28", "injected", "namespace: NAME".
func Twins() ([]File, error) { return folder("testdata/twins") }

func folder(name string) ([]File, error) {
	entries, err := fs.ReadDir(files, name)
	var out []File
	for _, e := range entries {
		data, err := files.ReadFile(path.Join(name, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, File{path.Join(name, e.Name()), data})
	}
	return out, err
}
