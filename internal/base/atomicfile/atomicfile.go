// Package atomicfile replaces files by rename: a reader sees the old content or the new one, never a part of it.
// Only [WriteSynced] syncs the disk; content from [Write] may be lost if the machine crashes soon afterwards.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces the content of the file at path, and sets its mode regardless of the umask. Only one writer at a
// time may write a file. Write creates the new content as ".NAME.new". It first removes a file with that name,
// which a killed writer may have left. It never writes to an existing file, because that may be a link to another
// file.
func Write(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, func(*os.File) error { return nil })
}

// WriteSynced is like Write, but syncs the content to the disk before it replaces the file.
func WriteSynced(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, (*os.File).Sync)
}

func write(path string, content []byte, mode fs.FileMode, sync func(*os.File) error) (err error) {
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(fresh)
		}
	}()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), sync(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
