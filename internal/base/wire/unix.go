//go:build linux

package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ListenUnix creates a Unix socket with the given file mode, which decides which users can connect. It replaces
// only a socket that an earlier process left.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket; remove it", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// On Linux bind creates the file with the socket's own mode, so there is no moment at which other users can
	// connect.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(err, failed)
	}}
	return config.Listen(context.Background(), "unix", path)
}
