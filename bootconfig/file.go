package bootconfig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// File is a provider that reads a file, for example from a mounted ConfigMap or Secret, or all files of a folder.
// Create it with [NewFile] or [NewFolder].
//
// It is for files that are replaced as a whole, by a rename, as the kubelet, most editors and "mv" do. A file
// that is written in place may be read half-written; if that half decodes, it is used until the next check.
//
// With a long poll it checks the file's metadata every second, so a change is in use within a second; otherwise
// it checks every Options.Refresh. It does not use inotify, because a node has few inotify instances (128 per
// user by default) and network file systems do not support it. It would then have to poll anyway, and a stat per
// second is cheap.
type File struct {
	path   string
	folder bool
}

// NewFile returns a provider for the file at path, which need not exist yet.
func NewFile(path string) (*File, error) { return newFile(path, false) }

// NewFolder returns a provider for all files of a folder, such as a ConfigMap that is mounted as a
// whole. The document is a JSON object of file names and contents, as strings. Folders, and names that
// begin with a dot, are skipped. In a folder that the kubelet mounts, all files come from the same
// version of the ConfigMap, because they are read through its link "..data".
func NewFolder(path string) (*File, error) { return newFile(path, true) }

func newFile(path string, folder bool) (*File, error) {
	if path == "" {
		return nil, errors.New("the path of the file provider is empty")
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() != folder {
		if folder {
			return nil, fmt.Errorf("%s: it must be a folder, and is a file; use NewFile", path)
		}
		return nil, fmt.Errorf("%s: it must be a file, and is a folder; use NewFolder", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, folder: folder}, nil
}

// String returns the absolute path.
func (f *File) String() string { return f.path }

const look = time.Second

// Fetch implements [Provider].
func (f *File) Fetch(ctx context.Context, r Request) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Wait, 1))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := ""
	for {
		// Read the file only if its metadata have changed, and return only if its content has.
		if now := f.metadata(); now != last || last == "" {
			last = now
			d, err := f.read(r.MaxSize)
			if err != nil || d.Version != r.Version {
				return d, err
			}
		}
		if r.Wait <= 0 {
			return Document{}, ErrUnchanged
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Document{}, ErrUnchanged
		}
	}
}

// metadata returns a text that changes when the path, size, modification time or mode of a file changes, or
// when a file can no longer be read.
func (f *File) metadata() string {
	resolved, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return err.Error()
	}
	names := []string{resolved}
	if f.folder {
		root, files, err := f.files()
		if err != nil {
			return err.Error()
		}
		for _, name := range files {
			names = append(names, filepath.Join(root, name))
		}
	}
	var out strings.Builder
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintln(&out, name, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return out.String()
}

func (f *File) read(limit int64) (Document, error) {
	data, err := f.content(limit)
	if err != nil {
		return Document{}, err
	}
	sum := sha256.Sum256(data)
	return Document{Version: "sha256:" + hex.EncodeToString(sum[:]), Data: data}, nil
}

func (f *File) content(limit int64) ([]byte, error) {
	if !f.folder {
		return readFile(f.path, limit)
	}
	root, names, err := f.files()
	if err != nil {
		return nil, err
	}
	all, left := make(map[string]string, len(names)), limit
	for _, name := range names {
		data, err := readFile(filepath.Join(root, name), left)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(data) {
			return nil, fmt.Errorf("%s: it is not UTF-8 text", filepath.Join(f.path, name))
		}
		all[name], left = string(data), left-int64(len(data))
	}
	return encodeObject(all)
}

// encodeObject encodes a JSON object with sorted keys.
func encodeObject(all map[string]string) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(all)
	return out.Bytes(), err
}

// files returns the names of the files, and the folder that contains them. In a ConfigMap that the kubelet
// mounts, this is the target of the link "..data", which the kubelet replaces as a whole.
func (f *File) files() (root string, names []string, err error) {
	root = f.path
	if data, err := filepath.EvalSymlinks(filepath.Join(f.path, "..data")); err == nil {
		root = data
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(root, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		if info.Mode().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return root, names, nil
}
