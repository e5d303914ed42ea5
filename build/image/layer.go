package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// baseDirs and baseFiles are directories and files that programs expect in each image. A mesh's proxy runs as
// user 1337.
var (
	baseDirs  = []string{"/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/var/run", "/var/tmp"}
	baseFiles = map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nproxy:x:1337:1337::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n",
		"/etc/group":         "root:x:0:\nproxy:x:1337:\nnobody:x:65534:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
)

// writeLayer writes the file system of the image.
func (img Image) writeLayer(w io.Writer, files map[string]string) error {
	t := &layer{tar: tar.NewWriter(w), seen: make(map[string]bool)}
	for _, d := range baseDirs {
		t.dir(d)
	}
	for _, name := range slices.Sorted(maps.Keys(baseFiles)) {
		t.text(name, baseFiles[name])
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.host(name, files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(img.Links)) {
		t.link(name, img.Links[name])
	}
	return t.close()
}

// resolve maps paths in the image to local files. It replaces directories by the regular files in them, and adds
// the libraries of programs.
func (img Image) resolve() (map[string]string, error) {
	files := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(img.Files)) {
		source := img.Files[name]
		err := filepath.WalkDir(source, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() {
				return err
			}
			files[path.Join(name, strings.TrimPrefix(p, source))] = p
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, source := range slices.Sorted(maps.Values(files)) {
		if err := img.addLibraries(files, source); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// A layer writes the layer of an image as a tar stream. It writes parent directories before their files. After
// the first error it writes nothing more, and close returns that error.
type layer struct {
	tar  *tar.Writer
	seen map[string]bool
	err  error
}

func (t *layer) header(h tar.Header) {
	h.Name = strings.TrimPrefix(h.Name, "/")
	if t.err == nil && !filepath.IsLocal(h.Name) {
		t.err = fmt.Errorf("%q: the path in an image must not lead out of it", h.Name)
	}
	if t.err == nil {
		t.err = t.tar.WriteHeader(&h)
	}
}

func (t *layer) dir(name string) {
	if name == "/" || name == "." || t.seen[name] {
		return
	}
	t.seen[name] = true
	t.dir(path.Dir(name))
	mode := int64(0o755)
	if path.Base(name) == "tmp" {
		mode = 0o1777
	}
	t.header(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func (t *layer) copy(name string, mode int64, from io.Reader, size int64) {
	t.dir(path.Dir(name))
	t.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size})
	if t.err == nil {
		_, t.err = io.CopyN(t.tar, from, size)
	}
}

func (t *layer) text(name, content string) {
	t.copy(name, 0o644, strings.NewReader(content), int64(len(content)))
}

func (t *layer) link(name, target string) {
	t.dir(path.Dir(name))
	t.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

// host copies a local file. It makes the file readable for all users, because in the image it belongs to root.
func (t *layer) host(name, source string) {
	if t.err != nil {
		return
	}
	f, err := os.Open(source)
	if err != nil {
		t.err = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.err = err
		return
	}
	t.copy(name, int64(info.Mode().Perm()|0o444), f, info.Size())
}

func (t *layer) close() error {
	if t.err != nil {
		return t.err
	}
	return t.tar.Close()
}
