// Package corpus has pods in the shapes of public charts, written for this repository:
// web applications, databases, queues, monitoring, operators, jobs, node agents, and what
// people put beside them. They are sane: what lint reports about one of them at severity
// warning, or what injection refuses of it, is wrong.
//
// To each code of lint belong twins: pods that have one thing wrong.
package corpus

import (
	"embed"
	"io/fs"
	"path"
)

// A File has manifests, with several documents.
type File struct {
	Name string
	Data []byte
}

//go:embed testdata
var files embed.FS

// Sane returns the files with sane pods, and the services of some, by name.
func Sane() ([]File, error) { return folder("testdata/sane") }

// Twins returns an archive (txtar) for each code of lint. The name of a file in it begins
// with "bad" or "good": each of the bad ones has what the code reports, no good one has.
// Lines of the comment are options: "kube: 1.28", "injected", "namespace: NAME".
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
