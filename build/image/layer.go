package image

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Files and directories that programs expect. A mesh's proxy runs as user 1337.
var (
	baseDirs  = []string{"/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/var/run", "/var/tmp"}
	baseFiles = map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nproxy:x:1337:1337::/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n",
		"/etc/group":         "root:x:0:\nproxy:x:1337:\nnobody:x:65534:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
)

// A layer is a file with the file system of an image.
type layer struct {
	path           string
	digest, diffID v1.Hash
	size           int64
	kind           types.MediaType
}

func (l layer) Digest() (v1.Hash, error)            { return l.digest, nil }
func (l layer) DiffID() (v1.Hash, error)            { return l.diffID, nil }
func (l layer) Size() (int64, error)                { return l.size, nil }
func (l layer) MediaType() (types.MediaType, error) { return l.kind, nil }
func (l layer) Compressed() (io.ReadCloser, error)  { return os.Open(l.path) }
func (l layer) Uncompressed() (io.ReadCloser, error) {
	f, err := os.Open(l.path)
	if err != nil || l.kind == types.OCIUncompressedLayer {
		return f, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// writeLayer writes the file system of the image to a file of the folder.
func (img Image) writeLayer(dir string) (_ layer, err error) {
	files, err := img.resolve()
	if err != nil {
		return layer{}, err
	}
	f, err := os.CreateTemp(dir, "layer.*")
	if err != nil {
		return layer{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	written, content := sha256.New(), sha256.New()
	out := layer{path: f.Name(), kind: types.OCIUncompressedLayer}
	file := io.MultiWriter(f, written)
	packed := stage{file}
	if img.Compress {
		// Its header has no name and no time.
		out.kind, packed.Writer = types.OCILayer, gzip.NewWriter(file)
	}
	t := newTarball(io.MultiWriter(packed, content))
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
	if err := errors.Join(t.close(), packed.Close()); err != nil {
		return layer{}, err
	}
	out.size, err = f.Seek(0, io.SeekCurrent)
	out.digest = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(written.Sum(nil))}
	out.diffID = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(content.Sum(nil))}
	return out, err
}

// A stage is a writer that may need to be closed.
type stage struct{ io.Writer }

func (w stage) Close() error {
	if c, ok := w.Writer.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// resolve returns the regular files of the image: those of directories, and the libraries
// of programs.
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

// A tarball is written until the first error, which close returns. Parent directories are
// written before their files.
type tarball struct {
	tar  *tar.Writer
	seen map[string]bool
	err  error
}

func newTarball(w io.Writer) *tarball {
	return &tarball{tar: tar.NewWriter(w), seen: make(map[string]bool)}
}

func (t *tarball) header(h tar.Header) {
	h.Name = strings.TrimPrefix(h.Name, "/")
	if t.err == nil && !filepath.IsLocal(h.Name) {
		t.err = fmt.Errorf("%q: the path in an image must not lead out of it", h.Name)
	}
	if t.err == nil {
		t.err = t.tar.WriteHeader(&h)
	}
}

func (t *tarball) dir(name string) {
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

func (t *tarball) copy(name string, mode int64, from io.Reader, size int64) {
	t.dir(path.Dir(name))
	t.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size})
	if t.err == nil {
		_, t.err = io.CopyN(t.tar, from, size)
	}
}

func (t *tarball) text(name, content string) {
	t.copy(name, 0o644, strings.NewReader(content), int64(len(content)))
}

func (t *tarball) link(name, target string) {
	t.dir(path.Dir(name))
	t.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

// host copies a local file. All users can read it: its owner here has no meaning in a
// container.
func (t *tarball) host(name, source string) {
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

func (t *tarball) close() error {
	if t.err != nil {
		return t.err
	}
	return t.tar.Close()
}
