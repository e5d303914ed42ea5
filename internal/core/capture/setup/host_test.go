package setup

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// initialNet is the inode of the initial network namespace since Linux 6.18 (NET_NS_INIT_INO in
// linux/nsfs.h). Older kernels use another one.
const initialNet = 0xEFFFFFF9

func TestInHost(t *testing.T) {
	var net, uts unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &net); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat("/proc/thread-self/ns/uts", &uts); err != nil {
		t.Fatal(err)
	}
	if want := net.Ino == initialNet && uts.Ino == initialUTS; want && !InHost() {
		t.Error("false in the initial namespaces")
	}
}

// In a pod with its own network namespace InHost is false, whatever else the pod shares with the
// machine.
func TestInHostIsFalseInAPod(t *testing.T) {
	ns.Pod(t).Do(func() {
		if InHost() {
			t.Error("true in a network namespace of a pod")
		}
	})
}

// In a virtual machine, a pod's containers can be in the machine's initial network namespace.
func TestInHostIsFalseInAVirtualMachine(t *testing.T) {
	proc := t.TempDir()
	budget := filepath.Join(proc, "sys/net/core/netdev_budget")
	if err := os.MkdirAll(filepath.Dir(budget), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(budget, []byte("300\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	uts := filepath.Join(proc, "thread-self/ns/uts")
	if err := os.MkdirAll(filepath.Dir(uts), 0o755); err != nil {
		t.Fatal(err)
	}
	if inHost(proc) {
		t.Error("true without a UTS namespace")
	}
	if err := os.WriteFile(uts, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if inHost(proc) {
		t.Error("true in a UTS namespace of its own")
	}
}
