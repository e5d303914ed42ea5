// Package cgroup manages one subtree in every cgroup hierarchy for a cluster: the kubelet makes the
// pods' groups below it, and removing the subtree cleans up all control groups.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"outrider.dev/test/cluster/internal/poll"
)

// Root is the mount point of the hierarchies: with cgroup v1 it contains a directory for each controller, with v2
// it is the single hierarchy.
const Root = "/sys/fs/cgroup"

// v2 lists the controllers that the kubelet needs in a v2 hierarchy.
const v2 = "+cpuset +cpu +io +memory +pids"

// weights is the cluster's processor weight, for the file of each cgroup version. It is four times the default: on
// a real node the pods compete with a few daemons, here with everything that runs on the machine.
var weights = map[string]string{"cpu.shares": "4096", "cpu.weight": "400"}

// hierarchies returns the directories of Root that contain process groups.
func hierarchies() []string {
	if exists(filepath.Join(Root, "cgroup.procs")) {
		return []string{Root}
	}
	var found []string
	procs, _ := filepath.Glob(filepath.Join(Root, "*", "cgroup.procs"))
	for _, p := range procs {
		dir := filepath.Dir(p)
		// cpu and cpuacct may be two names for one directory.
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	return found
}

// Create makes the group called name in every hierarchy.
func Create(name string) error {
	all := hierarchies()
	if len(all) == 0 {
		return fmt.Errorf("no cgroup hierarchy is mounted at %s", Root)
	}
	for _, h := range all {
		group := filepath.Join(h, name)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h == Root {
			if err := enable(h, group); err != nil {
				return err
			}
		}
		// A cpuset group of v1 accepts no process before both files are set. In v2 the root has neither file.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(h, group, file); err != nil {
				return err
			}
		}
		for file, weight := range weights { // any order: a hierarchy has one of the files, or none
			if path := filepath.Join(group, file); exists(path) {
				if err := os.WriteFile(path, []byte(weight), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func enable(groups ...string) error {
	for _, g := range groups {
		if err := os.WriteFile(filepath.Join(g, "cgroup.subtree_control"), []byte(v2), 0o644); err != nil {
			return fmt.Errorf("enabling controllers: %w", err)
		}
	}
	return nil
}

// inherit copies the value of a file from the parent group to the child group. If the parent has no such file,
// inherit does nothing.
func inherit(parent, child, file string) error {
	value, err := os.ReadFile(filepath.Join(parent, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(child, file), value, 0o644)
}

// Join moves this process, and children that it starts later, to the group name/sub of the memory hierarchy. The
// kubelet does not remove this group: it removes groups that it does not know, but only below kubepods.
func Join(name, sub string) error {
	group := filepath.Join(memory(name), sub)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0o644)
}

// memory returns the group called name in the memory hierarchy.
func memory(name string) string {
	if v1 := filepath.Join(Root, "memory"); exists(v1) {
		return filepath.Join(v1, name)
	}
	return filepath.Join(Root, name)
}

// Kill kills the processes in the group name/sub and below. It repeats this until none is left, because
// processes may start others before they are killed.
func Kill(ctx context.Context, name, sub string) error {
	return poll.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		pids, err := processes(filepath.Join(memory(name), sub))
		for _, pid := range pids {
			// ESRCH means that the process has ended meanwhile.
			if killErr := syscall.Kill(pid, syscall.SIGKILL); killErr != nil && killErr != syscall.ESRCH {
				err = errors.Join(err, fmt.Errorf("killing process %d: %w", pid, killErr))
			}
		}
		if err == nil && len(pids) > 0 {
			err = fmt.Errorf("%d processes are there", len(pids))
		}
		return err
	})
}

// processes returns the processes in a control group and below it. A group that is removed meanwhile counts as empty.
func processes(group string) (pids []int, err error) {
	err = filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for _, line := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			// 0 stands for a process outside this PID namespace, and kill would take it for this process.
			if pid > 1 {
				pids = append(pids, pid)
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		return err
	})
	return pids, err
}

// RemovePods removes the pods' groups, which the kubelet made in the group called name, as [Remove] does.
func RemovePods(ctx context.Context, name string) error {
	return remove(ctx, filepath.Join(name, "kubepods"))
}

// Remove removes the groups called name and everything below them. Their processes must have been
// killed; until ctx ends Remove waits for the kernel to release them.
func Remove(ctx context.Context, name string) error {
	if name == "" || strings.ContainsAny(name, "/.") {
		return fmt.Errorf("refusing to remove cgroup %q", name)
	}
	return remove(ctx, name)
}

func remove(ctx context.Context, name string) error {
	return poll.Until(ctx, 20*time.Millisecond, func(context.Context) error {
		var left error
		for _, h := range hierarchies() {
			left = errors.Join(left, removeTree(filepath.Join(h, name)))
		}
		return left
	})
}

// removeTree removes directories only: the files of a group disappear with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
