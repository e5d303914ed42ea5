package state

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sandbox names the pod's sandbox that this process is in: when the kubelet makes a new
// one, what was completed is to be done again, but the pod's volumes stay.
//
// All containers of a pod share their network namespace, and its cookie is never used
// twice while the machine runs (socket(7) SO_NETNS_COOKIE, Linux 5.14; before that: its
// inode number, which may come again). A pod in the host's network has the host's, so
// there only a reboot is noticed.
func Sandbox() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("finding out which sandbox this is: %w", err)
	}
	net, err := netns()
	if err != nil {
		return "", fmt.Errorf("finding out which sandbox this is: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + net, nil
}

func netns() (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err == nil {
		return fmt.Sprint("net", cookie), nil
	}
	return os.Readlink("/proc/self/ns/net")
}
