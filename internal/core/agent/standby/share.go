package standby

import (
	"context"
	"errors"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/sockets"
)

// When the last descriptor of a listening socket is closed, the kernel resets the connections in
// its accept queue. So the standby keeps a duplicate descriptor ("copy") of each of the proxy's
// listening sockets: the queue outlives the proxy, and the standby accepts the connections in it.
//
// A copy also keeps a socket listening that a living proxy has closed. Check finds such sockets.

// sharing holds the copies of the current proxy's listening sockets. [Standby.steering] guards
// its fields, except that a goroutine of [Standby.share] owns the map of copies until done is
// closed.
type sharing struct {
	cancel context.CancelFunc
	done   chan struct{}  // nil: no copies were made
	copies map[uint32]int // descriptors by the socket's inode
}

// end cancels the making of copies, waits for its end, and returns the copies.
func (s *sharing) end() map[uint32]int {
	if s.done == nil {
		return nil
	}
	s.cancel()
	<-s.done
	copies := s.copies
	*s = sharing{}
	return copies
}

// under reports whether copies are being made.
func (s *sharing) under() bool {
	select {
	case <-s.done:
		return false
	default:
		return s.done != nil
	}
}

// share makes copies of the proxy's listening sockets in the background, and gives up the copies of
// sockets that the proxy has closed. It is called with steering locked.
func (s *Standby) share() {
	if s.o.Sockets == nil || s.sharing.under() {
		return
	}
	had := s.sharing.copies
	ctx, cancel := context.WithCancel(s.ctx)
	s.sharing = sharing{cancel: cancel, done: make(chan struct{}), copies: maps.Clone(had)}
	if had == nil {
		s.sharing.copies = map[uint32]int{}
	}
	sharing := s.sharing
	s.work.Go(func() {
		defer cancel()
		seen, err := s.copy(ctx, sharing.copies)
		if err == nil && len(had) == 0 {
			s.log.Info("keeps the proxy's listening sockets", "sockets", len(seen))
		}
		if err != nil && ctx.Err() == nil {
			s.warnOnce("connections that the proxy has not accepted will be lost with it", "error", err)
		}
		changed := err == nil && slices.ContainsFunc(slices.Collect(maps.Keys(had)), func(inode uint32) bool { return !seen[inode] })
		close(sharing.done)
		if changed {
			s.replaced(sharing, seen)
		}
	})
}

// copy adds copies of the proxy's sockets to a map, and returns the inodes of the sockets that the
// proxy has.
func (s *Standby) copy(ctx context.Context, to map[uint32]int) (seen map[uint32]bool, err error) {
	all, err := sockets.List(sockets.TCP, sockets.Of(sockets.Listening))
	if err != nil {
		return nil, err
	}
	workers := map[netip.AddrPort]int{}
	for _, l := range all {
		if port := l.Local.Port(); port == s.o.Port || port == s.o.Relay.Port() {
			workers[l.Local]++
		}
	}
	most := slices.Max(append(slices.Collect(maps.Values(workers)), 0))
	fds, err := s.o.Sockets(ctx, most, slices.Collect(maps.Keys(workers))...)
	seen = map[uint32]bool{}
	for _, fd := range fds {
		var stat unix.Stat_t
		if unix.Fstat(fd, &stat) != nil {
			unix.Close(fd)
			continue
		}
		inode := uint32(stat.Ino)
		seen[inode] = true
		if _, has := to[inode]; has {
			unix.Close(fd)
			continue
		}
		to[inode] = fd
	}
	return seen, err
}

// Check looks for listening sockets that the living proxy has closed. Call it from time to time
// while the proxy is ready: no event announces a closed socket, and until the next call
// connections wait in the queue of the standby's socket.
func (s *Standby) Check() {
	s.steering.Lock()
	defer s.steering.Unlock()
	if s.sharing.done != nil {
		s.share()
	}
}

// replaced is called when the living proxy has closed some of the copied sockets. The proxy still
// has the sockets in seen.
func (s *Standby) replaced(of sharing, seen map[uint32]bool) {
	s.steering.Lock()
	defer s.steering.Unlock()
	if s.sharing.done != of.done {
		return // the proxy has died since, or other copies are being made
	}
	closed := map[uint32]int{}
	maps.DeleteFunc(s.sharing.copies, func(inode uint32, fd int) bool {
		if !seen[inode] {
			closed[inode] = fd
		}
		return !seen[inode]
	})
	s.log.Info("the proxy has closed listening sockets", "sockets", len(closed))
	s.orphan(closed)
	s.retire()
	if _, err := s.steerAll(); err != nil {
		s.warnOnce("connections go past the proxy's sockets", "error", err)
	}
}

// adopt accepts connections from the copies of sockets that the proxy has closed. It is called
// with steering locked.
func (s *Standby) adopt(copies map[uint32]int) {
	for _, sock := range s.orphan(copies) {
		s.work.Go(func() { s.accept(sock) })
	}
}

