// Package states manages the directories on the node in which the containers of a pod publish their
// states: one in-memory file system of limited size for each sandbox, with a directory for each
// container. The containers of a pod can read all of its directories and write only their own; no other
// pod can see them.
package states

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// options limit what a pod can store: a state needs less than a kilobyte, and a pod has some ten of
// them.
const options = "size=1m,nr_inodes=1024,mode=0755"

// A Dir is the directory that contains the states of all sandboxes.
type Dir struct {
	root string
	mu   sync.Mutex
}

// New returns the directory, and creates it if it is missing. Only root can read it; a pod reaches its
// own part by mounts.
func New(root string) (*Dir, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	return &Dir{root: root}, os.Chmod(root, 0o700)
}

// Runtimes' IDs are hexadecimal, and names of containers are DNS labels.
var (
	sandboxID     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,127}$`)
	containerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// Container returns the directory with a sandbox's states, and the container's own directory in it. It
// creates missing ones: a new sandbox of a pod begins without states.
func (d *Dir) Container(sandbox, container string) (states, own string, err error) {
	if !sandboxID.MatchString(sandbox) {
		return "", "", fmt.Errorf("sandbox %q: must be letters, digits and dashes", sandbox)
	}
	if !containerName.MatchString(container) {
		return "", "", fmt.Errorf("container %q: must be a DNS label", container)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	states = filepath.Join(d.root, sandbox)
	if err := os.Mkdir(states, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", "", err
	}
	mounted, err := d.mounted(states)
	if err != nil {
		return "", "", err
	}
	if !mounted {
		if err := unix.Mount("outrider", states, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
			return "", "", fmt.Errorf("mounting the states of sandbox %s: %w", sandbox, err)
		}
	}
	own = filepath.Join(states, container)
	if err := os.Mkdir(own, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", "", err
	}
	return states, own, os.Chmod(own, 0o777) // this overrides the umask, because the container may run as any user
}

// mounted reports whether a file system is mounted on a sandbox's directory.
func (d *Dir) mounted(states string) (bool, error) {
	var above, here unix.Stat_t
	if err := errors.Join(unix.Stat(d.root, &above), unix.Lstat(states, &here)); err != nil {
		return false, err
	}
	return above.Dev != here.Dev, nil
}

// Remove removes the states of a sandbox, if there are any. Containers that still run keep the content
// of their mounts.
func (d *Dir) Remove(sandbox string) error {
	if !sandboxID.MatchString(sandbox) {
		return nil // there are none
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remove(sandbox)
}

func (d *Dir) remove(sandbox string) error {
	states := filepath.Join(d.root, sandbox)
	for {
		mounted, err := d.mounted(states)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !mounted {
			return os.Remove(states)
		}
		if err := unix.Unmount(states, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting the states of sandbox %s: %w", sandbox, err)
		}
	}
}

// Keep removes the states of all sandboxes except the given ones. All others ended while this process did
// not run.
func (d *Dir) Keep(sandboxes []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains(sandboxes, e.Name()) {
			errs = append(errs, d.remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}
