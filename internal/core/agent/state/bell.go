package state

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const bellFile = "bell"

// listenBell binds the socket by which this container is notified of published records.
func listenBell(own string) (*net.UnixConn, error) {
	name := filepath.Join(own, bellFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	// The name of a socket has 107 bytes at most; that of a descriptor is short.
	dir, err := os.Open(own)
	if err != nil {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	defer dir.Close()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: ofDescriptor(int(dir.Fd())) + "/" + bellFile})
	if err != nil {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	// Every container of the pod may write to it, whatever its user: a datagram only means "read the records".
	if err := os.Chmod(name, 0o666); err != nil {
		c.Close()
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	return c, nil
}

func ofDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// ring rings all bells of the volume. A bell that is gone, or whose queue is full, needs
// no ring: its owner is gone, or has not looked yet.
func ring(states string) {
	names, err := Containers(states)
	if err != nil {
		return // a volume that cannot be read has no bells either
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return // waiting readers look again by themselves
	}
	defer unix.Close(fd)
	for _, name := range names {
		ringOne(fd, filepath.Join(states, name, bellFile))
	}
}

// ringOne follows no link: a container must not direct others at sockets of theirs.
func ringOne(fd int, name string) {
	bell, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(bell)
	var st unix.Stat_t
	if unix.Fstat(bell, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return
	}
	_ = unix.Sendto(fd, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: ofDescriptor(bell)})
}
