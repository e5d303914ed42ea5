package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Notify selects how the command itself reports that it is ready. The zero value means that it does not.
type Notify struct {
	By NotifyBy
	FD int // the file descriptor, if By is ByFD
}

// NotifyBy is a protocol for readiness notification.
type NotifyBy string

// The notification protocols.
const (
	ByFD     NotifyBy = "fd"     // a newline on a descriptor, as in s6 (notification-fd)
	BySocket NotifyBy = "socket" // READY=1 to $NOTIFY_SOCKET: sd_notify(3)
)

const firstFD = 3 // after the standard streams

// ParseNotify parses "socket", "fd" (descriptor 3) or "fd=N" with N from 3 to 255.
func ParseNotify(text string) (Notify, error) {
	if text == string(BySocket) {
		return Notify{By: BySocket}, nil
	}
	by, number, given := strings.Cut(text, "=")
	n, err := strconv.Atoi(number)
	switch {
	case by != string(ByFD):
	case !given:
		return Notify{ByFD, firstFD}, nil
	case err == nil && n >= firstFD && n < 256:
		return Notify{ByFD, n}, nil
	}
	return Notify{}, fmt.Errorf("%q: want socket, fd or fd=N with N from %d to 255", text, firstFD)
}

// prepareNotify sets up Options.Notify. It returns the environment and the extra files for the
// command. The caller must call the function started after its attempt to start the command,
// whether the attempt succeeded or not.
func (g *gate) prepareNotify() (environ []string, files []*os.File, started func(), err error) {
	environ, started = g.o.Environ, func() {}
	switch g.o.Notify.By {
	case ByFD:
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, nil, err
		}
		files = make([]*os.File, g.o.Notify.FD-firstFD+1)
		files[len(files)-1] = w
		g.background(func(ctx context.Context) {
			defer r.Close()
			if readNewline(r) {
				g.post(func() { g.setHealth(true) })
			}
		})
		started = func() { w.Close() }
	case BySocket:
		name, err := g.listenNotify()
		if err != nil {
			return nil, nil, nil, err
		}
		environ = append(slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return strings.HasPrefix(v, "NOTIFY_SOCKET=") }), "NOTIFY_SOCKET="+name)
	}
	return environ, files, started, nil
}

// readNewline reads until a newline. It returns false if the file ends without one.
func readNewline(f *os.File) bool {
	var b [256]byte
	for {
		n, err := f.Read(b[:])
		if bytes.IndexByte(b[:n], '\n') >= 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// listenNotify binds the socket for sd_notify in the container's own directory, where the
// command can reach it, and returns the socket's path. An abstract socket could be reached by
// the whole pod.
func (g *gate) listenNotify() (string, error) {
	name := filepath.Join(g.o.Place.Own, "notify")
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("making the socket for sd_notify: %w", err)
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: name})
	if err == nil {
		err = os.Chmod(name, 0o666) // the command may change its user
	}
	if err != nil {
		return "", fmt.Errorf("making the socket for sd_notify: %w", err)
	}
	g.background(func(ctx context.Context) {
		<-ctx.Done()
		c.Close()
	})
	g.background(func(context.Context) {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if healthy, ok := readNotification(b[:n]); ok {
				g.post(func() { g.setHealth(healthy) })
			}
		}
	})
	return name, nil
}

// readNotification reads a datagram of sd_notify(3). ok is false if it says nothing about
// health.
func readNotification(b []byte) (healthy, ok bool) {
	for line := range bytes.Lines(b) {
		switch string(bytes.TrimRight(line, "\r\n")) {
		case "READY=1":
			healthy, ok = true, true
		case "STOPPING=1", "RELOADING=1":
			healthy, ok = false, true
		}
	}
	return healthy, ok
}
