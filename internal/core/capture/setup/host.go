package setup

import "golang.org/x/sys/unix"

// initialUTS is the inode of the initial UTS namespace, the same on every kernel since 3.8
// (UTS_NS_INIT_INO in linux/nsfs.h). The inode of the initial network namespace is fixed only since
// Linux 6.18.
const initialUTS = 0xEFFFFFFE

// InHost reports whether the calling thread is in the network namespace of the machine itself: in a
// shell of the machine, or in a pod with hostNetwork. It is false in every pod that has its own
// network.
//
// The kernel shows net.core.netdev_budget only in the initial network namespace. That alone is not enough: if a
// pod is a virtual machine, its containers are in the initial network namespace of that machine. But these
// containers have their own UTS namespace. For a pod with hostNetwork, container runtimes create neither a UTS
// namespace nor a network namespace. PID 1 does not help: in a container it is the container's own process.
func InHost() bool { return inHost("/proc") }

func inHost(proc string) bool {
	var budget, uts unix.Stat_t
	if unix.Stat(proc+"/sys/net/core/netdev_budget", &budget) != nil {
		return false
	}
	return unix.Stat(proc+"/thread-self/ns/uts", &uts) == nil && uts.Ino == initialUTS
}
