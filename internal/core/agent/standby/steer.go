package standby

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/agent/sockets"
)

// steerAll makes the kernel prefer the proxy's sockets to ours, and returns how many
// the proxy has. It is called with steering locked.
func (s *Standby) steerAll() (int, error) {
	all, err := sockets.List(sockets.TCP, sockets.Of(sockets.Listening))
	if err != nil {
		return 0, err
	}
	// Only sockets of our user can share the port.
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
		// Ours began to listen first: it has index 0, and the proxy's follow.
		if n := sock.family.count(theirs); n > 0 {
			if err := s.attach(sock, 1, uint32(n)); err != nil {
				s.warnOnce("this kernel does not steer: the standby relays a share of the connections", "error", err)
			}
		}
	}
	s.steered = time.Now()
	return len(theirs), nil
}

// stray is called for a connection that came here though the proxy is ready. Where
// steering works, the proxy has changed its sockets.
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
