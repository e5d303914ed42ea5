package containerinit

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// These are the entries of /dev, and the protected paths of /proc, that a runtime sets up in a container. Source:
// the OCI runtime specification, config-linux.md, and containerd's default spec (pkg/oci/spec.go).
var (
	devices     = []string{"null", "zero", "full", "random", "urandom", "tty"}
	deviceLinks = map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	}
	maskedFiles   = []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"}
	readOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// devices creates /dev with the devices that are harmless, and /dev/pts for terminals.
func (r *Root) devices() error {
	// The tmpfs is mounted with nodev, which does not affect the devices in it, because they are bind mounts. A
	// device that a container creates with mknod cannot be opened.
	if err := unix.Mount("dev", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	for _, name := range devices {
		at := filepath.Join("/dev", name)
		from := filepath.Join(OldRoot, at)
		if info, err := os.Stat(from); err != nil || info.IsDir() {
			continue // this machine does not have the device
		}
		if err := target(at, false); err != nil {
			return err
		}
		if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", at, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(deviceLinks)) {
		to := deviceLinks[name]
		if err := os.Symlink(to, filepath.Join("/dev", name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/dev/pts", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mounting /dev/pts: %w", err)
	}
	return nil
}

// kernel mounts /proc, which shows the container's processes, and /sys, which shows the pod's network. Unless the
// container is privileged, it hides or protects the dangerous files in them.
func (r *Root) kernel() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	sys := uintptr(flags | unix.MS_RDONLY)
	if r.Privileged {
		sys = flags
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", sys, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	if r.Privileged {
		return nil
	}
	for _, path := range readOnlyPaths {
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
		if err := readOnly(path, flags); err != nil {
			return err
		}
	}
	for _, path := range maskedFiles {
		if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hiding %s: %w", path, err)
		}
	}
	return nil
}
