package bugreport

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Folder is the folder in the archive that contains all files of a report.
const Folder = "outrider-bug-report"

// Format is the version of a report's layout. It changes only if readers of the previous layout would misread the new
// one.
const Format = 1

// An Index is the content of index.json.
type Index struct {
	Format  int       `json:"format"`
	Made    time.Time `json:"made"`
	Version string    `json:"version"` // version of the command that wrote the report
	Files   []File    `json:"files"`
	LeftOut []string  `json:"leftOut,omitempty"` // sentences about evidence that was left out, with the reason
}

// A File describes one file of a report.
type File struct {
	Path      string `json:"path"` // below [Folder]
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Previous  bool   `json:"previous,omitempty"`  // the log of the container's previous run
	Truncated bool   `json:"truncated,omitempty"` // the file contains only the end of the log
}

// A Kind is the kind of content of a file in a report.
type Kind string

// Kinds, each with the format of the file.
const (
	Version   Kind = "version"   // JSON: the version of the command, of Kubernetes, or of a replica
	Check     Kind = "check"     // JSON: the output of outrider check -o json
	Values    Kind = "values"    // YAML: the values that the user set for the release
	Objects   Kind = "objects"   // YAML: a List of objects
	PodObject Kind = "pod"       // YAML: a pod
	Log       Kind = "log"       // text
	Proxies   Kind = "proxies"   // JSON: the output of outrider proxy-status -o json
	Problems  Kind = "problems"  // JSON: objects with parts that are not supported
	Resources Kind = "resources" // JSON: the output of outrider proxy-config -o json, without bodies
	Metrics   Kind = "metrics"   // text in Prometheus format
	Errors    Kind = "errors"    // text: a line for each failed read
)

// An archive is a report that is being written.
type archive struct {
	gzip   *gzip.Writer
	tar    *tar.Writer
	index  Index
	errors []string
	size   int
	limit  int
}

func newArchive(w io.Writer, version string, made time.Time, limit int) *archive {
	z := gzip.NewWriter(w)
	return &archive{gzip: z, tar: tar.NewWriter(z), limit: limit, index: Index{Format: Format, Made: made.UTC(), Version: version}}
}

// fail adds a line to errors.txt: what could not be read, and why.
func (a *archive) fail(what string, err error) {
	a.errors = append(a.errors, strings.ReplaceAll(fmt.Sprintf("%s: %v", what, err), "\n", "; "))
}

func (a *archive) leaveOut(format string, args ...any) {
	a.index.LeftOut = append(a.index.LeftOut, fmt.Sprintf(format, args...))
}

// add writes a file. If the report would exceed its limit, the file is noted as left out instead.
func (a *archive) add(f File, text []byte) error {
	if a.size+len(text) > a.limit {
		a.leaveOut("%s: the report would have more than %d MiB", f.Path, a.limit>>20)
		return nil
	}
	a.index.Files = append(a.index.Files, f)
	return a.write(f.Path, text)
}

func (a *archive) write(name string, text []byte) error {
	a.size += len(text)
	if err := a.tar.WriteHeader(&tar.Header{Name: path.Join(Folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.index.Made, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := a.tar.Write(text)
	return err
}

// close writes errors.txt and index.json as the last files, and closes the archive.
func (a *archive) close() error {
	a.index.Files = append(a.index.Files, File{Path: "errors.txt", Kind: Errors})
	text := strings.Join(a.errors, "\n")
	if text != "" {
		text += "\n"
	}
	if err := a.write("errors.txt", []byte(text)); err != nil {
		return err
	}
	index, err := json.MarshalIndent(a.index, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(a.write("index.json", append(index, '\n')), a.tar.Close(), a.gzip.Close())
}

// Save passes a temporary file in the same folder to the function write, and then renames that file to name. So the
// file with this name is never incomplete.
func Save(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".outrider-bug-report-*") // only its owner may read it
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
