package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Hidden lists the directories of the machine that are empty in a cluster. The kubelet, containerd, its
// shims and CNI have fixed paths in them. So these programs touch no file of the machine, and leave no
// file that would have to be removed when the cluster ends.
var Hidden = []string{"/opt", "/run", "/var/lib", "/var/log"}

// OnDisk lists the directories in /var/lib that are backed by the cluster's directory instead of memory.
var OnDisk = []string{"containerd", "kubelet"}

// tunables maps kernel-wide settings to the values that the kubelet wants. The kubelet would change the machine's
// settings, so files with these values are mounted over them.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/random/boot_id":     "", // changes at each boot of the node, see [newBoot]
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
	}
	return nil
}

func prepareMounts(c Config) error {
	// Isolate the mounts from the machine, then make them shared inside: volumes with mount propagation need
	// a shared tree, which must not include the machine.
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE); err != nil {
		return err
	}
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC); err != nil {
		return err
	}
	for _, dir := range Hidden {
		if err := mount("tmpfs", dir, "tmpfs", 0); err != nil {
			return err
		}
	}
	if err := makeDirectories(runDirectories...); err != nil {
		return err
	}
	// Container files are too large for memory, so they are stored in the cluster's directory. They are mounted
	// at their usual paths, because sockets among them would have too long paths in that directory.
	for _, name := range OnDisk {
		source, target := filepath.Join(c.Dir, name), filepath.Join("/var/lib", name)
		if err := errors.Join(os.MkdirAll(source, 0o755), os.MkdirAll(target, 0o755)); err != nil {
			return err
		}
		if err := mount(source, target, "bind", syscall.MS_BIND); err != nil {
			return err
		}
	}
	if err := makeDirectories(tunablesDir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(tunables)) {
		file := tunableFile(name)
		if err := os.WriteFile(file, []byte(tunables[name]+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, filepath.Join("/proc/sys", name), "bind", syscall.MS_BIND); err != nil {
			return err
		}
	}
	if _, err := newBoot(); err != nil {
		return err
	}
	if err := prepareCNI(c); err != nil {
		return err
	}
	return syscall.Sethostname([]byte(Name))
}

// ownDir contains the files of the cluster itself. Unlike /run it outlives a reboot.
const ownDir = "/var/lib/outrider-test"

const tunablesDir = ownDir + "/tunables"

func tunableFile(name string) string {
	return filepath.Join(tunablesDir, strings.ReplaceAll(name, "/", "."))
}

// tempDir is the temporary directory of the cluster's programs. They do not use /tmp, which tests share
// with the machine.
const tempDir = "/run/tmp"

// runDirectories are the directories in /run that programs expect after a boot.
var runDirectories = []string{"/run/lock", "/run/netns", tempDir}

func makeDirectories(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// network is the batch input of iproute2. The bridge node0 stands for the network between nodes, to which
// only this node is connected. The addresses of Services need a route: a connection from the node itself is
// routed first, and only then do kube-proxy's rules change its destination.
const network = `link set lo up
link add node0 type bridge
addr add ` + Address + networkPrefix + ` dev node0
link set node0 up
route add ` + ServiceRange + ` dev node0 src ` + Address + `
`

func prepareNetwork(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(network)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("setting up the network: %w: %s", err, bytes.TrimSpace(out))
	}
	for _, s := range []struct{ name, value string }{
		{"ipv4/ip_forward", "1"},
		// If a pod calls a Service and a pod on the same bridge answers, kube-proxy's rules must see the answer too.
		{"bridge/bridge-nf-call-iptables", "1"},
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", s.name), []byte(s.value), 0o644)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.name, "bridge/") {
			return fmt.Errorf("the kernel lacks br_netfilter; try: modprobe br_netfilter (%w)", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
