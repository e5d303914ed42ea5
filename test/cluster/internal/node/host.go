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

// Hidden lists the directories of the machine that are empty in a cluster. They contain the fixed
// paths of kubelet, containerd, its shims and CNI, which therefore touch nothing outside and need
// no cleaning up.
var Hidden = []string{"/opt", "/run", "/var/lib", "/var/log"}

// OnDisk lists the directories in /var/lib that are backed by the cluster's directory instead of memory.
var OnDisk = []string{"containerd", "kubelet"}

// tunables are kernel-wide settings that the kubelet changes if they differ from its own values.
// Files with those values are mounted over the real ones.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/random/boot_id":     "", // new at each boot of the node, see [newBoot]
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
	}
	return nil
}

func prepareMounts(c Config) error {
	// First isolated from the machine, then shared: volumes with mount propagation need a shared
	// tree, which must not be the machine's.
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
	// Container files are too large for memory. They are stored in the cluster's directory but
	// mounted at their usual paths: the directory's own path may be too long for a socket.
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

// tempDir is the temporary directory of the cluster's programs; /tmp is shared with the machine,
// because tests store files there.
const tempDir = "/run/tmp"

// runDirectories are expected by programs in /run of a freshly booted node.
var runDirectories = []string{"/run/lock", "/run/netns", tempDir}

func makeDirectories(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// network is the batch input of iproute2. The bridge node0 represents the node's network, with
// nothing else on it. Services need a route, because a connection from the node itself is routed
// before kube-proxy's rules choose another destination for it.
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
		// If a pod calls a Service and a pod on the same bridge answers, the answer must pass the rules too.
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
