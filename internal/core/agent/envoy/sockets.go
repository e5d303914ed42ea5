package envoy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A HotRestart lets another process get copies of Envoy's listening sockets, by the protocol that
// an Envoy of the next epoch uses (source/server/hot_restart.proto). The zero value switches this
// off.
type HotRestart struct {
	path string // of Envoy's sockets, without the suffix that Envoy appends
	base uint32 // Envoy's base-id
}

const (
	// scale is the factor by which Envoy multiplies its base-id for the names of its sockets, which
	// leaves room for epochs between two base-ids.
	scale = 10
	// bases is the number of base-ids from which one is chosen at random, because the name of the shared memory
	// must be free in the whole pod.
	bases = 100_000_000

	sharedMemory = "/dev/shm"
	maxPath      = 107 // of a Unix socket: size of sun_path without the NUL
)

// NewHotRestart places the sockets of Envoy's hot restart in dir, which other users must not be able to reach:
// Envoy obeys every message that it receives there. NewHotRestart fails if Envoy could not start with these
// sockets.
func NewHotRestart(dir string) (HotRestart, error) {
	h := HotRestart{path: filepath.Join(dir, "hot"), base: rand.Uint32N(bases)}
	if longest := h.name("udp_parent", scale*bases); len(longest) > maxPath {
		return HotRestart{}, fmt.Errorf("%s is longer than the path of a socket, %d bytes", longest, maxPath)
	}
	if strings.ContainsAny(dir, "{}") {
		return HotRestart{}, fmt.Errorf("%s has a brace, which Envoy takes for a place to fill in", dir)
	}
	// Reuse the names of an earlier agent, so that its sockets do not remain.
	if before, _ := filepath.Glob(h.path + "_parent_*"); len(before) > 0 {
		_, id, _ := strings.Cut(filepath.Base(before[0]), "_parent_")
		if n, err := strconv.ParseUint(id, 10, 32); err == nil && n < scale*bases && n%scale == 0 {
			h.base = uint32(n / scale)
		}
	}
	return h, nil
}

// Check must be called before each start. It fails if /dev/shm, which the pod's containers share, has no room
// for Envoy's page of shared memory: Envoy would end with SIGBUS.
func (h HotRestart) Check() error { return room(sharedMemory) }

// room returns an error unless a file system has a free page.
func room(dir string) error {
	probe, err := os.CreateTemp(dir, "outrider-")
	if err != nil {
		return fmt.Errorf("no shared memory: %w", err)
	}
	_, err = probe.Write(make([]byte, os.Getpagesize()))
	return errors.Join(err, probe.Close(), os.Remove(probe.Name()))
}

func (h HotRestart) name(role string, id uint32) string {
	return fmt.Sprintf("%s_%s_%d", h.path, role, id)
}

func (h HotRestart) args() []string {
	if h == (HotRestart{}) {
		// We never start a second Envoy in this way, so this one needs neither shared memory nor an
		// abstract socket.
		return []string{"--disable-hot-restart"}
	}
	return []string{"--base-id", strconv.FormatUint(uint64(h.base), 10), "--socket-path", h.path, "--socket-mode", "600"}
}

// Sockets fetches copies of Envoy's listening sockets.
type Sockets struct {
	h    HotRestart
	conn *net.UnixConn // receives Envoy's answers
	turn chan struct{} // a semaphore: one exchange at a time
}

// Listen makes the socket for Envoy's answers. It must stay open while Envoy runs: an Envoy that
// cannot send its answer aborts.
func (h HotRestart) Listen() (*Sockets, error) {
	name := h.name("child", h.base*scale+1)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	return &Sockets{h: h, conn: conn, turn: make(chan struct{}, 1)}, nil
}

// Close closes the socket, and removes the name of Envoy's shared memory, which Envoy would leave.
func (s *Sockets) Close() error {
	s.forget()
	return s.conn.Close()
}

// forget removes the name of Envoy's shared memory, so that no other process of the pod opens the memory: it
// contains two locks of Envoy's log.
func (s *Sockets) forget() {
	_ = os.Remove(filepath.Join(sharedMemory, fmt.Sprintf("envoy_shared_memory_%d", s.h.base*scale)))
}

// Copy returns copies of the sockets on which Envoy's workers 0 to n-1 listen at each address.
// Sockets that do not exist are left out. Copy waits for Envoy until ctx ends, and then returns
// the copies that it got. The caller closes the descriptors.
func (s *Sockets) Copy(ctx context.Context, n int, addresses ...netip.AddrPort) (fds []int, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.conn.SetReadDeadline(time.Now().Add(lastAnswer))
		close(ended)
	})
	defer func() {
		if !stop() {
			<-ended // otherwise the deadline would end the next exchange
		}
	}()
	if err := s.discard(); err != nil {
		return nil, err
	}
	parent := &net.UnixAddr{Name: s.h.name("parent", s.h.base*scale), Net: "unixgram"}
	for _, address := range addresses {
		for worker := range n {
			if ctx.Err() != nil {
				return fds, ctx.Err()
			}
			if _, err := s.conn.WriteToUnix(passListenSocket(address, worker), parent); err != nil {
				return fds, err
			}
			fd, err := s.receive(0)
			if err != nil {
				return fds, err
			}
			if fd >= 0 {
				fds = append(fds, fd)
			}
		}
	}
	s.forget()
	return fds, nil
}

// lastAnswer is the time for which an abandoned exchange still waits for its answer. Otherwise the next
// exchange would take that answer for its own. A living Envoy answers in 50 us; one that has exited never does.
const lastAnswer = 200 * time.Millisecond

// discard reads answers to abandoned requests from an Envoy that has exited.
func (s *Sockets) discard() error {
	for {
		fd, err := s.receive(unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		case fd >= 0:
			unix.Close(fd)
		}
	}
}

// receive returns the descriptor in one answer; -1 if it contains none.
func (s *Sockets) receive(flags int) (fd int, err error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd = -1
	waited := raw.Read(func(own uintptr) bool {
		var body [256]byte // an answer has at most 23 bytes; only the descriptor matters
		var rights [64]byte
		var n int
		if _, n, _, _, err = unix.Recvmsg(int(own), body[:], rights[:], flags|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC); err != nil {
			return flags != 0 || !errors.Is(err, unix.EAGAIN)
		}
		fd, err = passed(rights[:n])
		return true
	})
	if waited != nil {
		return -1, waited
	}
	return fd, err
}

// passed returns the single descriptor in control data; -1 if there is none.
func passed(control []byte) (int, error) {
	if len(control) == 0 {
		return -1, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return -1, err
	}
	first := -1
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return first, err
		}
		for _, fd := range fds {
			if first >= 0 {
				unix.Close(fd)
				continue
			}
			first = fd
		}
	}
	return first, nil
}

// passListenSocket returns a HotRestartMessage with a PassListenSocket request, preceded by its length.
func passListenSocket(address netip.AddrPort, worker int) []byte {
	const message, request, url, workerIndex = 1<<3 | 2, 1<<3 | 2, 1<<3 | 2, 2 << 3 // tags of protocol buffers
	field := func(tag byte, value []byte) []byte {
		return append(binary.AppendUvarint([]byte{tag}, uint64(len(value))), value...)
	}
	body := append(field(url, []byte("tcp://"+address.String())), workerIndex)
	body = field(message, field(request, binary.AppendUvarint(body, uint64(worker))))
	return append(binary.BigEndian.AppendUint64(nil, uint64(len(body))), body...)
}
