package containerinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OldRoot is the mount point of the node's file system in a container while that is set up. It is removed
// afterwards.
const OldRoot = "/.outrider"

// enter creates the container's file system and makes it the root. It runs in the container's mount namespace, so
// the mounts are not visible outside.
func (r *Root) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting from the node's mounts: %w", err)
	}
	if err := unix.Mount("outrider", r.Stage, "tmpfs", unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", r.Stage, err)
	}
	top := filepath.Join(r.Stage, "root")
	if err := os.MkdirAll(top, 0o755); err != nil {
		return err
	}
	if err := r.show("/", "/", r.Stage, top); err != nil {
		return err
	}
	if err := r.pivot(top); err != nil {
		return err
	}
	shown := []string{"/"}
	var volumes []int
	steps := []func() error{r.devices, r.kernel, func() error { return r.machine(&shown) }, r.files, func() error { return r.open(&volumes) }}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if err := unix.Unmount(OldRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the node's file system: %w", err)
	}
	if err := os.Remove(OldRoot); err != nil {
		return err
	}
	// The volumes are attached last, because a mount point may be a link that another container has created. Now
	// that the node's file system is gone, such a link can only lead to a path of this container.
	if err := r.attach(volumes); err != nil {
		return err
	}
	if r.ReadOnly {
		for _, at := range shown {
			if err := readOnly(at, unix.MS_NODEV); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Root) pivot(top string) error {
	old := filepath.Join(top, OldRoot)
	if err := os.MkdirAll(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(top, old); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return os.Chdir("/")
}

// show mounts one of the machine's file systems at a path: copy on write, or read-only if an overlay is not
// possible. Files that the container writes are stored in stage. The mount is nodev, because the devices of a
// container are in its /dev.
func (r *Root) show(from, name, stage, at string) error {
	upper, work := layer(stage, name, "upper"), layer(stage, name, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := copyOwner(from, upper); err != nil {
		return err
	}
	if r.Overlay {
		err := unix.Mount("outrider", at, "overlay", unix.MS_NODEV,
			"lowerdir="+escaped(from)+",upperdir="+escaped(upper)+",workdir="+escaped(work))
		if err == nil {
			return nil
		}
	}
	if name == "/" {
		return r.showTop(upper, at)
	}
	return bindReadOnly(from, at)
}

// layer returns the directory of an overlay's layer ("upper" or "work") for the file system with that name.
func layer(stage, name, what string) string {
	return filepath.Join(stage, what, strings.ReplaceAll(strings.Trim(name, "/"), "/", "\\")+"_")
}

// copyOwner copies the mode and owner of a directory to dir, because an overlay shows the mode and owner of its
// upper directory.
func copyOwner(of, dir string) error {
	var s unix.Stat_t
	if err := unix.Stat(of, &s); err != nil {
		return fmt.Errorf("stat %s: %w", of, err)
	}
	if err := unix.Chown(dir, int(s.Uid), int(s.Gid)); err != nil {
		return err
	}
	return unix.Chmod(dir, s.Mode&0o7777)
}

func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`).Replace(path)
}

// showTop creates a root directory without an overlay: a new directory, into which the entries of the machine's
// root are bound read-only.
func (r *Root) showTop(dir, at string) error {
	if err := unix.Mount(dir, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", at, err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := "/"+e.Name(), filepath.Join(at, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(from)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, to); err != nil {
				return err
			}
		case !e.IsDir():
		case emptyHere[from]:
			if err := os.Mkdir(to, 0o755); err != nil {
				return err
			}
			if err := copyOwner(from, to); err != nil {
				return err
			}
		default:
			if err := os.Mkdir(to, 0o755); err != nil {
				return err
			}
			if err := bindReadOnly(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptyHere are directories of the machine that are created empty in a root without overlay.
var emptyHere = map[string]bool{"/proc": true, "/sys": true, "/dev": true, "/run": true, "/tmp": true, "/mnt": true}

// machine mounts the machine's other file systems at their paths on the machine. It skips file systems that no
// longer exist, and those whose mount point is missing in the container.
func (r *Root) machine(shown *[]string) error {
	stage := filepath.Join(OldRoot, r.Stage)
	for _, at := range r.Host {
		from := filepath.Join(OldRoot, at)
		info, err := os.Stat(from)
		if err != nil {
			continue
		}
		if here, err := os.Stat(at); err != nil || here.IsDir() != info.IsDir() {
			continue
		}
		if !info.IsDir() {
			err = bindReadOnly(from, at)
		} else {
			err = r.show(from, at, stage, at)
		}
		if err != nil {
			return err
		}
		*shown = append(*shown, at)
	}
	// The container gets an empty /run, because programs of this machine have their sockets in it.
	if _, err := os.Lstat("/run"); err != nil {
		return nil
	}
	if err := unix.Mount("run", "/run", "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	*shown = append(*shown, "/run")
	return nil
}

// files writes the files that the kubelet provides, such as /etc/hosts.
func (r *Root) files() error {
	for _, f := range r.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		_ = os.Remove(f.Path) // otherwise WriteFile would follow a link
		if err := os.WriteFile(f.Path, f.Data, os.FileMode(f.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// open creates a detached mount of each volume, which can be attached when the node's paths are no longer
// visible.
func (r *Root) open(volumes *[]int) error {
	for _, m := range r.Mounts {
		tree, err := m.tree()
		if err != nil {
			return fmt.Errorf("mounting %s: %w", m.To, err)
		}
		*volumes = append(*volumes, tree)
	}
	return nil
}

// attach attaches the volumes at their mount points, and closes them.
func (r *Root) attach(volumes []int) error {
	for i, m := range r.Mounts {
		if err := m.attach(volumes[i]); err != nil {
			return fmt.Errorf("mounting %s: %w", m.To, err)
		}
	}
	return nil
}

// tree returns a detached mount of the source, with nodev.
func (m Mount) tree() (int, error) {
	from, err := m.open()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	tree, err := unix.OpenTree(int(from.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return 0, err
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV}
	if m.ReadOnly {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID
	}
	return tree, unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes)
}

func (m Mount) attach(tree int) error {
	defer unix.Close(tree)
	var s unix.Stat_t
	if err := unix.Fstat(tree, &s); err != nil {
		return err
	}
	if err := target(m.To, s.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, m.To, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
}

// open opens the source of the mount. A subPath is resolved within its volume, so it cannot lead out of the
// volume.
func (m Mount) open() (*os.File, error) {
	from := filepath.Join(OldRoot, m.From)
	if m.Sub == "" {
		return os.Open(from)
	}
	dir, err := os.OpenRoot(from)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if _, err := dir.Stat(m.Sub); errors.Is(err, os.ErrNotExist) {
		if err := makeSubPath(dir, m.Sub); err != nil {
			return nil, fmt.Errorf("subPath %s: %w", m.Sub, err)
		}
	}
	return dir.Open(m.Sub)
}

// makeSubPath creates the directories of a subPath with the mode of the volume, regardless of the umask. Source:
// pkg/kubelet/kubelet_pods.go makeMounts and pkg/volume/util/subpath/subpath_linux.go doSafeMakeDir of kubernetes
// v1.34.4.
func makeSubPath(dir *os.Root, sub string) error {
	volume, err := dir.Stat(".")
	if err != nil {
		return err
	}
	at := ""
	for _, name := range strings.Split(filepath.Clean(sub), "/") {
		at = filepath.Join(at, name)
		switch err := dir.Mkdir(at, 0o700); {
		case errors.Is(err, os.ErrExist):
			continue
		case err != nil:
			return err
		}
		if err := dir.Chmod(at, volume.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// target creates a mount point, a directory or an empty file.
func target(at string, dir bool) error {
	if dir {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(at); err == nil {
		return nil
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func bindReadOnly(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", to, err)
	}
	return readOnly(to, unix.MS_NODEV)
}

// readOnly makes a mount read-only. flags are the other flags of the mount, which the remount would otherwise
// clear.
func readOnly(at string, flags uintptr) error {
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
		return fmt.Errorf("making %s read-only: %w", at, err)
	}
	return nil
}
