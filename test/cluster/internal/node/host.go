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

// Hidden are the directories of the machine that a cluster sees empty. They hold
// the fixed paths of kubelet, containerd, its shims and CNI, which so touch
// nothing outside and need no cleaning up.
var Hidden = []string{"/opt", "/run", "/var/lib", "/var/log"}

// OnDisk are the directories in /var/lib that are not empty memory but those of the
// same name in the cluster's directory.
var OnDisk = []string{"containerd", "kubelet"}

// tunables are the settings of the whole kernel that the kubelet makes where they
// differ. It finds its own values, as files that lie over the real ones.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/random/boot_id":     "", // of each boot of the node, see [newBoot]
}

func mount(source, target, kind string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
	}
	return nil
}

func prepareMounts(c Config) error {
	// First cut off from the machine, then shared: volumes with mount propagation
	// want a shared tree, and it must not be the machine's.
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
	// Container files are too large for memory. They are in the cluster's directory
	// but seen where they usually are: that path may be too long for a socket.
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

// ownDir holds what the cluster is made of. Unlike /run it outlives a reboot.
const ownDir = "/var/lib/outrider-test"

const tunablesDir = ownDir + "/tunables"

func tunableFile(name string) string {
	return filepath.Join(tunablesDir, strings.ReplaceAll(name, "/", "."))
}

// tempDir is for the programs of the cluster; /tmp is shared with the machine,
// because tests have their files there.
const tempDir = "/run/tmp"

// runDirectories are those that programs expect in /run of a node that has just started.
var runDirectories = []string{"/run/lock", "/run/netns", tempDir}

func makeDirectories(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// network is the batch input of iproute2. The bridge node0 stands for the
// network that the node is in, with nothing else on it. Services need a route,
// because a connection from the node itself is routed before kube-proxy's rules
// choose another destination for it.
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
		// A pod that calls a Service and is answered by its neighbour on the same
		// bridge: the answer must pass the rules too.
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
