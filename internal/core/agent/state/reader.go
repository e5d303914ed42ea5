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

// Read returns what is known of a container. dir is the volume of all states, sandbox the
// pod's; a container that has published nothing in this sandbox is not known.
//
// After an error, of a file that cannot be read or is no record, the container is not known
// either.
func Read(dir, sandbox, container string) (Seen, error) {
	s, f, err := read(dir, sandbox, container)
	if f != nil {
		f.Close()
	}
	return s, err
}

// read is Read, and leaves the file of a living writer open.
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

// replaced bounds how often a record is read again that was replaced meanwhile: a container
// must not keep others reading for ever.
const replaced = 1000

// readFile reads a record, and finds out whether its writer lives. A writer lets go of
// its old record only after the new one is in its place: so one that is not locked, and
// still the one of that name, is a dead writer's.
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

// Await waits until the record of a container is as wanted. It returns false where the container
// has published nothing, or its writer has died: a new one is no event for this function. Each
// record takes a thread until it is replaced.
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

// ReadOther reads another file that a container keeps beside its record. As for a record, no link
// is followed, nothing blocks, and it has a limit.
func ReadOther(dir, container, name string) ([]byte, error) {
	f, err := openRegular(filepath.Join(dir, container, name), recordLimit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, recordLimit))
}

// openRegular opens a file that another container made: no link is followed, nothing blocks.
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

// Containers returns the names of all that have a place in the volume.
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

// now is the time of a record: without the monotonic clock, which is of no use to others.
func now() time.Time { return time.Now().Round(0) }
