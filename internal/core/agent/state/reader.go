package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const recordFile = "state"

// Read returns the record of a container. dir is the volume of all states, sandbox the
// pod's sandbox. Known is false if the container has published nothing in this sandbox.
//
// It is also false after an error: the file cannot be read, or is not a record.
func Read(dir, sandbox, container string) (Seen, error) {
	s, f, err := read(dir, sandbox, container)
	if f != nil {
		f.Close()
	}
	return s, err
}

// read is Read, but also returns the open file of a living writer.
func read(dir, sandbox, container string) (Seen, *os.File, error) {
	name := filepath.Join(dir, container, recordFile)
	s, f, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Seen{}, nil, nil
	}
	if err == nil && s.Container != container {
		err = fmt.Errorf("%s: %w: container is %q, want %q", name, errRecord, s.Container, container)
	}
	if err != nil || s.Sandbox != sandbox {
		if f != nil {
			f.Close()
		}
		return Seen{}, nil, err
	}
	s.Known = true
	return s, f, nil
}

// replaced bounds how often a record is read again because it was replaced meanwhile: a
// container must not keep others reading for ever.
const replaced = 1000

// readFile reads a record, and finds out whether its writer lives. A writer unlocks its old
// record only after the new one is in its place. So the writer of a record that is not locked
// and has not been replaced is dead.
func readFile(name string) (s Seen, f *os.File, err error) {
	for range replaced {
		f, err := openRegular(name, recordLimit)
		if err != nil {
			return Seen{}, nil, err
		}
		alive, err := isLocked(f)
		if err != nil {
			f.Close()
			return Seen{}, nil, fmt.Errorf("%s: looking at its lock: %w", name, err)
		}
		if !alive && !sameFile(f, name) {
			f.Close()
			continue
		}
		b, err := io.ReadAll(io.LimitReader(f, recordLimit+1))
		if err == nil {
			s.Record, err = decode(b)
		}
		s.Alive = alive
		if err != nil || !alive {
			f.Close()
			f = nil
		}
		if err != nil {
			return Seen{}, nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, f, nil
	}
	return Seen{}, nil, fmt.Errorf("%s: %w: it was replaced %d times while it was read", name, errRecord, replaced)
}

// Await waits until the given condition holds for the record of a container, and then returns
// true. It returns false if the container has published nothing, or the record's writer has died:
// Await does not wait for the next writer. It blocks a thread while it waits.
func Await(dir, sandbox, container string, is func(Seen) bool) (bool, error) {
	for {
		s, f, err := read(dir, sandbox, container)
		if f == nil || is(s) {
			if f != nil {
				f.Close()
			}
			return err == nil && is(s), err
		}
		err = awaitUnlocked(f)
		f.Close()
		if err != nil {
			return false, fmt.Errorf("waiting for the next state of %s: %w", container, err)
		}
	}
}

// ReadOther reads another file in a container's directory. As for a record, it follows no
// symbolic link, does not block, and limits the size.
func ReadOther(dir, container, name string) ([]byte, error) {
	f, err := openRegular(filepath.Join(dir, container, name), recordLimit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, recordLimit))
}

// openRegular opens a regular file that another container made. It follows no symbolic link
// and does not block.
func openRegular(name string, limit int64) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: %w: it is no regular file", name, errRecord)
	case info.Size() > limit:
		err = fmt.Errorf("%s: %w: %d bytes, want at most %d", name, errRecord, info.Size(), limit)
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

func sameFile(f *os.File, name string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(name)
	return err == nil && os.SameFile(mine, there)
}

// Containers returns the names of all containers that have a directory in the volume.
func Containers(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the pod's containers: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// now returns the time for a record, without the monotonic clock reading, which other
// processes cannot use.
func now() time.Time { return time.Now().Round(0) }