// orphan keeps the copies of sockets that the proxy has closed, until [Standby.retire]. It is
// called with steering locked.
func (s *Standby) orphan(copies map[uint32]int) (all []*socket) {
	if len(copies) == 0 {
		return nil
	}
	for _, sock := range s.sockets {
		// Steer new connections to the standby's socket, so that the copies can be closed later.
		if err := s.attach(sock, 0, 1); err != nil {
			s.warnOnce("this kernel does not steer: connections are lost when the proxy is back", "error", err)
		}
	}
	for inode, fd := range copies { // any order: the sockets are alike
		file := os.NewFile(uintptr(fd), "socket")
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			s.warnOnce("a socket of the proxy cannot be used", "error", err)
			continue
		}
		sock := &socket{listener: l.(*net.TCPListener), inode: inode}
		s.orphans = append(s.orphans, sock)
		all = append(all, sock)
	}
	return all
}

// retire closes the sockets of earlier proxies, which steerAll would take for the current
// proxy's. It is called with steering locked.
func (s *Standby) retire() {
	var queued []*net.TCPConn
	for _, sock := range s.orphans {
		if err := sock.drain(func(c *net.TCPConn) { queued = append(queued, c) }); err != nil {
			s.warnOnce("connections are lost with a socket of the proxy before", "error", err)
		}
		sock.Close()
	}
	s.orphans = nil
	// Take these connections only now, when all orphans are closed: the relay's port has orphans too, and a
	// connection that was relayed earlier could have come to an orphan that is closed next.
	for _, c := range queued {
		s.take(c)
	}
}

// drain accepts all connections in the queue of a listening socket, without waiting.
func (s *socket) drain(take func(*net.TCPConn)) error {
	return s.control(func(fd int) error {
		for {
			got, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return nil
			case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED):
				continue
			case err != nil:
				return err
			}
			file := os.NewFile(uintptr(got), "connection")
			c, err := net.FileConn(file)
			file.Close()
			if err != nil {
				return err
			}
			take(c.(*net.TCPConn))
		}
	})
}

// Hold makes new connections wait, although the proxy lives, until Ready or Gone is called. It
// returns true if the proxy has accepted all connections that came before, and false if not, or
// if that cannot be known.
func (s *Standby) Hold() bool {
	s.steering.Lock()
	defer s.steering.Unlock()
	if s.isClosed() || s.sharing.done == nil || s.sharing.under() || len(s.sharing.copies) == 0 {
		return false
	}
	for _, sock := range s.sockets {
		if err := s.attach(sock, 0, 1); err != nil {
			return false
		}
	}
	s.mu.Lock()
	s.ready = false
	s.life++
	s.mu.Unlock()
	return s.emptied(s.sharing.copies)
}

// Leave gives up the port for good, while the proxy still listens on it: new connections are
// refused, and the proxy accepts those that have come. The proxy must close its sockets next. If
// there are no copies of them, the connections in their queues are reset then.
func (s *Standby) Leave() {
	s.steering.Lock()
	copies := s.sharing.end()
	var errs []error
	for _, fd := range copies { // any order: all are shut
		errs = append(errs, shut(fd))
	}
	// Shut the standby's sockets too: while one socket of the group still takes connections, the kernel chooses
	// among all.
	for _, sock := range s.sockets {
		errs = append(errs, sock.control(shut))
	}
	if err := errors.Join(errs...); err != nil {
		s.warnOnce("connections may be reset when the proxy closes its sockets", "error", err)
	}
	s.emptied(copies)
	for _, fd := range copies {
		unix.Close(fd)
	}
	s.steering.Unlock()
	s.Close()
}

// lastQueue limits how long [Standby.emptied] waits for the proxy to accept the connections in its
// queues. The proxy needs less than a millisecond, unless it hangs.
const lastQueue = time.Second

// emptied waits until the queues of the copied sockets are empty, and returns false if they are
// not empty within lastQueue. New connections must not go to these sockets.
func (s *Standby) emptied(copies map[uint32]int) bool {
	for until := time.Now().Add(s.lastQueue); len(copies) > 0 && s.waiting(copies); {
		if time.Now().After(until) {
			return false
		}
		time.Sleep(time.Millisecond) // no event announces an empty queue
	}
	return true
}

// nowhere is an interface index that does not exist.
const nowhere = math.MaxInt32

// shut makes a listening socket refuse new connections in all processes that have it: it binds the
// socket to an interface that does not exist. Its queue and its handshakes in progress stay. Since
// Linux 5.7 any user may bind a socket that is not bound to an interface. A packet filter
// (SO_ATTACH_FILTER) would not do: on TCP sockets newer kernels allow it to root only.
func shut(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, nowhere)
}

// waiting reports whether a connection waits to be accepted, or has not completed its
// handshake.
func (s *Standby) waiting(copies map[uint32]int) bool {
	// Handshakes first: a connection that completes its handshake meanwhile is found in a queue.
	half, err := sockets.List(sockets.TCP, sockets.Of(sockets.SynReceived))
	// With TPROXY the local port is the one that the caller dialled.
	if err == nil && slices.ContainsFunc(half, func(h sockets.Socket) bool { return h.Local.Port() == s.o.Port || s.o.Transparent }) {
		return true
	}
	var list []unix.PollFd
	for _, fd := range copies { // any order: all are polled
		list = append(list, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	n, err := unix.Poll(list, 0)
	return n > 0 || err != nil
}
