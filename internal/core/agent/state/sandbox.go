package state

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sandbox returns an identifier of the pod sandbox in which this process runs. When the
// kubelet makes a new sandbox, completed containers have to run again, but the pod's volumes
// keep the old records.
//
// The identifier is the boot ID with the cookie of the network namespace, which all containers
// of a pod share. A cookie is never used twice until the machine reboots (socket(7)
// SO_NETNS_COOKIE, Linux 5.14). Older kernels have only the inode number of the namespace,
// which may be reused. A pod in the host's network has the host's cookie, so only a reboot
// changes its identifier.
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
