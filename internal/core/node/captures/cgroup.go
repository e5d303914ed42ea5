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

// reserve is the memory, in bytes, that the daemon keeps of its container's for itself: it has 20 MiB at most.
const reserve = 32 << 20

// Confine gives the agents a cgroup of their own below this process's, with what its limit leaves beside
// reserve: the kernel then ends an agent that takes too much, and not the daemon. The rules that it
// writes are charged there too, until their namespace ends. Where there is no limit nothing is done.
// An error says why there is no such cgroup. self is /proc/self/cgroup, root where cgroups are mounted.
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
	if err != nil || n > 1<<60 { // v2 says "max", v1 a number that no machine has
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

// memoryCgroup is the directory of this process's cgroup with its memory, and whether that is of version 2. In
// a container of version 1 the container's own is the root of the mount, whatever the path says.
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

// aside moves this process into a cgroup below its own, and lets those have limits of memory: in version
// 2 a cgroup whose children have has no process. What a runtime executes in the container then joins this process.
func aside(own string) error {
	dir, pid := filepath.Join(own, "daemon"), []byte(strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), pid, 0o644); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(own, "cgroup.subtree_control"), []byte("+memory"), 0o644)
	if err != nil { // as it was
		err = errors.Join(err, os.WriteFile(filepath.Join(own, "cgroup.procs"), pid, 0o644), os.Remove(dir))
	}
	return err
}
