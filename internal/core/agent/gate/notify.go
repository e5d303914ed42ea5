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

// Notify is how the command itself reports that it is ready. The zero value: it does not.
type Notify struct {
	By NotifyBy
	FD int // of ByFD
}

// NotifyBy is a protocol.
type NotifyBy string

// The protocols.
const (
	ByFD     NotifyBy = "fd"     // a newline on a descriptor, as s6 has it (notification-fd)
	BySocket NotifyBy = "socket" // READY=1 to $NOTIFY_SOCKET: sd_notify(3)
)

const firstFD = 3 // after the standard streams

// ParseNotify reads "socket", "fd" or "fd=4".
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

// prepareNotify returns what the command gets so that it can report that it is ready. Call
// started when it was started, or could not be.
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

// readNewline reads until a newline; false if there is none.
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

// listenNotify binds the socket in the container's own directory: an abstract one would
// be the whole pod's, and the command can write there whatever its root is.
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

// readNotification returns the health in a datagram of sd_notify(3), if it has one.
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
