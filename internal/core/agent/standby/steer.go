package standby

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/agent/sockets"
)

// steerAll makes the kernel send new connections to the proxy's sockets only, and returns how
// many sockets the proxy has. It is called with steering locked.
func (s *Standby) steerAll() (int, error) {
	all, err := sockets.List(sockets.TCP, sockets.Of(sockets.Listening))
	if err != nil {
		return 0, err
	}
	// All other sockets on the port are the proxy's: only our user can share it.
	theirs := slices.DeleteFunc(slices.Clone(all), func(l sockets.Socket) bool {
		return l.Local.Port() != s.o.Port || slices.ContainsFunc(s.sockets, func(o *socket) bool { return o.inode == l.Inode })
	})
	if len(theirs) == 0 {
		return 0, fmt.Errorf("%w on port %d", ErrNotListening, s.o.Port)
	}
	if !slices.ContainsFunc(all, func(l sockets.Socket) bool { return l.Local.Port() == s.o.Relay.Port() }) {
		return 0, fmt.Errorf("%w on %s, where it takes held connections", ErrNotListening, s.o.Relay)
	}
	for _, sock := range s.sockets {
		// The standby's socket began to listen first, so it has index 0, and the proxy's follow.
		if n := sock.family.count(theirs); n > 0 {
			if err := s.attach(sock, 1, uint32(n)); err != nil {
				s.warnOnce("this kernel does not steer: the standby relays a share of the connections", "error", err)
			}
		}
	}
	s.steered = time.Now()
	return len(theirs), nil
}

// stray is called for a connection that came to the standby although the proxy is ready. If
// steering works, the reason is that the proxy has changed its sockets: stray steers again.
func (s *Standby) stray() {
	if !s.steering.TryLock() {
		return
	}
	defer s.steering.Unlock()
	if s.isClosed() || time.Since(s.steered) < time.Second {
		return
	}
	s.steered = time.Now()
	if _, err := s.steerAll(); err != nil {
		s.warnOnce("a connection bypassed the proxy's sockets", "error", err)
	}
}
