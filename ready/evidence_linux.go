package ready

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// hostNetwork reports whether this process is in the machine's initial network namespace. Only there does the
// kernel show this file (net/core/sysctl_net_core.c).
func hostNetwork() bool { return exists("/proc/sys/net/core/netdev_max_backlog") }

// captured reports whether the kernel tracks this network namespace's connections. It does so only if rules need
// it, for example rules that redirect connections to a proxy. Such rules are written before the application
// starts, so captured is true even if the proxy does not run yet.
func captured() bool {
	return tracked("127.0.0.1:0", syscall.IPPROTO_IP) || tracked("[::1]:0", syscall.IPPROTO_IPV6)
}

// originalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h).
const originalDst = 80

// tracked opens a connection to itself, and reports whether the kernel has it in the table of tracked
// connections.
func tracked(address string, level int) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false // the address family is not available
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Second))
	out, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
	if err != nil {
		return false
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return false
	}
	defer in.Close()
	raw, err := in.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	found := false
	raw.Control(func(fd uintptr) {
		// Package syscall has no function for this option. These two functions are for other options, but have
		// buffers that are large enough.
		if level == syscall.IPPROTO_IP {
			_, err = syscall.GetsockoptIPv6Mreq(int(fd), level, originalDst)
		} else {
			_, err = syscall.GetsockoptIPv6MTUInfo(int(fd), level, originalDst)
		}
		found = err == nil
	})
	return found
}

// sandbox returns the ID of the pod's sandbox, in the form of [record].Sandbox: the boot ID, and the cookie of
// the network namespace (SO_NETNS_COOKIE, Linux 5.14) or else its number.
func sandbox() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id, err := netns()
	return strings.TrimSpace(string(boot)) + "/" + id, err
}

func netns() (string, error) {
	const cookie = 71 // SO_NETNS_COOKIE
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer syscall.Close(fd)
	// This function is for another option, but has a buffer of 8 bytes, as the cookie needs.
	if v, err := syscall.GetsockoptIPMreq(fd, syscall.SOL_SOCKET, cookie); err == nil {
		return cookieText(append(v.Multiaddr[:], v.Interface[:]...)), nil
	}
	return os.Readlink("/proc/self/ns/net")
}

// locked reports whether another process holds a write lock on a file. For a record, this means that its writer
// still runs.
func locked(f *os.File) bool {
	const getOwner = 36 // F_OFD_GETLK, fcntl(2)
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	l := syscall.Flock_t{Type: syscall.F_RDLCK}
	raw.Control(func(fd uintptr) {
		if err = syscall.FcntlFlock(fd, getOwner, &l); err == syscall.EINTR {
			err = syscall.FcntlFlock(fd, getOwner, &l)
		}
	})
	return err == nil && l.Type == syscall.F_WRLCK
}

// openRegular opens a file that another container may have created. It fails for a link, and does not block on a
// pipe.
func openRegular(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// changes reports changes in directories on the channel C. A user has few inotify instances per machine; if
// none is left, it reports nothing, and conditions are only checked after their pauses.
type changes struct {
	C     chan struct{}
	dirs  []string
	file  *os.File // nil if there is no inotify instance
	added map[string]bool
}

// watch returns changes for the directories. They need not exist: [changes.add] watches the ones that exist.
func watch(dirs []string) *changes {
	w := &changes{C: make(chan struct{}, 1), dirs: dirs, added: map[string]bool{}}
	return w
}

// inotifyMask selects the events for changes of a directory's files; a written file is reported when it is
// closed.
const inotifyMask = syscall.IN_CLOSE_WRITE | syscall.IN_CREATE | syscall.IN_MOVED_TO | syscall.IN_MOVED_FROM | syscall.IN_DELETE | syscall.IN_ONLYDIR

// add watches the directories that exist by now. Changes after it has returned are not missed.
func (w *changes) add() {
	for _, dir := range w.dirs {
		if w.added[dir] || !exists(dir) {
			continue
		}
		if w.file == nil && !w.open() {
			w.dirs = nil
			return
		}
		raw, err := w.file.SyscallConn()
		if err != nil {
			return
		}
		raw.Control(func(fd uintptr) {
			_, err = syscall.InotifyAddWatch(int(fd), filepath.Clean(dir), inotifyMask)
		})
		w.added[dir] = err == nil
	}
}

func (w *changes) open() bool {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return false
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	go w.read(w.file)
	return true
}

// read sends to C after each event. It ignores which event it was, because the condition is checked anyway.
func (w *changes) read(f *os.File) {
	buffer := make([]byte, 4096)
	for {
		if _, err := f.Read(buffer); err != nil {
			return // closed
		}
		select {
		case w.C <- struct{}{}:
		default:
		}
	}
}

func (w *changes) close() {
	if w.file != nil {
		w.file.Close()
	}
}
