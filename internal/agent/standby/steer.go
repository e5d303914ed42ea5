package standby

import (
	"fmt"
	"slices"
	"time"
)

// steerAll makes the kernel prefer the proxy's sockets to ours, and returns how many
// the proxy has. It is called with steering locked.
func (s *Standby) steerAll() (int, error) {
	all, err := listeners()
	if err != nil {
		// A proxy that listens was promised. Without knowing its sockets, leave.
		s.log.Warn("sockets cannot be listed: the standby leaves the port", "error", err)
		s.retire(slices.Clone(s.sockets)...)
		return 0, nil
	}
	theirs := s.theirs(all)
	if len(theirs) == 0 {
		return 0, fmt.Errorf("%w on port %d", ErrNotListening, s.o.Port)
	}
	if !slices.ContainsFunc(all, func(l listener) bool { return l.port == s.o.Relay.Port() }) {
		return 0, fmt.Errorf("%w on %s, where it takes what waits", ErrNotListening, s.o.Relay)
	}
	s.mirror(theirs)
	for _, sock := range slices.Clone(s.sockets) {
		n := count(theirs, sock.kind)
		if n == 0 {
			continue
		}
		var first uint32
		if sock.first {
			first = 1
		}
		if err := s.attach(sock, first, uint32(n)); err != nil {
			s.log.Warn("this kernel does not steer: the standby leaves the port", "error", err)
			s.retire(sock)
		}
	}
	s.steered = time.Now()
	return len(theirs), nil
}

// theirs are the listening sockets on our port that are not ours: those of our user,
// since the kernel lets no other share it.
func (s *Standby) theirs(all []listener) []listener {
	return slices.DeleteFunc(slices.Clone(all), func(l listener) bool {
		return l.port != s.o.Port || slices.ContainsFunc(s.sockets, func(o *socket) bool { return o.inode == l.inode })
	})
}

func count(list []listener, k kind) (n int) {
	for _, l := range list {
		if l.kind == k {
			n++
		}
	}
	return n
}

// mirror replaces our sockets by sockets of the kinds that the proxy has: among
// sockets of different kinds the kernel prefers in ways that no program changes. A
// socket of ours for a family that the proxy does not take stays, and what comes
// there is relayed.
func (s *Standby) mirror(theirs []listener) {
	var kinds []kind
	for _, k := range []kind{ip4, ip6, both} {
		if count(theirs, k) > 0 {
			kinds = append(kinds, k)
		}
	}
	for _, k := range kinds {
		if s.socket(k) != nil {
			continue
		}
		if err := s.open(k); err != nil {
			s.log.Warn("standby cannot listen as the proxy does", "error", err)
			continue
		}
		s.socket(k).first = false
	}
	var left []*socket
	for _, sock := range s.sockets {
		switch {
		case slices.Contains(kinds, sock.kind):
		case sock.kind.takenBy(kinds):
			left = append(left, sock)
		default:
			s.log.Info("the proxy does not listen for a family: its connections are relayed", "family", sock.kind)
		}
	}
	s.wanted = slices.DeleteFunc(s.wanted, func(k kind) bool { return !slices.Contains(kinds, k) && k.takenBy(kinds) })
	for _, k := range kinds {
		if !slices.Contains(s.wanted, k) {
			s.wanted = append(s.wanted, k)
		}
	}
	s.retire(left...)
}

func (s *Standby) socket(k kind) *socket {
	for _, sock := range s.sockets {
		if sock.kind == k {
			return sock
		}
	}
	return nil
}

// retire closes sockets of ours: first they take no more connections, then, after the
// grace, those that had begun by then are here. Where the kernel shares connections
// between them and the proxy's and does not steer, they take some to the end: 0 to 3 of
// 7,000 were lost by closing.
func (s *Standby) retire(list ...*socket) {
	for _, sock := range list {
		if err := sock.hide(); err != nil { // before Linux 5.7
			s.log.Warn("the standby closes in plain sight", "error", err)
		}
		s.sockets = slices.DeleteFunc(s.sockets, func(o *socket) bool { return o == sock })
		s.work.Go(func() {
			select {
			case <-time.After(s.o.Grace):
			case <-s.ctx.Done():
			}
			sock.Close()
			s.log.Info("standby left the port", "family", sock.kind)
		})
	}
}

// forgetOrder is for when the proxy's sockets are gone: ours are then the first.
func (s *Standby) forgetOrder() {
	all, err := listeners()
	if err == nil && len(s.theirs(all)) > 0 {
		return
	}
	for _, sock := range s.sockets {
		sock.first = true
	}
}

// stray is called for a connection that came here though the proxy is ready. Where
// steering works, that means that the proxy's sockets are not those that it had.
func (s *Standby) stray(sock *socket) {
	if !s.steering.TryLock() {
		return
	}
	defer s.steering.Unlock()
	if s.isClosed() || time.Since(s.steered) < time.Second || !slices.Contains(s.sockets, sock) {
		return
	}
	s.steered = time.Now()
	sock.first = true // where it was not, the proxy has opened its sockets anew
	if _, err := s.steerAll(); err != nil {
		s.once("a connection came past the proxy", "error", err)
	}
}
