package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"outrider.dev/test/cluster/internal/node"
)

// needs lists packages of the distribution, and the programs in them that a cluster uses. `make test-deps` must
// install all these packages.
var needs = []struct {
	pkg      string
	programs []string
}{
	{"busybox-static", []string{"busybox"}},
	{"containerd", []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
	{"containernetworking-plugins", []string{
		node.MachineCNIPlugins + "/bridge", node.MachineCNIPlugins + "/host-local", node.MachineCNIPlugins + "/loopback", node.MachineCNIPlugins + "/portmap",
	}},
	{"iproute2", []string{"ip"}},
	{"iptables", []string{"iptables", "xtables-nft-multi"}},
	{"nftables", []string{"nft"}},
	{"runc", []string{"runc"}},
}

// checkNeeds returns an error if a cluster cannot run on this machine. It is called before anything is built.
func checkNeeds() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: it makes namespaces, mounts and control groups")
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("a cluster is built when it is first used: %w", err)
	}
	var missing []string
	for _, n := range needs {
		if slices.ContainsFunc(n.programs, func(p string) bool { return find(p) == "" }) {
			missing = append(missing, n.pkg)
		}
	}
	if missing != nil {
		return fmt.Errorf("missing packages: %s; try: make test-deps", strings.Join(missing, ", "))
	}
	return nil
}

// find returns the path of a program, including programs that are only in root's PATH.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	return ""
}
