package standby

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/sockets"
)

// A held connection waits for the proxy. It is not read, and has no goroutine.
type held struct {
	id   int32 // increases in order of arrival
	conn *net.TCPConn
	to   netip.AddrPort // its original destination; the relay's address if the PROXY header is already sent
}

// callerOpen reports whether a process has the caller's end of the connection open. The FIN
// of a caller that has closed its socket looks the same as that of a caller that has only
// finished sending, but a socket that no process has open has no inode. known is false if
// the caller is in another network namespace.
func (h *held) callerOpen() (open, known bool) {
	s, err := sockets.Find(addrPort(h.conn.RemoteAddr()), h.to)
	return s.Inode != 0, err == nil && s.State != sockets.Listening
}

// take holds, relays or closes a connection that was accepted.
func (s *Standby) take(c *net.TCPConn) {
	to, err := originalDestination(c)
	if err != nil {
		s.warnOnce("no original destination", "error", err)
		s.count(&s.counts.Failed)
		reset(c)
		return
	}
	// A connection to an address of the capture proof only tests whether captured connections arrive here. It
	// was accepted, which is the proof.
	if s.o.Proof(addrPort(c.RemoteAddr()), to) || contract.CaptureProof(to) {
		c.Close()
		return
	}
	// A connection to a capture port would loop if it were relayed: one connection to 127.0.0.1:15001 became
	// 1,024 with Envoy 1.40.
	if slices.Contains(s.o.CapturePorts, to.Port()) && here(to.Addr()) {
		s.count(&s.counts.Looped)
		c.Close()
		return
	}
	if !s.admit(&held{conn: c, to: to}) {
		s.warnOnce("too many connections wait: more are reset", "max", s.o.Max)
		s.count(&s.counts.Refused)
		reset(c)
	}
}

// admit holds or relays h. It returns false if there are too many connections.
func (s *Standby) admit(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held)+s.counts.Relaying >= s.o.Max {
		return false
	}
	s.keep(h)
	if s.ready {
		s.release(h)
		s.work.Go(s.stray)
	}
	return true
}

// keep holds h. It is called with mu locked.
func (s *Standby) keep(h *held) {
	if s.closed {
		reset(h.conn)
		return
	}
	s.nextID++
	h.id = s.nextID
	s.held[h.id] = h
	if err := s.watch.add(h.conn, h.id); err != nil {
		s.log.Debug("a connection that waits cannot be watched", "error", err)
	}
}

// drop resets a held connection. It is called with mu locked.
func (s *Standby) drop(h *held) {
	delete(s.held, h.id)
	reset(h.conn)
}

// release relays a held connection. It is called with mu locked.
func (s *Standby) release(h *held) {
	if s.held[h.id] != h {
		return // it was closed meanwhile
	}
	delete(s.held, h.id)
	s.watch.remove(h.conn)
	s.counts.Relaying++
	s.released.put(released{h, s.life})
}

// inOrder lists the held connections in order of arrival. It is called with mu locked.
func (s *Standby) inOrder() []*held {
	list := slices.Collect(maps.Values(s.held))
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list
}

func (s *Standby) count(n *uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// noticed is called for a held connection when its caller has reset it (dead) or has finished
// sending.
func (s *Standby) noticed(id int32, dead bool) {
	s.mu.Lock()
	h := s.held[id]
	s.mu.Unlock()
	if h == nil {
		return
	}
	if !dead {
		switch open, known := h.callerOpen(); {
		case !known:
			return // the caller may have sent its whole request, and may wait for the answer
		case open:
			// The caller may be closing its socket just now, and no event tells when that is done.
			time.AfterFunc(100*time.Millisecond, func() {
				if open, known := h.callerOpen(); known && !open {
					s.leave(h)
				}
			})
			return
		}
	}
	s.leave(h)
}

func (s *Standby) leave(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[h.id] == h {
		s.counts.Left++
		s.drop(h)
	}
}

// reset closes a connection with a RST, so that its caller gets an error.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// A watch notices the ends of many connections with one goroutine. It uses its own epoll
// instance: with the Go runtime's, each connection would need a goroutine that reads.
type watch struct {
	file *os.File
}

func newWatch() (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime's poller accepts it
		unix.Close(fd)
		return nil, err
	}
	return &watch{os.NewFile(uintptr(fd), "epoll")}, nil
}

func (w *watch) Close() error { return w.file.Close() }

// add watches a connection for its end.
func (w *watch) add(c *net.TCPConn, id int32) error {
	return w.change(unix.EPOLL_CTL_ADD, c, &unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: id})
}

func (w *watch) remove(c *net.TCPConn) error { return w.change(unix.EPOLL_CTL_DEL, c, nil) }

func (w *watch) change(op int, c *net.TCPConn, e *unix.EpollEvent) error {
	own, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return control(own, func(epoll int) error {
		return control(raw, func(fd int) error { return unix.EpollCtl(epoll, op, fd, e) })
	})
}

// run calls f for each event until the watch is closed.
func (w *watch) run(f func(id int32, dead bool)) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil {
			return
		}
		for _, e := range events[:max(n, 0)] {
			f(e.Fd, e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0)
		}
	}
}
