package localpod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// A sandbox holds the resources that the containers of one pod share: network, host name, IPC, volumes.
type sandbox struct {
	node  *Node
	dir   string // path on the node
	net   space
	ipc   space
	uts   space
	addrs []netip.Addr
}

// admit assigns a number and addresses to a new pod.
func (n *Node) admit() (int, []netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addrs, err := n.network.next()
	if err != nil {
		return 0, nil, err
	}
	n.pods++
	return n.pods, addrs, nil
}

// newSandbox creates the sandbox of a pod.
func (n *Node) newSandbox(number int, f facts) (*sandbox, error) {
	s := &sandbox{node: n, dir: path.Join(containerinit.NodeDir, "pods", strconv.Itoa(number)), addrs: f.addrs}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
			return err
		}
		if err := unix.Sethostname([]byte(f.hostname())); err != nil {
			return err
		}
		// in any order: all of them are needed
		for kind, to := range map[int]*space{unix.CLONE_NEWNET: &s.net, unix.CLONE_NEWIPC: &s.ipc, unix.CLONE_NEWUTS: &s.uts} {
			var err error
			if *to, err = openSpace("thread-self", kind); err != nil {
				return err
			}
		}
		return sysctls(f)
	})
	if err == nil {
		err = n.plug(number, s.net, f.addrs)
	}
	if err == nil {
		err = s.fill(f)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("making the sandbox of pod %s: %w", f.Pod.Name, err)
	}
	return s, nil
}

// sysctls sets the kernel parameters that a runtime sets, except those that the kernel lacks, and then the
// kernel parameters in the pod spec.
func sysctls(f facts) error {
	for name, value := range podSysctls {
		_ = setSysctl(name, value)
	}
	if c := f.Pod.Spec.SecurityContext; c != nil {
		for _, s := range c.Sysctls {
			if err := setSysctl(s.Name, s.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill creates the pod's directories and volumes on the node.
func (s *sandbox) fill(f facts) error {
	volumes, err := f.volumes()
	if err != nil {
		return err
	}
	for _, c := range containersOf(&f.Pod) {
		if err := os.MkdirAll(s.node.path(s.dir, "containers", c.Name, "stage"), 0o755); err != nil {
			return err
		}
	}
	shm := volume{name: "../shm"}
	for _, v := range append(volumes, shm) {
		if v.shared {
			continue
		}
		if err := s.fillVolume(v, f.Pod.Spec.SecurityContext); err != nil {
			return fmt.Errorf("volume %s: %w", v.name, err)
		}
	}
	return nil
}

func (s *sandbox) fillVolume(v volume, c *corev1.PodSecurityContext) error {
	at := path.Join(s.dir, "volumes", v.name)
	if err := os.MkdirAll(s.node.path(at), 0o755); err != nil {
		return err
	}
	if v.size > 0 {
		err := s.node.onNode(func() error {
			return unix.Mount("emptydir", at, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0777,size="+strconv.FormatInt(v.size, 10))
		})
		if err != nil {
			return err
		}
	}
	var group *int64
	if c != nil {
		group = c.FSGroup
	}
	return v.write(s.node.path(at), group)
}

// Close closes the namespaces. They end when their last process ends.
func (s *sandbox) Close() {
	for _, space := range []space{s.net, s.ipc, s.uts} {
		space.Close()
	}
}

// forget removes the pod's files from the node.
func (s *sandbox) forget() error {
	err := s.node.onNode(func() error {
		volumes := path.Join(s.dir, "volumes")
		entries, err := os.ReadDir(volumes)
		if err != nil {
			return err
		}
		for _, e := range entries { // a volume with a size limit is a mount
			if err := unix.Unmount(path.Join(volumes, e.Name()), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, os.RemoveAll(s.node.path(s.dir)))
}
