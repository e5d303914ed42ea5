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

// listenBell binds the datagram socket on which this container is notified of published records.
func listenBell(own string) (*net.UnixConn, error) {
	name := filepath.Join(own, bellFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	// A socket's name has 107 bytes at most. A path by way of a file descriptor is short.
	dir, err := os.Open(own)
	if err != nil {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	defer dir.Close()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: ofDescriptor(int(dir.Fd())) + "/" + bellFile})
	if err != nil {
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	// Containers of any user may write to the bell: a datagram only means "read the records".
	if err := os.Chmod(name, 0o666); err != nil {
		c.Close()
		return nil, fmt.Errorf("making a bell: %w", err)
	}
	return c, nil
}

func ofDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// ring sends a datagram to every bell of the volume. It ignores errors: if a bell is gone,
// so is its owner, and if its queue is full, its owner has yet to read the records anyway.
func ring(states string) {
	names, err := Containers(states)
	if err != nil {
		return // a volume that cannot be read has no bells either
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return // readers also look without an event
	}
	defer unix.Close(fd)
	for _, name := range names {
		ringOne(fd, filepath.Join(states, name, bellFile))
	}
}

// ringOne sends a datagram to one bell. It follows no symbolic link: a link could make this container send to
// any socket in its own file system.
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
