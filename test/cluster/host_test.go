package cluster_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/test/cluster"
	"outrider.dev/test/process"
)

// A host is a snapshot of everything on this machine that a cluster could leave behind, as a set of lines for each
// aspect. Other programs change the machine too, so a line counts as left behind only if it is new and stays.
type host map[string][]string

// look takes a snapshot of the machine, including the kernel's state that all namespaces share.
func look(t *testing.T) host {
	t.Helper()
	h := host{
		"mount":      fileLines(t, "/proc/self/mounts"),
		"control":    controlGroups(t),
		"link":       output(t, "ip", "-oneline", "link"),
		"address":    output(t, "ip", "-oneline", "address"),
		"route":      output(t, "ip", "route", "show", "table", "all"),
		"rule":       output(t, "ip", "rule"),
		"nft":        output(t, "nft", "--stateless", "list", "ruleset"),
		"iptables":   output(t, "iptables-save"),
		"named file": nil,
	}
	for _, dir := range []string{"/etc", "/opt", "/run", "/run/netns", "/usr/lib/cni", "/usr/libexec", "/var/lib", "/var/log"} {
		entries, _ := filepath.Glob(dir + "/*")
		h["named file"] = append(h["named file"], entries...)
	}
	for _, tunable := range []string{
		"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
		"net/ipv4/ip_forward", "vm/overcommit_memory", "vm/panic_on_oom",
	} {
		h["tunable"] = append(h["tunable"], tunable+" "+fileLines(t, "/proc/sys/"+tunable)[0])
	}
	return h
}

// leftSince returns the lines that the machine has now and did not have in h.
func (h host) leftSince(t *testing.T) []string {
	t.Helper()
	var left []string
	now := look(t)
	for _, aspect := range slices.Sorted(maps.Keys(now)) {
		for _, line := range now[aspect] {
			if aspect == "control" && inUse(line) {
				continue // the group belongs to a test that runs at the same time
			}
			if !slices.Contains(h[aspect], line) {
				left = append(left, aspect+": "+line)
			}
		}
	}
	return left
}

// wantNothingLeft fails the test unless the machine returns to the state h. It waits up to two minutes, because the
// kernel removes devices and mounts some time after the last process, and tests may run at the same time.
func (h host) wantNothingLeft(t *testing.T) {
	t.Helper()
	var left []string
	for range 480 { // two minutes
		if left = h.leftSince(t); len(left) == 0 {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
}

// namespaces returns the namespaces of the cluster's processes, for [processes], and keeps them until release is called:
// the kernel gives the number of one that is gone to the next one that any test makes.
func namespaces(t *testing.T, c *cluster.Cluster) (found []string, release func()) {
	t.Helper()
	var kept []*os.File
	release = sync.OnceFunc(func() {
		for _, f := range kept {
			f.Close()
		}
	})
	t.Cleanup(release)
	for _, kind := range []string{"mnt", "net", "pid"} {
		file := fmt.Sprintf("/proc/%d/ns/%s", c.PID(), kind)
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, f)
		ns, err := os.Readlink(file)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, ns)
	}
	return found, release
}

// processes returns the command lines of the processes that are in any of the namespaces. Zombies, which have no
// command line, do not count.
func processes(namespaces []string) []string {
	var found []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, link := range links {
		ns, err := os.Readlink(link)
		if err != nil || !slices.Contains(namespaces, ns) {
			continue // the process has just exited
		}
		process := filepath.Dir(filepath.Dir(link))
		cmdline, _ := os.ReadFile(process + "/cmdline")
		if len(cmdline) == 0 {
			continue
		}
		found = append(found, strings.ReplaceAll(process+" "+string(cmdline), "\x00", " "))
	}
	return slices.Compact(found)
}

// wantNoProcessNaming fails the test if the command line of another process contains dir.
func wantNoProcessNaming(t *testing.T, dir string) {
	t.Helper()
	process.EventuallyEqual(t, "processes of "+dir, nil, func() (found []string) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			cmdline, _ := os.ReadFile(file)
			if strings.Contains(string(cmdline), dir) {
				found = append(found, file+": "+strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
		return found
	})
}

func output(t *testing.T, name string, args ...string) []string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return lines(string(out))
}

func fileLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return lines(string(text))
}

// lines returns the lines of text without comments, because iptables-save writes a comment with the time.
func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#")
	})
}

func controlGroups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() { // an error means that the group was removed during the walk
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inUse reports whether a control group has processes. Groups that a cluster has left behind have none, because
// the test checks separately that no process is left.
func inUse(group string) bool {
	procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	return err == nil && len(procs) > 0
}
