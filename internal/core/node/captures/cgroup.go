package captures

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// reserve is the memory, in bytes, of the container's limit that is reserved for the daemon, which
// needs at most 20 MiB.
const reserve = 32 << 20

// Confine puts the agents into a cgroup below this process's, whose limit is this process's limit minus reserve.
// If an agent takes too much memory, the kernel then kills the agent and not the daemon. The memory of the rules
// that agents write is charged to this cgroup too, until their namespace ends. Without a limit Confine does
// nothing. An error says why there is no such cgroup. The argument self is /proc/self/cgroup, and root is the
// mount point of cgroups.
func (c *Captures) Confine(self, root string) error {
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	own, unified, err := memoryCgroup(string(text), root)
	if err != nil {
		return err
	}
	file := "memory.limit_in_bytes"
	if unified {
		file = "memory.max"
	}
	limit, err := os.ReadFile(filepath.Join(own, file))
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64)
	if err != nil || n > 1<<60 { // no limit: v2 has "max", v1 a number larger than any machine's memory
		return nil
	}
	if n < 2*reserve {
		return fmt.Errorf("the memory limit of %s is %d bytes: it is too small to be divided; want %d or more", own, n, 2*reserve)
	}
	dir := filepath.Join(own, "captures")
	if unified {
		if err := aside(own); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(n-reserve, 10)), 0o644); err != nil {
		return err
	}
	c.procs = filepath.Join(dir, "cgroup.procs")
	return nil
}

// memoryCgroup returns the directory of this process's cgroup for memory, and whether it is version 2.
// In a container with version 1, the root of the mount is the container's own cgroup, whatever the path
// says.
func memoryCgroup(text, root string) (dir string, unified bool, err error) {
	mount, at, unified := root, "", true
	for line := range strings.Lines(text) { // ID:CONTROLLERS:PATH
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) < 3 {
			continue
		}
		if slices.Contains(strings.Split(f[1], ","), "memory") {
			mount, at, unified = filepath.Join(root, "memory"), f[2], false
			break
		}
		if f[1] == "" {
			at = f[2]
		}
	}
	for _, dir := range []string{filepath.Join(mount, at), mount} {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err == nil && slices.Contains(strings.Fields(string(text)), strconv.Itoa(os.Getpid())) {
			return dir, unified, nil
		}
	}
	return "", false, fmt.Errorf("no cgroup with this process is mounted at %s", mount)
}

// aside moves this process into a cgroup below its own, and enables memory limits for the cgroups beside the new
// one: in version 2 a cgroup whose children have limits cannot contain processes. A program that the runtime
// later executes in the container joins this process's cgroup.
func aside(own string) error {
	dir, pid := filepath.Join(own, "daemon"), []byte(strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0o644); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(own, "cgroup.subtree_control"), []byte("+memory"), 0o644)
	if err != nil { // this process is moved back
		err = errors.Join(err, os.WriteFile(filepath.Join(own, "cgroup.procs"), pid, 0o644), os.Remove(dir))
	}
	return err
}
